"""What of a Copilot CLI session goes into a copy of it: its events up to the end of an exchange, as they are.

They keep their ids, as in the forks that it makes itself, and last one names the session that they are of. What a
compaction left is among them: Copilot CLI makes of them itself what its model is sent. Where something is left out, of
what is kept what was said, called and answered is there.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from indexer.files import remove, sweep, write_new
from indexer.transcripts.lines import LineReader
from indexer.transcripts.model import Session
from indexer.transcripts.tree import rooted
from indexer.unchecked import dict_in, text_in
from smart_fork.agents.codec import Record
from smart_fork.agents.copied_texts import aside, characters, shortened
from smart_fork.agents.copier import Copier, Copy, Distilled, Entry, LiveRecord, NewSession, Written, read_again
from smart_fork.agents.copilot.codec import data_of, is_of_an_agent, requests_in
from smart_fork.agents.copilot.fold import is_typed
from smart_fork.agents.copilot.home import EVENTS, WORKSPACE, sessions
from smart_fork.agents.files import copy_folder
from smart_fork.errors import ForkRefused
from smart_fork.system.processes import Machine
from smart_fork.text.json_edits import respelled

#: The folders beside a log with what its model was told that it may read again: files, and summaries of compactions.
_BESIDE = ("files", "checkpoints")
_BEGUN, _ANSWERED, _COMPACTED = "tool.execution_start", "tool.execution_complete", "session.compaction_complete"
#: The events that a model is sent something of.
_SAID = frozenset({"user.message", "assistant.message", _ANSWERED, _COMPACTED})


def _sweep() -> None:
    """Take away the folders of copies whose writers were killed: what they were writing has no other name yet."""
    for left in sessions().glob(f"*/.{EVENTS}.*.tmp"):
        folder = left.parent
        sweep(folder)
        if not os.path.lexists(left) and not os.path.lexists(folder / EVENTS):
            with contextlib.suppress(OSError):
                remove(folder)


class _CopilotCopy(Copy):
    """What all copies have in common."""

    def copy_beside(self, target: Path, created: list[Path]) -> list[str]:
        """See `Copy.copy_beside`: where it works, its name, and what it has written for itself.

        Without the first it would work where it is started.
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

    def _own(self, record: Record) -> Record:
        """An event as the copy's own."""
        if record.get("type") == "session.start":
            place = {"cwd": str(self._new.cwd)} if self._new.cwd else dict_in(data_of(record).get("context"))
            record["data"] = data_of(record) | {"sessionId": self._new.id, "context": place}
        return record

    def _from(self, parent: Any) -> bytes:
        """The event that says whose the others are, behind the `parent`."""
        title = self._new.title or str(self._source.title)
        message = f'Forked from "{self._source.title}" ({self._source.session_id}) as "{title}" ({self._new.id}).'
        return orjson.dumps({
            "type": "session.info", "data": {"infoType": "fork", "message": message}, "id": str(uuid.uuid4()),
            "timestamp": self._new.moment, "parentId": parent,
        })  # fmt: skip


class CopilotCopy(_CopilotCopy):
    """Turns 0 to `end` of a session for a new one, as lines. Only one event at a time is in memory."""

    def __init__(self, session: Session, end: int, new: NewSession) -> None:
        super().__init__(session, new)
        self._end = session.turns[end].id
        self._wanted = {turn.id for turn in session.turns[: end + 1]}

    def __iter__(self) -> Iterator[bytes]:
        """The events, and last the one that says whose they are.

        Raises:
            NotFound: the session is gone.
            ForkRefused: it has changed meanwhile.
        """
        parent = None
        for spelled, record in self._kept():
            self.copied += 1
            parent = record.get("id") or parent
            yield respelled(spelled, self._own(record))
        if self._wanted:
            raise ForkRefused(f"The log changed during reading: {self._source.source_path}", "Try again.")
        yield self._from(parent)

    def _kept(self) -> Iterator[Entry]:
        """The events up to the last turn that is wanted, and those after it until somebody asks again."""
        past = False
        for spelled, record in events(self._source.source_path):
            identity = record.get("id")
            asks = record.get("type") == "user.message" and not is_of_an_agent(record) and is_typed(data_of(record))
            if past and asks:
                return
            self._wanted.discard(identity if isinstance(identity, str) else "")
            past = past or identity == self._end
            yield spelled, record


