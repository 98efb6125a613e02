"""Tests of ending workers, with real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from indexer.json_values import json_of
from indexer.project import project_of
from smart_fork.errors import NotFound, Usage
from smart_fork.system.processes import Machine, Processes
from smart_fork.workers import termination
from smart_fork.workers.registry import Registry, WorkerRecord
from smart_fork.workers.termination import close_workers, stop_workers
from smart_fork.workers.worker_place import ProcessPlace, is_running, location_of
from smart_fork.workers.worktree import Worktree
from tests.smart_fork.fake_tmux import PID, Stage
from tests.smart_fork.forks import SESSION, eventually, plan_of

PROCESSES = Processes()
WAITS = "import signal, sys; print('ready', flush=True); signal.pause()"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('ready', flush=True)\nwhile True: signal.pause()"
#: It ends when it is told to; what it has started does not.
LEAVES_A_CHILD = (
    "import signal, subprocess, sys\n"
    f"child = subprocess.Popen([sys.executable, '-c', {STUBBORN!r}], stdout=subprocess.PIPE)\n"
    "child.stdout.readline(); print('ready', child.pid, flush=True)\n"
    "signal.signal(signal.SIGTERM, lambda *_: sys.exit()); signal.pause()"
)


def start(repo: Path, code: str = WAITS, **about: object) -> WorkerRecord:
    """Start a worker that keeps running."""
    with Registry() as registry:
        worker = registry.add("claude", source_session_id=SESSION, place="process", cwd=repo, **about)
        plan = plan_of([sys.executable, "-c", code], repo, env={"SMART_FORK_WORKER_ID": worker.id})
        started = ProcessPlace().start(plan, worker, Machine(PROCESSES, plan.environment(os.environ)))
        eventually(lambda: "ready" in started.log.read_text())
        return registry.set_started(worker.id, command=plan.argv, pid=started.pid, log=started.log)


def running(worker: WorkerRecord) -> bool:
    return is_running(location_of(worker), PROCESSES)


def state(worker: WorkerRecord) -> str:
    with Registry() as registry:
        return registry.get(worker.id).state


def test_those_that_are_named_end_and_no_other(repo):
    """X-003."""
    mine, other = start(repo, name="mine"), start(repo)

    (closed,) = json_of(close_workers(["mine", mine.id]))

    assert (mine.id, True, "", None) == tuple(
        closed[key] for key in ("worker_id", "closed", "note", "worktree_removed")
    )
    assert (False, True) == (running(mine), running(other))
    assert ("ended", "running") == (state(mine), state(other))
    assert Path(mine.log_path).exists()
    assert [True] == [one.closed for one in stop_workers(None)]


def test_one_that_does_not_listen_is_ended_by_the_system(repo, monkeypatch):
    """R-014, R-070."""
    monkeypatch.setattr(termination, "GRACE_SECONDS", 0.1)
    worker = start(repo, STUBBORN)

    assert [True] == [one.closed for one in close_workers([worker.id])]
    assert not running(worker)


def test_what_it_has_started_ends_with_it(repo):
    worker = start(repo, LEAVES_A_CHILD)
    child = int(Path(worker.log_path).read_text().split()[1])

    close_workers([worker.id])

    eventually(lambda: PROCESSES.environment(child) is None)


def test_all_of_a_project_are_stopped(world, shop):
    """R-070: and nothing is an error where nothing runs."""
    depot = world.repository("depot")
    here, inside, elsewhere = start(shop), start(shop / ".git"), start(depot)

    stopped = stop_workers(project_of(shop))

    assert {here.id, inside.id} == {one.worker_id for one in stopped if one.closed}
    assert running(elsewhere)
    assert () == stop_workers(project_of(shop))
    assert [elsewhere.id] == [one.worker_id for one in stop_workers(None)]


def test_one_that_has_ended_is_left_as_it_is(repo):
    worker = start(repo)
    PROCESSES.end(worker.pid, force=True)
    eventually(lambda: not running(worker))

    (closed,) = json_of(close_workers([worker.id]))

    assert (False, "It had ended already") == (closed["closed"], closed["note"])
    assert "ended" == state(worker)


def test_a_process_that_has_its_number_now_is_nobody_s_to_end(repo):
    """X-003."""
    worker = start(repo)
    stranger = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)
    with Registry() as registry:
        registry.set_started(worker.id, command=worker.command, pid=stranger.pid, log=Path(worker.log_path))

    with stranger:
        (closed,) = json_of(close_workers([worker.id]))
        assert stranger.poll() is None
        stranger.communicate(b"\n")

    assert not closed["closed"]
    PROCESSES.end(worker.pid, force=True)


def test_its_window_goes_with_it(world, shop):
    stage = Stage(world, shop)

    assert [True] == [one.closed for one in close_workers([stage.id], around=stage.around)]
    assert "" == stage.terminal.state
    assert stage.log.exists()
    assert (PID, True) in stage.terminal.signals, "what it has left behind in its group"


def test_what_runs_in_a_person_s_terminal_stays(world, shop):
    stage = Stage(world, shop, "here")

    (closed,) = json_of(close_workers([stage.id], around=stage.around))

    assert (False, True) == (closed["closed"], stage.terminal.living)
    assert "person's own terminal" in closed["note"]
    assert "running" == stage.worker.state


def test_one_that_is_just_being_started_is_left_alone(repo):
    with Registry() as registry:
        worker = registry.add("claude", source_session_id=SESSION, place="process", cwd=repo)

    assert "just being started" in close_workers([worker.id])[0].note
    assert "starting" == state(worker)


def test_none_is_ended_where_one_does_not_exist(repo):
    worker = start(repo)

    with pytest.raises(NotFound):
        close_workers([worker.id, "nobody"])
    with pytest.raises(Usage):
        close_workers([])
    assert running(worker)
    close_workers([worker.id])


@pytest.mark.parametrize("problem", [None, "Two files are not committed"])
def test_its_worktree_goes_with_it_when_nothing_in_it_is_unsaved(repo, monkeypatch, problem):
    asked = []
    monkeypatch.setattr(Worktree, "remove_if_saved", lambda tree, _processes: asked.append(tree) or problem)
    worker = start(repo, worktree=repo / ".worktrees/x", branch="smart-fork/x", base_commit="abc")

    (closed,) = json_of(close_workers([worker.id], remove_worktree=True))

    assert [Worktree(repo / ".worktrees/x", "smart-fork/x", repo, "abc")] == asked
    assert (True, problem is None, problem or "") == (closed["closed"], closed["worktree_removed"], closed["note"])


def test_without_a_worktree_of_its_own_nothing_is_removed(repo):
    (closed,) = json_of(close_workers([start(repo).id], remove_worktree=True))

    assert (False, "No worktree was made for it") == (closed["worktree_removed"], closed["note"])
