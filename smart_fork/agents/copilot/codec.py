"""Copilot CLI's events as items: an answer has its calls, and each result is an event of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from indexer.transcripts.items import GivenBack, Item, UsedTool
from indexer.unchecked import dict_in, dicts_in, text_in
from smart_fork.agents.codec import Codec, Record

#: The event that has a result, and the fields of what was thought, as text and as it is signed or encrypted.
ANSWERED, THOUGHTS = "tool.execution_complete", ("reasoningText", "reasoningOpaque")
#: What a shell's output ends with.
_ENDED = re.compile(
    r"\n?<(?:shellId: \S{1,100} completed with exit code -?\d{1,9}|exited with exit code -?\d{1,9})>\s*\Z"
)


class CopilotCodec(Codec):
    """See `Codec`."""

    tools = MappingProxyType({
        "bash": "Bash", "view": "Read", "edit": "Edit", "create": "Write", "grep": "Grep", "glob": "Glob",
        "read_bash": "BashOutput", "stop_bash": "KillBash", "update_todo": "TodoWrite",
    })  # fmt: skip
    starting = ("task",)

    def decode(self, record: Record) -> Item:
        """See `Codec.decode`."""
        data = data_of(record)
        text, thought, result = data.get("content"), data.get(THOUGHTS[0]), data.get("result")
        calls = (
            UsedTool(str(one.get("toolCallId") or ""), str(one.get("name") or ""), one.get("arguments"))
            for one in requests_in(data)
        )
        results: tuple[GivenBack, ...] = ()
        images = 0
        if record.get("type") == ANSWERED:
            told = dict_in(result)
            patch = text_in(told.get("detailedContent"))
            results = (GivenBack(str(data.get("toolCallId") or ""), *output_of(data), patch),)
            images = sum(part.get("type") == "image" for part in dicts_in(told.get("contents")))
        thoughts = (text_in(thought),) if any(map(data.get, THOUGHTS)) else ()
        return Item(text_in(text), tuple(calls), results, thoughts, images)


def data_of(record: Mapping[str, Any]) -> Record:
    """What an event says."""
    return dict_in(record.get("data"))


def is_of_an_agent(record: Mapping[str, Any]) -> bool:
    """Whether an event is a sub-agent's."""
    return record.get("agentId") is not None


def requests_in(data: Mapping[str, Any]) -> list[Record]:
    """The calls of an answer."""
    return dicts_in(data.get("toolRequests"))


def output_of(data: Mapping[str, Any]) -> tuple[str, bool]:
    """What came back from a call, with a shell's exit status first, and whether the call failed."""
    result, error, shell = data.get("result"), data.get("error"), data.get("shellExecution")
    if data.get("success") is False:
        return text_in(error.get("message") if isinstance(error, dict) else error), True
    output = text_in(result.get("content") if isinstance(result, dict) else result)
    status = dict_in(shell).get("exitCode")
    if type(status) is int:
        return f"Exit code: {status}\n{_ENDED.sub('', output)}", status != 0
    return output, False
