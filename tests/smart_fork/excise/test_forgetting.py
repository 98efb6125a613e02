"""Forgetting a session."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

import smart_fork
from indexer import kept_logs, state_db
from indexer.locks import only_writer
from indexer.log_changes import forgotten
from indexer.safe_files import index_db, state_home
from indexer.store.sqlite import Store
from smart_fork.agents.excision import snapshots
from smart_fork.errors import NotFound, SmartForkError, Usage
from smart_fork.excise import erasure
from smart_fork.finding.recent import list_recent
from smart_fork.workers.registry import Registry
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.world import World
from tests.support import forkserver
from tests.support.exhaustive import full_or_sample

ROOT = Path(smart_fork.__file__).parent.parent
#: `SMART_FORK_DRILLS=all` tries each moment, and not one of three.
EACH = full_or_sample(1, 5)
SECRET = "zanzibarquokka add retry with backoff"
DONE = "The uploader retries five times"


@pytest.fixture(autouse=True)
def copies(monkeypatch):
    monkeypatch.setenv("SMART_FORK_KEEP_TRANSCRIPTS", "true")


@pytest.fixture
def session_id(world: World, shop: Path) -> str:
    """The id of an indexed session, with another one next to it."""
    world.claude(shop, "draw the parcel map", "It is drawn")
    session_id = world.claude(shop, SECRET, DONE)
    assert session_id == world.ids(SECRET, shop)[0]
    return session_id


def everything_of_ours() -> bytes:
    return b"".join(path.read_bytes() for path in state_home().rglob("*") if path.is_file())


def test_nothing_of_it_is_left_and_it_does_not_come_back(session_id, world, shop):
    log = world.log_of(session_id)
    before, data = log.stat(), log.read_bytes()
    assert b"zanzibarquokka" in everything_of_ours()

    answer = smart_fork.forget(session_id[:12])

    assert {
        "session_id": session_id,
        "agent_type": "claude",
        "forgotten": True,
        "jsonl_path": str(log),
        "erased": True,
    } == answer.as_json()
    assert b"zanzibarquokka" not in everything_of_ours()
    assert (data, before.st_mtime_ns) == (log.read_bytes(), log.stat().st_mtime_ns)
    assert session_id not in world.ids(SECRET, shop)
    with log.open("a") as file:
        file.write(json.dumps(world.claude_records(session_id, shop, "zanzibarquokka again")[0]) + "\n")
    assert session_id not in world.ids(SECRET, shop)
    for path in state_home().glob("index*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert session_id not in world.ids(SECRET, shop)
    assert b"zanzibarquokka" not in everything_of_ours()
    assert session_id not in {one.session_id for one in list_recent("both", str(shop), 9).sessions}
    assert 0o600 == state_db.path().stat().st_mode & 0o777


def test_nothing_of_it_is_left_in_the_log_of_an_index_that_others_have_open(session_id):
    other = Store(index_db())
    other.counts()
    smart_fork.forget(session_id)

    assert b"zanzibarquokka" not in everything_of_ours()
    other.close()


def test_what_a_fork_shares_with_it_stays_the_forks(session_id, world, shop):
    fork = world.fork_claude(session_id, shop, "now the downloader", "Done as well")
    world.find(SECRET, shop)
    smart_fork.forget(session_id)

    assert fork == world.ids(SECRET, shop)[0]


def test_it_can_be_undone(session_id, world, shop):
    smart_fork.forget(session_id)
    world.find(SECRET, shop)
    assert not smart_fork.forget(session_id[:10], undo=True).forgotten

    assert session_id == world.ids(SECRET, shop)[0]
    assert kept_logs.find("claude", session_id)
    with pytest.raises(NotFound):
        smart_fork.forget(session_id, undo=True)


def test_one_whose_log_is_gone_is_forgotten_with_its_copy(session_id, world, shop):
    world.log_of(session_id).unlink()
    world.find(SECRET, shop)
    assert smart_fork.forget(session_id).jsonl_path is None

    assert b"zanzibarquokka" not in everything_of_ours()
    assert session_id not in world.ids(SECRET, shop)
    with pytest.raises(NotFound):
        smart_fork.forget(session_id)


def test_what_was_kept_of_it_before_a_cut_goes_as_well(session_id, world):
    for kept_of in (session_id, "another"):
        assert snapshots.save(world.log_of(session_id), kept_of, datetime.now(UTC))

    smart_fork.forget(session_id)

    assert ["another"] == [path.name for path in snapshots.root().iterdir()]


def test_what_a_worker_has_printed_goes_as_well(session_id, shop, home):
    outside = home / "notes.txt"
    with Registry() as registry:
        for log in (state_home() / "logs/worker.log", outside):
            log.parent.mkdir(exist_ok=True)
            log.write_text("zanzibarquokka")
            worker = registry.add("claude", source_session_id="", place="process", cwd=shop)
            registry.set_started(worker.id, command=["x"], log=log)
            registry.set_session_id(worker.id, session_id)
            smart_fork.forget(session_id)
        assert registry.get(session_id)

    assert not (state_home() / "logs/worker.log").exists()
    assert outside.exists()


def test_a_prefix_must_mean_one_session(session_id, world, shop):
    for number in (1, 2):
        world.claude(shop, f"question {number}", DONE, session_id=f"0000000{number}-1111-4111-8111-111111111111")
        world.claude(shop, f"another {number}", DONE, session_id=f"00000000-{number}111-4111-8111-111111111111")
    with pytest.raises(Usage, match="ambiguous"):
        smart_fork.forget("00000000")
    smart_fork.forget("00000000-1")
    smart_fork.forget("00000000-2")
    with pytest.raises(Usage, match="ambiguous"):
        smart_fork.forget("00000000", undo=True)
    with pytest.raises(Usage, match="too short"):
        smart_fork.forget("0000", undo=True)


def test_while_another_process_indexes_nothing_is_forgotten(session_id, monkeypatch):
    monkeypatch.setattr(erasure, "FORGET_SECONDS", 0.0)
    with only_writer(0), pytest.raises(SmartForkError, match="Another process is indexing"):
        smart_fork.forget(session_id)
    assert not forgotten()


def test_a_list_that_cannot_be_read_lets_nothing_be_indexed(session_id, world, shop):
    smart_fork.forget(session_id)
    path = state_db.path()
    path.rename(path.with_name("hidden"))
    path.mkdir()
    world.claude(shop, "a new question", DONE)

    assert "problem" in world.find(SECRET, shop)["index"]
    assert session_id not in world.ids(SECRET, shop)


#: Is given one moment a line, forgets in a child of itself that is killed then, and says how that ended.
FORGET = """
import os, signal, sys
import smart_fork
from smart_fork.excise import erasure
import apsw
from indexer.store import sqlite
moments = last = 0
def moment(*what):
    global moments
    moments += 1
    if moments == last:
        os.kill(os.getpid(), signal.SIGKILL)
    return True
