"""What Claude Code's calls were given and gave back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from smart_fork.agents.claude.fold import text_of
from smart_fork.agents.forms import Record
from smart_fork.agents.work import GivenBack, UsedTool, Work, in_paragraphs


class ClaudeWork(Work):
    """See `Work`. Beside the result of an edit stands what it has changed."""

    def used(self, record: Record) -> Iterator[UsedTool]:
        for block in _blocks(record, "tool_use"):
            if isinstance(given := block.get("input"), dict):
                yield UsedTool(str(block.get("id") or ""), str(block.get("name") or ""), given)

    def gave(self, record: Record) -> Iterator[GivenBack]:
        told = record.get("toolUseResult")
        patch = _unified(told.get("structuredPatch")) if isinstance(told, dict) else ""
        for block in _blocks(record, "tool_result"):
            identity, failed = str(block.get("tool_use_id") or ""), block.get("is_error") is True
            yield GivenBack(identity, text_of(block.get("content")), failed, patch)

    def thought(self, record: Record) -> str:
        return in_paragraphs(block.get("thinking") for block in _blocks(record, "thinking"))


def _blocks(record: Record, kind: str) -> Iterator[dict[str, Any]]:
    message = record.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") == kind:
            yield block


def _unified(hunks: object) -> str:
    """A structured patch as a unified diff."""
    lines: list[str] = []
    for hunk in hunks if isinstance(hunks, list) else ():
        told = hunk.get("lines") if isinstance(hunk, dict) else None
        if isinstance(told, list):
            lines.append(f"@@ -{hunk.get('oldStart')} +{hunk.get('newStart')} @@")
            lines += (line for line in told if isinstance(line, str))
    return "\n".join(lines)
