"""What the records of Gemini CLI say of what it does: whether it works, and what it wrote."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from indexer.transcripts.state import count
from indexer.values import dict_in
from smart_fork.agents.gemini.codec import answers_in, calls_in, is_context, said_in
from smart_fork.agents.gemini.fold import CANCELLED, loaded_after
from smart_fork.agents.tail import Answers, RecordSign, Tail, no_steps, took


def _sign(record: Mapping[str, Any]) -> RecordSign:
    kind, text = record.get("type"), said_in(record)
    said = dict(record)
    if kind == "gemini":
        loaded = loaded_after(record)
        if not text or next(calls_in(said), None):
            return RecordSign("working", loaded)
        return RecordSign("idle", loaded, settling=True)  # of a call behind it nothing is written before its result
    if kind == "user":
        return RecordSign() if is_context(record) and not answers_in(said) else RecordSign("working")
    if kind == "error":
        return RecordSign("idle", problem=text or "The model could not be reached")
    return RecordSign("idle") if kind == "info" and text == CANCELLED else RecordSign()


def _answers(records: Iterable[Mapping[str, Any]]) -> Answers:
    """A message stands in several records."""
    for record in records:
        if record.get("type") == "gemini":
            tokens = dict_in(record.get("tokens"))
            output = count(tokens.get("output")) + count(tokens.get("thoughts"))
            yield took(record.get("id"), tokens | {"output": output}, ("input", "output", "cached", ""))


#: Logs of Gemini CLI.
TAIL = Tail("gemini", _sign, no_steps, _answers)
