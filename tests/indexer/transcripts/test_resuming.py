"""A log that has only grown is read from the last position, and gives the session of a complete reading."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.transcripts.base import UNREAD, AgentAdapter, Checkpoint
from smart_fork.agents.claude.log_files import ClaudeAdapter
from smart_fork.agents.codex.log_files import CodexAdapter
from smart_fork.agents.copilot.log_files import CopilotAdapter
from smart_fork.agents.gemini.log_files import GeminiAdapter
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.qwen.log_files import QwenAdapter
from tests.indexer.transcripts.records import (
    DOCUMENTS,
    READ_LOGS,
    SESSION,
    answering,
    assistant,
    below_home,
    calling,
    chained,
    codex_path,
    enveloped,
    event,
    gemini_head,
    happened,
    id_of,
    in_a_row,
    item,
    linked,
    listed,
    message,
    meta,
    ran,
    read_records,
    requested,
    result,
    spoken,
    use,
    user,
)  # fmt: skip
from tests.support.exhaustive import full_or_sample

ONE = id_of(1)
CLAUDE = [
    {"type": "custom-title", "customTitle": "Uploader"},
    user("u1", None, "one", promptSource="sdk"),
    chained("progress", "p1", "u1", data={}),
    chained("progress", "p2", "p1", data={}),
    assistant("a1", "p2", "first", use("t1", "Bash", command="ls some_name"), message="m"),
    assistant("a2", "a1", use("t2", "mcp__smart-fork__smart_fork", intent="x"), message="m"),
    result("r1", "a1", "t1", "other_name"),
    result("r2", "a2", "t2", "our_answer"),
    chained("system", "c1", None, subtype="compact_boundary", logicalParentUuid="r2"),
    user("u2", "c1", "abandoned"),
    user("u3", "c1", "two"),
]
CODEX = [
    meta(ONE, 0, git={"branch": "main"}),
    message("user", "one"),
    event("user_message", message="one"),
    item("function_call", call_id="c1", name="smart_fork", namespace="mcp__smart_fork", arguments="{}"),
    item("function_call_output", call_id="c1", output="our_answer"),
    message("assistant", "first"),
    enveloped("compacted", message=""),
    message("user", "two"),
    event("user_message", message="two"),
    event("thread_rolled_back", num_turns=1),
    message("user", "three"),
]
QWEN = [
    linked("user", "u1", None, "one", provenance="real_user"),
    linked("system", "s1", "u1", subtype="custom_title", systemPayload={"customTitle": "Uploader"}),
    linked("system", "s2", "s1", subtype="ui_telemetry", systemPayload={"uiEvent": {"response_text": "first"}}),
    linked(
        "assistant", "a1", "s2", "first", calling("t1", "run_shell_command", command="ls some_name && git commit"),
        calling("t2", "mcp__smart-fork__smart_fork", intent="x"), usageMetadata={"totalTokenCount": 900},
    ),
    linked("tool_result", "r1", "a1", answering("t1", "run_shell_command", output="other_name")),
    linked("tool_result", "r2", "r1", answering("t2", "mcp__smart-fork__smart_fork", output="our_answer")),
    linked("system", "c1", "r2", subtype="chat_compression", systemPayload={"compressedHistory": [{"parts": []}]}),
    linked("user", "u2", "c1", "abandoned"),
    linked("system", "w1", "c1", subtype="rewind"),
    linked("user", "u3", "w1", "two", forkedFrom={"sessionId": id_of(1), "messageUuid": "u3"}),
]  # fmt: skip
GEMINI = [
    gemini_head(ONE, "/srv/shop"),
    listed(spoken("user", "c", "<session_context>\n- **Workspace Directories:**\n  - /srv/shop\n</session_context>")),
    spoken("user", "u1", "one"),
    spoken("gemini", "a1", tokens={"total": 900}),
    spoken("gemini", "a1", tokens={"total": 900}, toolCalls=[
        ran("t1", "run_shell_command", "other_name", command="ls some_name && git commit"),
        ran("t2", "mcp_smart-fork_smart_fork", "our_answer", intent="x"),
    ]),
    spoken("user", "r1", answering("t1", "run_shell_command", output="other_name")),
    spoken("gemini", "a2", "first"),
    spoken("user", "u2", "two"),
    spoken("gemini", "a3", "second"),
    {"$set": {"summary": "Uploader"}},
    listed(
        spoken("user", "s1", "<state_snapshot>all</state_snapshot>"), spoken("gemini", "s2", "Got it."),
        spoken("user", "n2", "two"), spoken("gemini", "n3", "second"),
    ),
    spoken("user", "u4", "abandoned"),
    {"$rewindTo": "u4"},
    spoken("info", "i1") | {"content": "Request cancelled."},
    spoken("user", "u5", "three", calling("x", "y")),
]  # fmt: skip
COPILOT = in_a_row(
    happened("session.start", "s", sessionId=SESSION, copilotVersion="1.0.102", context={"cwd": "/srv/shop", "branch": "main"}),
    happened("user.message", "u1", content="one", transformedContent="<current_datetime>x</current_datetime>\n\none"),
    happened("session.usage_record", "r1", usage={"inputTokens": 900, "outputTokens": 7}),
    happened("assistant.message", "a1", content="", toolRequests=[
        requested("t1", "bash", command="ls some_name && git commit"),
        requested("t2", "smart-fork-smart_fork", intent="x"),
    ]),
    happened("tool.execution_start", "b1", toolCallId="t1"),
    happened("user.message", "g1", content="look", source="agent-x") | {"agentId": "g"},
    happened("tool.execution_complete", "c1", toolCallId="t1", success=True, shellExecution={"exitCode": 1},
             result={"content": "other_name\n<shellId: 0 completed with exit code 1>"}),
    happened("tool.execution_complete", "c2", toolCallId="t2", success=True, result={"content": "our_answer"}),
    happened("session.compaction_complete", "k1", success=True, postCompactionTokens=300, summaryContent="all"),
    happened("assistant.message", "a2", content="first", toolRequests=[]),
    happened("session.info", "f1", infoType="fork", message=f'Forked from "x" ({ONE}) as "y" ({SESSION}).'),
    happened("user.message", "u2", content="two"),
    happened("abort", "x1", reason="user_initiated"),
)  # fmt: skip
AGENTS = [
    (ClaudeAdapter(), f".claude/projects/-srv-shop/{SESSION}.jsonl", CLAUDE),
    (CodexAdapter(), str(codex_path(Path(), ONE)), CODEX),
    (QwenAdapter(), f".qwen/projects/-srv-shop/chats/{SESSION}.jsonl", QWEN),
    (GeminiAdapter(), ".gemini/tmp/shop/chats/session-2026-07-01T10-00-00000000.jsonl", GEMINI),
    (CopilotAdapter(), f".copilot/session-state/{SESSION}/events.jsonl", COPILOT),
    *((READERS[agent], str(below_home(agent)), read_records(agent)) for agent in READ_LOGS if agent not in DOCUMENTS),
]


@pytest.fixture(params=AGENTS, ids=lambda case: case[0].name)
def case(request, home) -> tuple[AgentAdapter, Path, bytes]:
    reader, name, records = request.param
    path = home / name
    path.parent.mkdir(parents=True)
    return reader, path, "".join(json.dumps(record) + "\n" for record in records).encode()


def test_a_grown_log_is_read_from_the_offset_only(case):
    reader, path, data = case
    for cut in range(0, len(data) + 1, full_or_sample(37, 211)):
        path.write_bytes(data[:cut])
        before = reader.read(path, UNREAD)
        path.write_bytes(data)

        grown, whole = reader.read(path, before.checkpoint), reader.read(path)

        assert grown.resumed
        assert grown.bytes_read == len(data) - before.checkpoint.offset
        assert grown.session == whole.session
        assert grown.checkpoint.offset == whole.checkpoint.offset == len(data)


def test_a_log_read_line_by_line_is_the_same_session(case):
    reader, path, data = case
    checkpoint, read = UNREAD, 0
    for line in data.splitlines(keepends=True):
        with path.open("ab") as file:
            file.write(line)
        outcome = reader.read(path, checkpoint)
        checkpoint, read = outcome.checkpoint, read + outcome.bytes_read

    assert read == len(data)
    assert outcome.session == reader.read(path).session


def test_an_unchanged_log_is_not_read_again(case):
    reader, path, data = case
    path.write_bytes(data)
    first = reader.read(path, UNREAD)

    again = reader.read(path, first.checkpoint)

    assert (again.resumed, again.bytes_read, again.session) == (True, 0, first.session)


def test_a_short_log_that_grows_after_a_long_time_is_read_anew(case):
    """The state of all short logs would take a third of the index."""
    reader, path, data = case
    path.write_bytes(data[:-9])
    os.utime(path, (0, 0))
    before = reader.read(path, UNREAD)
    path.write_bytes(data)

    grown = reader.read(path, before.checkpoint)

    assert (before.checkpoint.state, grown.resumed, grown.bytes_read) == (b"", False, len(data))
    assert reader.read(path, grown.checkpoint).resumed


@pytest.mark.parametrize("change", ["truncated", "head", "tail", "replaced", "emptied"])
def test_a_log_that_is_not_what_was_read_is_read_anew(case, change):
    reader, path, data = case
    path.write_bytes(data)
    before = reader.read(path, UNREAD).checkpoint
    lines = data.splitlines(keepends=True)
    path.write_bytes(
        {
            "truncated": b"".join(lines[:-2]),
            "head": data.replace(b'"', b"'", 1) + b"\n" * 9,
            "tail": b"".join([*lines[:-1], lines[-1].replace(b"t", b"T")]) + lines[-1],
            "replaced": b"".join(lines[:2]) * 40,
            "emptied": b"",
        }[change]
    )

    outcome = reader.read(path, before)

    assert not outcome.resumed
    assert outcome.session == reader.read(path).session
    assert outcome.bytes_read == path.stat().st_size


def test_a_torn_last_line_is_read_when_it_is_complete(case):
    reader, path, data = case
    path.write_bytes(data[:-9])
    before = reader.read(path, UNREAD)
    assert before.checkpoint.offset == data[:-9].rindex(b"\n") + 1
    assert before.broken == ()

    path.write_bytes(data)
    assert reader.read(path, before.checkpoint).session == reader.read(path).session


def test_broken_lines_are_reported_with_path_and_number_once(case):
    """F-156."""
    reader, path, data = case
    lines = data.splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:1], b"broken\n", *lines[1:]]))
    before = reader.read(path, UNREAD)
    assert [(one.path, one.number) for one in before.broken] == [(path, 2)]

    with path.open("ab") as file:
        file.write(b"{broken\n")
    after = reader.read(path, before.checkpoint)
    assert [(one.path, one.number) for one in after.broken] == [(path, len(lines) + 2)]


@pytest.mark.parametrize("kept_state", [b"", b"nonsense"])
def test_a_state_that_cannot_be_used_means_reading_anew(case, kept_state):
    reader, path, data = case
    path.write_bytes(data)
    kept = reader.read(path, UNREAD).checkpoint

    outcome = reader.read(path, Checkpoint(kept.offset, kept.lines, kept.probe, kept_state))

    assert (outcome.resumed, outcome.bytes_read) == (False, len(data))


def test_raw_lines_are_kept_where_they_are_asked_for(case):
    """E-002: verbatim; and the whole log is read for them."""
    reader, path, data = case
    path.write_bytes(data)
    kept = reader.read(path, UNREAD).checkpoint

    outcome = reader.read(path, kept, keep_raw=True)

    assert outcome.session is not None
    assert not outcome.resumed
    assert {turn.raw for turn in outcome.session.turns} <= set(data.splitlines())


@given(cuts=st.lists(st.integers(0, 6000), max_size=5).map(sorted))
@pytest.mark.parametrize(("reader", "name", "records"), AGENTS, ids=[reader.name for reader, *_ in AGENTS])
def test_a_log_read_in_any_parts_is_the_same_session(tmp_path_factory, reader, name, records, cuts):
    path = tmp_path_factory.mktemp("parts") / Path(name).parts[-2] / Path(name).name
    path.parent.mkdir()
    data = "".join(json.dumps(record) + "\n" for record in records).encode()
    checkpoint = UNREAD
    for cut in [*cuts, len(data)]:
        path.write_bytes(data[:cut])
        outcome = reader.read(path, checkpoint)
        checkpoint = outcome.checkpoint

    assert outcome.session == reader.read(path).session


def test_a_log_with_secrets_read_in_two_parts_is_masked_as_one_that_is_read_at_once(case):
    """Also where the reader compares what was said with what was said before."""
    reader, path, data = case
    token = b"ghp_" + b"a1B2c3D4e5" * 4
    for said in (b'one"', b'first"', b'two"', b'Uploader"', b'main"'):
        data = data.replace(b'"' + said, b'"' + said[:-1] + b" with " + token + b'"')
    for cut in range(0, len(data), full_or_sample(37, 211)):
        path.write_bytes(data[:cut])
        before = reader.read(path, UNREAD)
        path.write_bytes(data)

        grown = reader.read(path, before.checkpoint).session
        assert grown == reader.read(path, UNREAD).session
        assert token not in gzip.decompress(before.checkpoint.state)
        assert token.decode() not in repr(grown)
