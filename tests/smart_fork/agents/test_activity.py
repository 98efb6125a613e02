"""The state of an agent in the records at the end of its log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from smart_fork.agents import AGENTS
from smart_fork.agents.log_tail import TAIL_BYTES, Activity
from tests.smart_fork.forks import said, text, write_log

COPIED, START, OWN, LATER = (f"2026-01-01T00:00:{second:02}.000Z" for second in (0, 10, 20, 30))
USAGE = {"input_tokens": 100, "cache_read_input_tokens": 50, "output_tokens": 7}


def claude(tmp_path: Path, *records: dict) -> Activity:
    return AGENTS.tail_of("claude").activity(write_log(tmp_path / "log.jsonl", list(records)), START)


def codex(tmp_path: Path, *payloads: dict, time: str = OWN, kind: str = "event_msg") -> Activity:
    records = [
        {"timestamp": time, "ordinal": i, "type": "response_item" if "role" in one or "call_id" in one else kind, "payload": one}
        for i, one in enumerate(payloads)
    ]  # fmt: skip
    return AGENTS.tail_of("codex").activity(write_log(tmp_path / "log.jsonl", records), START)


def prompt(words: str, time: str = OWN, **more: object) -> dict:
    return said("u1", None, "user", words, timestamp=time, **more)


def spoke(content: object, reason: str | None, time: str = LATER, **more: object) -> dict:
    record = said("a1", "u1", "assistant", content, timestamp=time, **more)
    record["message"] |= {"stop_reason": reason, "usage": USAGE}
    return record


CALL = [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {}}]
DONE = spoke(text("Done"), "end_turn")
RESULT = [{"type": "tool_result", "tool_use_id": "t1", "content": "ok"}]


@pytest.mark.parametrize(
    ("records", "status"),
    [
        ([prompt("go")], "working"),
        ([prompt("go"), DONE], "idle"),
        ([prompt("go"), DONE, {"type": "system", "subtype": "turn_duration", "timestamp": LATER}], "idle"),
        ([prompt("go"), spoke(CALL, "tool_use")], "working"),
        ([prompt("go"), spoke(text("I look"), "tool_use")], "working"),
        ([prompt("go"), spoke([{"type": "thinking", "thinking": "hm"}], None)], "working"),
        ([prompt("go"), spoke(CALL, "tool_use"), prompt(RESULT, LATER)], "working"),
        ([prompt("go"), spoke(CALL, "tool_use"), prompt(text("[Request interrupted by user for tool use]"))], "idle"),
        ([DONE, {"type": "queue-operation", "operation": "enqueue", "timestamp": LATER, "content": "x"}], "working"),
        ([DONE, {"type": "queue-operation", "operation": "remove", "timestamp": LATER}], "idle"),
        ([DONE, prompt("<command-name>/model</command-name>", LATER)], "idle"),
        ([DONE, prompt("sub", LATER, isSidechain=True), prompt("meta", LATER, isMeta=True)], "idle"),
        ([DONE, {"type": "last-prompt", "lastPrompt": "go"}, {"type": "summary", "timestamp": "no time"}], "idle"),
        ([prompt("go", COPIED), spoke(text("Done"), "end_turn", COPIED)], ""),
        ([prompt("go", COPIED), spoke(text("Done"), "end_turn", COPIED), prompt("and you")], "working"),
        ([], ""),
    ],
)  # fmt: skip
def test_a_turn_of_claude_is_open_until_its_last_word(tmp_path, records, status):
    """F-105: records older than the worker do not count."""
    assert status == claude(tmp_path, *records).status


def test_a_text_without_a_reason_counts_when_nothing_follows_it(tmp_path):
    """Some versions do not write the reason why the model stopped."""
    found = claude(tmp_path, prompt("go"), spoke(text("Done"), None))

    assert ("idle", True) == (found.status, found.settling)
    assert not claude(tmp_path, prompt("go"), DONE).settling


def test_time_and_tokens_are_the_last_ones(tmp_path):
    found = claude(tmp_path, prompt("go"), DONE, {"type": "system", "subtype": "turn_duration", "timestamp": LATER})

    assert (LATER, 157) == (found.at, found.tokens)


def test_a_model_that_cannot_be_reached_is_a_problem_of_the_last_turn_only(tmp_path):
    failed = spoke(text("Not logged in · Please run /login"), "stop_sequence", isApiErrorMessage=True)
    ended = {"type": "system", "subtype": "turn_duration", "timestamp": LATER}

    assert "Not logged in · Please run /login" == claude(tmp_path, prompt("go"), failed, ended).problem
    assert "" == claude(tmp_path, prompt("go"), failed, prompt("again", LATER)).problem
    assert "" == claude(tmp_path, prompt("go"), failed, prompt("again"), DONE).problem


@pytest.mark.parametrize(
    ("payloads", "status"),
    [
        ([{"type": "task_started"}], "working"),
        ([{"type": "task_started"}, {"type": "message", "role": "user"}], "working"),
        ([{"type": "function_call", "call_id": "c"}, {"type": "token_count", "info": None}], "working"),
        ([{"type": "message", "role": "assistant"}, {"type": "task_complete"}], "idle"),
        ([{"type": "task_complete"}, {"type": "thread_settings_applied"}], "idle"),
        ([{"type": "message", "role": "user"}, {"type": "turn_aborted"}], "idle"),
        ([{"type": "task_complete"}, {"type": "task_started"}], "working"),
        ([{"type": "agent_message"}], ""),
    ],
)
def test_a_turn_of_codex_is_open_until_it_is_completed(tmp_path, payloads, status):
    assert status == codex(tmp_path, *payloads).status
    assert "" == codex(tmp_path, *payloads, time=COPIED).status


def test_codex_counts_tokens_and_tells_errors(tmp_path):
    counted = {"type": "token_count", "info": {"last_token_usage": {"total_tokens": 42}}}

    assert 42 == codex(tmp_path, counted, {"type": "task_complete"}).tokens
    failed = codex(
        tmp_path, {"type": "task_started"}, {"type": "error", "message": "no quota"}, {"type": "task_complete"}
    )
    assert ("idle", "no quota") == (failed.status, failed.problem)


def test_only_the_end_of_a_long_log_is_read(tmp_path):
    path = write_log(tmp_path / "log.jsonl", [prompt("x" * TAIL_BYTES), DONE])
    assert "idle" == AGENTS.tail_of("claude").activity(path, START).status

    path = write_log(tmp_path / "log.jsonl", [DONE, prompt("x" * TAIL_BYTES)])
    assert Activity() == AGENTS.tail_of("claude").activity(path, START), "nothing, where one record is all that is seen"


def test_torn_and_odd_lines_are_passed_over(tmp_path):
    path = write_log(tmp_path / "log.jsonl", [prompt("go"), DONE])
    with path.open("ab") as file:
        file.write(b'[1]\n"x"\n{"type": ["user"], "timestamp": "' + LATER.encode() + b'", "message": 7}\n')
        file.write(json.dumps(prompt("more", LATER)).encode()[:-20])

    assert "idle" == AGENTS.tail_of("claude").activity(path, START).status
    with pytest.raises(OSError, match="not a regular file"):
        AGENTS.tail_of("claude").activity(Path("/dev/null"), START)
