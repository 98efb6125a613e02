"""Fields that link records or are signed: ids, signatures, encrypted reasoning. Changing one breaks the replay."""

from __future__ import annotations

from collections.abc import Callable, Iterator

#: Deeper than any record is.
DEPTH = 64
#: Fields that are never searched or changed.
TIES = frozenset({
    "uuid", "parentUuid", "logicalParentUuid", "leafUuid", "sessionId", "session_id", "id", "type", "role", "model",
    "timestamp", "signature", "encrypted_content", "tool_use_id", "call_id", "toolUseID", "parentToolUseID", "data",
    "requestId", "messageId", "thread_id", "turn_id", "name", "namespace", "version", "cwd", "gitBranch", "ordinal",
    "media_type", "composerId", "bubbleId", "toolCallId", "sourceToolAssistantUUID", "promptId", "base_instructions",
    "messageUuid", "parentId", "agentId", "interactionId", "apiCallId", "usageId", "reasoningOpaque",
    "encryptedContent", "transcriptPath", "transcript_path", "gitRoot", "headCommit",
    "sessionID", "messageID", "parentID", "callID", "message_id", "aggregate_id", "project_id",
    "projectID", "providerID", "modelID",
})  # fmt: skip
#: Those of them that are paths.
PATHS = frozenset({"cwd", "gitRoot", "transcriptPath", "transcript_path"})


def is_tie(name: str, value: object) -> bool:
    """Return whether a field is never searched or changed. An object ``data`` has texts."""
    return (name in TIES and not (name == "data" and isinstance(value, dict))) or name.lower().endswith("signature")


def texts(value: object, is_left_out: Callable[[str, object], bool] = is_tie, depth: int = 0) -> Iterator[str]:
    """Yield every text in a decoded record, but those in fields that are left out."""
    if isinstance(value, str):
        yield value
    elif depth < DEPTH and isinstance(value, dict):
        for key, part in value.items():
            if not is_left_out(key, part):
                yield from texts(part, is_left_out, depth + 1)
    elif depth < DEPTH and isinstance(value, list):
        for part in value:
            yield from texts(part, is_left_out, depth + 1)
