"""Transcripts of three agents, loaded for a cut."""

from __future__ import annotations

import errno
import io
import json
import os
import sqlite3
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from indexer.transcripts.lines import LineReader
from smart_fork import excise
from smart_fork.agents import AGENTS
from smart_fork.agents.excision import cutter as reading
from smart_fork.agents.log_readers import READERS
from smart_fork.errors import NotFound, SmartForkError, Usage
from smart_fork.excise import (
    ClaudeLoader,
    ClaudeWriter,
    CodexLoader,
    CursorLoader,
    Request,
    Session,
    Turn,
    auto,
    check,
    cut,
    default_cursor_path,
    discover_newest_claude,
    load_auto,
    load_with_tool,
    rollback,
    sort_by_timestamp,
    write,
)
from smart_fork.excise.lookup import load_numbered, locate_transcript, parse_ranges
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.forks import SESSION, said, text, write_log
from tests.support.cases import parametrize_subtests, thorough_except_first


def lines(path: Path, *found: bytes) -> Path:
    path.write_bytes(b"".join(found))
    return path


@pytest.mark.parametrize(
    ("name", "content", "is_claude"),
    [
        ("a.jsonl", b'{"type":"user","uuid":"u"}', True),
        ("a.JSONL", b'\n\n{"type":"mode","sessionId":"s"}\n', True),
        ("a.jsonl", b'{"type":"summary","summary":"x","leafUuid":"u"}', True),
        ("a.txt", b'{"type":"user","uuid":"u"}', False),
        ("a.jsonl", b'{"uuid":"u"}', False),
        ("a.jsonl", b'["type","uuid"]', False),
        ("a.jsonl", b"not json", False),
        ("a.jsonl", b"", False),
    ],
)
def test_claudes_transcripts_are_known_by_their_first_line(tmp_path, name, content, is_claude):
    """E-010."""
    assert is_claude == ClaudeLoader.detect(lines(tmp_path / name, content))
    assert not ClaudeLoader.detect(tmp_path / "missing.jsonl")


@pytest.mark.parametrize("length", thorough_except_first([17_000, 17_000_000]))
def test_every_line_of_claudes_is_kept_in_its_order(tmp_path, length):
    """E-002, E-011, E-013, E-014, E-024."""
    long = json.dumps(said("big", "u1", "user", "x" * length)).encode()
    found = [b"not json", b'{"type":"queue-operation"}', json.dumps(said("u1", None, "user", "later")).encode(), long]
    path = lines(tmp_path / "s.jsonl", b"\n".join([*found[:2], b"", b"  ", *found[2:]]) + b"\r\n")

    session = ClaudeLoader.load(path)

    assert ["line-1", "line-2", "u1", "big"] == [turn.id for turn in session.turns]
    assert found == [turn.raw.rstrip(b"\r") for turn in session.turns]
    assert ["system", "system", "user", "user"] == [turn.role for turn in session.turns]
    assert SESSION == session.session_id


def test_previews_and_estimates(tmp_path):
    """E-003, E-004, E-012."""
    path = write_log(tmp_path / "s.jsonl", [
        said("u1", None, "user", "汉" * 200),
        said("a1", "u1", "assistant", [{"type": "thinking", "thinking": "secret thought", "signature": "x"}, *text("I\n  look"), {"type": "tool_use", "id": "t", "name": "Bash", "input": {}}]),
        said("r1", "a1", "user", [{"type": "tool_result", "tool_use_id": "t", "content": "fine"}]),
    ])  # fmt: skip

    first, second, third = ClaudeLoader.load(path).turns

    assert "汉" * 117 + "..." == first.preview
    assert 50 == first.token_est
    assert "I look [tool_use: Bash]" == second.preview
    assert "[tool_result] fine" == third.preview
    assert ("tool", 1) == (third.role, len(third.tool_results))


