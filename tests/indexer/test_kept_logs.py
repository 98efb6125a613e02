"""Compressed copies of logs, which stay when the agent deletes the logs (D17)."""

import json
import os
import random
import shutil
import signal
import sys
from pathlib import Path

import pytest

import indexer
from indexer import kept_logs
from indexer.log_changes import Report
from indexer.refresh import complete, read_rest
from indexer.safe_files import index_db, state_home
from indexer.store.sqlite import Store
from smart_fork.agents.log_readers import READERS
from tests.indexer.index_inputs import append, claude_log, claude_records, codex_log, content, lines
from tests.indexer.transcripts.records import gemini_log, spoken
from tests.support import forkserver
from tests.support.cases import thorough_except_first
from tests.support.exhaustive import full_or_sample

ROOT = Path(indexer.__file__).parent.parent
ONE, TWO, THREE = (f"{number:08}-1111-4111-8111-111111111111" for number in (1, 2, 3))


@pytest.fixture(autouse=True)
def wanted(monkeypatch):
    monkeypatch.setenv("SMART_FORK_KEEP_TRANSCRIPTS", "yes")


@pytest.fixture
def store():
    store = Store(index_db())
    yield store
    store.close()


def kept_bytes(agent: str, session_id: str) -> bytes:
    copy = kept_logs.find(agent, session_id)
    with kept_logs.opened(copy) as path:
        return path.read_bytes()


def index(store):
    return complete(store, READERS, None, patience=0)


def test_a_copy_is_kept_of_every_indexed_log_and_follows_it(store):
    claude, codex = claude_log(ONE, "/work/a", "question", "answer"), codex_log(TWO, "/work/a", "question")
    (claude.parent / ONE / "subagents").mkdir(parents=True)
    (claude.parent / ONE / "subagents/agent-1.jsonl").write_bytes(b"side")
    (claude.parent / ONE / "link").symlink_to(codex)
    index(store)
    append(claude, lines(claude_records(ONE, "/work/a", ["more"], 2)))
    index(store)

    assert (claude.read_bytes(), codex.read_bytes()) == (kept_bytes("claude", ONE), kept_bytes("codex", TWO))
    copy = kept_logs.find("claude", ONE)
    assert {"subagents/agent-1.jsonl"} == set(copy.beside)
    assert f"projects/-work-a/{ONE}.jsonl" == copy.place
    modes = {path.stat().st_mode & 0o777 for path in (state_home() / "kept").rglob("*") if path.is_file()}
    assert {0o600} == modes
    assert {0o700} == {path.stat().st_mode & 0o777 for path in (state_home() / "kept").rglob("*") if path.is_dir()}


def test_no_copy_is_kept_where_none_is_wanted(store, monkeypatch):
    monkeypatch.setenv("SMART_FORK_KEEP_TRANSCRIPTS", "no")
    claude_log(ONE, "/work/a", "question")
    index(store)
    assert not (state_home() / "kept").exists()

    monkeypatch.setenv("SMART_FORK_KEEP_TRANSCRIPTS", "on")
    assert 0 == index(store).read
    assert kept_logs.find("claude", ONE)  # also of a log that was indexed before


