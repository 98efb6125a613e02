"""Tests of reading OpenCode's sessions from its database."""

import json
import os
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from indexer.background_indexer import check_prerequisites
from indexer.log_changes import Report, changed_logs
from indexer.refresh import complete
from indexer.safe_files import index_db
from indexer.store.sqlite import Store
from indexer.transcripts.base import Agents
from smart_fork.agents import foreign_database
from smart_fork.agents.opencode import OpenCode
from smart_fork.agents.opencode.log_files import OpenCodeAdapter
from tests.smart_fork.agents.opencode.database import (
    ALL,
    COMPACTED,
    FAILED,
    FORK,
    FORK_AT,
    SAID_AGAIN,
    TAKEN_BACK,
    TOOLS,
    WITH_SUBAGENT,
    change,
    make,
)
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.support.cases import thorough_except_first
from tests.support.exhaustive import full_or_sample


@pytest.fixture
def path():
    return make()


@pytest.fixture
def reader():
    return OpenCodeAdapter()


def session(reader, identity):
    (place,) = reader.locate(identity)
    return reader.read(place).session


def said(found) -> list[tuple[str, str]]:
    return [(turn.role, turn.text) for turn in found.turns if turn.text]


def test_the_conversation_of_a_sub_agent_is_read_from_the_call_that_began_it(path, reader):
    one = reader.read(next(iter(reader.locate(WITH_SUBAGENT))), keep_raw=True).session
    agents, work = OpenCode().subagents, OpenCode().codec

    (call, name), *more = agents.begun(one).items()
    inside = agents.read(one, name)

    assert ([], [call]) == (more, [made.id for turn in one.turns for made in turn.tool_calls if made.name == "task"])
    assert [("user", "assistant"), ("mock",)] == [tuple(role for role, _ in said(inside)), inside.models]
    assert agents.read(one, "../opencode.db") is agents.read(one, TOOLS) is None, "neither of them is its sub-agent"
    assert "hm" == work.thought(
        {"parts": [None, {"type": "reasoning", "text": "hm"}, {"type": "reasoning", "text": 7}]}
    )


def test_every_session_is_a_log_but_those_of_sub_agents(path, reader):
    assert {f"{path}/{one}" for one in ALL} == {file.location for file in reader.discover()}
    assert all(file == reader.log_at(file.location) for file in reader.discover())
    assert all(str(path) == file.within and file.size > 0 for file in reader.discover())
    with closing(sqlite3.connect(path)) as db:
        ((agents,),) = db.execute("SELECT id FROM session WHERE parent_id IS NOT NULL")
    assert () == reader.locate(agents)
    assert reader.log_at(f"{path}/{agents}") is None


def test_a_session_says_where_it_worked_what_it_is_called_and_what_was_done(path, reader):
    found = session(reader, TOOLS)

    assert ("/work/depot", "1.18.33", "automated") == (found.cwd, found.version, found.origin)
    assert found.title.startswith("PONG 2: read")
    assert ("2026-11-23T00:07:00.818Z", "2026-11-23T00:07:24.611Z") == (found.started, found.last_activity)
    actions = [call.action for turn in found.turns for call in turn.tool_calls]
    assert ["read /work/depot/upload.py", "edit /work/depot/upload.py", "run false"] == actions
    (edit,) = [call for turn in found.turns for call in turn.tool_calls if call.edits]
    assert ("/work/depot/upload.py",) == edit.edits
    results = [result for turn in found.turns for result in turn.tool_results]
    assert [(False, ""), (False, ""), (True, "exit 1: (no output)")] == [(one.is_error, one.note) for one in results]
    assert (2, 5, 8) == found.branch_points()
    assert 2819 == found.token_estimate
    assert not found.unfinished


def test_a_patch_edits_all_of_its_files(path, reader):
    patch = "*** Begin Patch\n*** Update File: /work/depot/a.py\n*** Add File: b.py\n+retryUpload\n*** End Patch"
    change(path, "UPDATE part SET data = json_set(data, '$.tool', 'apply_patch', '$.state.input', json(?)) "
           "WHERE session_id = ? AND json_extract(data, '$.tool') = 'edit'", json.dumps({"patchText": patch}), TOOLS)  # fmt: skip

    (edit,) = [call for turn in session(reader, TOOLS).turns for call in turn.tool_calls if call.edits]
    assert (("/work/depot/a.py", "b.py"), "edit /work/depot/a.py, b.py") == (edit.edits, edit.action)
    assert ("retryUpload",) == session(reader, TOOLS).wrote


def test_a_fork_has_the_family_of_its_parent_and_no_other_session_has(path, reader):
    families = [session(reader, one).root_id for one in (TOOLS, FORK, FORK_AT)]
    others = {session(reader, one).root_id for one in ALL if one not in (TOOLS, FORK, FORK_AT)}

    assert 1 == len(set(families))
    assert 5 == len(others - set(families))
    assert said(session(reader, TOOLS)) == said(session(reader, FORK))[:-2]


