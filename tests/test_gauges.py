"""What must not grow: `gauges.toml` has the numbers, `make gauges` lowers them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from typing import Any, ClassVar

import pytest

from indexer.safe_files import index_db
from indexer.transcripts.lines import LineReader
from tests import gauges
from tests.call_counter import INDEX, NUMBERS, READER, WORK

COMMANDS = [name for name, one in gauges.kept().items() if "calls" in one]
MAX_SHOWN = 15


@pytest.fixture(scope="module")
def done() -> dict[str, dict[str, Any]]:
    return gauges.commands()


class TestTheProduct:
    def test_no_package_grows(self):
        over = gauges.grown(gauges.structure().lines, gauges.kept()["lines"])
        before = gauges.as_kept() if over else None
        new = (gauges.structure().lines_of - before.lines_of).most_common(MAX_SHOWN) if before else ()

        assert {} == over, f"take as many lines away as came to {new}"

    def test_no_more_names_cross_from_room_to_room(self):
        crossing = gauges.structure().crossing()
        now = gauges.numbers(gauges.structure(), {})["names"]
        if over := gauges.grown(now, gauges.kept()["names"]):
            before = gauges.as_kept()
            known = before.crossing() if before else {}
            new = {name: sorted(users) for name, users in crossing.items() if name not in known}
            alone = [name for name, users in crossing.items() if len(users) == 1 < len(known.get(name, users))]
            pytest.fail(f"{over}: new are {json.dumps(new, indent=1)}, with one user left {alone}", pytrace=False)

    def test_no_more_modules_import_each_other_in_a_circle(self):
        circles = gauges.structure().circles()

        assert {} == gauges.grown({"modules": len(circles)}, gauges.kept()["circles"]), circles

    @pytest.mark.slow
    @pytest.mark.skipif(sys.platform != "linux", reason="another system has other ways to start programs and to wait")
    @pytest.mark.parametrize("command", COMMANDS)
    def test_a_command_does_no_more_than_before(self, done, command):
        found = done[command]
        over = gauges.grown({key: found[key] for key in NUMBERS}, gauges.kept()[command])
        largest = dict(Counter(found["of_file"]).most_common(MAX_SHOWN)) if over.keys() & {"files", "calls"} else {}
        by = [(what, stack[:9]) for what, stack in found["work"] if what in over]

        assert {} == over, json.dumps([largest, by], indent=1)

    @pytest.mark.slow
    def test_each_command_that_is_counted_has_its_numbers(self, done):
        assert set(COMMANDS) == set(done)
        assert {*NUMBERS} == set.intersection(*(set(gauges.kept()[name]) for name in COMMANDS))

    def test_what_is_counted_by_its_name_is_there(self):
        """Who renames one of them names the new one in `call_counter.py`: it would be counted as never done."""
        texts = "\n".join(text for path, text in gauges.sources().items() if path.startswith(("indexer", "smart_fork")))

        assert [] == [name for name in WORK if f"\ndef {name}(" not in texts]
        assert LineReader.__iter__.__qualname__ == READER
        assert {"start", "_most"} <= vars(LineReader(index_db())).keys()
        assert index_db().name == INDEX


class TestTheStructure:
    SOURCES: ClassVar = {
        "smart_fork/__init__.py": "",
        "smart_fork/top.py": "from smart_fork.one.a import f\n",
        "smart_fork/one/__init__.py": "def g(): ...\n",
        "smart_fork/one/a.py": "import os\nfrom smart_fork import one\n\ndef f(): ...\n",
        "smart_fork/one/deep/b.py": "from smart_fork.one.a import f\n",
        "smart_fork/two/__init__.py": "",
        "smart_fork/two/c.py": (
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from smart_fork.one.a import T\n"
            "def h():\n    try:\n        from smart_fork.one.a import f\n    finally:\n        from ..one import g\n"
        ),
        "smart_fork/two/d.py": "from smart_fork.two import c\nfrom smart_fork.one import a\n",
        "indexer/__init__.py": "",
    }

    def test_a_name_crosses_where_another_room_imports_it_also_inside_a_function_and_not_for_types(self):
        assert {
            "smart_fork.one.a.f": {"smart_fork.top", "smart_fork.two.c"},
            "smart_fork.one.g": {"smart_fork.two.c"},
            "smart_fork.one.a": {"smart_fork.two.d"},
        } == gauges.Structure(self.SOURCES).crossing()

    def test_a_circle_is_of_imports_for_types_too(self):
        more = {
            "smart_fork/two/e.py": "from smart_fork.two.f import x\n",
            "smart_fork/two/f.py": (
                "from smart_fork.two import g\nif TYPE_CHECKING:\n    from smart_fork.two.e import y\n"
            ),
            "smart_fork/two/g.py": "from smart_fork.two import f\n",
        }

        assert [] == gauges.Structure(self.SOURCES).circles()
        assert [["smart_fork.two.e", "smart_fork.two.f", "smart_fork.two.g"]] == (
            gauges.Structure(self.SOURCES | more).circles()
        )

    def test_lines_are_those_of_a_whole_package(self):
        assert {"smart_fork": 16, "indexer": 0} == gauges.Structure(self.SOURCES).lines


def test_a_number_that_fell_is_kept_and_one_that_grew_is_not():
    before = {"find": {"files": 3, "calls": 100, "gone": 1}}
    now = {"find": {"files": 2, "calls": 200, "new": 7}, "show": {"files": 1}}

    assert {"find": {"files": 2, "calls": 100, "new": 7}, "show": {"files": 1}} == gauges.lowered(now, before)
    assert {} == gauges.grown({"files": 3, "calls": 110}, before["find"])
    assert {"files": "4, 3 allowed", "calls": "111, 100 allowed"} == (
        gauges.grown({"files": 4, "calls": 111}, before["find"])
    )


def test_what_gauges_write_they_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr(gauges, "KEPT", tmp_path / "gauges.toml")
    gauges.KEPT.write_text(gauges.as_toml({"lines": {"indexer": 1}, "cut-dry-run": {"files": 2, "calls": 3}}))

    assert {"lines": {"indexer": 1}, "cut-dry-run": {"files": 2, "calls": 3}} == gauges.kept()


def test_a_log_is_read_whole_where_its_reader_comes_to_its_end(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text('{"a": 1}\n' * 3)
    program = (
        f"import json, sys; sys.path[:0] = [{str(gauges.ROOT)!r}]\n"
        "from pathlib import Path; from tests.call_counter import Counting\n"
        f"counting = Counting(Path({str(gauges.ROOT / 'indexer')!r})); counting.begin()\n"
        f"from indexer.transcripts.lines import LineReader; log = Path({str(log)!r})\n"
        "list(LineReader(log)); next(iter(LineReader(log))); list(LineReader(log, 9, 1)); list(LineReader(log, most=99)); [*LineReader(log)]\n"
        "sys.settrace(None); print(json.dumps(counting.as_json()))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert 2 == json.loads(ran.stdout)["read"]


@pytest.mark.slow
def test_calls_are_those_of_functions_in_all_threads_and_a_generator_that_goes_on_is_not_called_again(tmp_path):
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours/work.py").write_text(
        "class Thing:\n    def two(self):\n        yield 1\n        yield 2\n\n"
        "def gather():\n    return [one for one in Thing().two()]\n"
    )
    (tmp_path / "ours/unused.py").write_text("import threading\n")
    program = (
        f"import json, sys; sys.path[:0] = [{str(gauges.ROOT)!r}, {str(tmp_path)!r}]\n"
        "from pathlib import Path; from threading import Thread; from tests.call_counter import Counting\n"
        f"counting = Counting(Path({str(tmp_path / 'ours')!r})); counting.begin()\n"
        "from ours import unused, work\nwork.gather(); one = Thread(target=work.gather); one.start(); one.join()\n"
        "sys.settrace(None); print(json.dumps(counting.as_json()))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    found = json.loads(ran.stdout)

    assert {"files": 1, "calls": 4, "gathered": 2, "read": 0} == {
        key: found[key] for key in ("files", "calls", "gathered", "read")
    }
    assert [["gathered", [f"{tmp_path}/ours/work.py:6 gather"]]] * 2 == found["work"]
