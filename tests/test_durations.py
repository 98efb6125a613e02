"""Durations of tests: measured in each run, and used in the next one."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.durations import KEY, ROOT, SLOW_FILES, SLOW_SECONDS, Clock, slow_files, table
from tests.together import TOGETHER

HERE = "tests/test_durations.py"


class Cache(dict):
    """Pytest's."""

    set = dict.__setitem__


class Item(SimpleNamespace):
    def add_marker(self, name):
        self.marker = name


def items(*tests):
    return [Item(nodeid=test, marker="") for test in tests]


def reported(test, *phases):
    return [SimpleNamespace(nodeid=test, duration=wall, processor=processor) for wall, processor in phases]


def test_all_that_a_test_takes_is_written_down_and_files_that_are_gone_are_forgotten():
    cache = Cache({KEY: {f"{HERE}::one": [9.0, 9.0], f"{HERE}::other": [0.5, 0.1], "tests/gone.py::one": [1.0, 1.0]}})
    clock = Clock(SimpleNamespace(cache=cache))

    for report in reported(f"{HERE}::one", (0.25, 0.125), (1.0, 0.5), (0.25, 0.0)):
        clock.pytest_runtest_logreport(report)
    clock.pytest_sessionfinish()

    assert {f"{HERE}::one": [1.5, 0.625], f"{HERE}::other": [0.5, 0.1]} == cache[KEY]


def test_what_a_test_takes_begins_where_the_one_before_ends_and_to_collect_them_is_no_tests():
    clock = Clock(SimpleNamespace(), iter([5.0, 5.5, 5.75]).__next__)
    clock.pytest_collection_finish()
    took = []
    for phase in ("setup", "call", "teardown") * 2:
        measured = clock.pytest_runtest_makereport()
        next(measured)
        with pytest.raises(StopIteration) as ended:
            measured.send(SimpleNamespace(when=phase))
        took.append(getattr(ended.value.value, "processor", None))

    assert [None, None, 0.5, None, None, 0.25] == took


def test_a_process_of_many_begins_with_the_longest_files_and_keeps_together_what_shares_something():
    first, second, *_ = TOGETHER["PyTorch"]
    known = {"tests/a.py::one": [2.0, 0.1], f"{first}::one": [1.0, 0.1], f"{second}::one": [1.5, 0.1]}
    clock = Clock(SimpleNamespace(workerinput={"durations": known}))
    collected = items("tests/new.py::one", "tests/a.py::one", "tests/a.py::two", f"{first}::one", f"{second}::one")

    clock.pytest_collection_modifyitems(collected)

    expected = [f"{first}::one", f"{second}::one", "tests/a.py::one", "tests/a.py::two", "tests/new.py::one"]
    assert expected == [item.nodeid for item in collected]


def test_a_test_that_took_much_of_the_processor_is_slow_and_one_that_waited_is_not():
    known = {"tests/a.py::busy": [1.0, SLOW_SECONDS + 0.1], "tests/a.py::waited": [60.0, SLOW_SECONDS]}
    clock = Clock(SimpleNamespace(cache=Cache({KEY: known})))
    collected = items("tests/a.py::busy", "tests/a.py::waited", "tests/a.py::new")

    clock.pytest_collection_modifyitems(collected)

    assert ["slow", "", ""] == [item.marker for item in collected]


def test_a_test_of_a_slow_file_is_slow_until_it_has_run_here():
    file, *_ = SLOW_FILES.read_text().split()
    clock = Clock(SimpleNamespace(cache=Cache({KEY: {f"{file}::ran": [1.0, 0.01]}})))

    clock.pytest_collection_modifyitems(collected := items(f"{file}::ran", f"{file}::new"))

    assert ["", "slow"] == [item.marker for item in collected]


def test_files_that_are_slow_on_average_are_listed_but_for_those_that_take_little_in_all():
    known = {"tests/a.py::one": [9.0, 0.9], "tests/b.py::one": [1.0, 1.5], "tests/e2e/c.py::one": [9.0, 9.0]}
    known |= {f"tests/d.py::{number}": [1.0, SLOW_SECONDS / 2] for number in range(100)}

    assert "tests/b.py\n" == slow_files(known)


def test_slow_files_are_there():
    assert [] == [file for file in SLOW_FILES.read_text().split() if not (ROOT / file).is_file()]


def test_other_processes_of_a_run_know_what_the_first_knows_and_write_nothing():
    cache = Cache({KEY: {f"{HERE}::one": [1.0, 1.0]}})
    node = SimpleNamespace(workerinput={})
    Clock(SimpleNamespace(cache=cache)).pytest_configure_node(node)
    assert {"durations": cache[KEY]} == node.workerinput

    worker = Clock(SimpleNamespace(cache=(others := Cache()), workerinput=node.workerinput))
    worker.pytest_sessionfinish()
    assert {} == others


def test_the_table_has_the_most_of_the_processor_first_and_the_sum_last():
    known = {"tests/a.py::one": [9.0, 1.0], "tests/b.py::one": [1.0, 1.5], "tests/b.py::two": [0.5, 0.5]}

    rows = [row.split() for row in table(known).splitlines()]

    assert [["2.0", "1.5", "tests/b.py"], ["1.0", "9.0", "tests/a.py"], ["3.0", "10.5", "in", "all"]] == rows


@pytest.mark.parametrize("there", [False, True])
def test_without_the_cache_nothing_is_known_or_kept(there):
    clock = Clock(SimpleNamespace(cache=Cache()) if there else SimpleNamespace())

    clock.pytest_collection_modifyitems(collected := items("tests/a.py::one"))
    clock.pytest_sessionfinish()

    assert "" == collected[0].marker
