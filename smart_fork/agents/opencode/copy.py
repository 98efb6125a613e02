"""Copies of OpenCode's sessions: documents under new ids, which OpenCode itself takes into its database.

``opencode import`` puts a session into the project, and the directory, that it is run in. It writes over nothing: of
what has an id that is known, the old stays.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson

from indexer.transcripts.model import Session
from smart_fork.agents.copier import Copier, Copy, Entry, NewSession, Written
from smart_fork.agents.opencode.fold import conversation, written
from smart_fork.agents.opencode.home import database
from smart_fork.agents.opencode.log import OpenCodeAdapter
from smart_fork.agents.opencode.teller import UNKNOWN
from smart_fork.agents.opencode.usual_model import usual_model
from smart_fork.agents.programs import find_program
from smart_fork.errors import ForkRefused, NotFound, ProgramFailed
from smart_fork.processes import Machine

#: How long the program may take to start and to take a session; it is slow on a busy machine.
SECONDS = 120.0
#: Ids of messages and parts: when they were made, by which they are sorted, and chance.
_ID = re.compile(r"((?:msg|prt)_[0-9a-f]{12})[0-9A-Za-z]{14}")
_CHANCE = 14
#: What speaks of a session's own past, or of where it was.
_NOT_COPIED = ("revert", "parentID", "workspaceID", "share", "summary", "projectID", "path", "directory")


class OpenCodeCopier(Copier):
    """Copies of sessions of OpenCode."""

    name = "opencode"

    def place(self, source: Path, new: NewSession) -> Path:
        """See `Copier.place`: it finds all its sessions in its database."""
        del source
        return database() / new.id

    def up_to(self, session: Session, end: int, new: NewSession) -> Copy:
        """See `Copier.up_to`."""
        return OpenCodeCopy(session, end, new)

    def of_records(self, session: Session, records: Iterable[Entry], new: NewSession) -> Copy:
        """See `Copier.of_records`.

        Raises:
            ForkRefused: always.
        """
        del session, records, new
        raise ForkRefused("OpenCode's sessions have no records that could be left out", "Fork it at a message instead.")

    def write(self, copy: Copy, target: Path, new: NewSession, machine: Machine, last: Callable[[], object]) -> Written:
        """See `Copier.write`: OpenCode is run to take it."""
        reader = OpenCodeAdapter()
        if reader.locate(new.id):
            raise ForkRefused(f"A session of this id already exists: {new.id}")
        data = b"\n".join(copy)
        last()
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "session.json"
            file.write_bytes(data)
            done = machine.processes.run(
                [find_program(self.name, machine.env), "import", str(file)],
                cwd=new.cwd,
                env=_plain(machine.env) | ({"PWD": str(new.cwd)} if new.cwd else {}),
                timeout=SECONDS,
            )
        if not done.ok or not reader.locate(new.id):
            raise ProgramFailed(f"OpenCode did not take the copy of the session ({done.ending})", done.complaint)
        return Written(target, (), forget=lambda: _forget(new.id, machine))


class OpenCodeCopy(Copy):
    """Turns 0 to `end` of a session for a new one, as the one line of its document.

    What was taken back is not in it. Each message keeps its time, so that it is known as a copy.
    """

    def __init__(self, session: Session, end: int, new: NewSession) -> None:
        self._session, self._new = session, new
        self._kept = {turn.id for turn in session.turns[: end + 1]}

    def __iter__(self) -> Iterator[bytes]:
        """The document.

        Raises:
            NotFound: the session is gone.
            ForkRefused: it has changed meanwhile.
        """
        try:
            found = written(self._session.source_path)
        except OSError as error:
            raise NotFound(f"The session's log is gone: {self._session.source_path}") from error
        said = [one for one in conversation(found["messages"], found["info"].get("revert")) if self._is_kept(one[0])]
        if len(said) != len(self._kept):
            raise ForkRefused(f"The session has changed while it was read: {self._session.session_id}", "Try again.")
        ids = _Ids(self._new.id, (info["id"] for info, _ in said), self._new.cwd)
        messages = [ids.message(info, parts) for info, parts in said]
        self.copied = len(messages)
        yield orjson.dumps({"info": self._info(found["info"]), "messages": messages})

    def _is_kept(self, info: Mapping[str, Any]) -> bool:
        return info.get("id") in self._kept

    def _info(self, info: Mapping[str, Any]) -> dict[str, Any]:
        moment = int(self._new.now.timestamp() * 1000)
        kept = {name: value for name, value in info.items() if name not in _NOT_COPIED}
        own = {"id": self._new.id, "time": {"created": moment, "updated": moment}}
        usual = {"slug": "fork", "title": self._session.session_id, "version": "0", "projectID": "", "directory": ""}
        return usual | kept | own | ({"title": self._new.title} if self._new.title else {})


class _Ids:
    """New ids in the place of old ones, in the same order: OpenCode compares them."""

    def __init__(self, session_id: str, messages: Iterable[str], directory: Path | None) -> None:
        self._session, self._directory = session_id, directory
        self._messages = {old: self._new(old) for old in messages}

    def message(self, info: Mapping[str, Any], parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """A message and its parts under new ids."""
        identity = self._messages[info["id"]]
        own = self._replaced(info) | {"id": identity, "sessionID": self._session}
        if own.get("model") == UNKNOWN:
            own["model"] = self._model
        copied = []
        for part in parts:
            named = {"id": self._new(str(part.get("id"))), "messageID": identity, "sessionID": self._session}
            copied.append(self._replaced(part) | named)
        return {"info": own, "parts": copied}

    @cached_property
    def _model(self) -> Mapping[str, str]:
        """What is asked where a session was begun by another agent.

        Raises:
            ForkRefused: nobody has said which model there is.
        """
        if model := usual_model(self._directory):
            return model
        raise ForkRefused(
            "It is not known which model OpenCode works with",
            "Ask it something once, or name the model in its settings, then try again.",
        )

    def _replaced(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """With the new ids of messages where it names others, as answers do that of their question."""
        return {
            name: self._messages.get(one, one) if name.endswith(("ID", "_id")) and isinstance(one, str) else one
            for name, one in value.items()
        }

    def _new(self, old: str) -> str:
        chance = hashlib.blake2b(f"{self._session} {old}".encode("utf-8", "replace")).hexdigest()[:_CHANCE]
        known = _ID.fullmatch(old)
        return f"{known[1] if known else f'{old[:3]}_{0:012x}'}{chance}"


def _plain(env: Mapping[str, str]) -> dict[str, str]:
    """Without what an OpenCode that has started us says of itself."""
    return {name: value for name, value in env.items() if name not in ("OPENCODE", "OPENCODE_PID")}


def _forget(session_id: str, machine: Machine) -> None:
    """Have OpenCode delete a copy that nobody has used."""
    program = find_program(OpenCodeCopier.name, machine.env)
    machine.processes.run([program, "session", "delete", session_id], env=_plain(machine.env), timeout=SECONDS)