def test_what_was_taken_back_is_not_in_the_conversation(path, reader):
    assert [("user", "first try"), ("assistant", "PONG 1: first try")] == said(session(reader, TAKEN_BACK))
    again = ["one", "PONG 1: one", "two, differently", "PONG 3: two, differently"]
    assert again == [text for _, text in said(session(reader, SAID_AGAIN))]


def test_a_compaction_is_counted_and_its_summary_is_nobodys_words(path, reader):
    found = session(reader, COMPACTED)

    assert 1 == found.compactions
    assert ["system", "system"] == [turn.role for turn in found.turns[4:6]]
    assert not any("was compacted" in text for _, text in said(found))
    assert found.loads()[5] < found.loads()[3]
    assert 2478 == found.token_estimate


def test_an_answer_that_failed_leaves_the_session_unfinished_and_without_a_made_up_title(path, reader):
    found = session(reader, FAILED)

    assert ("FAIL 400 please", True) == (found.title, found.unfinished)
    assert "2026-11-23T00:07:54.402Z" == found.last_activity


def test_the_words_of_a_sub_agent_are_not_its_parents(path, reader):
    actions = [call.action for turn in session(reader, WITH_SUBAGENT).turns for call in turn.tool_calls]

    assert ["task find uploaders"] == actions


def test_reading_writes_nothing_beside_the_database(path, reader):
    before = {one.name: one.read_bytes() for one in path.parent.iterdir()}
    for file in reader.discover():
        reader.read(file.path)
        reader.glance(file.path)

    assert before == {one.name: one.read_bytes() for one in path.parent.iterdir()}


def test_what_the_program_has_not_moved_into_the_database_yet_is_read_as_well(path, reader):
    with closing(sqlite3.connect(path)) as db:  # as the program has it while it runs
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("UPDATE session SET title = 'Retries', time_updated = 1895392612029 WHERE id = ?", (TOOLS,))
        db.commit()
        assert Path(f"{path}-wal").stat().st_size > 0
        assert "Retries" == session(reader, TOOLS).title
        newest = max(reader.discover(), key=lambda file: file.mtime_ns)
        assert TOOLS == newest.path.name


#: Writes a title as the program does, and is killed: what it has written is in the `-wal`, and the `-shm` is nobody's.
KILLED = """
import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("PRAGMA journal_mode = WAL")
db.execute("UPDATE session SET title = 'Retries' WHERE id = ?", sys.argv[2:])
db.commit()
os._exit(0)
"""


@pytest.fixture
def killed(path):
    subprocess.run([sys.executable, "-c", KILLED, str(path), TOOLS], check=True)
    return Path(f"{path}-wal"), Path(f"{path}-shm")


def test_a_program_that_starts_while_it_is_read_meets_no_lock_of_ours(path, reader, killed):
    """Writing the `-shm` file of a killed program locks it, and the program would then end in its first second."""
    _, index = killed
    index.write_bytes(bytes(len(index.read_bytes())))
    before = index.read_bytes()

    assert "Retries" == session(reader, TOOLS).title
    assert before == index.read_bytes()


def test_what_a_program_that_was_killed_has_left_is_read_without_its_index_too(path, reader, killed):
    _, index = killed
    index.unlink()

    assert "Retries" == session(reader, TOOLS).title


def test_only_a_session_that_has_changed_is_read_again(path, reader):
    store = Store(index_db())
    complete(store, Agents(reader), None, patience=0)
    change(path, "UPDATE message SET time_updated = 1895392612029 WHERE session_id = ?", COMPACTED)
    changed = changed_logs(store, Agents(reader), Report())
    store.close()

    assert [COMPACTED] == [file.path.name for file in changed]


def test_a_session_that_was_deleted_is_lost_and_nothing_is_while_the_database_cannot_be_read(path, reader):
    assert not reader.has_lost(f"{path}/{TOOLS}")
    change(path, "DELETE FROM session WHERE id = ?", TOOLS)
    assert reader.has_lost(f"{path}/{TOOLS}")
    path.write_bytes(b"SQLite format 3\0" + b"\xff" * 4096)

    assert not reader.has_lost(f"{path}/{TOOLS}")
    assert [] == list(reader.discover())
    with pytest.raises(OSError, match="database"):
        reader.read(path / TOOLS)


#: Holds the database that it is given until its input ends.
HOLDS = """
import sqlite3, sys
from contextlib import closing
with closing(sqlite3.connect(sys.argv[1])) as db:
    for said in ("PRAGMA locking_mode = EXCLUSIVE", "PRAGMA journal_mode = WAL", "DELETE FROM part"):
        db.execute(said)
    db.commit()
    print("held", flush=True)
    sys.stdin.read()
"""


def is_unread(reader, path, said) -> str:
    told = reader.unread()
    assert said in told
    assert "try again when no OpenCode is busy" in told
    assert not reader.has_lost(f"{path}/{TOOLS}"), "none of its sessions is lost by that"
    assert f"no session of opencode can be read: {told}" in check_prerequisites([reader]).warnings
    return told