class CopilotDistilled(Distilled, _CopilotCopy):
    """Those turns of a session that an excerpt keeps, as one line of parents."""

    parent: Any = None
    _head: Any = ""

    def after(self, other: Distilled) -> None:
        """See `Distilled.after`."""
        if isinstance(other, CopilotDistilled):
            self.parent = other.parent

    def header(self) -> Iterator[bytes]:
        """See `Distilled.header`."""
        for spelled, record in events(self._source.source_path):
            if record.get("type") == "session.start":
                yield respelled(spelled, self._chained(self._own(record)))
                self._head = self.parent
                return

    def record(self, number: int, entry: Entry) -> Iterator[bytes]:
        """See `Distilled.record`."""
        yield respelled(entry[0], self._chained(entry[1]))

    def summary(self, entry: Entry) -> Iterator[bytes]:
        """See `Distilled.summary`."""
        yield from self.line(_left(entry[1]), entry)

    def line(self, text: str, before: Entry) -> Iterator[bytes]:
        """See `Distilled.line`."""
        moment = before[1].get("timestamp")
        said = {"type": "user.message", "data": {"content": aside(text)}, "id": str(uuid.uuid4()), "timestamp": moment}
        yield orjson.dumps(self._chained(said))

    def last(self) -> Iterator[bytes]:
        """See `Distilled.last`."""
        yield self._from(self.parent)

    def _chained(self, record: Record) -> Record:
        if self.parent == self._head:
            record = rooted(record, self._source.root_id)
        record["parentId"], self.parent = self.parent, record.get("id")
        return record


class CopilotCopier(Copier):
    """Copies of sessions of Copilot CLI."""

    name = "copilot"
    within_budget = CopilotDistilled

    def place(self, source: Path, new: NewSession) -> Path:
        """See `Copier.place`."""
        return sessions() / new.id / EVENTS

    def up_to(self, session: Session, end: int, new: NewSession) -> Copy:
        """See `Copier.up_to`."""
        return CopilotCopy(session, end, new)

    def live(self, session: Session) -> Iterator[LiveRecord]:
        """See `Copier.live`. That a call has begun goes with the answer that makes it."""
        places = {turn.id: number for number, turn in enumerate(session.turns)}
        calls: dict[str, int] = {}
        for spelled, record in events(session.source_path):
            kind, data = record.get("type"), data_of(record)
            number = calls.get(str(data.get("toolCallId"))) if kind == _BEGUN else places.get(str(record.get("id")))
            if number is None or is_of_an_agent(record) or kind not in (*_SAID, _BEGUN):
                continue
            calls |= {str(one.get("toolCallId")): number for one in requests_in(data)}
            yield LiveRecord(number, (spelled, record), _size(record), kind == _COMPACTED, _size(self.short(record)))

    def short(self, record: Record) -> Record:
        """See `Copier.short`."""
        data = data_of(record)
        if record.get("type") != _ANSWERED or "result" not in data:
            return record
        content = shortened(_content(data))
        return record | {
            "data": data | {"result": {"content": content} if isinstance(data["result"], dict) else content}
        }

    def write(self, copy: Copy, target: Path, new: NewSession, machine: Machine, last: Callable[[], object]) -> Written:
        """See `Copier.write`: the session gets a folder of its own, with what says where it works.

        Raises:
            ForkRefused: there is one of that name.
        """
        folder = target.parent
        if os.path.lexists(folder):
            raise ForkRefused(f"A session of this id already exists: {folder}")
        _sweep()
        try:
            written = super().write(copy, target, new, machine, last)
        except BaseException:
            with contextlib.suppress(OSError):
                remove(folder)
            raise
        return replace(written, created=(folder, *written.created))


def events(log: Path) -> Iterator[Entry]:
    """The events of a log.

    Raises:
        NotFound: it is gone.
    """
    with read_again(log):
        for line in LineReader(log):
            yield line.source, line.record


def _left(record: Record) -> str:
    """What a compaction has left."""
    return text_in(data_of(record).get("summaryContent"))


def _size(record: Record) -> int:
    """How many characters of an event a model is sent."""
    data = data_of(record)
    if record.get("type") == _BEGUN:
        return 0
    if record.get("type") == _COMPACTED:
        return len(_left(record))
    if record.get("type") == _ANSWERED:
        return characters(_content(data)) + characters(data.get("error"))
    called = [{"name": one.get("name"), "arguments": one.get("arguments")} for one in requests_in(data)]
    return characters(data.get("transformedContent") or data.get("content")) + characters(called)


def _content(data: Record) -> Any:
    """What a model is sent of what came back; beside it stands what its screen shows."""
    result = data.get("result")
    return result.get("content") if isinstance(result, dict) else result
