"""Writing of Copilot CLI's sessions: copies for forks, and conversion of its events for sharing.

A copy has the events up to the end of an exchange, unchanged and with their ids, as in Copilot CLI's own forks. Its
last event names the parent session. Events before a compaction are copied too: Copilot CLI itself decides which of them
its model is sent. A copy that omits exchanges has only messages, calls and results of the remaining exchanges.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4, uuid5

import orjson

from indexer.json_values import dict_in
from indexer.safe_files import private_dir, remove, sweep, write_new
from indexer.transcripts.lines import LineReader
from indexer.transcripts.model import Session
from smart_fork.agents.copier import Copier, Copy, Entry, LiveRecord, NewSession, read_again
from smart_fork.agents.copilot import session_reader
from smart_fork.agents.copilot.log_files import EVENTS, WORKSPACE, sessions
from smart_fork.agents.decoders import Record, aside, only
from smart_fork.agents.portable_records import Converter, Image, TargetSession, Utterance, all_texts
from smart_fork.agents.storage import copy_folder
from smart_fork.agents.tree import rooted
from smart_fork.errors import ForkRefused
from smart_fork.json_edit import respelled

#: The folders beside a log that the model may read again: files, and summaries of compactions.
_BESIDE = ("files", "checkpoints")
_BEGUN = "tool.execution_start"


def _sweep() -> None:
    """Remove the folders of unfinished copies, whose writers were killed."""
    for left in sessions().glob(f"*/.{EVENTS}.*.tmp"):
        folder = left.parent
        sweep(folder)
        if not os.path.lexists(left) and not os.path.lexists(folder / EVENTS):
            with contextlib.suppress(OSError):
                remove(folder)


class CopilotCopy(Copy):
    """A copy of one session's events. If turns are left out, each event names the copied event before as its parent."""

    carried = ("parent",)
    parent: Any = None
    _head: Any = ""

    def copy_beside(self, target: Path, created: list[Path]) -> list[str]:
        """Write ``workspace.yaml`` with the copy's directory and title, and copy the session's further files.

        Without ``workspace.yaml``, Copilot CLI would work in the directory in which it is started.
        """
        moment = self._new.moment
        cwd = str(self._new.cwd) if self._new.cwd else self._source.cwd
        told: Record = {"id": self._new.id, "cwd": cwd, "created_at": moment, "updated_at": moment}
        if self._new.title:
            told |= {"name": self._new.title, "user_named": True}
        workspace = target.with_name(WORKSPACE)
        write_new(workspace, (b"%b: %b\n" % (name.encode(), orjson.dumps(value)) for name, value in told.items()))
        created.append(workspace)
        for name in _BESIDE:
            copy_folder(self._source.source_path.with_name(name), target.with_name(name), created)
        return []

    def _with_own_id(self, record: Record) -> Record:
        """Return an event for the copy. The session's first event gets the copy's id and directory; others stay."""
        if record.get("type") == "session.start":
            data = session_reader.data_of(record)
            place = {"cwd": str(self._new.cwd)} if self._new.cwd else dict_in(data.get("context"))
            record["data"] = data | {"sessionId": self._new.id, "context": place}
        return record

    def last(self) -> Iterator[bytes]:
        """Yield the copy's last event, which names the session that it was forked from."""
        title = self._new.title or str(self._source.title)
        message = f'Forked from "{self._source.title}" ({self._source.session_id}) as "{title}" ({self._new.id}).'
        yield orjson.dumps({
            "type": "session.info", "data": {"infoType": "fork", "message": message}, "id": str(uuid4()),
            "timestamp": self._new.moment, "parentId": self.parent,
        })  # fmt: skip

    def up_to(self, end: int) -> Iterator[Entry]:
        """Yield the source session's events up to turn `end`, and those between this turn and the next prompt.

        Raises:
            ForkRefused: A turn is missing, because the log changed meanwhile.
        """
        wanted, last = {turn.id for turn in self._source.turns[: end + 1]}, self._source.turns[end].id
        past = False
        for spelled, record in events(self._source.source_path):
            identity = record.get("id")
            if past and session_reader.is_prompt(record):
                break
            wanted.discard(identity if isinstance(identity, str) else "")
            past = past or identity == last
            self.parent = identity or self.parent
            yield spelled, self._with_own_id(record)
        if wanted:
            raise ForkRefused(f"The log changed during reading: {self._source.source_path}", "Try again.")

    def header(self) -> Iterator[bytes]:
        for spelled, record in events(self._source.source_path) if self._excerpt else ():
            if record.get("type") == "session.start":
                yield respelled(spelled, self._chained(self._with_own_id(record)))
                self._head = self.parent
                return

    def record(self, number: int, entry: Entry) -> Iterator[bytes]:
        yield respelled(entry[0], self._chained(entry[1]) if self._excerpt else entry[1])

    def summary(self, entry: Entry) -> Iterator[bytes]:
        yield from self.line(session_reader.summary_in(entry[1]), entry)

    def line(self, text: str, before: Entry) -> Iterator[bytes]:
        moment = before[1].get("timestamp")
        said = {"type": "user.message", "data": {"content": aside(text)}, "id": str(uuid4()), "timestamp": moment}
        yield orjson.dumps(self._chained(said))

    def _chained(self, record: Record) -> Record:
        if self.parent == self._head:
            record = rooted(record, self._source.root_id)
        record["parentId"], self.parent = self.parent, record.get("id")
        return record


