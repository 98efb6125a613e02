"""Tests of the worker registry."""

from __future__ import annotations

import stat
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from indexer.safe_files import state_home
from smart_fork.cli.status import overview
from smart_fork.errors import NotFound, RegistryUnavailable, Usage
from smart_fork.workers.registry import Registry
from tests.smart_fork.forks import NEW, SESSION

NOW = 1_760_000_000.5


@pytest.fixture
def registry(home):
    with Registry() as opened:
        yield opened


def add(registry: Registry, **more):
    values = {"source_session_id": SESSION, "place": "tmux", "cwd": Path("/work"), "now": NOW}
    return registry.add(**{"agent": "claude"} | values | more)


def test_a_worker_is_remembered_with_all_that_is_known_of_it(registry, home):
    """R-001, R-004, R-010, R-013."""
    worker = add(registry, name="fixer", prompt="fix ü", caller_session_id="caller")
    assert ("claude-1760000000500", "starting", None, ()) == (
        worker.id,
        worker.state,
        worker.session_id,
        worker.command,
    )

    registry.set_started(worker.id, command=["claude", "--", "a b"], terminal_id="%5", pid=7, log=Path("/l"))
    registry.set_session_id(worker.id, NEW)
    registry.close()

    with Registry() as again:
        (kept,) = again.workers()
    assert ("fixer", "fix ü", "caller", SESSION, NEW) == (
        kept.name, kept.prompt, kept.caller_session_id, kept.source_session_id, kept.session_id,
    )  # fmt: skip
    assert (("claude", "--", "a b"), "%5", 7, "/l", "running", "/work", "tmux") == (
        kept.command, kept.terminal_id, kept.pid, kept.log_path, kept.state, kept.cwd, kept.place,
    )  # fmt: skip
    assert "2025-10-09T08:53:20.500Z" == kept.started_at
    assert {0o600} == {stat.S_IMODE(path.stat().st_mode) for path in (home / ".smart-fork").glob("workers.db*")}


def test_workers_of_the_same_millisecond_have_different_ids(registry):
    """R-002."""
    ids = [add(registry).id for _ in range(3)] + [add(registry, agent="codex").id]

    assert ["claude-1760000000500", "claude-1760000000501", "claude-1760000000502", "codex-1760000000500"] == ids
    assert ids[0] == registry.get(ids[0]).name


@pytest.mark.slow
def test_several_processes_register_at_once(home):
    """R-002: none fails, none loses anything."""
    code = (
        "from pathlib import Path; from smart_fork.workers.registry import Registry\n"
        "with Registry() as r:\n"
        " for _ in range(20): r.add('claude', source_session_id='s', place='tmux', cwd=Path('/'), now=1.0)\n"
    )
    root = Path(__file__).resolve().parents[2]
    running = [subprocess.Popen([sys.executable, "-c", code], cwd=root, stderr=subprocess.PIPE) for _ in range(4)]

    assert [(b"", 0)] * 4 == [(process.communicate()[1], process.returncode) for process in running]
    with Registry() as registry:
        assert 80 == len({worker.id for worker in registry.workers()})


def test_a_worker_is_found_by_whatever_names_it(registry):
    """R-005."""
    worker = add(registry, name="fixer")
    registry.set_started(worker.id, command=[], terminal_id="%5")
    registry.set_session_id(worker.id, NEW)

    for reference in (worker.id, NEW, "%5", "fixer", worker.id[:10], NEW[:8]):
        assert worker.id == registry.get(reference).id


def test_a_terminal_or_a_name_that_was_used_again_means_one_that_runs_and_then_the_newest(registry):
    first, second, newest = (
        registry.set_started(add(registry, name="fixer").id, command=[], terminal_id="%5") for _ in range(3)
    )
    with pytest.raises(Usage, match=f"name of 3 workers that run: {newest.id}, {second.id}, {first.id}"):
        registry.get("fixer")
    assert newest.id == registry.get("%5").id

    registry.set_state(newest.id, "ended")
    registry.set_state(second.id, "failed")
    assert first.id == registry.get("%5").id == registry.get("fixer").id

    registry.set_state(first.id, "ended")
    assert newest.id == registry.get("%5").id == registry.get("fixer").id


