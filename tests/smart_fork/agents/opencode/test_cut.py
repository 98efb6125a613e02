"""Tests of cuts of OpenCode's sessions, which share one database."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from smart_fork.agents.opencode import excision as rows
from smart_fork.agents.opencode.log_files import OpenCodeAdapter
from smart_fork.errors import ForkRefused
from smart_fork.excise import erasure
from smart_fork.excise.answer import CutRequest as Request
from smart_fork.excise.cutting import branch, cut, rollback
from smart_fork.excise.lookup import load_with_tool
from smart_fork.excise.verification import check
from tests.smart_fork.agents.opencode.database import FORK, TAKEN_BACK, TOOLS, WITH_SUBAGENT, change, make, program
from tests.support import forkserver
from tests.support.cases import thorough_except_first

pytestmark = pytest.mark.slow

SECRET = "zebrafalcon77"
EVENTS = """
    CREATE TABLE event_sequence (aggregate_id text PRIMARY KEY, seq integer NOT NULL, owner_id text);
    CREATE TABLE event (id text PRIMARY KEY, aggregate_id text NOT NULL, seq integer NOT NULL, type text NOT NULL,
        data text NOT NULL);
    CREATE UNIQUE INDEX event_aggregate_seq_idx ON event (aggregate_id, seq);
    CREATE TABLE todo (session_id text NOT NULL, content text NOT NULL, position integer NOT NULL,
        CONSTRAINT todo_pk PRIMARY KEY(session_id, position));
