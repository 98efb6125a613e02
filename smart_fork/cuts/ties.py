"""What ties records together: ids, signatures, encrypted reasoning. Changing one breaks the replay."""

from __future__ import annotations

#: Fields that are never looked into: changing one breaks the replay, or what it points to.
TIES = frozenset({
    "uuid", "parentUuid", "logicalParentUuid", "leafUuid", "sessionId", "session_id", "id", "type", "role", "model",
    "timestamp", "signature", "encrypted_content", "tool_use_id", "call_id", "toolUseID", "parentToolUseID", "data",
    "requestId", "messageId", "thread_id", "turn_id", "name", "namespace", "version", "cwd", "gitBranch", "ordinal",
    "media_type", "composerId", "bubbleId", "toolCallId", "sourceToolAssistantUUID", "promptId", "base_instructions",
    "messageUuid",
})  # fmt: skip


def is_tie(name: str, value: object) -> bool:
    """Whether a field is never looked into. What is called ``data`` is an image's, or an object with texts."""
    return (name in TIES and not (name == "data" and isinstance(value, dict))) or name.lower().endswith("signature")
