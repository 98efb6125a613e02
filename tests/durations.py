"""Time that each test takes. Pytest's cache keeps it; the next run begins with the longest files, and knows the slow tests.

Wall time depends on what else the machine does. Processor time, with that of child processes that have ended, hardly does.
It leaves out what is nobody's child here: agents in terminals, and commands that a waiting process runs.
`python -m tests.durations` prints the files that take most of it, `python -m tests.durations slow` those for `SLOW_FILES`.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import pytest

from tests.support import forkserver
from tests.together import shared

ROOT = Path(__file__).resolve().parent.parent
KEY = "smart-fork/durations"
#: A test that takes more of the processor than this is marked as slow.
SLOW_SECONDS = 0.05
#: Files whose tests took more than that on average, and more than a second in all: slow until they have run here.
SLOW_FILES = ROOT / "tests/slow_files.txt"
#: Seconds on the wall, and of the processor, of a test that has not run here yet.
UNKNOWN = [0.0, 0.0]


def processor_seconds():
    """What this process has taken, and its children that have ended."""
    return sum(os.times()[:4]) + forkserver.Popen.took


def file_of(test):
    return test.partition("::")[0]


@cache
def listed_files():
    """The files in `SLOW_FILES`."""
    return frozenset(SLOW_FILES.read_text(encoding="utf-8").split())


def sums(durations, group):
    """Wall and processor time of each group of tests."""
    found = defaultdict(lambda: UNKNOWN)
    for test, took in durations.items():
        found[group(test)] = [before + more for before, more in zip(found[group(test)], took, strict=True)]
    return found


def table(durations):
    """Files of tests and what they take: most of the processor first."""
    rows = sorted(sums(durations, file_of).items(), key=lambda row: -row[1][1])
    rows += sums(durations, lambda _: "in all").items()
    return "".join(f"{processor:9.1f} {wall:9.1f}  {name}\n" for name, (wall, processor) in rows)


def slow_files(durations):
    """Return the files for `SLOW_FILES`, one a line."""
    tests = Counter(map(file_of, durations))
    took = sums(durations, file_of)
    slow = {file for file, (_, processor) in took.items() if processor > max(1.0, SLOW_SECONDS * tests[file])}
    return "".join(f"{file}\n" for file in sorted(slow) if "/e2e/" not in file)


class Clock:
    """Measures the tests of one process; in the process that all tests report to, also keeps what was measured."""

    def __init__(self, config, seconds=processor_seconds):
        self._seconds = seconds
        self._cache = getattr(config, "cache", None)
        self._input = getattr(config, "workerinput", None)
        if self._input:
            self._known = self._input["durations"]  # not what another run may have written meanwhile
        else:
            self._known = self._cache.get(KEY, {}) if self._cache else {}
        self._took = defaultdict(lambda: UNKNOWN)
        self._before = 0.0

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node):
        node.workerinput["durations"] = self._known

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items):
        """Before pytest selects by markers. Processes of one run begin with the longest files, so that none is left at the end."""
        for item in items:
            known = self._known.get(item.nodeid)
            if known[1] > SLOW_SECONDS if known else file_of(item.nodeid) in listed_files():
                item.add_marker("slow")
        if self._input:
            known = sums(self._known, lambda test: shared(file_of(test)))
            items.sort(key=lambda item: -known[shared(file_of(item.nodeid))][0])

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self):
        """To import all tests is no test's."""
        self._before = self._seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self):
        """Once for each test: to ask the system takes as long as a small one."""
        report = yield
        if report.when == "teardown":
            now = self._seconds()
            report.processor, self._before = now - self._before, now
        return report

    def pytest_runtest_logreport(self, report):
        """Of a process that has died others report, and measure nothing."""
        before, took = self._took[report.nodeid], [report.duration, getattr(report, "processor", 0.0)]
        self._took[report.nodeid] = [round(sum(both), 3) for both in zip(before, took, strict=True)]

    def pytest_sessionfinish(self):
        if self._cache and not self._input:
            known = {test: took for test, took in self._known.items() if (ROOT / file_of(test)).is_file()}
            self._cache.set(KEY, known | self._took)


def pytest_configure(config):
    config.pluginmanager.register(Clock(config), "durations")


if __name__ == "__main__":
    kept = json.loads((ROOT / ".pytest_cache/v" / KEY).read_text(encoding="utf-8"))
    sys.stdout.write(slow_files(kept) if "slow" in sys.argv else "processor      wall  seconds\n" + table(kept))