"""


@pytest.fixture
def path(home) -> Path:
    """Make the database of a killed program, with a secret in a session, in its fork and in free pages."""
    path = make()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.executescript(EVENTS)
        say = "UPDATE part SET data = replace(data, 'three attempts are enough', ?) WHERE session_id IN (?, ?)"
        db.execute(say, (f"three attempts of {SECRET} are enough", TOOLS, FORK))
        events = [("session.updated", json.dumps({"info": {"id": TOOLS, "title": "x"}}, separators=(",", ":")))]
        for table, told in (("message", "info"), ("part", "part")):
            for identity, message, data in db.execute(
                f"SELECT id, {'message_id' if table == 'part' else 'id'}, data FROM {table} WHERE session_id = ?",  # noqa: S608
                (TOOLS,),
            ):
                named = json.loads(data) | {"id": identity, "messageID": message}
                events.append(
                    (f"{table}.updated", json.dumps({told: named}, separators=(",", ":"), ensure_ascii=False))
                )
        for seq, (kind, data) in enumerate(events):
            db.execute("INSERT INTO event VALUES (?, ?, ?, ?, ?)", (f"evt_{seq}", TOOLS, seq, kind, data))
        db.execute("INSERT INTO todo VALUES (?, ?, 0)", (TOOLS, "write it"))
        db.execute("INSERT INTO part SELECT id || 'x', message_id, session_id, 0, 0, ? FROM part", (SECRET * 400,))
        db.execute("DELETE FROM part WHERE id LIKE '%x' AND time_created = 0")
        db.commit()
    return path


def all_rows(path: Path, *but: str) -> dict[str, list]:
    """Return the rows of all tables, without the rows of some sessions."""
    with closing(sqlite3.connect(path)) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")]
        found = {name: sorted(db.execute(f"SELECT * FROM {name}").fetchall(), key=repr) for name in tables}  # noqa: S608
    return {name: [row for row in some if not any(one in row for one in but)] for name, some in found.items()}


def in_bytes(path: Path) -> list[str]:
    return [one.name for one in path.parent.glob("opencode.db*") if SECRET.encode() in one.read_bytes()]


def said(path: Path, identity: str) -> list[str]:
    return [turn.text for turn in OpenCodeAdapter().read(path / identity).session.turns]


def test_what_is_cut_is_in_no_byte_of_the_database_and_others_rows_are_as_they_were(path):
    before, texts = all_rows(path, TOOLS, FORK), said(path, TOOLS)
    assert in_bytes(path)

    done = cut(Request(TOOLS, "3"))

    assert [3] == [number for number in done.numbers if number is not None]
    assert [text for number, text in enumerate(texts) if number != 3] == said(path, TOOLS)
    assert [TOOLS, FORK] == [done.session_id, *(one.session_id for one in done.followed)]
    assert [] == in_bytes(path)
    assert before == all_rows(path, TOOLS, FORK)
    assert [] == list(check(TOOLS).copies)
    assert check(TOOLS).ok


def test_undoing_a_cut_gives_exactly_the_rows_of_before(path):
    before = all_rows(path)
    done = cut(Request(TOOLS, "3-8", force=True))
    assert before != all_rows(path)

    undone = rollback(done.snapshot)

    assert before == all_rows(path)
    assert (TOOLS, 1) == (undone.session_id, len(undone.followed))


def test_answers_name_a_question_that_stays_and_a_title_that_was_made_of_what_goes_goes(path):
    change(path, "UPDATE session SET title = 'add a retry to the uploader' WHERE id = ?", TOOLS)
    cut(Request(TOOLS, "0"))

    with closing(sqlite3.connect(path)) as db:
        (title,) = db.execute("SELECT title FROM session WHERE id = ?", (TOOLS,)).fetchone()
        infos = [
            json.loads(data) | {"id": one}
            for one, data in db.execute("SELECT id, data FROM message WHERE session_id = ?", (TOOLS,))
        ]
    ids = {info["id"] for info in infos}
    assert {True} == {info["parentID"] in ids for info in infos if info["role"] == "assistant"}
    assert title.startswith("New session - 2026-")


def test_the_differences_that_the_session_itself_keeps_go_with_any_cut(path):
    diffs = json.dumps([{"file": "up.py", "patch": SECRET}])
    change(path, "UPDATE session SET summary_diffs = ? WHERE id = ?", diffs, TOOLS)

    cut(Request(TOOLS, "3"))

    with closing(sqlite3.connect(path)) as db:
        assert [(None,)] == db.execute("SELECT summary_diffs FROM session WHERE id = ?", (TOOLS,)).fetchall()
    assert [] == in_bytes(path)


def test_the_session_of_a_sub_agent_goes_with_the_call_that_began_it_and_comes_back(path):
    before = all_rows(path)
    child = "ses_dfa45179dffeN62GEWwDYorf60"

    done = cut(Request(WITH_SUBAGENT, "1"))

    assert child in done.repeated
    assert not [row for some in all_rows(path).values() for row in some if child in row]
    rollback(done.snapshot)
    assert before == all_rows(path)


@pytest.mark.parametrize("cut_away", [1, 2])
def test_what_was_taken_back_begins_with_the_next_message_that_is_left(path, cut_away):
    *_, asked, answered = (turn.id for turn in load_with_tool("opencode", path / TAKEN_BACK).turns)

    cut(Request(TAKEN_BACK, ids=(asked, answered)[:cut_away], force=True))

    with closing(sqlite3.connect(path)) as db:
        ((revert,),) = db.execute("SELECT revert FROM session WHERE id = ?", (TAKEN_BACK,)).fetchall()
    assert (answered if cut_away == 1 else None) == (revert and json.loads(revert)["messageID"])


@pytest.mark.thorough
def test_a_long_output_in_a_file_of_its_own_goes_with_its_call_and_comes_back(path):
    output, other = (path.parent / "tool-output" / name for name in ("tool_1", "tool_2"))
    elsewhere = path.parent / "tool_3"
    output.parent.mkdir()
    for one in (output, other, elsewhere):
        one.write_text(f"long {SECRET}")
    name = "UPDATE part SET data = json_set(data, '$.state.metadata.outputPath', ?) WHERE data ->> '$.callID' = ?"
    for call, file in (("call_643705a4", output), ("call_f6d5ac1b", elsewhere)):
        change(path, name, str(file), call)

    done = cut(Request(TOOLS, "1,4", force=True))

    assert [False, True, True] == [one.exists() for one in (output, other, elsewhere)]
    rollback(done.snapshot)
    assert f"long {SECRET}" == output.read_text()


def test_a_secret_is_masked_where_it_stands_and_events_and_copies_follow(path):
    key = "sk-ant-api03-" + "a1B2" * 20
    change(path, "UPDATE part SET data = replace(data, ?, ?)", SECRET, key)
    change(path, "UPDATE event SET data = replace(data, ?, ?)", SECRET, key)

    done = cut(Request(TOOLS, secrets=True))

    assert {"anthropic-key"} == set(done.masked)
    assert not any(key.encode() in one.read_bytes() for one in path.parent.glob("opencode.db*"))
    assert any("[REDACTED:anthropic-key]" in text for text in said(path, FORK))


def test_a_copy_is_without_what_is_cut_and_its_parent_is_as_it_was(path, monkeypatch):
    before = all_rows(path)
    monkeypatch.setenv("PATH", f"{program(Path.home() / 'bin').parent}{os.pathsep}{os.environ['PATH']}")

    made = branch(TOOLS, "3")

    texts = said(path, TOOLS)
    assert [text for number, text in enumerate(texts) if number != 3] == said(path, made.session_id)
    assert before == all_rows(path, made.session_id)


def test_while_a_program_has_the_database_open_nothing_is_cut(path):
    holding = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.execute('SELECT * FROM part').fetchone(); "
    holding += "print(1, flush=True); sys.stdin.read()"
    before = all_rows(path)
    with forkserver.Popen(
        [sys.executable, "-c", holding, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        with pytest.raises(ForkRefused, match=f"process {process.pid} has OpenCode's database open"):
            cut(Request(TOOLS, "3"))
        lines = rows.lines_of(path / TOOLS)
        with pytest.raises(ForkRefused, match="database open"):
            rows.write(path / TOOLS, lines[:-1], None)
        process.stdin.close()
    assert before == all_rows(path)


def test_a_session_that_has_gone_on_is_not_written_over(path):
    transcript = load_with_tool("opencode", path / TOOLS)
    change(path, "UPDATE part SET data = json_set(data, '$.x', 1) WHERE session_id = ?", TOOLS)
    with pytest.raises(ForkRefused, match="changed during reading"):
        rows.write(path / TOOLS, [], transcript.stamp)
    done = cut(Request(TOOLS, "3"))
    change(
        path,
        "INSERT INTO message SELECT id || 'x', session_id, time_created + 9, 1, data FROM message WHERE session_id = ?",
        TOOLS,
    )
    with pytest.raises(ForkRefused, match="continued after the cut"):
        rollback(done.snapshot)


KILLED = """
import os, signal, sys
import apsw
from smart_fork.excise.answer import CutRequest as Request
from smart_fork.excise.cutting import cut