class CopilotCopier(Copier):
    """The copier of Copilot CLI's sessions, for forks."""

    codec, copies = session_reader.CODEC, CopilotCopy

    def place(self, source: Path, new: NewSession) -> Path:
        return sessions() / new.id / EVENTS

    def live(self, session: Session) -> Iterator[LiveRecord]:
        """Yield messages and starts of tool calls, with their turns' numbers. A start belongs to its call's turn."""
        places = {turn.id: number for number, turn in enumerate(session.turns)}
        calls: dict[str, int] = {}
        for spelled, record in events(session.source_path):
            kind, data = record.get("type"), session_reader.data_of(record)
            number = calls.get(str(data.get("toolCallId"))) if kind == _BEGUN else places.get(str(record.get("id")))
            if number is None or session_reader.is_of_subagent(record) or kind not in (*session_reader.SAID, _BEGUN):
                continue
            calls |= {str(one.get("toolCallId")): number for one in session_reader.requests_in(data)}
            yield self.sized(number, (spelled, record), sums_up=kind == session_reader.COMPACTED)

    def begin(self, target: Path) -> list[Path]:
        if os.path.lexists(target.parent):
            raise ForkRefused(f"A session of this id already exists: {target.parent}")
        _sweep()
        return [private_dir(target.parent)]


def events(log: Path) -> Iterator[Entry]:
    """Yield the events of a log as (bytes of its line, decoded record).

    Raises:
        NotFound: The log no longer exists.
    """
    with read_again(log):
        for line in LineReader(log):
            yield line.source, line.record


_ASKED, _ANSWER = "user.message", "assistant.message"
_USED = "session.usage_record"
#: The shared fields of each kind of event. Instructions, permissions, hooks, attachments, descriptions of the machine
#: beside a prompt, and sub-agents' events are not shared.
_EVENTS = {
    _ASKED: frozenset({"content", "messageId", "source"}),
    _ANSWER: frozenset({"content", "messageId", "model", "toolRequests", "reasoningText", "reasoningOpaque"}),
    _BEGUN: frozenset({"toolCallId", "toolName", "arguments", "model"}),
    session_reader.ANSWERED: frozenset({"toolCallId", "model", "success", "result", "error", "shellExecution"}),
    _USED: frozenset({"usage"}),
    "session.compaction_complete": frozenset({
        "success", "outcome", "summaryContent", "messagesRemoved", "preCompactionMessagesLength", "preCompactionTokens",
        "postCompactionTokens", "tokensRemoved",
    }),
    "abort": frozenset({"reason"}),
}  # fmt: skip
_OF_EVENT = frozenset({"type", "id", "timestamp", "data"})
_OF_REQUEST = frozenset({"toolCallId", "name", "arguments", "type"})
_OF_USAGE = frozenset({"model", "inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens"})
_OF_RESULT = frozenset({"content", "detailedContent", "contents"})
_OF_ERROR = frozenset({"message", "code"})
_OF_SHELL = frozenset({"exitCode"})
#: The fields that may be shared of an event's ``usage``, ``result``, ``error`` and ``shellExecution``.
_PARTS = {"usage": _OF_USAGE, "result": _OF_RESULT, "error": _OF_ERROR, "shellExecution": _OF_SHELL}
#: The namespace for the ids of events that smart-fork writes.
_MADE = UUID("3c8f1d52-0a4e-5b67-8d29-636f70696c6f")


