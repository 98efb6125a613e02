"""What of a Codex session goes into a copy of it: its records and those of the sessions it was forked from."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from indexer.transcripts.base import AgentAdapter
from indexer.transcripts.lines import Line, LineReader
from indexer.transcripts.model import Session
from smart_fork.errors import NotFound

#: Forks of forks are followed this far.
MAX_FORK_DEPTH = 64
#: What a header says of how its own file is kept and where it is from (B-070).
OF_ITS_FILE = ("history_mode", "history_base", "forked_from_ordinal_exclusive", "parent_thread_id", "context_window")


class CodexCopy:
    """Turns 0 to `end` of a session for a new one, without ordinals, in the form of before copy-on-write (B-091).

    Only one record at a time is in memory (B-061). `copied` is complete after the last record.
    """

    def __init__(
        self, adapter: AgentAdapter, session: Session, end: int, *, new: str, cwd: Path, title: str, now: datetime
    ) -> None:
        self._adapter = adapter
        self._source = session
        self._last = session.turns[end].id
        self._new = new
        self._cwd = str(cwd)
        self._title = title
        self._moment = now.astimezone().isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self.copied = 0
        self.backups: frozenset[str] = frozenset()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The records, and last the session's name where it gets one.

        Raises:
            NotFound: a session that this one was forked from is gone.
        """
        yield self._record("session_meta", self._header())
        for record in self._kept():
            record.pop("ordinal", None)
            _to_legacy(record["payload"])
            if record["type"] == "turn_context" and "cwd" in record["payload"]:
                record["payload"]["cwd"] = self._cwd
            self.copied += 1
            yield record
        if self._title:
            named = {"type": "thread_name_updated", "thread_id": self._new, "thread_name": self._title}
            yield self._record("event_msg", named)

    def _record(self, kind: str, payload: dict[str, Any]) -> dict[str, Any]:
        return {"timestamp": self._moment, "type": kind, "payload": payload}

    def _header(self) -> dict[str, Any]:
        lines = map(_enveloped, LineReader(self._source.source_path))
        meta: dict[str, Any] = next(
            (record["payload"] for record in lines if record and record["type"] == "session_meta"), {}
        )
        header = {name: value for name, value in meta.items() if name not in OF_ITS_FILE}
        if header.get("cwd") != self._cwd:
            header.pop("git", None)  # the branch and commit of another directory
        header |= {"id": self._new, "forked_from_id": self._source.session_id}
        header |= {"timestamp": self._moment, "cwd": self._cwd}
        if "session_id" in header:
            header["session_id"] = self._new
        if "runtime_workspace_roots" in header:
            header["runtime_workspace_roots"] = [self._cwd]
        return header

    def _kept(self) -> Iterator[dict[str, Any]]:
        """Up to the last turn and what closes it."""
        past = False
        for key, record in through_parents(self._adapter, self._source.source_path):
            payload = record["payload"]
            if record["type"] == "session_meta":
                continue
            if past and key != self._last and _begins_a_turn(record["type"], payload):
                return
            past = past or key == self._last
            yield record
            if past and payload.get("type") == "task_complete":
                return


def through_parents(
    adapter: AgentAdapter, path: Path, end: int | None = None, seen: tuple[Path, ...] = ()
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The records of a rollout after those of its parents, with the ids that the reader gives their turns.

    Raises:
        NotFound: a parent is gone.
    """
    first = True
    for line in LineReader(path):
        record = _enveloped(line)
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


def _begins_a_turn(kind: str, payload: dict[str, Any]) -> bool:
    said = payload.get("type")
    if kind == "response_item":
        return said != "message" or payload.get("role") != "assistant"
    return kind in ("turn_context", "compacted") or said in ("task_started", "user_message", "thread_rolled_back")


def _to_legacy(payload: dict[str, Any]) -> None:
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


def _enveloped(line: Line) -> dict[str, Any] | None:
    """A record in today's form; the oldest rollouts have bare items."""
    record = line.record
    if isinstance(record.get("payload"), dict) and isinstance(record.get("type"), str):
        return record
    if isinstance(record.get("type"), str):
        return {"timestamp": record.get("timestamp", ""), "type": "response_item", "payload": record}
    if "record_type" not in record and isinstance(record.get("id"), str):
        return {"timestamp": record.get("timestamp", ""), "type": "session_meta", "payload": record}
    return None
