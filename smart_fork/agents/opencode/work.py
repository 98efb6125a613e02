"""What OpenCode's calls were given and gave back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from smart_fork.agents.forms import Record, Told
from smart_fork.agents.opencode.fold import TOOLS, output_of
from smart_fork.agents.work import GivenBack, UsedTool, Work, in_paragraphs

#: The tool that sets another agent to work.
_AGENT = "task"


class OpenCodeWork(Work):
    """See `Work`. A record is a message with its parts; a call and its result are one of these."""

    def used(self, record: Record) -> Iterator[UsedTool]:
        for part in _tools(record):
            name, given = str(part.get("tool") or ""), part["state"].get("input")
            if isinstance(given, dict):
                yield UsedTool(_id(part), TOOLS.get(name, name), given)

    def told(self, record: Record) -> Told:
        """See `Work.told`."""
        parts = list(_parts(record))
        return (
            super()
            .told(record)
            ._replace(
                thoughts=sum(part.get("type") == "reasoning" for part in parts),
                images=sum(part.get("type") == "file" and str(part.get("mime")).startswith("image/") for part in parts),
                agents=sum(part.get("tool") == _AGENT for part in _tools(record)),
            )
        )

    def gave(self, record: Record) -> Iterator[GivenBack]:
        for part in _tools(record):
            if part["state"].get("status") in ("completed", "error"):
                output, failed = output_of(part["state"])
                told = part["state"].get("metadata")
                patch = told.get("diff") if isinstance(told, dict) else None
                yield GivenBack(_id(part), output, failed, patch if isinstance(patch, str) else "")

    def thought(self, record: Record) -> str:
        return in_paragraphs(part.get("text") for part in _parts(record) if part.get("type") == "reasoning")


def _parts(record: Record) -> list[dict[str, Any]]:
    parts = record.get("parts")
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def _tools(record: Record) -> Iterator[dict[str, Any]]:
    return (part for part in _parts(record) if part.get("type") == "tool" and isinstance(part.get("state"), dict))


def _id(part: dict[str, Any]) -> str:
    return str(part.get("callID") or part.get("id") or "")
