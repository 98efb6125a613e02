"""Claude Code's records as items: a message is a text, or a list of blocks that say, call, answer or think."""

from __future__ import annotations

from collections.abc import Iterator

from indexer.transcripts.items import GivenBack, Item
from indexer.unchecked import dict_in, dicts_in
from smart_fork.agents.codec import MessageCodec, Record, item_of


class ClaudeCodec(MessageCodec):
    """See `Codec`. Beside the result of an edit stands what it has changed."""

    field = "content"
    starting = ("Task", "Agent")
    thoughts = ("thinking", "redacted_thinking")

    def decode(self, record: Record) -> Item:
        """See `Codec.decode`."""
        return item_of(None if is_request(record) else dict_in(record.get("message")).get("content"))

    def parts(self, record: Record) -> list[Record]:
        """See `MessageCodec.parts`."""
        return [] if is_request(record) else super().parts(record)

    def gave(self, record: Record) -> Iterator[GivenBack]:
        """See `Codec.gave`."""
        patch = _unified(dict_in(record.get("toolUseResult")).get("structuredPatch"))
        return (back._replace(patch=patch) for back in super().gave(record))


def is_request(record: Record) -> bool:
    """Tell if a record repeats what the model was sent. Claude Code needs none of them, and writes new ones."""
    return record.get("type") in ("api-request", "api-request-blob")


def _unified(hunks: object) -> str:
    """Return a structured patch as a unified diff."""
    lines: list[str] = []
    for hunk in dicts_in(hunks):
        if isinstance(told := hunk.get("lines"), list):
            lines.append(f"@@ -{hunk.get('oldStart')} +{hunk.get('newStart')} @@")
            lines += (line for line in told if isinstance(line, str))
    return "\n".join(lines)