left = int(sys.argv[3])

def traced(cursor, sql, bindings):
    global left
    left -= sql.startswith(sys.argv[2])
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    return True

class Connection(apsw.Connection):
    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        if "opencode" in self.filename:  # not our own state
            self.exec_trace = traced

apsw.Connection = Connection
cut(Request(sys.argv[1], "3"))
"""
#: Before what a process is killed, how often that has been done then, and whether its cut is made.
KILLS = [
    ("BEGIN EXCLUSIVE", 1, False), ("DELETE", 1, False), ("DELETE", 3, False), ("COMMIT", 1, False), ("VACUUM", 1, True),
    ("PRAGMA wal_checkpoint", 1, True), ('DELETE FROM "part"', 2, True), ("COMMIT", 2, True), ("VACUUM", 2, True),
]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "time", "made"), thorough_except_first(KILLS), ids=[f"{one}-{time}" for one, time, _ in KILLS]
)
def test_who_is_killed_in_a_cut_leaves_all_of_it_or_nothing_and_the_rest_is_made_up_for(path, before, time, made):
    there, texts = all_rows(path), said(path, TOOLS)
    left = [text for number, text in enumerate(texts) if number != 3]

    words = [sys.executable, "-c", KILLED, TOOLS, before, str(time)]
    done = forkserver.run(words, capture_output=True, text=True)

    assert -9 == done.returncode, done.stderr
    assert (left if made else texts) == said(path, TOOLS)
    assert made or there == all_rows(path)
    assert erasure.run_pending()
    assert (left if made else texts) == said(path, FORK)[:-2]
    assert ([] == in_bytes(path)) is made
