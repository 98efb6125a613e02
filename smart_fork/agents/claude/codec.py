"""Claude Code's records as items: a message is a text, or a list of blocks that say, call, answer or think."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from indexer.transcripts.items import GivenBack, Item, UsedTool
from smart_fork.agents.codec import MessageCodec, Record, dicts_in


class ClaudeCodec(MessageCodec):
    """See `Codec`. Beside the result of an edit stands what it has changed."""

    field = "content"
    starting = ("Task", "Agent")
    thoughts = ("thinking", "redacted_thinking")

    def decode(self, record: Record) -> Item:
        """See `Codec.decode`."""
        message = record.get("message")
        content = message.get("content") if isinstance(message, dict) else None
        if not isinstance(content, list):
            return Item(content) if isinstance(content, str) else Item()
        texts, calls, results, thoughts, images = [], [], [], [], 0
        for block in content:
            kind = block.get("type") if isinstance(block, dict) else None
            if kind == "text":
                texts.append(block.get("text"))
            elif kind == "tool_use":
                calls.append(UsedTool(str(block.get("id") or ""), str(block.get("name") or ""), block.get("input")))
            elif kind == "tool_result":
                inside, failed = block.get("content"), block.get("is_error") is True
                results.append(GivenBack(str(block.get("tool_use_id") or ""), text_of(inside), failed))
                images += sum(part.get("type") == "image" for part in dicts_in(inside))
            elif kind in self.thoughts:
                thoughts.append(str(block.get("thinking") or ""))
            images += kind == "image"
        return Item(_joined(texts), tuple(calls), tuple(results), tuple(thoughts), images)

    def gave(self, record: Record) -> Iterator[GivenBack]:
        """See `Codec.gave`."""
        told = record.get("toolUseResult")
        patch = _unified(told.get("structuredPatch")) if isinstance(told, dict) else ""
        return (back._replace(patch=patch) for back in super().gave(record))


def text_of(content: object) -> str:
    """Return the text of a message, or of a result."""
    if isinstance(content, str):
        return content
    return _joined(block.get("text") for block in dicts_in(content) if block.get("type") == "text")


def _joined(texts: Iterable[object]) -> str:
    return "\n\n".join(text for text in texts if isinstance(text, str))


def _unified(hunks: object) -> str:
    """Return a structured patch as a unified diff."""
    lines: list[str] = []
    for hunk in dicts_in(hunks):
        if isinstance(told := hunk.get("lines"), list):
            lines.append(f"@@ -{hunk.get('oldStart')} +{hunk.get('newStart')} @@")
            lines += (line for line in told if isinstance(line, str))
    return "\n".join(lines)
