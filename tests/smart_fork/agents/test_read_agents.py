"""Agents that are only read. The sessions in their fixtures are in ``tests/golden/agents``."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path

import pytest

from indexer.transcripts.base import UNREAD
from smart_fork.agents import AGENTS
from smart_fork.agents.log_readers import READERS
from tests.indexer.transcripts.records import DOCUMENTS, READ_LOGS, SESSION, below_home, lay_out, prompts, said, write

CORPUS = Path(__file__).resolve().parents[3].parent / "shared/corpus/sessions.tar.xz"
SAMPLES = "_fixtures/jazzyalex+agent-sessions"
THOUGHT = "First look at the file."
agents = pytest.mark.parametrize("agent", READ_LOGS)


def put(agent: str) -> Path:
    return next(path for path in lay_out(agent) if path == Path.home() / below_home(agent))


@agents
def test_its_log_is_found_where_it_keeps_them(home, agent):
    path, reader = put(agent), READERS[agent]

    assert [path] == [file.path for file in reader.discover()]
    assert (path,) == reader.locate(reader.id_of(path))
    assert path == reader.log_at(str(path)).path


@agents
def test_its_thoughts_are_read_with_the_records_that_have_them(home, agent):
    codec = AGENTS[agent].codec
    session = said(READERS[agent].read(put(agent), keep_raw=True))
    thoughts = [codec.thought(json.loads(turn.raw)) for turn in session.turns]

    assert [THOUGHT] == [thought for thought in thoughts if thought]


@pytest.mark.parametrize("agent", sorted(set(READ_LOGS) - DOCUMENTS))
def test_records_that_are_not_known_are_counted_in_the_whole_log(home, agent):
    path = put(agent)
    with READERS[agent].as_file(path) as log:
        path = path if log == path else Path(shutil.copy(log, Path.home()))
    path.touch()
    before = READERS[agent].read(path, UNREAD)
    with path.open("a") as log:
        log.write('{"type": "hologram"}\n')
    after = READERS[agent].read(path, before.checkpoint)

    assert after.resumed
    assert (before.unknown + 1, before.records + 1) == (after.unknown, after.records)


@pytest.mark.parametrize("agent", sorted(DOCUMENTS))
def test_a_document_that_changed_is_read_again_and_one_that_is_being_written_is_no_session(home, agent):
    path, reader = put(agent), READERS[agent]
    before, whole = reader.read(path, UNREAD), path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    torn = reader.read(path, before.checkpoint)
    path.write_bytes(whole.replace(b"timeout", b"failure"))
    changed = reader.read(path, torn.checkpoint)

    assert (None, False) == (torn.session, torn.resumed)
    assert (reader.read(path).session, False) == (changed.session, changed.resumed)
    assert (before.records, before.unknown) == (changed.records, changed.unknown)
    assert before.session != changed.session
    assert not reader.is_copy(path)


def test_messages_of_a_thread_with_an_unknown_role_are_counted(home):
    result = READERS["amp"].read(put("amp"))

    assert (11, 1) == (result.records, result.unknown)


@agents
def test_a_list_says_of_it_what_reading_it_says(home, agent):
    path = put(agent)
    glanced, whole = READERS[agent].glance(path), said(READERS[agent].read(path))

    assert (whole.session_id, whole.title, whole.cwd) == (glanced.session_id, glanced.title, glanced.cwd)


def test_sessions_in_one_database_are_told_apart_and_nothing_is_written_beside_it(home):
    """The database may be of an older version, and Goose may be writing."""
    path, goose = put("goose"), READERS["goose"]
    with closing(sqlite3.connect(path.parent)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        for column in ("name", "user_set_name", "session_type", "model_config_json"):
            db.execute(f"ALTER TABLE sessions DROP COLUMN {column}")
        db.execute("ALTER TABLE messages DROP COLUMN metadata_json")
        row = ("20260517_1", "Mend it", "/home/ada/shop", "2026-05-17 08:00:00", "2026-05-17T08:00:00Z")
        db.execute("INSERT INTO sessions VALUES (?, ?, ?, ?, ?)", row)
        insert = (
            "INSERT INTO messages (session_id, role, content_json, created_timestamp) VALUES (?, 'user', ?, 1779004800)"
        )
        db.execute(insert, (row[0], '[{"type": "text", "text": "one"}]'))
        db.commit()
        before, files = {file.path.name: file for file in goose.discover()}, sorted(path.parent.parent.iterdir())
        db.execute(insert, (row[0], '[{"type": "text", "text": "two"}]'))
        db.commit()
        after = {file.path.name: file for file in goose.discover()}
        read = said(goose.read(after[row[0]].path))
        lost = [goose.has_lost(str(path.with_name(name))) for name in (row[0], "20260517_2")]

        assert files == sorted(path.parent.parent.iterdir())
    assert (["one", "two"], "Mend it", "/home/ada/shop") == (prompts(read), read.title, read.cwd)
    assert {path.name, row[0]} == set(after)
    assert [True, False] == [before[name].stamp == after[name].stamp for name in (path.name, row[0])]
    assert [False, True] == lost


def test_parts_of_an_answer_that_share_an_id_are_all_read(home):
    path = put("goose")
    with closing(sqlite3.connect(path.parent)) as db:
        db.execute("UPDATE messages SET message_id = 'm2' WHERE role = 'assistant'")
        db.commit()
    session = said(READERS["goose"].read(path))

    assert (10, 3) == (len(session.turns), sum(len(turn.tool_calls) for turn in session.turns))
    assert not session.circular


def test_a_database_that_is_not_goose_s_is_said_to_be_unread(home):
    path, goose = put("goose"), READERS["goose"]
    with closing(sqlite3.connect(path.parent)) as db:
        db.execute("DROP TABLE messages")
        db.commit()

    assert [] == list(goose.discover())
    assert "is not a Goose database, or its format is newer" in goose.unread()


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({"GOOSE_PATH_ROOT": "/srv/goose", "XDG_DATA_HOME": "/srv/x"}, "/srv/goose/data"),
        ({"GOOSE_PATH_ROOT": "goose", "XDG_DATA_HOME": "/srv/x"}, "/srv/x/goose"),
    ],
)
def test_variables_say_where_goose_has_its_database(home, monkeypatch, variables, place):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert Path(place, "sessions/sessions.db") == next(READERS["goose"].databases())


@pytest.mark.parametrize(
    ("folders", "expected"),
    [(["shop-api"], "shop-api"), (["shop/api"], "shop/api"), (["shop-api", "shop/api"], ""), ([], ""), (["shop"], "")],
)
def test_a_directory_that_only_a_folder_s_name_tells_is_taken_if_it_is_the_only_one(home, folders, expected):
    for folder in folders:
        (home / folder).mkdir(parents=True)
    slug = "-".join(part for part in re.split(r"[^a-zA-Z0-9]+", str(home)) if part)
    log = home / f".cursor/projects/{slug}-shop-api/agent-transcripts/{SESSION}/{SESSION}.jsonl"
    write(log, {"role": "user", "message": {"content": [{"type": "text", "text": "one"}]}})

    session = said(READERS["cursor"].read(log))

    assert (str(home / expected) if expected else "") == session.cwd
    assert ("folder" if expected else "") == session.inferred_from


@pytest.fixture(scope="module")
def samples(tmp_path_factory) -> Path:
    """Return a folder with logs that were edited by hand, from the corpus."""
    if not CORPUS.is_file():
        pytest.skip("needs the corpus beside the checkout")
    folder = tmp_path_factory.mktemp("corpus")
    with tarfile.open(CORPUS) as corpus:
        members = [one for one in corpus if one.name.removeprefix("./").startswith(SAMPLES)]
        corpus.extractall(folder, members, filter="data")
    return folder / SAMPLES


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("agent", "name", "counts"),
    [
        ("droid", "droid/session_store_small.jsonl", (1, 1)),
        ("droid", "droid/session_store_large.jsonl", (2, 1)),
        ("droid", "droid/session_store_schema_drift.jsonl", (1, 0)),
        ("cursor", "cursor/small.jsonl", (2, 1)),
        ("cursor", "cursor/large.jsonl", (3, 2)),
        ("cursor", "cursor/test-session.jsonl", (2, 2)),
        ("kimi", "kimi/small.jsonl", (3, 0)),
        ("kimi", "kimi/assistant_tools.jsonl", (8, 19)),
        ("pi", "pi/small.jsonl", (2, 0)),
    ],
)
def test_samples_of_others_are_read(home, samples, agent, name, counts):
    """The numbers of prompts and of calls are compared."""
    path = put(agent)
    shutil.copy(samples / name, path)
    result = READERS[agent].read(path)
    session = said(result)

    assert counts == (len(prompts(session)), sum(len(turn.tool_calls) for turn in session.turns))
    assert 0 == result.unknown