def test_a_database_that_cannot_be_read_is_said_to_be_one_with_what_to_do(path, reader, run):  # noqa: F811
    whole = path.read_bytes()
    assert reader.unread() == ""
    path.write_bytes(whole[:8192])
    is_unread(reader, path, "malformed")
    path.write_bytes(b"half " * 1000)
    is_unread(reader, path, "file is not a database")
    path.write_bytes(whole)
    change(path, "ALTER TABLE part RENAME TO piece")

    told = is_unread(reader, path, "or its format is newer")

    assert told in " ".join(run("agents").out.split())


def test_a_database_that_is_locked_is_said_to_be(path, reader, monkeypatch):
    monkeypatch.setattr(foreign_database, "BUSY_MILLISECONDS", 1)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as held:
        assert held.stdout.readline() == b"held\n"
        is_unread(reader, path, "is locked")
        held.stdin.close()


def test_the_file_of_a_session_is_read_as_the_session(path, reader):
    expected = session(reader, TOOLS)
    with reader.as_file(expected.source_path) as copy:
        found = reader.read(copy).session

    assert (expected.turns, expected.title, expected.root_id) == (found.turns, found.title, found.root_id)
    assert (TOOLS, TOOLS) == (found.session_id, copy.name)
    assert found.copied


def test_the_folder_of_a_persons_data_may_be_elsewhere(monkeypatch, tmp_path, reader):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    elsewhere = make(tmp_path / "opencode/opencode.db")
    assert len(ALL) == len(list(reader.discover()))
    assert (tmp_path / "opencode", 0) == reader.folders()[0]
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert [] == list(reader.discover())

    monkeypatch.setenv("OPENCODE_DB", str(elsewhere))
    assert len(ALL) == len(list(reader.discover()))


def test_a_change_beside_the_database_is_one_of_its_sessions(path, reader):
    assert len(ALL) == len(list(reader.logs_of(f"{path}-wal")))
    assert [TOOLS] == [file.path.name for file in reader.logs_of(f"{path}/{TOOLS}")]
    assert [] == list(reader.logs_of(str(path.parent / "other.db")))


@pytest.mark.parametrize(
    "name", thorough_except_first(["../../../etc/passwd", "a/b", "", "x" * 200, "ses_\udcff", "a b"])
)
def test_a_session_whose_id_is_none_is_passed_over(path, reader, name):
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE session SET id = ? WHERE id = ?", (os.fsencode(name), TOOLS))
        db.commit()

    assert set(ALL) - {TOOLS} == {file.path.name for file in reader.discover()}
    assert not reader.locate(name)


HOSTILE = (
    b"",
    b"null",
    b"[]",
    b"{",
    b'{"role": 1}',
    b'{"role":"user","time":7}',
    b"\xff\xfe",
    b'"x"',
    b'{"role":"assistant","tokens":[],"error":"x"}',
)


@pytest.mark.parametrize("data", thorough_except_first(HOSTILE))
@pytest.mark.parametrize("table", thorough_except_first(["message", "part"]))
def test_a_row_that_is_nothing_of_the_kind_does_not_hide_the_others(path, reader, table, data):
    with closing(sqlite3.connect(path)) as db:
        ((first,),) = db.execute(f"SELECT min(id) FROM {table} WHERE session_id = ?", (TOOLS,))  # noqa: S608
        db.execute(f"UPDATE {table} SET data = ? WHERE id = ?", (data, first))  # noqa: S608
        db.commit()
    (place,) = reader.locate(TOOLS)
    result = reader.read(place)

    assert any("three attempts" in turn.text for turn in result.session.turns)
    assert all(place == line.path for line in result.broken)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8"), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["type", "text", "tool", "state", "status", "input", "output", "metadata", "exit", "time", "created", "role", "id",
         "parts", "info", "tokens", "cache", "read", "error", "name", "summary", "revert", "messageID", "title"]
    ), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(st.lists(st.fixed_dictionaries({"info": JSON, "parts": JSON})), JSON)
@settings(
    max_examples=full_or_sample(80, 15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_whatever_a_file_says_is_a_session_or_none(tmp_path, messages, info):
    path = tmp_path / "ses_x"
    path.write_text(json.dumps({"info": info, "messages": messages}))
    result = OpenCodeAdapter().read(path)

    assert (result.session is None) is bool(result.skipped)


def test_a_view_in_the_place_of_a_table_is_not_asked(path, reader):
    with closing(sqlite3.connect(path)) as db:
        db.executescript(
            "ALTER TABLE part RENAME TO other; CREATE VIEW part AS WITH RECURSIVE t(x) AS "
            "(SELECT 1 UNION ALL SELECT x + 1 FROM t) SELECT x AS id, x AS message_id, x AS session_id, x AS data FROM t"
        )

    assert [] == list(reader.discover())


def test_what_is_no_regular_file_is_no_database(path, reader):
    path.unlink()
    os.mkfifo(path)

    assert stat.S_ISFIFO(path.stat().st_mode)
    assert [] == list(reader.discover())
