"""Tests of the registry's recovery after a crash."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from indexer.environment import WORKER_ID
from indexer.runs import start_time
from smart_fork.agents.claude.log_files import folder_of
from smart_fork.system.processes import Machine, Processes
from smart_fork.workers.liveness import START_SECONDS, STARTING_SECONDS
from smart_fork.workers.recovery import reconcile, recover
from smart_fork.workers.registry import Registry
from smart_fork.workers.session_matching import SEARCHED_SECONDS
from tests.smart_fork.forks import (
    NEW,
    SESSION,
    FakeClock,
    FakeProcesses,
    codex_path,
    codex_records,
    eventually,
    said,
    write_log,
)

OTHER = "11111111-0000-4000-8000-000000000003"
BORN = 1767323045.0  # 2026-01-02T03:04:05Z


@pytest.fixture
def registry(home):
    with Registry() as opened:
        yield opened


def add(registry: Registry, *, pid: int | None = None, pane: str | None = None, **more):
    values = {"agent": "claude", "source_session_id": SESSION, "place": "tmux", "cwd": Path("/work")}
    worker = registry.add(**values | more)
    return registry.set_started(worker.id, command=["claude"], terminal_id=pane, pid=pid) if pid else worker


def again(registry: Registry, processes=None, now=None):
    clock = FakeClock()
    clock.time = now or clock.time
    return reconcile(registry, Machine(processes or Processes(), clock=clock))


@pytest.fixture
def sleeper():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def test_workers_that_run_stay_and_those_that_are_gone_have_ended(registry, marked):
    """R-042, R-043."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    lost, living = add(registry, pid=gone.pid), add(registry)
    registry.set_started(living.id, command=["claude"], pid=marked(living.id))
    registry.set_session_id(living.id, NEW)
    registry.set_status(living.id, "waiting", "for an answer")
    before = registry.get(living.id)

    assert [lost.id] == [worker.id for worker in again(registry)[0]]
    assert "ended" == registry.get(lost.id).state
    assert registry.get(lost.id).ended_at
    after = registry.workers()
    assert before in after
    assert ([], []) == again(registry)
    assert after == registry.workers()


def test_a_process_that_has_ended_and_was_never_waited_for_is_gone(registry):
    """After a crash, its parent may be gone too."""
    zombie = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    worker = add(registry, pid=zombie.pid)
    zombie.stdout.read()
    assert eventually(lambda: [worker.id] == [one.id for one in again(registry)[0]])
    zombie.communicate()


def test_another_process_of_the_same_number_is_not_the_worker(registry, sleeper):
    worker = add(registry, pid=sleeper.pid, place="process")
    assert [worker.id] == [one.id for one in again(registry)[0]]


def test_where_the_system_does_not_tell_what_it_was_started_with_one_that_began_too_late_is_another(
    registry, sleeper, monkeypatch
):
    """R-042."""
    monkeypatch.setattr(Processes, "environment", lambda *_: None)
    late, in_time = add(registry, pid=sleeper.pid, now=time.time() - START_SECONDS - 10), add(registry, pid=sleeper.pid)
    assert [late.id] == [one.id for one in again(registry)[0]]
    assert "running" == registry.get(in_time.id).state


@pytest.mark.parametrize("whose", ["its own", "another"])
def test_a_process_that_bears_a_mark_is_that_worker_whenever_it_began(registry, whose):
    """R-042: a worker that was taken up again began long after it was registered."""
    worker = add(registry, now=time.time() - START_SECONDS - 10)
    mark = worker.id if whose == "its own" else "claude-1"
    process = subprocess.Popen(["sleep", "600"], env={**os.environ, WORKER_ID: mark})
    registry.set_started(worker.id, command=["claude"], pid=process.pid)

    ended = [one.id for one in again(registry)[0]]

    process.kill()
    process.wait()
    assert ended == ([] if whose == "its own" else [worker.id])


def test_a_worker_that_took_the_place_of_a_command_began_before_it_was_registered(registry, sleeper):
    add(registry, pid=sleeper.pid, place="here", now=time.time() + 3600)
    assert [] == again(registry)[0]


def test_where_the_system_tells_no_times_a_pane_with_another_process_is_not_the_workers(registry, monkeypatch):
    """R-042: pane numbers begin anew with each tmux server."""
    monkeypatch.setattr("smart_fork.workers.liveness.start_time", lambda *_: None)
    taken, ours, unknown = (
        add(registry, pid=11, pane="%1"),
        add(registry, pid=12, pane="%2"),
        add(registry, pid=13, pane="%9"),
    )

    recovered = again(registry, FakeProcesses({"tmux": (0, "%1 99\n%2 12\nodd\n")}))

    assert [taken.id] == [worker.id for worker in recovered[0]]
    assert ["running", "running"] == [registry.get(worker.id).state for worker in (ours, unknown)]
    assert [] == again(registry, FakeProcesses({"tmux": (1, "no server")}))[0]


def test_a_start_that_was_cut_off_has_failed(registry):
    """It counts as failed once it is too old to be still in progress."""
    worker = add(registry, now=time.time())
    assert [] == again(registry)[0]
    registry.set_started(
        add(registry, now=1.0, place="iterm2").id, command=[], terminal_id="whose process is not known"
    )
    (failed,) = again(registry, now=time.time() + STARTING_SECONDS + 1)[0]
    assert (worker.id, "failed") == (failed.id, failed.state)


