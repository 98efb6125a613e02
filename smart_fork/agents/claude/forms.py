"""Claude Code's records as they are shared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from indexer.transcripts.model import Session
from smart_fork.agents.claude.records import is_boundary, of_conversation
from smart_fork.agents.forms import Becomes, Forms, Identity, Record, Told

#: The tools that set another agent to work, by their names now and before.
_AGENTS = ("Task", "Agent")


class ClaudeForms(Forms):
    """Records of Claude Code: their place in the tree is taken away, since they stand in a line."""

    taken = frozenset({"sessionId", "parentUuid", "logicalParentUuid", "forkedFrom"})
    thoughts = ("thinking", "redacted_thinking")

    def records_of(self, session: Session, end: int | None = None) -> Iterator[Record]:
        return of_conversation(session, session.turns[: None if end is None else end + 1])

    def anew(self, records: Iterable[Record], becomes: Becomes) -> Iterator[Record]:
        """One line of parents. What a compaction left has none, and says after which record it was."""
        parent: str | None = None
        for record in records:
            fields: dict[str, Any] = {"parentUuid": parent, "sessionId": becomes.session_id}
            if is_boundary(record):
                fields |= {"parentUuid": None, "logicalParentUuid": parent}
            identity = record.get("uuid")
            if becomes.forked_from:
                fields["forkedFrom"] = {"sessionId": becomes.forked_from, "messageUuid": identity}
            yield self.incoming(record, Identity(becomes.place, fields))
            parent = identity if isinstance(identity, str) else parent

    def told(self, record: Record) -> Told:
        message = record.get("message")
        blocks = list(_blocks(message.get("content") if isinstance(message, dict) else None))
        kinds = [block.get("type") for block in blocks]
        results = [block for block in blocks if block.get("type") == "tool_result"]
        inside = [part.get("type") for block in results for part in _blocks(block.get("content"))]
        return Told(
            outputs=tuple((str(block.get("tool_use_id") or ""), _text(block.get("content"))) for block in results),
            thoughts=sum(kind in self.thoughts for kind in kinds),
            images=(kinds + inside).count("image"),
            agents=sum(block.get("type") == "tool_use" and block.get("name") in _AGENTS for block in blocks),
        )


def _blocks(content: object) -> Iterator[dict[str, Any]]:
    return (block for block in content if isinstance(block, dict)) if isinstance(content, list) else iter(())


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(block["text"]) for block in _blocks(content) if isinstance(block.get("text"), str))