class CopilotConverter(session_reader.CopilotCodec, Converter):
    """Converts Copilot CLI's events for sharing with teammates, without the ids of parent events."""

    taken = frozenset({"parentId"})
    identity = "id"
    thoughts = ()
    free = frozenset({"arguments", "result", "error"})

    def records_of(self, session: Session, end: int | None = None) -> Iterator[Record]:
        """Yield the conversation's events up to turn `end`: usage before its answer, a call's start before its result.

        Raises:
            ForkRefused: A turn is missing, because the log changed meanwhile.
        """
        turns = session.turns[: None if end is None else end + 1]
        missing, last = {turn.id for turn in turns}, turns[-1].id if turns else ""
        calls: set[str] = set()
        spent: Record | None = None
        for _, record in events(session.source_path):
            kind, identity, data = record.get("type"), record.get("id"), session_reader.data_of(record)
            if session_reader.is_of_subagent(record) or not isinstance(kind, str) or kind not in _EVENTS:
                continue
            if kind == _USED:
                spent = record
            elif kind == _BEGUN:
                if str(data.get("toolCallId")) in calls:
                    yield record
            elif isinstance(identity, str) and identity in missing:
                missing.discard(identity)
                calls.update(str(one.get("toolCallId")) for one in session_reader.requests_in(data))
                if spent and kind == _ANSWER:
                    yield spent
                spent = None
                yield record
                if identity == last:
                    break
        if missing:
            raise ForkRefused(f"The log changed during reading: {session.source_path}", "Try again.")

    def anew(self, records: Iterable[Record], becomes: TargetSession) -> Iterator[Record]:
        """Yield a new session's log: a first event, the shared events and, for a fork, an event naming its parent."""
        parent: str | None = None
        for record in records:
            if parent is None:
                head = _head(becomes, str(record.get("timestamp") or ""))
                parent = str(head["id"])
                yield head
            yield self.incoming(record, becomes.place, {"parentId": parent})
            identity = record.get("id")
            parent = identity if isinstance(identity, str) else parent
        if parent is not None and becomes.forked_from:
            said = f'Forked from "" ({becomes.forked_from}) as "" ({becomes.session_id}).'
            yield _event("session.info", {"infoType": "fork", "message": said}, becomes, "forked", parent=parent)

    def log_of(self, said: Iterable[Utterance], becomes: TargetSession) -> Iterator[Record]:
        """Yield the log of a new session: a first event, and an event for each message.

        Seen with 1.0.102: Copilot CLI sends the model an event's ``content``, and does not load an answer without
        ``messageId``. It does not need the further events that it writes itself around an answer.
        """
        utterances = list(said)
        event = _head(becomes, next((one.moment for one in utterances if one.moment), ""))
        yield event
        for number, one in enumerate(utterances, start=1):
            data: Record = {"content": one.text} if one.user else {"content": one.text, "toolRequests": []}
            kind = _ASKED if one.user else _ANSWER
            event = _event(kind, data, becomes, str(number), parent=event["id"], moment=one.moment)
            event["data"]["messageId"] = event["id"]
            yield event

    def sent(self, record: Record) -> Record | None:
        kind, data = record.get("type"), record.get("data")
        names = _EVENTS.get(kind) if isinstance(kind, str) else None
        if names is None or not isinstance(data, dict) or not isinstance(record.get("id"), str):
            return None
        if record.get("agentId") is not None:
            return None
        kept = only(record, _OF_EVENT)
        said = only(data, names)
        said |= {name: only(said[name], _PARTS[name]) for name in _PARTS if isinstance(said.get(name), dict)}
        if "toolRequests" in said:
            said["toolRequests"] = [only(one, _OF_REQUEST) for one in session_reader.requests_in(data)]
        return kept | {"data": said}

    def withheld(self, record: Record, ids: Collection[str], mark: str) -> Record:
        data = session_reader.data_of(record)
        new = dict(data)
        if requests := session_reader.requests_in(data):
            new["toolRequests"] = [
                _without(one, mark) if str(one.get("toolCallId")) in ids else one for one in requests
            ]
        if str(data.get("toolCallId")) in ids:
            new = _without(new, mark)
            new |= {"result": {"content": mark}} if "result" in data else {}
            new |= {"error": {"message": mark}} if "error" in data else {}
        return record if new == data else record | {"data": new}

    def image(self, value: Record) -> Image | None:
        data = value.get("data")
        if value.get("type") not in ("image", "audio") or not isinstance(data, str):
            return None
        return Image(
            str(value.get("mimeType") or value["type"]), len(data) * 3 // 4, lambda note: {"type": "text", "text": note}
        )

    def without_thoughts(self, record: Record, of: Callable[[Record], bool]) -> Record | None:
        data = session_reader.data_of(record)
        thought = {name: data[name] for name in session_reader.THOUGHTS if name in data}
        if not thought or not of(thought):
            return record
        return record | {"data": {name: value for name, value in data.items() if name not in thought}}

    def _mapped(self, name: str, value: Any, change: Callable[[str], str], depth: int = 0) -> Any:
        """Return the value of a field with `change` applied to its texts. Thoughts stay, since they may be signed."""
        return value if name in session_reader.THOUGHTS else super()._mapped(name, value, change, depth)


def _head(becomes: TargetSession, moment: str) -> Record:
    data: Record = {
        "sessionId": becomes.session_id, "version": 1, "producer": "copilot-agent", "copilotVersion": "1.0.102",
        "startTime": moment, "context": {"cwd": becomes.place.root},
    }  # fmt: skip
    return _event("session.start", data, becomes, "0", moment=moment)


def _event(
    kind: str, data: Record, becomes: TargetSession, name: str, *, parent: str | None = None, moment: str = ""
) -> Record:
    identity = str(uuid5(_MADE, f"{becomes.session_id} {name}"))
    return {"type": kind, "data": data, "id": identity, "timestamp": moment, "parentId": parent}


def _without(call: Record, mark: str) -> Record:
    return call | {"arguments": all_texts(call["arguments"], mark)} if "arguments" in call else call
