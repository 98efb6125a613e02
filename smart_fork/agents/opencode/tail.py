"""Reads activity from OpenCode's messages: working or waiting, and edited files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from indexer.transcripts.state import count, utc
from indexer.values import dict_in
from smart_fork.agents.log_tail import AnswerTokens, RecordSign, Tail, answer_tokens, no_steps
from smart_fork.agents.opencode.fold import ABORTED, conversation, loaded_after, written

#: After these the same answer goes on: with the results of its calls, or because they were none.
_GOES_ON = ("tool-calls", "unknown")


def _records(path: Path) -> Iterator[Mapping[str, Any]]:
    """The messages, each with its parts and the time of its end, else of its beginning."""
    found = written(path)
    for info, parts in conversation(found["messages"], found["info"].get("revert")):
        when = dict_in(info.get("time"))
        yield {"timestamp": utc(when.get("completed")) or utc(when.get("created")), "info": info, "parts": parts}


def _sign(record: Mapping[str, Any]) -> RecordSign:
    info = dict_in(record.get("info"))
    if info.get("role") == "user":
        return RecordSign("working")
    if info.get("role") != "assistant":
        return RecordSign()
    error, tokens = dict_in(info.get("error")), loaded_after(dict(info))
    if error:
        said = dict_in(error.get("data")).get("message") if error.get("name") != ABORTED else ""
        return RecordSign("idle", tokens, str(said or ""))
    if not dict_in(info.get("time")).get("completed") or info.get("finish") in _GOES_ON:
        return RecordSign("working", tokens)
    # A summary is written when it cannot go on without one, and it goes on then.
    return RecordSign("idle", tokens, settling=info.get("summary") is True)


def _answers(records: Iterable[Mapping[str, Any]]) -> AnswerTokens:
    for number, record in enumerate(records):
        info = dict_in(record.get("info"))
        if info.get("role") == "assistant":
            tokens = dict_in(info.get("tokens"))
            used = dict_in(tokens.get("cache")) | {"input": tokens.get("input")}
            used["output"] = count(tokens.get("output")) + count(tokens.get("reasoning"))
            yield answer_tokens(number, used, ("input", "output", "read", "write"), whole=False)


#: Sessions of OpenCode.
TAIL = Tail("opencode", _sign, no_steps, _answers, _records, lambda path: iter([*_records(path)][::-1]))
