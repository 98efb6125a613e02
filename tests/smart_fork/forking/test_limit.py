"""Tests of the worker limit, with scripted processes."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from indexer.environment import WORKER_ID
from smart_fork.agents.start_command import LaunchRequest
from smart_fork.errors import ForkRefused, Usage
from smart_fork.forking.session_use import AlreadyRuns
from smart_fork.forking.worker_preconditions import WorkerLimit, admission, limit
from smart_fork.system.processes import Machine
from smart_fork.workers.liveness import STARTING_SECONDS
from smart_fork.workers.registry import Registry, WorkerRecord
from tests.smart_fork.forks import SESSION, FakeClock, FakeProcesses

REQUEST = LaunchRequest("claude", SESSION, Path("/work"), "/bin/claude", prompt="go")
GOING_ON = LaunchRequest("claude", SESSION, Path("/work"), "/bin/claude", prompt="go", form="resume")


class Living(FakeProcesses):
    """Processes of which only the given ones are alive."""

    def __init__(self, *pids: int) -> None:
        super().__init__()
        self.pids = pids

    def alive(self, pid: int) -> bool:
        return pid in self.pids

    def environment(self, pid: int) -> dict[str, str] | None:
        with Registry() as registry:
            marks = [worker.id for worker in registry.workers() if worker.pid == pid]
        return {WORKER_ID: marks[0]} if self.alive(pid) else None


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def add(home, clock):
    def register(pid: int | None = None, *, place: str = "process", started: bool = True, **more) -> WorkerRecord:
        values = {"source_session_id": "", "cwd": home, "now": clock.now()} | more
        with Registry() as registry:
            worker = registry.add("claude", place=place, **values)
            return registry.set_started(worker.id, command=["x"], pid=pid) if started else worker

    return register


def ask(
    request: LaunchRequest, processes: FakeProcesses, clock: FakeClock, *, most: int = 2, counts: bool = True
) -> None:
    world = Machine(processes, {"SMART_FORK_MAX_WORKERS": str(most)}, clock)
    with Registry() as registry:
        registry.add("claude", source_session_id="", place="process", cwd=Path("/"), admit=admission(request, world, counts=counts))  # fmt: skip


def test_as_many_run_as_may(add, clock):
    add(1)
    add(2)

    with pytest.raises(WorkerLimit, match="2 workers are running, and SMART_FORK_MAX_WORKERS allows no more") as caught:
        ask(REQUEST, Living(1, 2), clock)
    assert "smart-fork active" in caught.value.hint
    with Registry() as registry:
        assert 2 == len(registry.workers())
    ask(REQUEST, Living(1, 2), clock, most=3)


def test_what_is_gone_does_not_count(add, clock):
    """An ended process, a closed window, and a start that was killed before it made either."""
    add(1)
    add(2)
    add(started=False, now=clock.now() - STARTING_SECONDS - 1)

    ask(REQUEST, Living(2), clock)


def test_a_name_that_was_given_is_that_of_one_that_runs(add, clock):
    one, request = add(1, name="fixer"), replace(REQUEST, name="fixer")

    with pytest.raises(ForkRefused, match=f"fixer is the name of {one.id}, which runs") as caught:
        ask(request, Living(1), clock)
    assert f"smart-fork close {one.id}" in caught.value.hint
    ask(request, Living(), clock)


def test_what_is_just_being_started_counts(add, clock):
    add(1)
    add(started=False)

    with pytest.raises(WorkerLimit):
        ask(REQUEST, Living(1), clock)


def test_a_terminal_that_a_person_sits_at_neither_counts_nor_is_refused(add, clock):
    add(1, place="here")
    add(2)
    ask(REQUEST, Living(1, 2), clock)
    ask(REQUEST, Living(1, 2), clock, most=0, counts=False)


@pytest.mark.parametrize(
    ("text", "most"), [(None, 8), ("", 8), ("3", 3), ("0", 0), ("-1", None), ("many", None), ("٣", None)]
)
def test_the_limit_is_a_setting(text, most):
    env = {} if text is None else {"SMART_FORK_MAX_WORKERS": text}
    if most is None:
        with pytest.raises(Usage, match="SMART_FORK_MAX_WORKERS must be a whole number"):
            limit(env)
    else:
        assert most == limit(env)


def test_one_at_a_time_goes_on_in_a_session(add, clock):
    """R-065: whether its id is known to be the worker's already or not."""
    worker = add(1, source_session_id=SESSION, kind="resume")

    with pytest.raises(AlreadyRuns, match=f"is running already, as worker {worker.id}") as caught:
        ask(GOING_ON, Living(1), clock)
    assert worker.id == caught.value.worker.id
    ask(GOING_ON, Living(), clock)
    ask(REQUEST, Living(1), clock, most=9)  # a fork disturbs nobody


def test_a_fork_of_a_session_is_not_in_it(add, clock):
    add(os.getpid(), source_session_id=SESSION)

    ask(GOING_ON, Living(os.getpid()), clock, most=9)