def test_a_session_is_found_again_from_its_copy_when_log_and_index_are_gone(store):
    logs = [claude_log(ONE, "/work/a", "question", "answer"), codex_log(TWO, "/work/a", "question")]
    index(store)
    for log in logs:
        log.unlink()
    index(store)
    expected = content(index_db())
    store.close()
    for path in state_home().glob("index*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    again = Store(index_db())
    index(again)
    again.close()

    actual = content(index_db())
    assert expected == actual
    assert ["", ""] == [row[2] for row in actual["sessions"]]
    assert [] == list((state_home() / "kept/.reading").iterdir())


def test_a_copy_whose_log_is_back_is_not_indexed_beside_it(store):
    log = claude_log(ONE, "/work/a", "question", "answer")
    index(store)
    data = log.read_bytes()
    log.unlink()
    index(store)
    log.write_bytes(data)
    index(store)

    assert [str(log)] == [row.path for row in store.find_sessions("")]


def test_the_oldest_copies_that_nobody_forked_are_let_go_of_first(store, monkeypatch):
    random.seed(1)
    noise = [" ".join(f"{random.getrandbits(64):x}" for _ in range(3000)) for _ in range(4)]
    first = claude_log(ONE, "/work/a", "shared", noise[0])
    shutil.copy(first, first.with_name(f"{TWO}.jsonl"))  # shares its beginning: a fork
    logs = [first, first.with_name(f"{TWO}.jsonl")]
    logs += [claude_log(f"{n:08}-2222-4111-8111-111111111111", "/work/a", f"other {n}", noise[n]) for n in (1, 2, 3)]
    for number, log in enumerate(logs):
        os.utime(log, (1e9 + number, 1e9 + number))
    monkeypatch.setattr(kept_logs, "room", lambda: 90_000)
    index(store)

    there = {copy.session_id[:13] for copy in kept_logs.copies()}
    assert {"00000001-1111", "00000002-1111", "00000003-2222"} == there
    assert sum(path.stat().st_size for path in (state_home() / "kept").rglob("*.zst")) <= 90_000
    before = {path: path.stat().st_mtime_ns for path in (state_home() / "kept").rglob("copy.json")}
    index(store)
    assert before == {path: path.stat().st_mtime_ns for path in (state_home() / "kept").rglob("copy.json")}

    monkeypatch.setattr(kept_logs, "room", lambda: 10**9)
    index(store)
    assert 5 == len(list(kept_logs.copies()))


@pytest.mark.parametrize(
    ("text", "megabytes"), [("5", 5), (" 70 ", 70), ("", 2000), ("-1", 2000), ("x", 2000), ("0", 0), ("9" * 50, 2000)]
)
def test_the_room_is_so_many_megabytes(text, megabytes, monkeypatch):
    monkeypatch.setenv("SMART_FORK_KEEP_MEGABYTES", text)
    assert megabytes * 1_000_000 == kept_logs.room()


def test_a_full_disk_keeps_no_log_out_of_the_index(store, monkeypatch, caplog):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kept_logs, "up_to_date", full)
    claude_log(ONE, "/work/a", "question")

    assert 1 == index(store).sessions
    assert "no copy is kept of" in caplog.text


FACTS = {"name": "0" * 16 + ".zst", "size": 1, "mtime_ns": 1, "inode": 1, "length": 1}


@pytest.mark.parametrize("change", thorough_except_first([
        {"place": "../../../etc/passwd"}, {"place": "/etc/passwd"}, {"agent": "../x"}, {"agent": "codex"}, {"session_id": "other"},
        {"log": FACTS | {"name": "../../x"}}, {"beside": {"../x": FACTS}}, {"beside": []},
        {"place": None}, {"log": None},
    ]))  # fmt: skip
def test_facts_that_somebody_has_changed_lead_nowhere(store, change):
    claude_log(ONE, "/work/a", "question")
    index(store)
    path = kept_logs.folder_of("claude", ONE) / "copy.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | change))

    assert (None, []) == (kept_logs.find("claude", ONE), list(kept_logs.copies()))
    path.write_text("{torn")
    assert kept_logs.find("claude", ONE) is None
    index(store)  # the log is there: its copy is made again
    assert (READERS["claude"].home() / f"projects/-work-a/{ONE}.jsonl").read_bytes() == kept_bytes("claude", ONE)


KEEP = """
import os, signal, sys, zstandard
from indexer import kept_logs
from smart_fork.agents.log_readers import READERS
moments, last = 0, int(sys.argv[1])
def moment(event, _):
    global moments
    if event in ("open", "os.rename", "os.remove", "os.truncate"):
        moments += 1
        if moments == last:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(moment)
for file in READERS["claude"].discover():
    kept_logs.keep(file, READERS["claude"].id_of(file.path), READERS["claude"])
kept_logs._remove_oldest(())
"""


