"""Agents that are only read. What is read from their fixtures is in ``tests/golden/agents``."""

from __future__ import annotations

import json
import re
import shutil
import tarfile
from pathlib import Path

import pytest

from smart_fork.agents import AGENTS, READERS
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
    path.touch()
    before = READERS[agent].read(path)
    with path.open("a") as log:
        log.write('{"type": "hologram"}\n')
    after = READERS[agent].read(path, before.checkpoint)

    assert after.resumed
    assert (before.unknown + 1, before.records + 1) == (after.unknown, after.records)


@pytest.mark.parametrize("agent", sorted(DOCUMENTS))
def test_a_document_that_changed_is_read_again_and_one_that_is_being_written_is_no_session(home, agent):
    path, reader = put(agent), READERS[agent]
    before, whole = reader.read(path), path.read_bytes()
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
    """Logs that others have edited by hand."""
    if not CORPUS.is_file():
        pytest.skip("needs the corpus beside the checkout")
    folder = tmp_path_factory.mktemp("corpus")
    with tarfile.open(CORPUS) as corpus:
        members = [one for one in corpus if one.name.removeprefix("./").startswith(SAMPLES)]
        corpus.extractall(folder, members, filter="data")
    return folder / SAMPLES


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
    """The numbers of prompts and of calls."""
    path = put(agent)
    shutil.copy(samples / name, path)
    result = READERS[agent].read(path)
    session = said(result)

    assert counts == (len(prompts(session)), sum(len(turn.tool_calls) for turn in session.turns))
    assert 0 == result.unknown
