"""What of a Copilot CLI session goes into a copy of it: its events up to the end of an exchange, as they are.

They keep their ids, as in the forks that it makes itself, and last one names the session that they are of. What a
compaction left is among them: Copilot CLI makes of them itself what its model is sent.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import orjson

from indexer.files import remove, write_new
from indexer.transcripts.lines import LineReader
from indexer.transcripts.model import Session
from indexer.transcripts.state import utc
from smart_fork.agents.copier import Copier, Copy, Entry, NewSession, Record, Written
from smart_fork.agents.copilot.fold import data_of, is_of_an_agent, is_typed
from smart_fork.agents.copilot.home import EVENTS, WORKSPACE, sessions
from smart_fork.errors import ForkRefused, NotFound
from smart_fork.json_edits import respelled
from smart_fork.processes import Machine


class CopilotCopier(Copier):
    """Copies of sessions of Copilot CLI."""

    name = "copilot"

    def place(self, source: Path, new: NewSession) -> Path:
        """See `Copier.place`."""
        del source
        return sessions() / new.id / EVENTS

    def up_to(self, session: Session, end: int, new: NewSession) -> Copy:
        """See `Copier.up_to`."""
        return CopilotCopy(session, end, new)

    def of_records(self, session: Session, records: Iterable[Entry], new: NewSession) -> Copy:
        """See `Copier.of_records`.

        Raises:
            ForkRefused: always.
        """
        del session, records, new
        raise ForkRefused("Nothing is left out of a session of Copilot CLI", "Fork it at a message instead.")

    def write(self, copy: Copy, target: Path, new: NewSession, machine: Machine, last: Callable[[], object]) -> Written:
        """See `Copier.write`: the session gets a folder of its own, with what says where it works.

        Raises:
            ForkRefused: there is one of that name.
        """
        folder = target.parent
        if os.path.lexists(folder):
            raise ForkRefused(f"A session of this id already exists: {folder}")
        try:
            written = super().write(copy, target, new, machine, last)
        except BaseException:
            with contextlib.suppress(OSError):
                remove(folder)
            raise
        return replace(written, created=(folder, *written.created))


class CopilotCopy(Copy):
    """Turns 0 to `end` of a session for a new one, as lines. Only one event at a time is in memory."""

    def __init__(self, session: Session, end: int, new: NewSession) -> None:
        self._source, self._new = session, new
        self._end = session.turns[end].id
        self._wanted = {turn.id for turn in session.turns[: end + 1]}
        self.copied = 0

    def __iter__(self) -> Iterator[bytes]:
        """The events, and last the one that says whose they are.

        Raises:
            NotFound: the session is gone.
            ForkRefused: it has changed meanwhile.
        """
        parent = None
        try:
            for spelled, record in self._kept():
                self.copied += 1
                parent = record.get("id") or parent
                yield respelled(spelled, self._own(record))
        except OSError as error:
            raise NotFound(f"The session's log is gone: {self._source.source_path}") from error
        if self._wanted:
            raise ForkRefused(f"The log has changed while it was read: {self._source.source_path}", "Try again.")
        title = self._new.title or str(self._source.title)
        message = f'Forked from "{self._source.title}" ({self._source.session_id}) as "{title}" ({self._new.id}).'
        yield orjson.dumps({
            "type": "session.info", "data": {"infoType": "fork", "message": message}, "id": str(uuid.uuid4()),
            "timestamp": self._moment(), "parentId": parent,
        })  # fmt: skip

    def copy_beside(self, target: Path, created: list[Path]) -> list[str]:
        """See `Copy.copy_beside`: where it works, and its name. Without that it would work where it is started."""
        moment = self._moment()
        cwd = str(self._new.cwd) if self._new.cwd else self._source.cwd
        told: Record = {"id": self._new.id, "cwd": cwd, "created_at": moment, "updated_at": moment}
        if self._new.title:
            told |= {"name": self._new.title, "user_named": True}
        workspace = target.with_name(WORKSPACE)
        write_new(workspace, (b"%b: %b\n" % (name.encode(), orjson.dumps(value)) for name, value in told.items()))
        created.append(workspace)
        return []

    def _moment(self) -> str:
        return utc(self._new.now.astimezone().isoformat())

    def _kept(self) -> Iterator[Entry]:
        """The events up to the last turn that is wanted, and those after it until somebody asks again."""
        past = False
        for line in LineReader(self._source.source_path):
            record = line.record
            identity = record.get("id")
            asks = record.get("type") == "user.message" and not is_of_an_agent(record) and is_typed(data_of(record))
            if past and asks:
                return
            self._wanted.discard(identity if isinstance(identity, str) else "")
            past = past or identity == self._end
            yield line.source, record

    def _own(self, record: Record) -> Record:
        """An event as the copy's own."""
        if record.get("type") == "session.start":
            context = record["data"].get("context") if isinstance(record.get("data"), dict) else None
            place = context if isinstance(context, dict) else {}
            if self._new.cwd:
                place = {"cwd": str(self._new.cwd)}
            record["data"] = data_of(record) | {"sessionId": self._new.id, "context": place}
        return record