@pytest.mark.thorough
def test_a_kill_at_any_moment_leaves_the_old_copy_or_the_new_one():
    log = claude_log(ONE, "/work/a", "question", "answer")
    keep_again()
    killed = 0
    for tried, moment in enumerate(range(1, 40, full_or_sample(1, 3)), 1):
        last = log.read_bytes()
        if tried % 3 == 2:
            log.write_bytes(lines(claude_records(ONE, "/work/a", [f"anew {moment}"])))
            os.utime(log, (2e9 + moment, 2e9 + moment))
        else:
            append(log, b'{"number": %d}\n' % moment)
        command = [sys.executable, "-c", KEEP, str(moment)]
        killed += forkserver.run(command, cwd=ROOT).returncode == -signal.SIGKILL
        assert kept_bytes("claude", ONE) in (last, log.read_bytes())
        keep_again()
        assert log.read_bytes() == kept_bytes("claude", ONE)
        assert 1 == len(list(kept_logs.folder_of("claude", ONE).glob("*.zst")))
        if killed < tried:
            break

    assert killed > full_or_sample(5, 1)


def keep_again() -> None:
    (file,) = READERS["claude"].discover()
    kept_logs.keep(file, ONE, READERS["claude"])
    kept_logs._remove_oldest(())


def test_copying_everything_is_done_in_pieces_that_come_to_an_end(store, monkeypatch):
    """New words are indexed between two batches. Each batch continues after the last one, also on slow disks."""
    monkeypatch.setenv("SMART_FORK_KEEP_TRANSCRIPTS", "no")
    for number, session_id in enumerate((ONE, TWO, THREE)):
        os.utime(claude_log(session_id, "/work/a", "question"), (1e9 + number, 1e9 + number))
    index(store)
    monkeypatch.setenv("SMART_FORK_KEEP_TRANSCRIPTS", "yes")

    done: set[str] = set()
    assert not read_rest(store, READERS, Report(), -1, done)
    assert [THREE] == [copy.session_id for copy in kept_logs.copies()]
    assert [False, True] == [read_rest(store, READERS, Report(), -1, done) for _ in range(2)]
    assert [ONE, TWO, THREE] == [copy.session_id for copy in kept_logs.copies()]
    done = set()
    assert [False, False, True] == [
        read_rest(store, READERS, Report(), -1, done) for _ in range(3)
    ]  # where nothing is copied


def test_what_a_killed_reader_has_left_is_removed(store):
    """The file is an unmasked log, perhaps of a session that was forgotten since."""
    claude_log(ONE, "/work/a", "question")
    index(store)
    with kept_logs.opened(kept_logs.find("claude", ONE)) as reading:
        left = reading.parent.with_name("left")
        shutil.copytree(reading.parent, left)
        os.utime(left, (1e9, 1e9))
        index(store)
        assert (False, True) == (left.exists(), reading.exists())


@pytest.mark.parametrize("said", [None, "false", "true"])
def test_copies_of_no_agent_are_kept_unless_a_person_says_so(store, home, monkeypatch, said):
    """Also for agents that lose sessions: secrets in a copy are not masked."""
    monkeypatch.delenv("SMART_FORK_KEEP_TRANSCRIPTS", raising=False)
    if said:
        monkeypatch.setenv("SMART_FORK_KEEP_TRANSCRIPTS", said)
    gemini_log(home, spoken("user", "u1", "one"), session=ONE)
    claude_log(TWO, "/work/a", "question")

    index(store)

    found = [kept_logs.find(*known) for known in (("gemini", ONE), ("claude", TWO))]
    assert [said == "true"] * 2 == [one is not None for one in found]
