"""What the records of Qwen Code say of what it does: whether it works, what runs in the background, what it wrote.

An answer that was broken off, or that no model gave, leaves no record: then the screen alone tells.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from indexer.values import dict_in
from smart_fork.agents.qwen.fold import loaded_after, parts_of, text_of
from smart_fork.agents.tail import NO_CALL, Answers, Calls, OpenCall, RecordSign, Steps, Tail, notified, took

_USAGE = ("promptTokenCount", "candidatesTokenCount", "cachedContentTokenCount", "")
#: How a tool says that it goes on in the background.
_BEGUN = re.compile(r"^(?:task_id|Task ID|Background shell started\. id): ([\w-]{1,100})", re.MULTILINE)


def _sign(record: Mapping[str, Any]) -> RecordSign:
    kind = record.get("type")
    if record.get("isSidechain") is True:
        return RecordSign()
    if kind == "assistant":
        calls = any("functionCall" in part for part in parts_of(record.get("message")))
        return RecordSign("working" if calls else "idle", loaded_after(dict(record)))
    if kind == "tool_result":
        stopped = dict_in(record.get("toolCallResult")).get("status") == "cancelled"
        return RecordSign("idle" if stopped else "working")
    return RecordSign("working") if kind == "user" else RecordSign()


def _steps(record: Mapping[str, Any], calls: Calls) -> Steps:
    """Sub-agents' own tasks end with them; what was copied from another session runs there."""
    if record.get("isSidechain") is True or "forkedFrom" in record:
        return
    parts = parts_of(record.get("message"))
    for part in parts:
        call, answer = part.get("functionCall"), part.get("functionResponse")
        if isinstance(call, dict) and isinstance(given := call.get("args"), dict):
            calls[str(call.get("id"))] = OpenCall(str(call.get("name")), given)
        elif isinstance(answer, dict):
            yield from _begun(answer, calls.pop(str(answer.get("id")), NO_CALL))
    if record.get("type") == "user" and record.get("subtype") == "notification":
        yield from notified(text_of(parts))


def _begun(answer: Mapping[str, Any], call: OpenCall) -> Steps:
    output = dict_in(answer.get("response")).get("output")
    in_background = call.tool == "agent" or call.given.get("is_background") is True
    if in_background and isinstance(output, str) and (found := _BEGUN.search(output)):
        yield found[1], call.text("description", "command")


def _answers(records: Iterable[Mapping[str, Any]]) -> Answers:
    for number, record in enumerate(records):
        if record.get("type") == "assistant":
            yield took(number, dict_in(record.get("usageMetadata")), _USAGE)


#: Logs of Qwen Code.
TAIL = Tail("qwen", _sign, _steps, _answers)
