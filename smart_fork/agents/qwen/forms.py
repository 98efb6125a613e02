"""Qwen Code's records as they are shared."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any
from uuid import UUID, uuid5

from indexer.transcripts.lines import LineReader
from indexer.transcripts.model import Session
from smart_fork.agents.copier import in_order
from smart_fork.agents.forms import Becomes, GivenCall, Identity, Record, Told, Utterance, all_texts
from smart_fork.agents.part_forms import PartForms, shared_of, unsigned, withheld
from smart_fork.agents.qwen.fold import output_of, parts_of

_SAID, _COMPACTED = ("user", "assistant", "tool_result"), "chat_compression"
#: The tool that sets another agent to work.
_AGENT = "agent"
#: What of a record is shared. Not among it are telemetry, snapshots of files and of edits, and commands of its own.
_FIELDS = frozenset({
    "uuid", "timestamp", "type", "subtype", "provenance", "cwd", "version", "gitBranch", "message", "model",
    "usageMetadata", "toolCallResult", "systemPayload",
})  # fmt: skip
#: The records of a session that another agent began are named in this space.
_MADE = UUID("0f2d3c4b-6b7c-5d0e-9a36-71776e636f64")


class QwenForms(PartForms):
    """Records of Qwen Code: their place in the tree is taken away, since they stand in a line."""

    taken = frozenset({"sessionId", "parentUuid", "forkedFrom"})
    free = frozenset({"args", "response", "toolCallResult", "systemPayload"})

    def records_of(self, session: Session, end: int | None = None) -> Iterator[Record]:
        turns = session.turns[: None if end is None else end + 1]
        wanted = [turn.id for turn in turns]
        records = _records(session, set(wanted))
        return (record for _, (_, record) in in_order(wanted, records, session.source_path) if _is_said(record))

    def anew(self, records: Iterable[Record], becomes: Becomes) -> Iterator[Record]:
        """One line of parents."""
        parent: str | None = None
        for record in records:
            fields: dict[str, Any] = {"parentUuid": parent, "sessionId": becomes.session_id}
            identity = record.get("uuid")
            if becomes.forked_from:
                fields["forkedFrom"] = {"sessionId": becomes.forked_from, "messageUuid": identity}
            yield self.incoming(record, Identity(becomes.place, fields))
            parent = identity if isinstance(identity, str) else parent

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

    def told(self, record: Record) -> Told:
        parts = parts_of(record.get("message"))
        answers = [part["functionResponse"] for part in parts if isinstance(part.get("functionResponse"), dict)]
        calls = [part["functionCall"] for part in parts if isinstance(part.get("functionCall"), dict)]
        return Told(
            outputs=tuple((str(answer.get("id") or ""), output_of(answer)[0]) for answer in answers),
            thoughts=sum(self._is_thought(part) for part in parts),
            images=sum("inlineData" in part for part in parts),
            agents=sum(call.get("name") == _AGENT for call in calls),
        )

    def sent(self, record: Record) -> Record | None:
        if not _is_said(record):
            return None
        kept = {name: value for name, value in record.items() if name in _FIELDS}
        if isinstance(message := record.get("message"), dict):
            parts = [shared_of(part) for part in parts_of(message)]
            kept["message"] = {"role": message.get("role"), "parts": [part for part in parts if part]}
            return kept if kept["message"]["parts"] else None
        return kept

    def calls(self, record: Record) -> Iterator[GivenCall]:
        for part in parts_of(record.get("message")):
            if isinstance(call := part.get("functionCall"), dict):
                yield GivenCall(str(call.get("id") or ""), call.get("args"))

    def withheld(self, record: Record, ids: Collection[str], mark: str) -> Record:
        old = parts_of(record.get("message"))
        new = [withheld(part, ids, mark) for part in old]
        if new == old:
            return record
        changed = record | {"message": record["message"] | {"parts": new}}
        if "toolCallResult" in record:
            changed["toolCallResult"] = _withheld_result(record["toolCallResult"], mark)
        return changed

    def without_thoughts(self, record: Record, of: Callable[[Record], bool]) -> Record | None:
        old = parts_of(record.get("message"))
        new = [part for part in old if not (self._is_thought(part) and of(part))]
        if new == old:
            return record
        return record | {"message": record["message"] | {"parts": new}} if new else None

    def untied(self, record: Record) -> Record | None:
        """What is signed was signed for an account."""
        old = parts_of(record.get("message"))
        new = [unsigned(part) for part in old]
        return record if new == old else record | {"message": record["message"] | {"parts": new}}


def _records(session: Session, missing: set[str]) -> Iterator[tuple[str, tuple[bytes, Record]]]:
    """Each record that is wanted, in file order. The first of an id counts."""
    for line in LineReader(session.source_path):
        record, identity = line.record, line.record.get("uuid")
        if isinstance(identity, str) and identity in missing and record.get("isSidechain") is not True:
            missing.discard(identity)
            yield identity, (line.source, record)


def _is_said(record: Record) -> bool:
    if record.get("type") == "system":
        return record.get("subtype") == _COMPACTED
    return record.get("type") in _SAID and isinstance(record.get("message"), dict)


def _withheld_result(result: Any, mark: str) -> Any:
    """All but what says whose it is, and how it went."""
    names = ("callId", "status", "executionStatus")
    if not isinstance(result, dict):
        return mark
    return {name: value if name in names else all_texts(value, mark) for name, value in result.items()}
