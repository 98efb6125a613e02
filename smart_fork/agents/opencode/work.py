"""What OpenCode's calls were given and gave back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from smart_fork.agents.forms import Record
from smart_fork.agents.opencode.fold import TOOLS, output_of
from smart_fork.agents.work import GivenBack, UsedTool, Work


class OpenCodeWork(Work):
    """See `Work`. A record is a message with its parts; a call and its result are one of these."""

    def used(self, record: Record) -> Iterator[UsedTool]:
        for part in _tools(record):
            name, given = str(part.get("tool") or ""), part["state"].get("input")
            if isinstance(given, dict):
                yield UsedTool(_id(part), TOOLS.get(name, name), given)

    def gave(self, record: Record) -> Iterator[GivenBack]:
        for part in _tools(record):
            if part["state"].get("status") in ("completed", "error"):
                output, failed = output_of(part["state"])
                told = part["state"].get("metadata")
                patch = told.get("diff") if isinstance(told, dict) else None
                yield GivenBack(_id(part), output, failed, patch if isinstance(patch, str) else "")


def _tools(record: Record) -> Iterator[dict[str, Any]]:
    parts = record.get("parts")
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, dict) and part.get("type") == "tool" and isinstance(part.get("state"), dict):
            yield part


def _id(part: dict[str, Any]) -> str:
    return str(part.get("callID") or part.get("id") or "")
