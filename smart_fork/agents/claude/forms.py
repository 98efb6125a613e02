"""Claude Code's records as they are shared."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any
from uuid import UUID, uuid5

from indexer.transcripts.model import Session
from indexer.unchecked import dicts_in
from smart_fork.agents.claude.codec import ClaudeCodec
from smart_fork.agents.claude.copy import is_boundary, of_conversation
from smart_fork.agents.codec import Record, only
from smart_fork.agents.forms import Becomes, Forms, Image, Utterance, all_texts

#: The records of a session that another agent began are named in this space.
_MADE = UUID("6b7c4f2e-2f0a-5d0e-9a36-6f6f726b7365")
#: What of a record is shared. Not among it are modes of permission, hooks, settings of thinking, lists of things to do.
_FIELDS = frozenset({
    "type", "subtype", "uuid", "timestamp", "cwd", "gitBranch", "version", "userType", "entrypoint", "isSidechain",
    "isMeta", "isCompactSummary", "isVisibleInTranscriptOnly", "message", "requestId", "toolUseResult", "promptId",
    "promptSource", "origin", "commandMode", "sourceToolAssistantUUID", "sourceToolUseID", "isApiErrorMessage", "error",
    "content", "level", "compactMetadata",
})  # fmt: skip
_OF_MESSAGE = frozenset({
    "role", "content", "id", "model", "type", "stop_reason", "stop_sequence", "stop_details", "usage",
})  # fmt: skip
#: The kinds of blocks, and what of each is shared; of what a server's tools gave back all is.
_ALL = frozenset[str]()
_BLOCKS = {
    "text": frozenset({"type", "text", "citations"}),
    "thinking": frozenset({"type", "thinking", "signature"}),
    "redacted_thinking": frozenset({"type", "data"}),
    "tool_use": frozenset({"type", "id", "name", "input", "caller"}),
    "tool_result": frozenset({"type", "tool_use_id", "content", "is_error"}),
    "image": frozenset({"type", "source"}),
    "document": frozenset({"type", "source", "title", "context", "citations"}),
    "server_tool_use": _ALL, "web_search_tool_result": _ALL, "web_fetch_tool_result": _ALL,
    "code_execution_tool_result": _ALL, "mcp_tool_use": _ALL, "mcp_tool_result": _ALL,
}  # fmt: skip


class ClaudeForms(ClaudeCodec, Forms):
    """Records of Claude Code: their place in the tree is taken away, since they stand in a line."""

    taken = frozenset({"sessionId", "parentUuid", "logicalParentUuid", "forkedFrom"})
    free = frozenset({"input", "toolUseResult", "structuredContent"})

    def records_of(self, session: Session, end: int | None = None) -> Iterator[Record]:
        return of_conversation(session, session.turns[: None if end is None else end + 1])

    def anew(self, records: Iterable[Record], becomes: Becomes) -> Iterator[Record]:
        """See `Forms.anew`. What a compaction left is a root."""
        return self.in_line(records, becomes, is_boundary)

    def log_of(self, said: Iterable[Utterance], becomes: Becomes) -> Iterator[Record]:
        parent: str | None = None
        for number, one in enumerate(said):
            identity = str(uuid5(_MADE, f"{becomes.session_id} {number}"))
            yield {
                "parentUuid": parent, "isSidechain": False, "userType": "external", "cwd": becomes.place.root,
                "sessionId": becomes.session_id, "version": "2.0.0", "type": "user" if one.user else "assistant",
                "message": {"role": "user", "content": one.text} if one.user else _answer(identity, one.text),
                "uuid": identity, "timestamp": one.moment,
            }  # fmt: skip
            parent = identity

    def sent(self, record: Record) -> Record | None:
        kind, message = record.get("type"), record.get("message")
        if not is_boundary(record) and not (kind in ("user", "assistant") and isinstance(message, dict)):
            return None
        kept = only(record, _FIELDS)
        if isinstance(message, dict):
            kept["message"] = message = only(message, _OF_MESSAGE)
            if isinstance(message.get("content"), list):
                message["content"] = content = [
                    part for block in dicts_in(message["content"]) if (part := _sent(block))
                ]
                return kept if content else None
        return kept

    def withheld(self, record: Record, ids: Collection[str], mark: str) -> Record:
        """See `Forms.withheld`. Beside a result stands what the program shows of it."""

        def change(block: Record) -> Record:
            if block.get("type") == "tool_use" and str(block.get("id")) in ids:
                return block | {"input": all_texts(block.get("input"), mark)}
            hidden = block.get("type") == "tool_result" and str(block.get("tool_use_id")) in ids
            return block | {"content": mark} if hidden else block

        new = self.changed(record, change) or record
        return new if new is record or "toolUseResult" not in record else new | {"toolUseResult": mark}

    def image(self, value: Record) -> Image | None:
        if value.get("type") not in ("image", "document", "pdf"):
            return None
        for name, field, kind in (("source", "data", "media_type"), ("file", "base64", "type")):
            given = value.get(name)
            if isinstance(given, dict) and isinstance(data := given.get(field), str) and given.get("type") != "text":
                return Image(str(given.get(kind) or value["type"]), len(data) * 3 // 4, _STANDS_FOR[name])
        return None


#: In a message there is a text in the place of an image; what the program shows of it is a text alone.
_STANDS_FOR: dict[str, Callable[[str], Any]] = {
    "source": lambda note: {"type": "text", "text": note},
    "file": str,
}


def _answer(identity: str, text: str) -> Record:
    return {
        "id": f"msg_{identity.replace('-', '')}", "type": "message", "role": "assistant", "model": "unknown",
        "content": [{"type": "text", "text": text}], "stop_reason": "end_turn", "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }  # fmt: skip


def _sent(block: Record) -> Record | None:
    kind = block.get("type")
    names = _BLOCKS.get(kind) if isinstance(kind, str) else None
    if names is None:
        return None
    return only(block, names) if names else block
