"""Agents that are only read: each fixture says what was said and done, and each sample of a corpus is read."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

import pytest

from indexer.transcripts.model import Session
from smart_fork.agents import AGENTS, READERS
from tests.indexer.transcripts.records import FIXTURES, READ_LOGS, below_home, prompts, said, texts

CORPUS = Path(__file__).resolve().parents[3].parent / "shared/corpus/sessions.tar.xz"
SAMPLES = "_fixtures/jazzyalex+agent-sessions"
#: Of each agent's fixture: id, title, directory, beginning, end, models, compactions.
FACTS = {
    "droid": (
        "5d1e0c7a-2f04-4b6e-9a53-0c1b7e44d2a7", "Retry the uploads", "/home/ada/shop", "2026-05-16T22:11:01.000Z",
        "2026-05-16T22:11:14.000Z", ("aurora-2", "aurora-1"), 1,
    ),
}  # fmt: skip
#: What a person asked, and what an agent said last.
ASKED = {"droid": ["Retry failed uploads in upload.py", "Then let it raise"]}
LAST = {"droid": "Done: the fifth failure is raised."}
#: What was done, and how it ended.
DONE = {
    "droid": [
        ("read /home/ada/shop/upload.py", False, ""),
        ("edit /home/ada/shop/upload.py", False, ""),
        ("run pytest -q tests/test_upload.py", True, "Error: Command failed (exit code: 1)"),
    ]
}
THOUGHTS = {"droid": ["First look at the file."]}
#: The records that are not understood, of all.
UNKNOWN = {"droid": (1, 13)}

agents = pytest.mark.parametrize("agent", READ_LOGS)


def put(home: Path, agent: str) -> Path:
    shutil.copytree(FIXTURES / agent / "home", home, dirs_exist_ok=True)
    return home / below_home(agent)


def read(home: Path, agent: str) -> Session:
    return said(READERS[agent].read(put(home, agent)))


def actions(session: Session) -> list[tuple[str, bool, str]]:
    """Each call's line, whether it failed, and what is noted of its result."""
    results = {one.tool_use_id: one for turn in session.turns for one in turn.tool_results}
    calls = [call for turn in session.turns for call in turn.tool_calls]
    return [(call.action, results[call.id].is_error, results[call.id].note) for call in calls]


@agents
def test_its_log_is_found_where_it_keeps_them(home, agent):
    path, reader = put(home, agent), READERS[agent]

    assert [path] == [file.path for file in reader.discover()]
    assert (path,) == reader.locate(reader.id_of(path))
    assert path == reader.log_at(str(path)).path


@agents
def test_its_session_has_the_facts_that_its_log_states(home, agent):
    session = read(home, agent)

    found = (session.session_id, session.title, session.cwd, session.started, session.last_activity)
    assert (*found, session.models, session.compactions) == FACTS[agent]
    assert (agent, "person", False) == (session.agent, session.origin, session.copied)


@agents
def test_what_was_asked_answered_and_done_is_read(home, agent):
    session = read(home, agent)

    assert ASKED[agent] == prompts(session)
    assert LAST[agent] == texts(session)[-1]
    assert DONE[agent] == actions(session)


@agents
def test_its_thoughts_are_read_with_the_records_that_have_them(home, agent):
    codec = AGENTS[agent].codec
    session = said(READERS[agent].read(put(home, agent), keep_raw=True))
    thoughts = [codec.thought(json.loads(turn.raw)) for turn in session.turns]

    assert THOUGHTS[agent] == [thought for thought in thoughts if thought]


@agents
def test_records_that_are_not_known_are_counted(home, agent):
    path = put(home, agent)
    whole = READERS[agent].read(path)

    assert UNKNOWN[agent] == (whole.unknown, whole.records)
    again = READERS[agent].read(path, whole.checkpoint)
    assert (again.resumed, *UNKNOWN[agent]) == (True, again.unknown, again.records)


@agents
def test_a_list_says_of_it_what_reading_it_says(home, agent):
    path = put(home, agent)
    glanced, whole = READERS[agent].glance(path), said(READERS[agent].read(path))

    assert (whole.session_id, whole.title, whole.cwd) == (glanced.session_id, glanced.title, glanced.cwd)


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
    ],
)
def test_samples_of_others_are_read(home, samples, agent, name, counts):
    """The numbers of prompts and of calls."""
    path = put(home, agent)
    shutil.copy(samples / name, path)
    result = READERS[agent].read(path)
    session = said(result)

    assert counts == (len(prompts(session)), sum(len(turn.tool_calls) for turn in session.turns))
    assert 0 == result.unknown