def test_two_records_on_one_line_stay_together(tmp_path):
    glued = json.dumps(said("a1", "u1", "assistant", text("x"))) + json.dumps(
        {"type": "summary", "summary": "s", "leafUuid": "a1"}
    )
    path = lines(tmp_path / "s.jsonl", json.dumps(said("u1", None, "user", "x")).encode(), b"\n", glued.encode(), b"\n",
                 json.dumps(said("u2", "a1", "user", "y")).encode(), b"\n")  # fmt: skip

    cut(Request(str(path), ids=("u1",)))

    assert [("a1", None), ("u2", "a1")] == [
        (turn.id, turn.parent_id) for turn in load_auto(path).turns if not turn.aliases
    ][-2:]
    assert 2 == path.read_bytes().splitlines()[0].count(b'"type": "summary"') + path.read_bytes().count(b'"uuid": "a1"')
    assert check(str(path))["ok"]


def test_whose_a_transcript_is(tmp_path, codex_session, claude_session):
    """E-020, E-021."""
    assert ("claude", "codex") == (auto(claude_session), auto(codex_session))
    with pytest.raises(Usage, match="could not detect tool format for"):
        auto(lines(tmp_path / "a.jsonl", b"{}"))
    with pytest.raises(Usage, match="Unknown tool"):
        load_with_tool("vim", claude_session)
    assert not CodexLoader.detect(claude_session)


def test_the_names_that_scripts_have_stay():
    """Also the names of each agent, which its folder defines."""
    names = {"ClaudeLoader", "ClaudeWriter", "CodexLoader", "CodexWriter", "CursorLoader", "CursorWriter"}
    names |= {"default_cursor_path", "discover_newest_claude"}

    assert names < set(excise.__all__)
    loaders = {name for name in names if name.endswith("Loader")}
    assert [] == [name for name in names - loaders if getattr(excise, name).__name__ != name]
    assert {f"{getattr(excise, name).tool.title()}Loader" for name in loaders} == loaders
    assert {"claude", "codex", "cursor"} <= {getattr(excise, name).tool for name in names if name.endswith("Writer")}
    with pytest.raises(ImportError):
        from smart_fork.excise import GeminiLoader  # noqa: F401


def test_where_no_transcript_is_named_it_is_the_newest_of_the_agent_that_is(home, claude_session, codex_session):
    assert claude_session == locate_transcript(None) == locate_transcript(None, "claude")
    assert codex_session == locate_transcript(None, "codex")
    assert default_cursor_path() == locate_transcript(None, "cursor")
    codex_session.unlink()
    with pytest.raises(NotFound, match="No transcript of Codex"):
        locate_transcript(None, "codex")


def test_only_a_file_with_several_conversations_lists_them(claude_session):
    with pytest.raises(Usage, match="One file has one conversation with claude"):
        AGENTS.cutter_of("claude").conversations(claude_session)


def test_the_newest_session_of_claude(home, claude_session):
    """E-022: a sub-agent's file does not count."""
    newer = claude_session.with_name("agent-abc.jsonl")
    newer.write_bytes(claude_session.read_bytes())
    os.utime(newer, (4e9, 4e9))

    assert claude_session == discover_newest_claude()
    newer.unlink()
    claude_session.unlink()
    with pytest.raises(NotFound, match=r"no \.jsonl session files under"):
        discover_newest_claude()
    for folder in sorted((home / ".claude").rglob("*"), reverse=True):
        folder.rmdir()
    with pytest.raises(NotFound, match=r"no \.jsonl session files under"):
        discover_newest_claude()


@parametrize_subtests(
    ("words", "expected"),
    [
        ("5-7,9", [(5, 7), (9, 9)]),
        (" 7 - 5 , 9,0", [(5, 7), (9, 9), (0, 0)]),
        ("1", [(1, 1)]),
        ("1,,2,", [(1, 1), (2, 2)]),
    ],
)
def test_ranges(words, expected):
    """E-070."""
    assert expected == parse_ranges(words, 10)


