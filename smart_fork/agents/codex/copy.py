"""Selects the records for a copy of a Codex session: its own, and those of its fork ancestors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby, starmap
from pathlib import Path

import orjson

from indexer.transcripts.lines import LineReader
from indexer.transcripts.model import Session
from smart_fork.agents.codec import Record
from smart_fork.agents.codex import HOME, remembered
from smart_fork.agents.codex.codec import ordinal_of
from smart_fork.agents.codex.history import lines_of, whole
from smart_fork.agents.copier import Copier, Copy, LiveRecord, NewSession
from smart_fork.agents.cuts.lines import only_prompts_previewed
from smart_fork.json_text import respelled

#: What a header says of how its own file is kept and where it is from.
OF_ITS_FILE = ("history_mode", "history_base", "forked_from_ordinal_exclusive", "parent_thread_id", "context_window")

#: What Codex wants of each header, though the oldest have nothing of it: without them it does not load the session.
OF_EACH_HEADER = {"originator": "smart-fork", "cli_version": "0.0.0"}


class CodexCopy(Copy):
    """Records of a session in a new one, in the form of before copy-on-write."""

    def own(self, kind: str, payload: Record) -> Record:
        """A record of the copy's own."""
        moment = self._new.now.astimezone().isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return {"timestamp": moment, "type": kind, "payload": payload}

    def last(self) -> Iterator[bytes]:
        """The copy's name, where it gets one."""
        if self._new.title:
            named = {"type": "thread_name_updated", "thread_id": self._new.id, "thread_name": self._new.title}
            yield orjson.dumps(self.own("event_msg", named))

    def header(self) -> Iterator[bytes]:
        """The copy's first record: what that of the source says, as far as it is true of the copy."""
        lines = LineReader(self._source.source_path)
        entries = filter(None, (remembered.enveloped(line.source, line.record) for line in lines))
        spelled, first = next(
            (entry for entry in entries if entry[1]["type"] == "session_meta"), (b"", {"payload": {}})
        )
        meta: Record = first["payload"]
        header = {name: value for name, value in meta.items() if name not in OF_ITS_FILE}
        for name, value in OF_EACH_HEADER.items():
            header.setdefault(name, value)
        made = self.own("session_meta", header)
        header |= {"id": self._new.id, "forked_from_id": self._source.session_id, "timestamp": made["timestamp"]}
        if "session_id" in header:
            header["session_id"] = self._new.id
        if self._new.cwd is not None:
            if header.get("cwd") != str(self._new.cwd):
                header.pop("git", None)  # the branch and commit of another directory
            header["cwd"] = str(self._new.cwd)
            if "runtime_workspace_roots" in header:
                header["runtime_workspace_roots"] = [str(self._new.cwd)]
        yield respelled(spelled, made)

    def up_to(self, end: int) -> Iterator[remembered.Entry]:
        return kept(self._source.source_path, self._source.turns[end].id)

    def record(self, number: int, entry: remembered.Entry) -> Iterator[bytes]:
        """See `Copy.record`. Headers are other files'."""
        source, record = entry
        payload = record["payload"]
        if record["type"] == "session_meta":
            return
        record.pop("ordinal", None)
        to_legacy(payload)
        if self._new.cwd is not None and record["type"] == "turn_context" and "cwd" in payload:
            payload["cwd"] = str(self._new.cwd)
        yield respelled(source, record)

    def summary(self, entry: remembered.Entry) -> Iterator[bytes]:
        """See `Copy.summary`. By its own record the agent would forget what stands above."""
        moment = entry[1].get("timestamp", "")
        for item in remembered.left_by(entry[1]["payload"]):
            yield orjson.dumps({"timestamp": moment, "type": "response_item", "payload": item})

    def line(self, text: str, before: remembered.Entry) -> Iterator[bytes]:
        yield orjson.dumps({
            "timestamp": before[1].get("timestamp", ""), "type": "response_item", "payload": remembered.added(text),
        })  # fmt: skip


class CodexCopier(Copier):
    """Copies of sessions of Codex."""

    copies = CodexCopy

    def place(self, source: Path, new: NewSession) -> Path:
        """It files its sessions by day."""
        name = f"rollout-{new.now:%Y-%m-%dT%H-%M-%S}-{new.id}.jsonl"
        return HOME.folder() / "sessions" / f"{new.now:%Y/%m/%d}" / name

    def of_records(self, session: Session, records: Iterable[remembered.Entry], new: NewSession) -> Copy:
        return CodexCopy(self, session, new, filter(None, starmap(remembered.enveloped, records)))

    def live(self, session: Session) -> Iterator[LiveRecord]:
        with only_prompts_previewed():
            lines = (next(same) for _, same in groupby(lines_of(whole(session.source_path)), lambda line: line.number))
            turns = remembered.joined([remembered.Seen.of(line.number, line.record) for line in lines])
        for number, entry in remembered.remembered(turns, session.turns, through_parents(session.source_path)):
            yield self.sized(number, entry, sums_up=entry[1]["type"] == "compacted")

    def size(self, record: Record) -> int:
        return remembered.size_of(record)

    def short(self, record: Record) -> Record:
        return remembered.short(record)


def kept(path: Path, last: str | None) -> Iterator[remembered.Entry]:
    """The records of a session and of those that it was forked from, up to turn `last` and what closes it.

    Raises:
        NotFound: a session that this one was forked from is gone.
    """
    past = False
    for key, entry in through_parents(path):
        record = entry[1]
        payload = record["payload"]
        if past and key != last and _begins_a_turn(record["type"], payload):
            return
        past = past or key == last
        yield entry
        if past and payload.get("type") == "task_complete":
            return


def through_parents(path: Path) -> Iterator[tuple[str, remembered.Entry]]:
    """The records of a session from all rollouts of its history, with the ids that the reader gives their turns.

    Raises:
        NotFound: a rollout of its history is gone.
    """
    for line in lines_of(whole(path)):
        if (entry := remembered.enveloped(line.source, line.record)) is not None:
            yield str(ordinal_of(line)), entry


def _begins_a_turn(kind: str, payload: Record) -> bool:
    said = payload.get("type")
    if kind == "response_item":
        return said != "message" or payload.get("role") != "assistant"
    return kind in ("turn_context", "compacted") or said in ("task_started", "user_message", "thread_rolled_back")


def to_legacy(payload: Record) -> None:
    """Convert the events shown on the screen of a resumed session to the older form."""
    item = payload.get("item")
    if payload.get("type") != "item_completed" or not isinstance(item, dict):
        return
    kind = {"UserMessage": "user_message", "AgentMessage": "agent_message"}.get(str(item.get("type")))
    parts = item.get("content")
    if kind and isinstance(parts, list):
        texts = [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
        payload.clear()
        payload |= {"type": kind, "message": "".join(texts)}
