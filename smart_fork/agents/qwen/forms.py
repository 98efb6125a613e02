"""Qwen Code's records as they are shared."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any
from uuid import UUID, uuid5

from indexer.transcripts.model import Session
from smart_fork.agents.codec import Record, only
from smart_fork.agents.forms import Becomes, PartForms, Utterance, all_texts, shared_of, unsigned, withheld
from smart_fork.agents.qwen.codec import SAID, QwenCodec, parts_of, sums_up
from smart_fork.agents.tree_copy import placed

#: What of a record is shared. Not among it are telemetry, snapshots of files and of edits, and commands of its own.
_FIELDS = frozenset({
    "uuid", "timestamp", "type", "subtype", "provenance", "cwd", "version", "gitBranch", "message", "model",
    "usageMetadata", "toolCallResult", "systemPayload",
})  # fmt: skip
#: The records of a session that another agent began are named in this space.
_MADE = UUID("0f2d3c4b-6b7c-5d0e-9a36-71776e636f64")


class QwenForms(QwenCodec, PartForms):
    """Records of Qwen Code: their place in the tree is taken away, since they stand in a line."""

    taken = frozenset({"sessionId", "parentUuid", "forkedFrom"})
    free = frozenset({"args", "response", "toolCallResult", "systemPayload"})

    def records_of(self, session: Session, end: int | None = None) -> Iterator[Record]:
        turns = session.turns[: None if end is None else end + 1]
        records = placed(session.source_path, [turn.id for turn in turns])
        return (record for _, (_, record) in records if _is_said(record))

    def anew(self, records: Iterable[Record], becomes: Becomes) -> Iterator[Record]:
        """See `Forms.anew`."""
        return self.in_line(records, becomes)

    def log_of(self, said: Iterable[Utterance], becomes: Becomes) -> Iterator[Record]:
        parent: str | None = None
        before: bool | None = None
        for number, one in enumerate(said):
            # It sends what one side said in a row as one message, with nothing between.
            text = f"\n\n{one.text}" if one.user == before else one.text
            before = one.user
            identity = str(uuid5(_MADE, f"{becomes.session_id} {number}"))
            yield {
                "uuid": identity, "parentUuid": parent, "sessionId": becomes.session_id, "timestamp": one.moment,
                "type": "user" if one.user else "assistant", "cwd": becomes.place.root, "version": "0.24.4",
                "provenance": "real_user" if one.user else "assistant_output",
                "message": {"role": "user" if one.user else "model", "parts": [{"text": text}]},
            }  # fmt: skip
            parent = identity

    def sent(self, record: Record) -> Record | None:
        if not _is_said(record):
            return None
        kept = only(record, _FIELDS)
        if isinstance(message := record.get("message"), dict):
            parts = [shared_of(part) for part in parts_of(message)]
            kept["message"] = {"role": message.get("role"), "parts": [part for part in parts if part]}
            return kept if kept["message"]["parts"] else None
        return kept

    def withheld(self, record: Record, ids: Collection[str], mark: str) -> Record:
        new = self.changed(record, lambda part: withheld(part, ids, mark)) or record
        if new is record or "toolCallResult" not in record:
            return new
        return new | {"toolCallResult": _withheld_result(record["toolCallResult"], mark)}

    def untied(self, record: Record) -> Record | None:
        """See `Forms.untied`. What is signed was signed for an account."""
        return self.changed(record, unsigned)


def _is_said(record: Record) -> bool:
    is_message = record.get("type") in SAID and isinstance(record.get("message"), dict)
    return is_message or (record.get("type") == "system" and sums_up(record))


def _withheld_result(result: Any, mark: str) -> Any:
    """All but what says whose it is, and how it went."""
    names = ("callId", "status", "executionStatus")
    if not isinstance(result, dict):
        return mark
    return {name: value if name in names else all_texts(value, mark) for name, value in result.items()}