@parametrize_subtests(("words", "says"), [("10", "turn 10 out of range"), ("1-10", "turn 10 out of range (the last one is 9)"), ("-3", 'bad range "-3"'), ("²", 'bad turn "²"'), ("9" * 5000, 'bad turn "999'), (",", 'bad range ","')])  # fmt: skip
def test_what_is_no_range(words, says):
    """E-070."""
    with pytest.raises(Usage) as error:
        parse_ranges(words, 10)
    assert says in error.value.message
    assert "Ranges look like 5-7,9" in error.value.hint


def test_a_record_is_found_by_its_key_wherever_a_piece_of_the_file_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "_PIECE", 600)
    claude, copilot = AGENTS.cutter_of("claude"), AGENTS.cutter_of("copilot")
    log, record = tmp_path / "log.jsonl", b'{"uuid": "record-1", "id" : "other-2"}'
    for before in range(600 - len(record), 601):
        log.write_bytes(b" " * before + record + b" " * 700)
        assert claude.holds(log, {"x", "record-1"})
        assert copilot.holds(log, {"other-2"})
        assert not claude.holds(log, {"other-2", "record"})
    assert not claude.holds(tmp_path / "no.jsonl", {"record-1"})


@pytest.mark.parametrize("end", [b"\n", b""])
def test_a_line_is_where_its_bytes_are_also_the_last_one_without_an_end(tmp_path, end):
    log = tmp_path / "log.jsonl"
    log.write_bytes(b'{"a": 1}\n \n{"b": 2}' + end)
    with log.open("rb") as file:
        found = list(reading.raw_lines(file, log))

    assert [(1, ({"a": 1},)), (3, ({"b": 2},))] == [(one.number, one.objects) for one in found]
    assert [b'{"a": 1}', b'{"b": 2}'] == [log.read_bytes()[one.place.start : one.place.end] for one in found]


def test_sorting_is_stable_and_keeps_lines_without_a_time_where_they_are():
    """E-024."""
    turns = tuple(Turn(name, timestamp=moment) for name, moment in (("c", "3"), ("x", ""), ("a", "1"), ("b", "1")))

    assert ["a", "b", "c", "x"] == [turn.id for turn in sort_by_timestamp(turns)]


def test_writers_refuse_what_is_not_theirs(claude_session):
    """E-050."""
    session = load_auto(claude_session)
    with pytest.raises(Usage, match="ClaudeWriter cannot write cursor sessions"):
        ClaudeWriter().write(Session("cursor", claude_session, "x", ()), ())
    with pytest.raises(Usage, match="no source path"):
        ClaudeWriter().write(Session("claude", Path(), "x", ()), ())
    with pytest.raises(Usage, match="The agent of this transcript is not known"):
        write(Session("unknown", claude_session, "x", ()), ())
    before = claude_session.read_bytes()
    write(session, session.turns)
    assert before == claude_session.read_bytes()


def test_the_librarys_writer_is_verbatim_unless_it_is_told_to_link_anew(claude_session):
    """E-040."""
    session = load_auto(claude_session)
    left = [turn for turn in session.turns if turn.id not in ("a3", "r1")]
    kept = [turn.raw for turn in left]

    write(session, left)
    assert kept == claude_session.read_bytes().splitlines()
    assert not check(str(claude_session))["ok"]

    claude_session.write_bytes(b"\n".join(turn for turn in kept) + b"\n")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Cursor's database with two conversations."""
    path = tmp_path / "state.vscdb"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE cursorDiskKV (key TEXT UNIQUE, value BLOB)")
        rows = [
            ("bubbleId:c1:b1", {"type": 1, "text": "add <retry> & go", "bubbleId": "b1"}),
            ("bubbleId:c1:b2", {"type": 2, "text": "", "richtext": "I look", "toolFormers": [{"toolCallId": "t1", "name": "read"}], "tokenCount": 70}),
            ("bubbleId:c1:b3", {"type": 2, "text": "", "toolResults": [{"toolCallId": "t1"}]}),
            ("bubbleId:c1:b4", {"type": 1, "text": "and the docs"}),
            ("bubbleId:c2:x1", {"type": 1, "text": "another"}),
            ("bubbleId:odd", {"type": 1}),
        ]  # fmt: skip
        db.executemany("INSERT INTO cursorDiskKV VALUES (?, ?)", [(key, json.dumps(value)) for key, value in rows])
        db.execute("INSERT INTO cursorDiskKV VALUES ('bubbleId:c1:b5', 'not json')")
    return path