def test_a_numbered_name_is_one_that_no_other_has_that_runs(registry):
    names = [add(registry, name="add-retry", numbered=True).name for _ in range(3)]
    assert names == ["add-retry", "add-retry-2", "add-retry-3"]

    registry.set_state(registry.get("add-retry-2").id, "ended")

    assert add(registry, name="add-retry", numbered=True).name == "add-retry-2"


def test_what_names_no_worker_or_several_is_an_error(registry):
    add(registry)
    add(registry)

    with pytest.raises(Usage, match="2 workers"):
        registry.get("claude-17")
    for reference in ("claude-1"[:7], "nothing-at-all", "", "%", "_laude-17600", "x' OR '1'='1"):
        with pytest.raises(NotFound):
            registry.get(reference)
    with pytest.raises(NotFound):
        registry.set_state("claude-0", "ended")


def test_a_session_belongs_to_one_worker(registry):
    """R-006."""
    first, second = add(registry), add(registry)
    registry.set_session_id(first.id, NEW)
    registry.set_session_id(second.id, NEW)

    assert second.id == registry.get(NEW).id
    assert NEW == registry.get(first.id).session_id, "the earlier one still leads there"


def test_every_session_that_a_worker_has_had_names_it(registry):
    """R-007, R-016: in full and by its beginning, and for those that it had started before."""
    later = NEW.replace("7a1c", "8b2d")
    worker = add(registry)
    for session_id in (NEW, later):
        registry.set_session_id(worker.id, session_id)

    assert later == registry.get(worker.id).session_id
    for reference in (NEW, later, NEW[:8], later[:8]):
        assert worker.id == registry.get(reference).id
    child = add(registry, caller_session_id=NEW)
    assert [child.id] == [one.id for one in registry.spawned_by(NEW)]
    top = registry.set_session_id(add(registry).id, SESSION)
    registry._db.execute("UPDATE workers SET caller_session_id = ? WHERE id = ?", (SESSION, worker.id))
    registry.set_session_id(child.id, later.replace("8b2d", "9c3e"))
    assert [worker.id, child.id] == [one.id for one in registry.spawned_by(top.session_id)]
    assert 3 == registry.depth(registry.get(child.id).session_id)
    last = add(registry, caller_session_id=registry.get(child.id).session_id)
    registry.set_session_id(child.id, later.replace("8b2d", "0d4f"))
    assert [worker.id, child.id, last.id] == [one.id for one in registry.spawned_by(top.session_id)]


def test_a_session_that_another_worker_goes_on_with_is_that_workers(registry):
    """R-006."""
    first, second = add(registry), add(registry)
    for worker in (first, second):
        registry.set_session_id(worker.id, NEW)
    assert second.id == registry.of_session(NEW).id
    registry.set_session_id(second.id, SESSION.replace("6030", "7141"))
    assert second.id == registry.of_session(NEW).id
    assert registry.of_session(SESSION) is registry.find("claude-0") is None


def test_when_a_worker_ended_is_kept_until_it_runs_again(registry):
    worker = add(registry)
    registry.set_status(worker.id, "waiting", "for an answer", now=NOW)
    ended = registry.set_state(worker.id, "ended", now=NOW + 1)
    assert ("ended", "", "", "2025-10-09T08:53:21.500Z") == (
        ended.state, ended.status, ended.status_note, ended.ended_at,
    )  # fmt: skip
    assert ended.ended_at == registry.set_state(worker.id, "failed", now=NOW + 9).ended_at
    assert (None, "running") == (registry.set_state(worker.id, "running").ended_at, registry.get(worker.id).state)
    assert "2025-10-09T08:53:20.500Z" == registry.get(worker.id).status_at


def test_workers_are_listed_newest_first_and_by_state(registry):
    first, second = add(registry, now=NOW + 5), add(registry)
    registry.set_state(first.id, "ended")

    assert [second.id, first.id] == [worker.id for worker in registry.workers()]
    assert [first.id] == [worker.id for worker in registry.workers(states=["ended"])]


def test_what_a_session_had_started_includes_what_that_started(registry):
    direct = add(registry, caller_session_id=SESSION)
    registry.set_session_id(direct.id, NEW)
    indirect = add(registry, caller_session_id=NEW)
    registry.set_session_id(indirect.id, SESSION)  # a circle must not hang it
    add(registry, caller_session_id="other")

    assert [direct.id, indirect.id] == [worker.id for worker in registry.spawned_by(SESSION)]
    assert [] == registry.spawned_by("nobody")


