"""Copies of Gemini CLI's sessions: a head and messages under their own ids, in a file named after the whole new id.

What Gemini CLI says to its model of the workspace is left out, and said anew by the one that resumes the copy. What a
tool gave back stands in its call; where it stands in a message as well, the model would be sent it twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import orjson

from indexer.transcripts.model import Session
from smart_fork.agents.codec import Record
from smart_fork.agents.copied_texts import aside, characters, shortened
from smart_fork.agents.copier import Copier, Copy, Distilled, Entry, LiveRecord, NewSession, read_again
from smart_fork.agents.gemini.codec import answers_in, calls_in, said_in
from smart_fork.agents.gemini.fold import lines_of
from smart_fork.agents.gemini.home import CHATS, ROOT, digest, project_for, root_of
from smart_fork.agents.gemini.log import new_name
from smart_fork.agents.gemini.memory import Memory, sign_of
from smart_fork.errors import ForkRefused


class _Kept(NamedTuple):
    """A message, and whether it stands for what was compressed."""

    record: Record
    sums_up: bool


class Replay:
    """The messages of a log as Gemini CLI would read them now, and as it has before each compression."""

    def __init__(self, log: Path) -> None:
        """Read it.

        Raises:
            NotFound: it is gone.
        """
        memory = Memory()
        self._records: dict[str, _Kept] = {}
        self._before: list[dict[str, _Kept]] = []
        self._past: dict[str, _Kept] = {}
        with read_again(log):
            for record in lines_of(log, whole=True):
                self._take(memory, record)
        self._past = {one: kept for one, kept in self._past.items() if one in set(memory.past)}
        self.given_back = _given_back(kept.record for kept in self.all().values())

    def _take(self, memory: Memory, record: Record) -> None:
        compactions, before = memory.compactions, self._records
        told = list(memory.take(record))
        if memory.compactions > compactions:
            self._before.append(before)
            self._past |= before
        now = dict(before)
        for one in told:
            old = before.get(one.again) if one.again else None
            sums_up = (old.sums_up if old else False) or (one.way == "summary" and one.record.get("type") == "user")
            now[one.id] = _Kept(one.record, sums_up)
        self._records = {one: now[one] for one in memory.now if one in now}

    def all(self) -> dict[str, _Kept]:
        """All messages, those that were compressed first."""
        return {**self._past, **self._records}

    def up_to(self, identity: str) -> list[Record]:
        """What was remembered when the message of this id had been said, that one last; empty where it is not there."""
        for messages in (self._records, *reversed(self._before)):
            if identity in messages:
                names = list(messages)
                return [messages[one].record for one in names[: names.index(identity) + 1]]
        return []


class _GeminiCopy(Copy):
    """What all copies begin with."""

    def copy_beside(self, target: Path, created: list[Path]) -> list[str]:
        """See `Copy.copy_beside`: the folder of a directory that has none yet says whose it is."""
        root = target.parent.parent / ROOT
        if self._new.cwd is not None and not root_of(root.parent):
            with root.open("x", encoding="utf-8") as file:
                file.write(str(self._new.cwd.resolve()))
            created.append(root)
        return []

    def header(self) -> Iterator[bytes]:
        """The record that says whose the log is. Gemini CLI keeps what it does not know."""
        moment = self._new.moment
        cwd = str(self._new.cwd.resolve()) if self._new.cwd else self._source.cwd
        named = {"summary": self._new.title} if self._new.title else {}
        yield orjson.dumps({
            "sessionId": self._new.id, "projectHash": digest(cwd), "startTime": moment, "lastUpdated": moment,
            "kind": "main", **named,
            "forkedFrom": {"sessionId": self._source.session_id, "root": self._source.root_id},
        })  # fmt: skip


class GeminiCopy(_GeminiCopy):
    """Turns 0 to `end` of a session for a new one: what Gemini CLI remembered then."""

    def __init__(self, session: Session, end: int, new: NewSession) -> None:
        super().__init__(session, new)
        self._last = session.turns[end].id

    def __iter__(self) -> Iterator[bytes]:
        """The lines.

        Raises:
            NotFound: the session is gone.
            ForkRefused: it has changed meanwhile.
        """
        messages = Replay(self._source.source_path).up_to(self._last)
        if not messages:
            raise ForkRefused(f"The session changed during reading: {self._source.session_id}", "Try again.")
        yield from self.header()
        given_back = _given_back(messages)
        for message in messages:
            if kept := plain(message, given_back):
                self.copied += 1
                yield orjson.dumps(kept)


class GeminiDistilled(_GeminiCopy, Distilled):
    """Those turns of a session that an excerpt keeps."""

    def record(self, number: int, entry: Entry) -> Iterator[bytes]:
        """See `Distilled.record`. What was in the context then is no more."""
        yield orjson.dumps({name: value for name, value in entry[1].items() if name != "tokens"})

    def summary(self, entry: Entry) -> Iterator[bytes]:
        """See `Distilled.summary`."""
        yield from self.line(said_in(entry[1]), entry)

    def line(self, text: str, before: Entry) -> Iterator[bytes]:
        """See `Distilled.line`."""
        moment = before[1].get("timestamp")
        yield orjson.dumps(
            {"id": str(uuid4()), "timestamp": moment, "type": "user", "content": [{"text": aside(text)}]}
        )


class GeminiCopier(Copier):
    """Copies of sessions of Gemini CLI."""

    name = "gemini"
    within_budget = GeminiDistilled

    def place(self, source: Path, new: NewSession) -> Path:
        """See `Copier.place`."""
        folder = project_for(new.cwd) / CHATS if new.cwd else source.resolve().parent
        return folder / new_name(new.id, new.now)

    def up_to(self, session: Session, end: int, new: NewSession) -> Copy:
        """See `Copier.up_to`."""
        return GeminiCopy(session, end, new)

    def live(self, session: Session) -> Iterator[LiveRecord]:
        """See `Copier.live`."""
        places = {turn.id: number for number, turn in enumerate(session.turns)}
        replay = Replay(session.source_path)
        for identity, kept in replay.all().items():
            if identity in places and (record := plain(kept.record, replay.given_back)):
                yield LiveRecord(
                    places[identity], (b"", record), _size(record), kept.sums_up, _size(self.short(record))
                )

    def short(self, record: Record) -> Record:
        """See `Copier.short`."""
        calls = record.get("toolCalls")
        if not isinstance(calls, list):
            return record
        made = [
            one | {"result": shortened(one["result"])} if isinstance(one, dict) and "result" in one else one
            for one in calls
        ]
        return record | {"toolCalls": made}


def _size(record: Record) -> int:
    return characters(record.get("content")) + characters(record.get("toolCalls"))


def plain(record: Record, given_back: set[str]) -> Record | None:
    """A message as it stands in a copy; `None` for one that is none, or says what a call says as well."""
    if not sign_of(record):
        return None
    answers = answers_in(record)
    if answers and all(str(answer.get("id") or "") in given_back for answer in answers):
        return None
    return record


def _given_back(messages: Iterable[Record]) -> set[str]:
    """The calls that have their results beside them."""
    return {call.id for message in messages for call in calls_in(message) if call.result is not None}