def test_cursors_conversations_are_read_out_of_its_database(database):
    """E-015…E-019."""
    session = load_auto(database)

    assert [("c1", 5), ("c2", 1)] == AGENTS.cutter_of("cursor").conversations(database)
    assert ("cursor", "c1") == (session.tool, session.composer_id)
    assert ["b1", "b2", "b3", "b4"] == [turn.id for turn in session.turns]
    assert ["user", "assistant", "tool", "user"] == [turn.role for turn in session.turns]
    assert ("I look [tool_use: read]", 70) == (session.turns[1].preview, session.turns[1].token_est)
    assert ["x1"] == [turn.id for turn in CursorLoader.load(database, "c2").turns]
    with pytest.raises(NotFound):
        CursorLoader.load(database, "c9")


def test_cursors_database_is_never_written_what_stays_goes_beside_it(database):
    """E-016, E-051, E-053, E-054."""
    before, folder = database.read_bytes(), set(database.parent.iterdir())

    outcome = cut(Request(str(database), ids=("b2",)))

    side = database.with_name("state.vscdb.excised.jsonl")
    assert (["b2", "b3"], None) == (outcome["removed"], outcome["snapshot"])
    assert before == database.read_bytes()
    assert folder | {side} == set(database.parent.iterdir())
    assert b"<retry> & go" in side.read_bytes()
    assert "cursor" == auto(side)
    first = side.read_bytes()
    again = cut(Request(str(side), "1"))
    assert ["b1"] == [json.loads(line)["bubble"].get("bubbleId") for line in side.read_bytes().splitlines()]
    rollback(again["snapshot"])
    assert (first, before) == (side.read_bytes(), database.read_bytes())


#: Adds a bubble as Cursor does, with a `-wal`, then is killed, or holds the database until its input ends.
WRITES = """
import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1])
for said in sys.argv[2:]:
    db.execute(said)
db.execute("INSERT INTO cursorDiskKV VALUES ('bubbleId:c1:b6', '{\\"type\\": 1, \\"text\\": \\"and go\\"}')")
db.commit()
print("written", flush=True)
sys.stdin.read()
os._exit(0)
"""
WITH_WAL = "PRAGMA journal_mode = WAL"


@pytest.fixture
def written(database):
    """A writer that has begun like Cursor and writes. It is killed if wanted."""
    with ExitStack() as stack:

        def write(*begun: str) -> subprocess.Popen[bytes]:
            command = [sys.executable, "-c", WRITES, str(database), *begun]
            cursor = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            stack.enter_context(cursor)
            assert b"written" in cursor.stdout.readline()
            return cursor

        yield write


@pytest.mark.parametrize("begun", [(WITH_WAL,), (WITH_WAL, "PRAGMA locking_mode = EXCLUSIVE", "DELETE FROM cursorDiskKV WHERE 0")])  # fmt: skip
@pytest.mark.parametrize("left", thorough_except_first(["it runs", "it was killed", "its -shm is gone"]))
def test_reading_cursors_database_makes_no_file_and_reads_the_newest(database, written, monkeypatch, begun, left):
    monkeypatch.setattr("smart_fork.agents.foreign_database.BUSY_MILLISECONDS", 1)
    cursor = written(*begun)
    if left != "it runs":
        cursor.communicate()
    if left == "its -shm is gone":
        Path(f"{database}-shm").unlink(missing_ok=True)
    before = {one.name: one.read_bytes() for one in database.parent.iterdir()}

    read = [turn.id for turn in CursorLoader.load(database, "c1").turns]

    assert "b6" == read[-1]
    assert before == {one.name: one.read_bytes() for one in database.parent.iterdir()}


