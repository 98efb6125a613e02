"""What the events of Copilot CLI say of what it does: whether it works, and what it wrote."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from indexer.values import dict_in, text_in
from smart_fork.agents.copilot.fold import data_of, is_of_an_agent, is_typed, loaded_by, requests_in
from smart_fork.agents.tail import Answers, RecordSign, Tail, no_steps, took

_USAGE = ("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens")


def _sign(record: Mapping[str, Any]) -> RecordSign:
    kind, data = record.get("type"), data_of(record)
    if is_of_an_agent(record):
        return RecordSign()
    if kind == "assistant.message":
        return RecordSign("working" if requests_in(data) else "idle")
    if kind == "session.usage_record":
        return RecordSign(tokens=loaded_by(data))
    if kind in ("assistant.turn_start", "tool.execution_start", "tool.execution_complete"):
        return RecordSign("working")
    if kind == "user.message":
        return RecordSign("working") if is_typed(data) else RecordSign()
    if kind == "session.error":
        return RecordSign("idle", problem=text_in(data.get("message")) or "The model could not be reached")
    return RecordSign("idle") if kind in ("abort", "session.shutdown") else RecordSign()


def _answers(records: Iterable[Mapping[str, Any]]) -> Answers:
    for number, record in enumerate(records):
        if record.get("type") == "session.usage_record":
            yield took(number, dict_in(data_of(record).get("usage")), _USAGE)


#: Logs of Copilot CLI.
TAIL = Tail("copilot", _sign, no_steps, _answers)
