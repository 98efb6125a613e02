"""What of a Codex session goes into a copy of it: its records and those of the sessions it was forked from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from indexer.transcripts.base import AgentAdapter
from indexer.transcripts.lines import LineReader
from indexer.transcripts.model import Session
from smart_fork.errors import NotFound

Record = dict[str, Any]
#: Forks of forks are followed this far.
MAX_FORK_DEPTH = 64
#: What a header says of how its own file is kept and where it is from (B-070).
OF_ITS_FILE = ("history_mode", "history_base", "forked_from_ordinal_exclusive", "parent_thread_id", "context_window")


@dataclass(frozen=True, slots=True)
class CodexForm:
    """How the records of the session `source_id` become those of session `new`: in the form of before copy-on-write.

    `cwd` is where the copy works, where that is another directory than the session's own.
    """

    source_id: str
    new: str
    now: datetime
    cwd: Path | None = None

    def record(self, kind: str, payload: Record) -> Record:
        """A record of the copy's own."""
        moment = self.now.astimezone().isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return {"timestamp": moment, "type": kind, "payload": payload}

    def header(self, source: Path) -> Record:
        """The copy's first record: what that of `source` says, as far as it is true of the copy (B-070, B-091)."""
        lines = (enveloped(line.record) for line in LineReader(source))
        meta: Record = next((record["payload"] for record in lines if record and record["type"] == "session_meta"), {})
        header = {name: value for name, value in meta.items() if name not in OF_ITS_FILE}
        made = self.record("session_meta", header)
        header |= {"id": self.new, "forked_from_id": self.source_id, "timestamp": made["timestamp"]}
        if "session_id" in header:
            header["session_id"] = self.new
        if self.cwd is not None:
            if header.get("cwd") != str(self.cwd):
                header.pop("git", None)  # the branch and commit of another directory
            header["cwd"] = str(self.cwd)
            if "runtime_workspace_roots" in header:
                header["runtime_workspace_roots"] = [str(self.cwd)]
        return made

    def carried_over(self, record: Record) -> Record | None:
        """A record in today's form as it stands in the copy; nothing for headers, which are other files'."""
        payload = record["payload"]
        if record["type"] == "session_meta":
            return None
        record.pop("ordinal", None)
        _to_legacy(payload)
        if self.cwd is not None and record["type"] == "turn_context" and "cwd" in payload:
            payload["cwd"] = str(self.cwd)
        return record


class CodexCopy:
    """Turns 0 to `end` of a session for a new one (B-091).

    Only one record at a time is in memory (B-061). `copied` is complete after the last record.
    """

    def __init__(
        self, adapter: AgentAdapter, session: Session, end: int, *, new: str, cwd: Path, title: str, now: datetime
    ) -> None:
        self._adapter = adapter
        self._path = session.source_path
        self._last = session.turns[end].id
        self._form = CodexForm(session.session_id, new, now, cwd)
        self._title = title
        self.copied = 0
        self.backups: frozenset[str] = frozenset()

    def __iter__(self) -> Iterator[Record]:
        """The records, and last the session's name where it gets one.

        Raises:
            NotFound: a session that this one was forked from is gone.
        """
        yield self._form.header(self._path)
        for record in filter(None, map(self._form.carried_over, self._kept())):
            self.copied += 1
            yield record
        if self._title:
            named = {"type": "thread_name_updated", "thread_id": self._form.new, "thread_name": self._title}
            yield self._form.record("event_msg", named)

    def _kept(self) -> Iterator[Record]:
        """Up to the last turn and what closes it."""
        past = False
        for key, record in through_parents(self._adapter, self._path):
            payload = record["payload"]
            if past and key != self._last and _begins_a_turn(record["type"], payload):
                return
            past = past or key == self._last
            yield record
            if past and payload.get("type") == "task_complete":
                return


def through_parents(
    adapter: AgentAdapter, path: Path, end: int | None = None, seen: tuple[Path, ...] = ()
) -> Iterator[tuple[str, Record]]:
    """The records of a rollout after those of its parents, with the ids that the reader gives their turns.

    Raises:
        NotFound: a parent is gone.
    """
    first = True
    for line in LineReader(path):
        record = enveloped(line.record)
        if record is None:
            continue
        number = record.get("ordinal", line.number)
        if end is not None and isinstance(number, int) and number >= end:
            return
        base = record["payload"].get("history_base") if record["type"] == "session_meta" else None
        if first and isinstance(base, dict):
            above = next(iter(adapter.locate(str(base.get("thread_id")))), None)
            if above is None or above in seen or len(seen) >= MAX_FORK_DEPTH:
                raise NotFound(f"The session that this one was forked from is gone: {base.get('thread_id')}")
            yield from through_parents(adapter, above, base.get("end_ordinal_exclusive"), (*seen, path))
        first = False
        yield str(number), record


def _begins_a_turn(kind: str, payload: Record) -> bool:
    said = payload.get("type")
    if kind == "response_item":
        return said != "message" or payload.get("role") != "assistant"
    return kind in ("turn_context", "compacted") or said in ("task_started", "user_message", "thread_rolled_back")


def _to_legacy(payload: Record) -> None:
    """What is shown on the screen of a resumed session: newer versions tell it by other events than this form has."""
    item = payload.get("item")
    if payload.get("type") != "item_completed" or not isinstance(item, dict):
        return
    kind = {"UserMessage": "user_message", "AgentMessage": "agent_message"}.get(str(item.get("type")))
    parts = item.get("content")
    if kind and isinstance(parts, list):
        texts = [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
        payload.clear()
        payload |= {"type": kind, "message": "".join(texts)}


def enveloped(record: Record) -> Record | None:
    """A record in today's form; the oldest rollouts have bare items. `None` where it is nothing of the conversation."""
    if isinstance(record.get("payload"), dict) and isinstance(record.get("type"), str):
        return record
    if isinstance(record.get("type"), str):
        return {"timestamp": record.get("timestamp", ""), "type": "response_item", "payload": record}
    if "record_type" not in record and isinstance(record.get("id"), str):
        return {"timestamp": record.get("timestamp", ""), "type": "session_meta", "payload": record}
    return None