def test_the_depth_of_a_session_is_the_number_of_workers_above_it(registry):
    ids = [NEW.replace("7a1c", f"7a1{end}") for end in "def"]
    assert 0 == registry.depth(SESSION)
    for caller, session_id in zip([SESSION, *ids], ids, strict=False):
        registry.set_session_id(add(registry, caller_session_id=caller).id, session_id)

    assert [0, 1, 2, 3] == [registry.depth(session_id) for session_id in (SESSION, *ids)]
    registry.set_session_id(add(registry, caller_session_id=ids[2]).id, SESSION)  # a circle must not hang it
    assert 3 < registry.depth(SESSION)


def test_staged_copies_are_remembered(registry):
    """F-103."""
    for _ in range(2):
        registry.add_staged_copy(Path("/copy"), session_id=SESSION, source_path=Path("/source"), now=NOW)
    registry.add_staged_copy(Path("/other"), session_id=NEW, source_path=Path("/source"), now=NOW)

    assert {Path("/copy"): SESSION, Path("/other"): NEW} == registry.staged_copies()
    registry.forget_staged_copy(Path("/copy"))
    assert {Path("/other"): NEW} == registry.staged_copies()


def test_tables_that_could_not_all_be_made_are_made_from_the_beginning(home, monkeypatch):
    """R-012."""
    monkeypatch.setattr("smart_fork.workers.registry._TABLES", "CREATE TABLE half (x); CREATE nonsense")
    with pytest.raises(RegistryUnavailable):
        Registry()
    monkeypatch.undo()
    monkeypatch.setenv("SMART_FORK_HOME", str(home / ".smart-fork"))

    with Registry() as again:
        assert [] == again.workers()
        assert [] == again._db.execute("SELECT name FROM sqlite_schema WHERE name = 'half'").fetchall()


def test_a_database_of_a_newer_version_is_not_touched(home):
    with Registry() as registry:
        registry._db.execute("PRAGMA user_version = 99")

    with pytest.raises(RegistryUnavailable, match="written by a newer version"):
        Registry()


def test_a_database_of_an_older_version_keeps_its_workers_and_gets_the_rest(home):
    with Registry() as registry:
        worker = add(registry)
        registry._db.execute("DROP TABLE worker_sessions; ALTER TABLE workers DROP COLUMN ended_at")
        registry._db.execute("PRAGMA user_version = 4")

    with Registry() as registry:
        assert [(worker.id, None)] == [(one.id, one.ended_at) for one in registry.workers()]
        registry.set_session_id(worker.id, "s1")


@pytest.mark.parametrize("lock", ["IMMEDIATE", "EXCLUSIVE"])
def test_a_register_that_another_process_is_just_making_is_waited_for(home, lock):
    path = home / ".smart-fork" / "workers.db"
    path.parent.mkdir(parents=True)
    with closing(apsw.Connection(str(path))) as maker:
        maker.execute(f"BEGIN {lock}")
        threading.Timer(0.05, maker.execute, ["COMMIT"]).start()
        with Registry() as registry:
            assert [] == registry.workers()


def test_of_what_a_worker_is_told_the_register_has_no_secret(registry):
    token = "ghp_" + "a1B2c3D4e5" * 4
    worker = add(registry, prompt=f"use {token}")
    registry.set_started(worker.id, command=["claude", "--", f"use {token}"])
    registry.set_status(worker.id, "waiting", f"may I send {token}?")
    known = registry.get(worker.id)

    assert "use [REDACTED:github-token]" == known.prompt == known.command[-1]
    assert [] == [
        file.name for file in state_home().rglob("*") if file.is_file() and token.encode() in file.read_bytes()
    ]


def test_the_overview_names_a_register_of_a_newer_version_and_shows_the_rest(home):
    with Registry() as registry:
        registry._db.execute("PRAGMA user_version = 99")

    seen = overview()

    assert seen.workers_problem is not None
    assert "was written by a newer version" in seen.workers_problem.error
    assert str(home / ".smart-fork") == seen.home
