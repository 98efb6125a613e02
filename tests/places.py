"""Unusual places that workers of the suite run in: three in each run of four workers, and the ordinary one.

Worker N takes the place after that of worker N - 1. The first one changes each day, so that the same files are not always
run in the same place. `SMART_FORK_PLACE="LANG=C"` gives all of them one place. A test that has failed names its own. What
runs other programs (`e2e`) stays in the ordinary place, and so do files that are listed as slow: whole files, whose tests
share what one of them has started.
"""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Generator
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.durations import file_of, listed_files

#: Variables of each; ordinary has those of whoever runs the suite. Homes are in memory, temporary files on a disk.
PLACES: dict[str, dict[str, str]] = {
    "ordinary": {},
    "LANG=C": {"LANG": "C", "LC_ALL": ""},
    "TZ=Pacific/Chatham": {"TZ": "Pacific/Chatham"},  # 12:45 or 13:45 before Greenwich
    "odd path": {},
    "no IPv6": {},  # in this process: what it starts has what the machine has
}
#: A name with a space, a quote and letters beyond ASCII. Short, for the path of a Unix socket may have 108 bytes.
ODD = "a é'文"
#: In each run. All that is slow is in the ordinary place, and so is a run without workers. Some tests that take long
#: do not quote paths yet: the odd path is on request.
TURNS = tuple(one for one in PLACES if one != "odd path")
_MOVED = pytest.StashKey[pytest.MonkeyPatch]()


def place_of(worker: str, day: int) -> str:
    """Where a worker of this name runs on that day. Without workers it is the ordinary place."""
    return TURNS[(int(worker.removeprefix("gw")) + day) % len(TURNS)] if worker else "ordinary"


_TODAY = datetime.now(UTC).date().toordinal()
#: That of this process.
PLACE = os.environ.get("SMART_FORK_PLACE") or place_of(os.environ.get("PYTEST_XDIST_WORKER", ""), _TODAY)


_OPENED = socket.socket.__init__


def _without_ipv6(opened: socket.socket, family: int = -1, *how: Any, **more: Any) -> None:
    if family == socket.AF_INET6:
        raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
    _OPENED(opened, family, *how, **more)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Move there, before the fixtures of the test make its home."""
    if PLACE == "ordinary" or item.get_closest_marker("e2e") or file_of(item.nodeid) in listed_files():
        return
    patch = item.stash[_MOVED] = pytest.MonkeyPatch()
    for name, value in PLACES[PLACE].items():
        patch.setenv(name, value)
    time.tzset()
    if PLACE == "odd path":
        factory = item.config._tmp_path_factory
        folder = factory.getbasetemp() / ODD
        folder.mkdir(exist_ok=True)
        patch.setattr(factory, "_basetemp", folder)
    if PLACE == "no IPv6":
        patch.setattr(socket.socket, "__init__", _without_ipv6)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Move back."""
    if moved := item.stash.get(_MOVED, None):
        moved.undo()
        time.tzset()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Name the place where a test has failed."""
    report = yield
    if report.failed and _MOVED in item.stash:
        report.sections.append(("Place", PLACE))
    return report