def test_a_start_that_was_cut_off_is_written_down_where_its_process_is_found(registry, repo, private_tmux):
    """R-040: also an agent's own children bear the mark."""
    worker = add(registry)
    agent = [sys.executable, "-c", "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"]
    mark = f"{WORKER_ID}={worker.id}"
    shape = ["-d", "-c", str(repo), "-P", "-F", "#{pane_id} #{pane_pid}", "-e", mark, "--", *agent]
    pane, pid = private_tmux("new-window", *shape).split()

    eventually(lambda: again(registry) == ([], []) and registry.get(worker.id).pid)
    found = registry.get(worker.id)
    assert ("running", pane, int(pid)) == (found.state, found.terminal_id, found.pid)
    assert ([], []) == again(registry, now=time.time() + STARTING_SECONDS + 1)


def test_a_row_that_is_not_as_it_should_be_keeps_nobody_from_anything(registry, marked):
    """R-043: an unknown state is an active one; an unknown agent is shown as what it is."""
    good, odd = add(registry), add(registry)
    registry.set_started(good.id, command=["claude"], pid=marked(good.id))
    registry._db.execute(
        "UPDATE workers SET agent = 'nobody', state = 'dozing', status = 'odd', kind = '?', command = '{', pid = NULL,"
        " started_at = 'yesterday' WHERE id = ?",
        (odd.id,),
    )
    again(registry)
    read = registry.get(odd.id)
    assert ("nobody", "running", "", "fork", ()) == (read.agent, read.state, read.status, read.kind, read.command)
    assert "running" == registry.get(good.id).state


def test_times_with_an_offset_are_times(registry):
    """R-043."""
    worker = add(registry)
    for text in ("2020-01-01T00:00:00Z", "2020-01-01T02:00:00+02:00"):
        registry._db.execute("UPDATE workers SET state = 'starting', started_at = ? WHERE id = ?", (text, worker.id))
        assert [worker.id] == [one.id for one in again(registry)[0]]


def test_a_missing_session_is_found_by_its_beginning(registry, home, sleeper):
    """R-041, R-046."""
    values = {"agent": "codex", "pid": sleeper.pid, "cwd": home, "now": BORN}
    fork = add(registry, prompt="fix it", **values)
    new = add(registry, prompt="write it", kind="new", **values | {"source_session_id": ""})
    write_log(codex_path(home, NEW), codex_records(NEW, home, ["fix it"], forked_from_id=SESSION))
    write_log(codex_path(home, OTHER), codex_records(OTHER, home, ["write it"]))
    write_log(codex_path(home, SESSION), codex_records(SESSION, home, ["older"]))

    assert {NEW: fork.id, OTHER: new.id} == {one.session_id: one.id for one in again(registry, now=BORN + 60)[1]}
    assert [] == again(registry, now=BORN + 60)[1]
    late = codex_path(home, NEW[:-1] + "9")
    write_log(late, codex_records(NEW[:-1] + "9", home, ["again"], forked_from_id=SESSION))
    add(registry, prompt="again", **values)
    assert [] == again(registry, now=BORN + SEARCHED_SECONDS + 60)[1], "not for ever"
    assert (fork.id, new.id) == (registry.get(NEW).id, registry.get(OTHER).id)


def test_where_two_sessions_could_be_meant_none_is(registry, home, sleeper):
    """R-025, R-046."""
    values = {"agent": "codex", "pid": sleeper.pid, "cwd": home, "prompt": "fix it", "now": BORN}
    worker = add(registry, **values)
    for session_id in (NEW, OTHER):
        write_log(codex_path(home, session_id), codex_records(session_id, home, ["fix it"], forked_from_id=SESSION))
    assert [] == again(registry, now=BORN + 60)[1]
    assert registry.get(worker.id).session_id is None

    codex_path(home, OTHER).unlink()
    add(registry, **values)  # nor where one session could be of two workers
    assert [] == again(registry, now=BORN + 60)[1]


def test_neither_the_callers_nor_another_workers_session_is_taken(registry, home, sleeper):
    """R-046."""
    values = {"agent": "codex", "pid": sleeper.pid, "cwd": home, "prompt": "fix it", "now": BORN, "kind": "new"}
    add(registry, caller_session_id=NEW, **values)
    registry.set_session_id(add(registry, **values).id, OTHER)
    for session_id in (NEW, OTHER):
        write_log(codex_path(home, session_id), codex_records(session_id, home, ["fix it"]))
    assert [] == again(registry, now=BORN + 60)[1]


@pytest.mark.parametrize(("asked", "found"), [("fix it", True), ("older", False), ("", False)])
def test_a_session_that_was_gone_on_with_is_known_by_the_workers_own_prompt(registry, home, repo, asked, found):
    """R-041, F-105: what was said before does not count."""
    records = [said("u1", None, "user", "older", cwd=str(repo)), said("a1", "u1", "assistant", "yes", cwd=str(repo))]
    later = {"cwd": str(repo), "timestamp": "2026-01-02T03:04:06.000Z"}
    write_log(folder_of(repo) / f"{SESSION}.jsonl", [*records, said("u2", "a1", "user", "fix it", **later)])
    worker = add(registry, pid=os.getpid(), cwd=repo, kind="continue", source_session_id="", prompt=asked, now=BORN)

    again(registry, now=BORN + 60)

    assert (SESSION if found else None) == registry.get(worker.id).session_id


def test_a_server_reconciles_what_there_is_and_minds_nothing_that_is_not(home, registry):
    """R-042, R-043."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    worker = add(registry, pid=gone.pid)
    recover()
    assert "ended" == registry.get(worker.id).state

    for content in (b"no database" * 500, None):
        registry.path.unlink()
        if content:
            registry.path.write_bytes(content)
        recover()
    assert not registry.path.exists()


def test_when_a_process_began_is_known(sleeper):
    assert abs(start_time(sleeper.pid) - time.time()) < 60
    assert start_time(2**22 + 1) is None