def test_reading_cursors_database_that_was_closed_makes_no_file(database):
    with closing(sqlite3.connect(database)) as db:
        db.execute(WITH_WAL)

    CursorLoader.load(database, "c1")

    assert [database.name] == [one.name for one in database.parent.iterdir()]


def test_a_database_that_cannot_be_read_is_named(tmp_path):
    """E-016."""
    with pytest.raises(SmartForkError) as error:
        CursorLoader.load(lines(tmp_path / "state.vscdb", b""))
    assert str(tmp_path / "state.vscdb") in error.value.message
    assert "Close Cursor" in error.value.hint
    with pytest.raises(SmartForkError) as error:
        CursorLoader.load(lines(tmp_path / "bad.vscdb", b"no database at all" * 99))
    assert "Close Cursor" in error.value.hint


@pytest.mark.parametrize(("system", "expected"), [("Linux", ".config/Cursor"), ("Darwin", "Library/Application Support/Cursor"), ("Windows", "AppData/Roaming/Cursor")])  # fmt: skip
def test_where_cursor_keeps_its_conversations(home, monkeypatch, system, expected):
    """E-023."""
    monkeypatch.setattr("platform.system", lambda: system)
    monkeypatch.delenv("APPDATA", raising=False)

    assert home / expected / "User/globalStorage/state.vscdb" == default_cursor_path()


@pytest.mark.parametrize(("said", "there"), [("{}/xdg", "xdg"), ("relative", ".config"), ("", ".config")])
def test_where_settings_were_moved_cursor_keeps_them_there(home, monkeypatch, said, there):
    """X-004."""
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setenv("XDG_CONFIG_HOME", said.format(home))

    assert home / there / "Cursor/User/globalStorage/state.vscdb" == default_cursor_path()


def test_a_log_that_cannot_be_read_is_neither_called_deleted_nor_of_another_form(world, shop, monkeypatch, run):  # noqa: F811
    """The user may read neither the log nor the folder of all logs."""
    session_id = world.claude(shop, "add retry", "done")
    log = world.log_of(session_id)

    def refusing(really):
        def opened(path, *how, **more):
            if str(path) == str(log):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return really(path, *how, **more)

        return opened

    with monkeypatch.context() as patched:
        for owner in (os, io):
            patched.setattr(owner, "open", refusing(owner.open))
        said = run("excise", "list", str(log))
    assert (1, True, True) == (said.code, f"{log}: Permission denied" in said.err, f"Make {log} readable" in said.err)

    world.find("retry", shop)
    log.unlink()
    monkeypatch.setattr(READERS["claude"], "unread", lambda: "the folder cannot be read")
    said = run("excise", "list", session_id)
    assert (3, True) == (said.code, f"The log of {session_id} cannot be read now" in said.err)


def test_the_numbers_come_of_the_same_reading_as_the_lines(monkeypatch, tmp_path):
    path = tmp_path / "0f0f0f0f-0000-4000-8000-000000000001.jsonl"
    said = {"sessionId": path.stem, "cwd": "/work", "timestamp": "2026-01-02T03:04:05Z", "isSidechain": False}
    records = [
        {"uuid": "u1", "parentUuid": None, "type": "user", "message": {"role": "user", "content": "Add retry"}},
        {"uuid": "a1", "parentUuid": "u1", "type": "assistant", "message": {"role": "assistant", "content": "Done"}},
    ]
    path.write_text("".join(f"{json.dumps(one | said)}\n" for one in records), "utf-8")

    def read_again(reader):
        raise AssertionError(f"{reader.path} is read once more")

    monkeypatch.setattr(LineReader, "__iter__", read_again)
    session = load_numbered("claude", path)
    assert (session.numbers, session.conversation.title) == ((0, 1), "Add retry")
