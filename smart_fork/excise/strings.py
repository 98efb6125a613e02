"""The texts in a record, and never what ties records together: ids, signatures, encrypted reasoning."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import orjson

#: Fields that are never looked into: changing one breaks the replay, or what it points to.
TIES = frozenset({
    "uuid", "parentUuid", "logicalParentUuid", "leafUuid", "sessionId", "session_id", "id", "type", "role", "model",
    "timestamp", "signature", "encrypted_content", "tool_use_id", "call_id", "toolUseID", "parentToolUseID", "data",
    "requestId", "messageId", "thread_id", "turn_id", "name", "namespace", "version", "cwd", "gitBranch", "ordinal",
    "media_type", "composerId", "bubbleId", "toolCallId", "sourceToolAssistantUUID", "promptId", "base_instructions",
})  # fmt: skip
#: Deeper than any record is.
_DEPTH = 64


def texts(value: object, depth: int = 0) -> Iterator[str]:
    """Every text in a decoded record."""
    if isinstance(value, str):
        yield value
    elif depth < _DEPTH and isinstance(value, dict):
        for key, part in value.items():
            if key not in TIES or (key == "data" and isinstance(part, dict)):
                yield from texts(part, depth + 1)
    elif depth < _DEPTH and isinstance(value, list):
        for part in value:
            yield from texts(part, depth + 1)


def mapped(value: Any, change: Callable[[str], str], depth: int = 0) -> Any:
    """The same with every text changed. A text that is JSON (Codex's arguments) stays JSON."""
    if isinstance(value, str):
        return _mapped_text(value, change, depth)
    if depth < _DEPTH and isinstance(value, dict):
        return {
            key: mapped(part, change, depth + 1)
            if key not in TIES or (key == "data" and isinstance(part, dict))
            else part
            for key, part in value.items()
        }
    if depth < _DEPTH and isinstance(value, list):
        return [mapped(part, change, depth + 1) for part in value]
    return value


def _mapped_text(value: str, change: Callable[[str], str], depth: int) -> str:
    new = change(value)
    if new == value or not value.startswith(("{", "[")):
        return new
    try:
        inner = orjson.loads(value)
    except orjson.JSONDecodeError:
        return new
    return orjson.dumps(mapped(inner, change, depth + 1)).decode()
