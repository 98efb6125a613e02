"""The live status of a Codex session, read from its records: working or waiting, background tasks, tokens."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from indexer.json_values import dict_in, text_in
from indexer.transcripts.lines import last_lines
from indexer.transcripts.reader_state import count
from smart_fork.agents import log_tail
from smart_fork.agents.codex.log_files import CodexAdapter
from smart_fork.agents.decoders import texts_of

#: The bytes at a log's end that are read, and the number of newest logs.
_BYTES, _LOGS = 1 << 20, 5
_SAID = re.compile(rb'"model_context_window":\s*(\d{4,8})\b')


def _window() -> int | None:
    """Return the context window, in tokens, from the newest logs; `None` if these logs do not state it."""
    newest = sorted(CodexAdapter().discover(), key=lambda file: file.mtime_ns, reverse=True)
    for log in newest[:_LOGS]:
        with suppress(OSError):
            said = (found for line in last_lines(log.path, _BYTES) for found in reversed(_SAID.findall(line)))
            if found := next(said, b""):
                return int(found)
    return None


_USAGE = ("input_tokens", "output_tokens", "cached_input_tokens", "cache_write_input_tokens")
_RUNNING = re.compile(r"^Process running with session ID (\d+)$", re.MULTILINE)
_OVER = re.compile(r"^Process exited with code |Unknown (?:process|session)", re.MULTILINE)
_OUTPUT = "\nOutput:\n"
_OF_SUBAGENT = re.compile(r"<subagent_notification>\s*(\{.*\})\s*</subagent_notification>", re.DOTALL)


def _sign(record: Mapping[str, Any]) -> log_tail.RecordSign:
    payload = record.get("payload")
    if not isinstance(payload, dict):
        return log_tail.RecordSign()
    kind = payload.get("type")
    if record.get("type") == "response_item":
        return log_tail.RecordSign("working")
    if record.get("type") != "event_msg":
        return log_tail.RecordSign()
    if kind in ("task_complete", "turn_complete", "turn_aborted"):
        return log_tail.RecordSign("idle")
    if kind in ("task_started", "turn_started"):
        return log_tail.RecordSign("working")
    if kind == "error":
        return log_tail.RecordSign(problem=str(payload.get("message") or ""))
    if kind == "token_count":
        usage = dict_in(dict_in(payload.get("info")).get("last_token_usage"))
        return log_tail.RecordSign(tokens=count(usage.get("total_tokens")))
    return log_tail.RecordSign()


def _steps(record: Mapping[str, Any], calls: log_tail.Calls) -> log_tail.Steps:
    payload = dict_in(record.get("payload"))
    kind = payload.get("type")
    if kind == "function_call":
        calls[str(payload.get("call_id"))] = log_tail.OpenCall(
            str(payload.get("name")), log_tail.object_in(payload.get("arguments"))
        )
    elif kind == "function_call_output":
        call = calls.pop(str(payload.get("call_id")), log_tail.NO_CALL)
        yield from _result(call, texts_of(payload.get("output")))
    elif kind == "exec_command_end":
        yield str(payload.get("process_id")), None
    elif kind == "message" and payload.get("role") == "user":
        for told in _OF_SUBAGENT.finditer(texts_of(payload.get("content"))):
            said = log_tail.object_in(told[1])
            yield from _ended_agents({str(said.get("agent_path") or said.get("agent_id")): said.get("status")})


def _result(call: log_tail.OpenCall, output: str) -> log_tail.Steps:
    if call.tool in ("exec_command", "write_stdin"):
        about = output.partition(_OUTPUT)[0]
        if running := _RUNNING.search(about):
            if call.tool == "exec_command":
                yield running[1], call.text("cmd", "command")
        elif _OVER.search(about):
            yield str(call.given.get("session_id")), None
        return
    said = log_tail.object_in(output)
    if call.tool == "spawn_agent" and isinstance(agent := said.get("agent_id"), str):
        yield agent, call.text("message") or str(said.get("nickname") or "")
    elif call.tool == "send_input" and "submission_id" in said:
        yield call.text("target", "id"), call.text("message")
    elif call.tool == "close_agent":
        yield call.text("target", "id"), None
    elif call.tool in ("wait", "wait_agent") and isinstance(states := said.get("status"), dict):
        yield from _ended_agents(states)


def _ended_agents(states: Mapping[str, Any]) -> log_tail.Steps:
    """Yield (id, `None`) for each sub-agent that has ended, from the `states` of sub-agents by id."""
    for agent, state in states.items():
        if isinstance(state, dict) or (isinstance(state, str) and state not in log_tail.GOING_ON):
            yield agent, None


def _answers(records: Iterable[Mapping[str, Any]]) -> log_tail.AnswerTokens:
    """Yield the token counts in records. A count's key is the session's total: a repeated count has the same key.

    A fork's totals continue from its parent's. A fork may have copies of its parent's records with new times. Counts
    after the parent's header, or with the parent's thread id, are marked as the parent's.
    """
    thread = ""
    for number, record in enumerate(records):
        kind, payload = record.get("type"), dict_in(record.get("payload"))
        if kind in ("session_meta", "token_usage_record"):
            thread = text_in(payload.get("id")) or text_in(payload.get("thread_id"))
        info = dict_in(payload.get("info"))
        last = info.get("last_token_usage") if payload.get("type") == "token_count" else payload.get("usage")
        if isinstance(last, dict) and (info or kind == "token_usage_record"):
            total = info.get("total_token_usage") or payload.get("thread_token_usage")
            yield log_tail.answer_tokens(total or number, last, _USAGE, of=thread)


#: The functions for Codex's rollouts.
TAIL = log_tail.Tail(_sign, _answers, _steps, window=_window)