def hook(event, _):
    if event in ("os.rename", "os.remove", "shutil.rmtree", "os.rmdir"):
        moment()
def watch(db):
    if db.filename.endswith("/state.db"):
        db.set_commit_hook(lambda: not moment())
real = sqlite.Store.forget_session
def traced(self, *what):
    self.db.exec_trace = moment
    return real(self, *what)
sqlite.Store.forget_session = traced
for line in sys.stdin:
    last = int(line)
    if not (child := os.fork()):
        sys.addaudithook(hook)
        apsw.connection_hooks.append(watch)
        smart_fork.forget(sys.argv[1])
        os.write(1, b"%d " % moments)
        os._exit(0)
    os.write(1, b"%d\\n" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.thorough
def test_a_kill_at_any_moment_is_made_up_for_by_the_next_indexing(session_id, world, shop, tmp_path):
    original = tmp_path / "original"
    shutil.copytree(state_home(), original)
    command = [sys.executable, "-c", FORGET, session_id]
    with forkserver.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def forget(last: int) -> list[int]:
            print(last, file=process.stdin, flush=True)
            return [int(word) for word in process.stdout.readline().split()]

        moments, ended = forget(-1)
        assert ended == 0
        for last in range(1, moments + 1, EACH):
            shutil.rmtree(state_home())
            shutil.copytree(original, state_home())
            assert [-signal.SIGKILL] == forget(last)
            listed = bool(forgotten())
            world.claude(shop, f"something else {last}", DONE)
            found = session_id in world.ids(SECRET, shop)

            assert listed is not found
            if listed:
                assert b"zanzibarquokka" not in everything_of_ours()
        process.stdin.close()
    assert moments > 14
    assert index_db().exists()


class TestCommand:
    def test_it_asks_for_yes_where_there_is_nobody_to_ask(self, run, session_id):  # noqa: F811
        for words in ((), ("--json",)):
            refused = run("forget", session_id, *words)
            assert 2 == refused.code
            assert "Add --yes" in refused.err
        assert not forgotten()

    def test_a_person_is_asked(self, run, session_id, monkeypatch):  # noqa: F811
        monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
        asked = []

        def confirm(question, **options):
            asked.append(question)
            if len(asked) == 1:
                raise KeyboardInterrupt

        monkeypatch.setattr("typer.confirm", confirm)
        assert 130 == run("forget", session_id).code
        assert not forgotten()
        done = run("forget", session_id)
        assert (0, f"claude {session_id} is forgotten.\n") == (done.code, done.out)
        assert SECRET in done.err
        assert "The agent still has its log: " in done.err

    def test_it_answers_in_json_and_can_be_undone(self, run, session_id):  # noqa: F811
        assert json.loads(run("forget", session_id, "--yes", "--json").out)["forgotten"] is True
        undone = run("forget", session_id, "--undo")
        assert "is no longer forgotten; it is indexed again." in undone.out
        again = run("forget", session_id, "--undo", "--json")
        assert (3, True) == (again.code, "error" in json.loads(again.out))

    def test_what_is_not_there_is_not_found(self, run, shop):  # noqa: F811
        assert 3 == run("forget", "00000000-0000-4000-8000-000000000000", "--yes").code
        assert 2 == run("forget", "0000", "--yes").code
