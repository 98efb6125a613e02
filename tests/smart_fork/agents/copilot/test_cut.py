"""Tests of cuts of Copilot CLI's sessions: events that repeat a cut event, rows in its database, and undo."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from smart_fork.agents import AGENTS
from smart_fork.errors import ForkRefused
from smart_fork.excise import Request, check, cut, load_auto, rollback
from smart_fork.excise.cutting import cut as cut_at
from tests.indexer.transcripts.records import FIXTURES, SESSION, copilot_log, happened, read_copilot, requested, texts
from tests.smart_fork.agents.copilot.test_log import fixture
from tests.support.cases import parametrize_subtests

WORD = "walrus"
EVENTS = [
    happened("user.message", "u1", content="one"),
    happened("assistant.message", "a1", content="first"),
    happened("hook.start", "h1", hookType="userPromptSubmitted", input={"prompt": f"two {WORD}"}),
    happened("user.message", "u2", content=f"two {WORD}"),
    happened("assistant.message", "a2", content="", toolRequests=[requested("c2", "bash", command=f"echo {WORD}")]),
    happened("tool.execution_start", "b2", toolCallId="c2", arguments={"command": f"echo {WORD}"}),
    happened("hook.start", "h2", hookType="preToolUse", input={"toolCalls": [{"id": "c2", "args": WORD}]}),
    happened("permission.requested", "p2", permissionRequest={"toolCallId": "c2", "fullCommandText": WORD}),
    happened("hook.start", "h3", hookType="postToolUse", input={"toolName": "bash", "toolResult": WORD}),
    happened("tool.execution_complete", "r2", toolCallId="c2", success=True, result={"content": WORD}),
    happened("subagent.started", "s1", toolCallId="c2") | {"agentId": "helper"},
    happened("user.message", "s2", content=WORD, source="agent-x") | {"agentId": "helper"},
    happened("assistant.message", "a3", content=f"second {WORD}"),
    happened("model.messages_snapshot", "m1", messages=[f"two {WORD}"]),
    happened("session.shutdown", "e1"),
    happened("user.message", "u3", content="three"),
    happened("assistant.message", "a4", content="third"),
]
CUT = ("u2", "a2", "a3")


def left(path: Path) -> dict[str, str | None]:
    return {record["id"]: record["parentId"] for record in map(json.loads, path.read_text().splitlines())}


def store(home: Path, *rows: tuple[str, str]) -> Path:
    """Make the database of Copilot CLI's own search, with a text of each of these sessions."""
    path = home / ".copilot/session-store.db"
    with closing(sqlite3.connect(path)) as db:
        db.executescript("""PRAGMA journal_mode = WAL; CREATE TABLE sessions (id TEXT, summary TEXT);
            CREATE TABLE turns (session_id TEXT, user_message TEXT);
            CREATE VIRTUAL TABLE search_index USING fts5 (content, session_id UNINDEXED);""")
        for session, text in rows:
            db.execute("INSERT INTO sessions VALUES (?, ?)", (session, text))
            db.execute("INSERT INTO turns VALUES (?, ?)", (session, text))
            db.execute("INSERT INTO search_index VALUES (?, ?)", (text, session))
        db.commit()
    return path


@parametrize_subtests("name", [path.stem for path in sorted((FIXTURES / "copilot").glob("*.jsonl"))])
def test_a_transcript_is_known_by_its_first_line_as_that_of_one_agent(name):
    path = FIXTURES / f"copilot/{name}.jsonl"

    assert ["copilot"] == [cutter.tool for cutter in AGENTS.cutters() if cutter.detect(path)]
    assert load_auto(path).tool == "copilot"


def test_other_agents_transcripts_are_not_taken_for_its_own():
    others = [path for agent in ("claude", "codex", "qwen", "gemini") for path in (FIXTURES / agent).glob("*.jsonl")]

    assert [] == [path for path in others if AGENTS["copilot"].cutter.detect(path)]


def test_what_stays_is_linked_past_what_went_and_every_event_that_repeats_it_goes(home):
    path = copilot_log(home, *EVENTS)

    cut(Request(str(path), ids=CUT))

    assert left(path) == {"start": None, "u1": "start", "a1": "u1", "e1": "a1", "u3": "e1", "a4": "u3"}
    assert WORD not in path.read_text()
    assert texts(read_copilot(path)) == ["one", "first", "three", "third"]
    assert check(str(path))["ok"]


def test_turns_have_the_numbers_that_they_are_shown_with(home):
    path = copilot_log(home, *EVENTS)
    shown = [turn.id for turn in read_copilot(path).turns]

    assert cut(Request(SESSION, turns="2", dry_run=True))["seeds"] == [shown[2]]


