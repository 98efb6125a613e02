"""What the end of a log says of what its agent does: working, or done with what it was asked.

Only what was written since a moment counts, a worker's start: what an agent copies from the parent keeps its time, and
must not make the worker look finished (F-105). Only the end of a log is read, however long it is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from indexer.transcripts.lines import decode_line, open_regular
from indexer.transcripts.model import Agent
from indexer.transcripts.state import count, utc
from smart_fork.agents.claude.fold import loaded_after
from smart_fork.registry import Status

#: One record, such as a large file that was read, may be longer: then there are fewer signs, not wrong ones.
TAIL_BYTES = 512 * 1024
#: Versions of Claude Code that do not say why the model stopped: what it said last is its last word when nothing has
#: followed for so long.
SETTLED_SECONDS = 5.0
_INTERRUPTED = "[Request interrupted by user"
#: What Claude Code writes down about commands of its own, which no model sees or answers.
_COMMANDS = ("<command-name>", "<local-command-", "<command-message>")


@dataclass(frozen=True, slots=True)
class Activity:
    """`status` is empty where the log does not say; `problem` is why the agent could not go on.

    `settling` says that it is only idle if nothing follows soon. `at` is the time of the last record, `tokens` how many
    the agent had in its context last.
    """

    status: Status = ""
    at: str | None = None
    tokens: int = 0
    problem: str = ""
    settling: bool = False


@dataclass(frozen=True, slots=True)
class _Sign:
    """What one record says; nothing at all for most."""

    status: Status = ""
    tokens: int = 0
    problem: str = ""
    settling: bool = False


def activity(agent: Agent, path: Path, since: str) -> Activity:
    """What the log at `path` says of the time since `since`.

    Raises:
        OSError: it cannot be read.
    """
    found, this_turn = Activity(), True
    sign_of = _SIGNS[agent]
    for record in _backwards(path):
        moment = utc(record.get("timestamp"))
        if moment and moment < since:
            break
        if not moment:  # notes that say nothing of when
            continue
        sign = sign_of(record)
        found = replace(found, at=found.at or moment, tokens=found.tokens or sign.tokens)
        if this_turn and sign.problem:
            found = replace(found, problem=found.problem or sign.problem)
        if sign.status and not found.status:
            found = replace(found, status=sign.status, settling=sign.settling)
        this_turn = this_turn and sign.status != "working"
        if found.status and found.tokens and not this_turn:
            break
    return found if found.status == "idle" else replace(found, problem="")


def _backwards(path: Path) -> Iterator[dict[str, Any]]:
    """The records at the log's end, the last one first; what is torn or broken is passed over."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - TAIL_BYTES))
        lines = file.read(TAIL_BYTES).split(b"\n")
    if size > TAIL_BYTES:
        del lines[0]
    for line in reversed(lines):
        if line:
            for _, record in reversed(decode_line(line)[0]):
                yield record


def _claude(record: Mapping[str, Any]) -> _Sign:
    kind, message = record.get("type"), record.get("message")
    if record.get("isSidechain") is True or record.get("isMeta") is True:
        return _Sign()
    if kind == "system" and record.get("subtype") == "turn_duration":
        return _Sign("idle")
    if kind == "queue-operation" and record.get("operation") in ("enqueue", "dequeue"):
        return _Sign("working")
    if kind == "assistant" and isinstance(message, dict):
        return _claude_said(record, message)
    if kind == "user" and isinstance(message, dict):
        return _claude_heard(message)
    return _Sign()


def _claude_said(record: Mapping[str, Any], message: Mapping[str, Any]) -> _Sign:
    tokens, text = loaded_after(dict(message)), _text(message)
    if record.get("isApiErrorMessage") is True:
        return _Sign("idle", tokens, problem=text or "The model could not be reached")
    if message.get("stop_reason") in ("end_turn", "stop_sequence", "max_tokens", "refusal"):
        return _Sign("idle", tokens)
    # The blocks of one message are records of their own: behind a text may come a call.
    settling = bool(text) and message.get("stop_reason") is None
    return _Sign("idle" if settling else "working", tokens, settling=settling)


def _claude_heard(message: Mapping[str, Any]) -> _Sign:
    text = _text(message)
    if text.startswith(_INTERRUPTED):
        return _Sign("idle")
    return _Sign() if text.startswith(_COMMANDS) else _Sign("working")


def _codex(record: Mapping[str, Any]) -> _Sign:
    payload = record.get("payload")
    if not isinstance(payload, dict):
        return _Sign()
    kind = payload.get("type")
    if record.get("type") == "response_item":
        return _Sign("working")
    if record.get("type") != "event_msg":
        return _Sign()
    if kind in ("task_complete", "turn_complete", "turn_aborted"):
        return _Sign("idle")
    if kind in ("task_started", "turn_started"):
        return _Sign("working")
    if kind == "error":
        return _Sign(problem=str(payload.get("message") or ""))
    if kind == "token_count" and isinstance(info := payload.get("info"), dict):
        usage = info.get("last_token_usage")
        return _Sign(tokens=count(usage.get("total_tokens")) if isinstance(usage, dict) else 0)
    return _Sign()


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    texts = [block.get("text") for block in blocks if isinstance(block, dict) and block.get("type") == "text"]
    return "\n".join(text for text in texts if isinstance(text, str))


_SIGNS: Mapping[Agent, Callable[[Mapping[str, Any]], _Sign]] = {"claude": _claude, "codex": _codex}
