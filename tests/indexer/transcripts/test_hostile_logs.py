"""No log, whatever its content, raises an exception or changes the agents' files."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexer.transcripts.model import Session
from smart_fork.agents.claude.log_files import ClaudeAdapter
from smart_fork.agents.log_readers import READERS
from tests.indexer.transcripts.records import (
    ASKED,
    DOCUMENTS,
    FIXTURES,
    READ_LOGS,
    SESSION,
    calling,
    claude_log,
    codex_log,
    copilot_log,
    gemini_log,
    happened,
    id_of,
    linked,
    message,
    meta,
    qwen_log,
    ran,
    read_records,
    requested,
    spoken,
    texts,
    user,
)
from tests.indexer.transcripts.test_resuming import CLAUDE, CODEX, COPILOT, GEMINI, QWEN
from tests.support.cases import thorough_except
from tests.support.exhaustive import full_or_sample

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
RECORDS = {
    "claude": [
        *CLAUDE,
        {"type": "summary", "summary": "x", "leafUuid": "u1"},
        {"type": "ai-title", "aiTitle": "x"},
        user("q", "u3", "x", forkedFrom={"sessionId": "y"}, origin={"kind": "human"}, teamName="t")
        | {"type": "attachment", "attachment": {"type": "queued_command", "prompt": "x"}},
    ],
    "codex": [
        meta(id_of(1), 0, forked_from_id=id_of(2), history_base={"thread_id": id_of(2), "end_ordinal_exclusive": 3}),
        *CODEX[1:],
        *(json.loads(line) for line in (FIXTURES / "codex/mcp-call.jsonl").read_text().splitlines()),
    ],
    "qwen": [
        *QWEN,
        *(json.loads(line) for line in (FIXTURES / "qwen/compressed.jsonl").read_text().splitlines()),
    ],
    "gemini": [
        *GEMINI,
        *(json.loads(line) for line in (FIXTURES / "gemini/compressed.jsonl").read_text().splitlines()),
    ],
    "copilot": [
        *COPILOT,
        *(json.loads(line) for line in (FIXTURES / "copilot/compacted.jsonl").read_text().splitlines()),
    ],
    **{agent: read_records(agent) for agent in READ_LOGS},
    "opencode": [
        {
            "info": {
                "id": "ses_1",
                "directory": "/srv/shop",
                "title": "Retries",
                "version": "1",
                "permission": [],
                "revert": {"messageID": "msg_9"},
                "time": {"created": 1795392420818, "updated": 1795392444629},
            },
            "messages": [
                {
                    "info": {"id": "msg_1", "role": "user", "time": {"created": 1795392421485}},
                    "parts": [{"type": "text", "text": "one"}],
                },
                {
                    "info": {
                        "id": "msg_2",
                        "role": "assistant",
                        "time": {"created": 1795392421486, "completed": 1795392421487},
                        "tokens": {"input": 1, "cache": {"read": 1}},
                        "error": {"name": "x", "data": {}},
                    },
                    "parts": [
                        {
                            "type": "tool",
                            "tool": "bash",
                            "callID": "c",
                            "state": {
                                "status": "completed",
                                "input": {"command": "make test"},
                                "output": "x",
                                "metadata": {"exit": 1},
                            },
                        },
                    ],
                },
            ],
        },
    ],
}


def places(value: object, path: tuple[object, ...] = ()) -> Iterator[tuple[object, ...]]:
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield from places(one, (*path, key))


def replaced(value: object, path: tuple[object, ...], new: object) -> object:
    if not path:
        return new
    value = copy.copy(value)
    value[path[0]] = replaced(value[path[0]], path[1:], new)
    return value


def storable(session: Session) -> None:
    """Return True if everything in the session can be written as UTF-8, and every number fits a database."""
    repr(session).encode()
    for turn in session.turns:
        turn.text.encode()
    for text in (session.title, session.cwd, session.session_id, session.root_id, *session.symbols):
        text.encode()
    assert 0 <= session.token_estimate < 2**63
    assert session.exchanges()


@cache  # they are thousands
def fields(agent: str) -> list[tuple[object, ...]]:
    """Return the paths of the fields in that agent's records."""
    return list(places(RECORDS[agent]))