def test_the_name_that_it_gave_itself_and_what_it_can_rewind_to_go_and_come_back(home):
    path = copilot_log(home, *EVENTS)
    workspace, rewinds = path.with_name("workspace.yaml"), path.parent / "rewind-file-snapshots/index.json"
    workspace.write_text(f"id: x\nname: |-\n  two\n  {WORD}\nuser_named: false\n")
    rewinds.parent.mkdir()
    rewinds.write_text(json.dumps({"schema": 1, "snapshots": [{"eventId": "u1"}, {"eventId": "u2", "x": WORD}]}))
    before = [one.read_bytes() for one in (path, workspace, rewinds)]

    done = cut(Request(str(path), ids=CUT))

    assert workspace.read_text() == "id: x\nuser_named: false\n"
    assert json.loads(rewinds.read_text())["snapshots"] == [{"eventId": "u1"}]
    rollback(done["snapshot"])
    assert [one.read_bytes() for one in (path, workspace, rewinds)] == before


@pytest.mark.parametrize(("name", "stays"), [("mine", True), ("TWO Walrus (Branch)", False)])
def test_a_name_that_a_person_gave_goes_if_it_quotes_the_prompt(home, name, stays):
    path = copilot_log(home, *EVENTS)
    path.with_name("workspace.yaml").write_text(f"name: {name}\nuser_named: true\n")

    cut(Request(str(path), ids=CUT))

    assert (name in path.with_name("workspace.yaml").read_text()) is stays


def test_no_byte_of_its_own_database_has_a_text_of_the_session_and_other_sessions_stay(home):
    path = copilot_log(home, *EVENTS)
    database = store(home, (SESSION, f"two {WORD}"), ("other", "heron"))

    cut(Request(str(path), ids=CUT))

    files = b"".join(one.read_bytes() for one in database.parent.glob("session-store.db*"))
    assert WORD.encode() not in files
    with closing(sqlite3.connect(database)) as db:
        assert db.execute("SELECT * FROM turns").fetchall() == [("other", "heron")]
        assert db.execute("SELECT session_id FROM search_index('heron')").fetchall() == [("other",)]
        assert db.execute("SELECT * FROM sessions").fetchall() == [(SESSION, None), ("other", "heron")]


@pytest.mark.parametrize("begin", ["BEGIN IMMEDIATE", "BEGIN; SELECT * FROM turns"])
def test_nothing_is_cut_while_a_program_uses_the_database(home, monkeypatch, begin):
    monkeypatch.setattr("smart_fork.agents.foreign_database.BUSY_MILLISECONDS", 1)
    path = copilot_log(home, *EVENTS)
    before = path.read_bytes()
    with closing(apsw.Connection(str(store(home, (SESSION, WORD))))) as other:  # the library that we use: locks are its
        other.execute(begin).fetchall()

        with pytest.raises(ForkRefused, match="database cannot be changed"):
            cut(Request(str(path), ids=CUT))

    assert path.read_bytes() == before
    cut(Request(str(path), ids=CUT))
    assert WORD not in path.read_text()


def test_a_secret_is_masked_in_every_event_and_what_repeats_it_elsewhere_goes(home):
    secret = f"ghp_{'a1B2' * 9}"
    path = copilot_log(home, *json.loads(json.dumps(EVENTS).replace(WORD, secret)))
    path.with_name("workspace.yaml").write_text(f"name: two {secret}\nuser_named: false\n")
    database = store(home, (SESSION, secret))

    cut(Request(str(path), secrets=True))

    assert [] == [
        one for one in (*path.parent.rglob("*"), database) if one.is_file() and secret in one.read_text("latin1")
    ]
    assert len(left(path)) == len(EVENTS) + 1


def test_the_header_is_not_cut_unasked(home):
    path = copilot_log(home, *EVENTS)

    with pytest.raises(Exception, match="Copilot CLI can no longer load"):
        cut_at(Request(str(path), ids=("start",)))


def test_what_the_real_program_wrote_is_cut_and_reads_back(home):
    path = fixture(home, "subagent")
    session = read_copilot(path)
    calling = next(turn for turn in session.turns if turn.tool_calls)

    cut(Request(str(path), ids=(calling.id,), force=True))

    assert "agentId" not in path.read_text()
    assert check(str(path))["ok"]


def test_a_session_that_it_has_open_is_left_alone(home, posing):
    path = copilot_log(home, *EVENTS)
    path.with_name(f"inuse.{posing('copilot')}.lock").touch()

    with pytest.raises(ForkRefused, match="Copilot CLI"):
        cut(Request(str(path), ids=CUT))
