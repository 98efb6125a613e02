"""Indexing has a low priority. The rest of its process, and the programs that it starts, have not."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading

import pytest

from indexer import locks
from indexer.locks import NICE, step_back


def nice_of_a_child() -> int:
    """Return the priority of a program that this thread starts."""
    ask = "import os; print(os.getpriority(os.PRIO_PROCESS, 0))"
    return int(subprocess.run([sys.executable, "-c", ask], check=True, capture_output=True).stdout)


def in_a_thread(work) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


@pytest.mark.skipif(sys.platform != "linux", reason="the priority of one thread can only be read on Linux")
def test_a_thread_that_steps_back_takes_its_own_threads_along_and_nothing_else():
    """F-201: forks have the priority of what a person starts."""
    before, seen = os.getpriority(os.PRIO_PROCESS, 0), []

    def index() -> None:
        step_back()
        step_back()
        seen.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        in_a_thread(lambda: seen.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id())))

    in_a_thread(index)

    assert [max(NICE, before)] * 2 == seen
    assert before == os.getpriority(os.PRIO_PROCESS, 0) == nice_of_a_child()


def test_what_cannot_step_back_goes_on(monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(locks.sys, "platform", "linux")
    monkeypatch.setattr(locks.os, "getpriority", lambda *_: 0)

    def refuse(*_: int) -> None:
        raise PermissionError("not here")

    monkeypatch.setattr(locks.os, "setpriority", refuse)
    in_a_thread(step_back)
    assert "not here" in caplog.text


def test_a_thread_that_has_stepped_back_takes_one_processor_and_others_take_all(monkeypatch):
    monkeypatch.setattr(locks.os, "sched_getaffinity", lambda _: range(8), raising=False)
    monkeypatch.setattr(locks.os, "cpu_count", lambda: 8)
    monkeypatch.setattr(locks.sys, "platform", "other")
    seen = []

    def index() -> None:
        step_back()
        seen.append(locks.processors())

    in_a_thread(index)
    in_a_thread(lambda: seen.append(locks.processors()))

    assert [1, 8] == seen