@pytest.mark.parametrize("agent", thorough_except(READERS.names, "claude", "gemini", "goose"))
@settings(max_examples=full_or_sample(400, 20))
@given(data=st.data())
@pytest.mark.slow
def test_any_value_in_any_field_is_survived(tmp_path_factory, agent, data):
    records = RECORDS[agent]
    for number in range(data.draw(st.integers(1, 3))):
        there = list(places(records)) if number else fields(agent)
        records = replaced(records, data.draw(st.sampled_from(there)), data.draw(JSON))
        if not isinstance(records, list):
            records = [records]
    path = tmp_path_factory.getbasetemp() / f"rollout-2026-07-01T10-00-00-{id_of(1)}.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")

    outcome = READERS[agent].read(path)
    with suppress(OSError):
        READERS[agent].glance(path)

    if outcome.session is not None:
        storable(outcome.session)
    assert READERS[agent].read(path, outcome.checkpoint).session == outcome.session


def of_the_future(value: object) -> object:
    """Return a part of a log with additional fields, parts of a new kind, and another version."""
    if isinstance(value, dict):
        more = {key: "99.0.0" if key == "version" else of_the_future(one) for key, one in value.items()}
        return {**more, "hologram": {"beams": [1]}}
    if isinstance(value, list) and value and all(isinstance(one, dict) and "type" in one for one in value):
        return [*map(of_the_future, value), {"type": "hologram", "beams": 2}]
    return [of_the_future(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("agent", READERS.names)
def test_of_a_log_from_the_future_all_is_read_that_is_understood(tmp_path, agent):
    path = tmp_path / f"rollout-2026-07-01T10-00-00-{id_of(1)}.jsonl"
    found, counted = [], []
    unknown = [] if agent in {"opencode", *DOCUMENTS} else [{"type": "hologram", "beams": 3}]
    for records in (RECORDS[agent], [*RECORDS[agent][:1], *unknown, *map(of_the_future, RECORDS[agent][1:]), *unknown]):
        known = records if unknown else [of_the_future(records[0])] if found else records
        path.write_text("".join(json.dumps(record) + "\n" for record in known))
        outcome = READERS[agent].read(path)
        calls = [call.action for turn in outcome.session.turns for call in turn.tool_calls if call.action]
        found.append((texts(outcome.session), calls, outcome.broken))
        counted.append((outcome.records, outcome.unknown))

    assert found[0] == found[1]
    assert found[0][0]
    (records, before), (more, after) = counted
    added = 0 if agent in DOCUMENTS else 2
    assert (records + added, before + added) == (more, after)


@pytest.mark.parametrize("agent", READERS.names)
@given(data=st.binary(max_size=300))
def test_any_bytes_are_survived(tmp_path_factory, agent, data):
    path = tmp_path_factory.getbasetemp() / "log.jsonl"
    path.write_bytes(data)

    assert READERS[agent].read(path).bytes_read <= len(data)


#: The agents whose logs are files.
LINES = [reader for reader in READERS if reader.endings in ((".jsonl",), (".json",))]
ODD = [
    (b"half \\ud83d surrogate", "half ? surrogate"),
    (b"not \xff UTF-8", "not ? UTF-8"),
    (b"a raw \0 byte", "a raw \0 byte"),
    (b"an escaped \\u0000", "an escaped \0"),
    ("ä€😀".encode(), "ä€😀"),
]


@pytest.mark.parametrize(("raw", "text"), ODD, ids=[text for _, text in ODD])
def test_odd_bytes_in_a_prompt_become_text_that_can_be_stored(home, raw, text):
    for reader in LINES:
        path = ASKED[reader.name](home, "PROMPT")
        path.write_bytes(path.read_bytes().replace(b"PROMPT", raw))
        outcome = reader.read(path)

        assert outcome.broken == ()
        assert outcome.session is not None
        assert texts(outcome.session) == [text]
        storable(outcome.session)


@pytest.mark.parametrize("depth", [100, 900, 1000, 1020, 5000])
def test_deep_nesting_is_survived(home, depth):
    deep = '{"x":' * depth + '"deep_name"' + "}" * depth
    call = {"type": "tool_use", "id": "t", "name": "Task", "input": {"description": "x", "deep": "DEEP"}}
    answer = user("a1", "u1", "") | {"type": "assistant", "message": {"id": "m", "content": [call]}}
    asked = {
        "claude": claude_log(home, user("u1", None, "one"), answer),
        "codex": codex_log(
            home,
            id_of(1),
            meta(id_of(1)),
            message("user", "one"),
            {"type": "function_call", "name": "x", "arguments": "DEEP"},
        ),
        "qwen": qwen_log(
            home,
            linked("user", "u1", None, "one"),
            linked("assistant", "a1", "u1", calling("t", "agent", description="x", deep="DEEP")),
        ),
        "gemini": gemini_log(
            home, spoken("user", "u1", "one"), spoken("gemini", "a1", toolCalls=[ran("t", "x", deep="DEEP")])
        ),
        "copilot": copilot_log(
            home,
            happened("user.message", "u1", content="one"),
            happened("assistant.message", "a1", toolRequests=[requested("t", "x", deep="DEEP")]),
        ),
    }
    for agent, path in asked.items():
        reader = READERS[agent]
        arguments = json.dumps(deep) if reader.name == "codex" else deep
        path.write_text(path.read_text().replace('"DEEP"', arguments))
        outcome = reader.read(path)

        assert outcome.session is not None
        assert texts(outcome.session) == ["one"]


def test_what_is_no_log_in_the_tree_is_passed_over(home):
    """Unreadable, endless and circular files do not stop the others. Reading one by name is an `OSError`."""
    for reader in LINES:
        path = ASKED[reader.name](home, "one")
        folder = path.parent
        odd = [folder / f"{path.stem[:-1]}{character}{path.suffix}" for character in "abcd"]
        os.mkfifo(odd[0])
        odd[1].mkdir()
        odd[2].symlink_to(odd[2].name)
        odd[3].symlink_to("missing")
        (folder / "loop").symlink_to(folder)

        assert [file.path for file in reader.discover()] == [path]
        for one in odd:
            with pytest.raises(OSError):
                reader.read(one)
            with pytest.raises(OSError):
                reader.glance(one)
            assert reader.locate(reader.id_of(one)) == ()


def test_what_may_not_be_read_is_an_error_for_itself_alone(home):
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    for reader in LINES:
        path = ASKED[reader.name](home, "one")
        locked = path.parent.parent / "locked"
        locked.mkdir()
        locked.chmod(0)
        assert [file.path for file in reader.discover()] == [path]
        assert reader.locate(reader.id_of(path)) == (path,)
        locked.chmod(0o700)

        path.chmod(0)
        assert [file.path for file in reader.discover()] == [path]
        with pytest.raises(PermissionError):
            reader.read(path)


def test_a_folder_that_cannot_be_listed_hides_nothing_else(home, monkeypatch):
    """The same as root sees it."""
    good = claude_log(home, user("u1", None, "one"))
    locked = claude_log(home, user("u1", None, "one"), cwd="/srv/locked")
    scandir = os.scandir

    def refusing(folder: Path) -> object:
        if Path(folder) == locked.parent:
            raise PermissionError(folder)
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refusing)

    assert [file.path for file in ClaudeAdapter().discover()] == [good]
    assert ClaudeAdapter().locate(SESSION) == (good,)


def test_without_the_agents_there_is_nothing(home):
    """F-182, D8: a missing directory is no error."""
    assert [file for reader in READERS for file in reader.discover()] == []
    assert {reader.locate(SESSION) for reader in READERS} == {()}


def test_reading_changes_nothing(home):
    """X-004: bytes and times of the agents' files stay as they are, and nothing appears beside them."""
    claude_log(home, *CLAUDE)
    codex_log(home, id_of(1), *CODEX)
    qwen_log(home, *QWEN)
    gemini_log(home, *GEMINI[1:])
    copilot_log(home, *COPILOT[1:])

    def tree() -> dict[str, tuple[int, bytes]]:
        files = [path for path in home.rglob("*") if path.is_file()]
        return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}

    before = tree()
    for reader in READERS:
        for file in reader.discover():
            outcome = reader.read(file.path)
            reader.read(file.path, outcome.checkpoint)
            reader.read(file.path, keep_raw=True)
            reader.glance(file.path)
            reader.locate(reader.id_of(file.path))

    assert before == tree()
