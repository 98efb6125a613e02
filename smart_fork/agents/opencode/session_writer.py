"""Writing of copies of OpenCode's sessions: JSON documents with new ids, which ``opencode import`` reads.

The import puts a session into the project and the directory in which the command runs. It overwrites nothing: a message
whose id is already in the database stays unchanged. OpenCode sorts messages by time, and then by id.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson

from indexer.json_values import dict_in, json_at, list_in
from indexer.transcripts.model import Session
from smart_fork.agents.copier import CopiedFiles, Copier, Copy, Entry, LiveRecord, NewSession, read_again
from smart_fork.agents.decoders import Record, aside
from smart_fork.agents.opencode import HOME, settings_folder
from smart_fork.agents.opencode.converter import UNKNOWN, document_of, numbered_id
from smart_fork.agents.opencode.database import decoded, opened
from smart_fork.agents.opencode.log_files import database
from smart_fork.agents.opencode.session_reader import CODEC, LEFT_OUT, conversation, document_at, sums_up, text_of
from smart_fork.agents.programs import Program
from smart_fork.errors import ForkRefused, ProgramFailed
from smart_fork.system.processes import Machine

_NAMES = ("opencode.json", "config.json")
_NEWEST = "SELECT CAST(data AS BLOB) FROM message WHERE length(data) < 1048576 ORDER BY time_created DESC LIMIT 50"


def usual_model(directory: Path | None) -> Mapping[str, str] | None:
    """Return the ``providerID`` and ``modelID`` that OpenCode would use in `directory`; `None` if they are unknown.

    They come from OpenCode's settings, else from the models chosen last, else from the newest messages.
    """
    places = [*([directory] if directory else []), settings_folder()]
    said = (_model(dict_in(json_at(folder / name)).get("model")) for folder in places for name in _NAMES)
    return next((one for one in (*said, *_chosen(), *_asked()) if one), None)


def _model(value: object) -> Mapping[str, str] | None:
    """Return the provider and model in a text ``provider/model`` or a message's object; `None` unless it has both."""
    if isinstance(value, str):
        value = dict(zip(UNKNOWN, value.split("/", 1), strict=False))
    named = ((name, dict_in(value).get(name)) for name in UNKNOWN)
    found = {name: one for name, one in named if isinstance(one, str) and one not in ("", "unknown")}
    return found if found.keys() == UNKNOWN.keys() else None


def _chosen() -> Iterator[Mapping[str, str] | None]:
    folder = os.environ.get("XDG_STATE_HOME", "")
    state = Path(folder) if folder.startswith("/") else Path.home() / ".local/state"
    yield from map(_model, list_in(dict_in(json_at(state / "opencode/model.json")).get("recent")))


def _asked() -> Iterator[Mapping[str, str] | None]:
    rows = []
    with suppress(OSError), opened(database()) as db:
        rows = [row[0] for row in db.execute(_NEWEST)]
    for message, _ in map(decoded, rows):
        yield _model((message or {}).get("model"))


#: The time limit for the program to start and import a session, which is slow on a busy machine.
SECONDS = 120.0
#: Fields about a session's own past or place.
_NOT_COPIED = ("revert", "parentID", "workspaceID", "share", "summary", "projectID", "path", "directory")


class OpenCodeCopy(Copy):
    """A copy of one session, as the lines of a document for ``opencode import``. Messages keep their times.

    OpenCode sorts messages by time. So when a copy joins several sessions, a message older than its predecessor gets
    the predecessor's time. When the copy omits messages, the token counts of its answers are reduced to match, because
    OpenCode decides by them when to compact.
    """

    carried = ("renamed", "loaded")
    loaded = 0

    @cached_property
    def renamed(self) -> _NewIds:
        """The object that assigns new ids to the copied messages and their parts."""
        return _NewIds(self._new)

    def header(self) -> Iterator[bytes]:
        with read_again(self._source.source_path):
            info = _info(document_at(self._source.source_path, 1), self._source, self._new)
        yield b'{"info":' + orjson.dumps(info) + b',"messages":['

    def up_to(self, end: int) -> Iterator[Entry]:
        """Return the source session's messages up to turn `end`, without those that a person has reverted."""
        kept = {turn.id for turn in self._source.turns[: end + 1]}
        said = [one for one in conversation(document_of(self._source)) if one[0].get("id") in kept]
        if len(said) != len(kept):
            raise _changed(self._source)
        return ((b"", {"info": info, "parts": parts}) for info, parts in said)

    def last(self) -> Iterator[bytes]:
        yield b"]}"

    def record(self, number: int, entry: Entry) -> Iterator[bytes]:
        info, parts = entry[1]["info"], entry[1]["parts"]
        if not self._excerpt:
            yield self._line(info, parts)
            return
        own = self._excerpt.tokens[number] if number < len(self._excerpt.tokens) else 0
        self.loaded += own
        counted = [_counted(part, self.loaded, own) for part in parts]
        yield self._line(_counted(info, self.loaded, own), counted)

    def summary(self, entry: Entry) -> Iterator[bytes]:
        yield from self.line(text_of(entry[1]["parts"]), entry)

    def line(self, text: str, before: Entry) -> Iterator[bytes]:
        """Yield smart-fork's note as a message before `before`; it names the source session and its family."""
        near = before[1]["info"]
        model = near.get("model") or {name: near.get(name) for name in UNKNOWN}
        info = {
            "id": "",
            "role": "user",
            "time": {"created": _moment(near)},
            "agent": near.get("agent") or "build",
            "model": model if all(isinstance(model.get(name), str) for name in UNKNOWN) else UNKNOWN,
        }
        whose = {LEFT_OUT: {"sessionID": self._source.session_id, "root": self._source.root_id}}
        yield self._line(info, [{"id": "", "type": "text", "text": aside(text), "metadata": whose}])

    def _line(self, info: Mapping[str, Any], parts: Iterable[Mapping[str, Any]]) -> bytes:
        comma = b"," if self.renamed.last else b""
        return comma + orjson.dumps(self.renamed.message(info, parts))


class OpenCodeCopier(Copier):
    """The copier of OpenCode's sessions: it makes copies and has OpenCode import them."""

    codec, copies = CODEC, OpenCodeCopy

    def place(self, source: Path, new: NewSession) -> Path:
        """Return the path under which the copy will be found: OpenCode's database, then the copy's session id."""
        return database() / new.id

    def of_records(self, session: Session, records: Iterable[Entry], new: NewSession) -> Copy:
        """Return a copy of `records`: the lines of a session that a cut has left, one message each."""
        lines = (
            {"info": _rowless(one["info"]), "parts": [_rowless(part) for part in one["parts"] if "type" in part]}
            for _, one in records
            if "info" in one
        )
        return OpenCodeCopy(self, session, new, ((b"", one) for one in lines))

    def live(self, session: Session) -> Iterator[LiveRecord]:
        """Yield the messages sent to the model, with their turns. Requests to compact have no text and are left out."""
        missing = {turn.id: number for number, turn in enumerate(session.turns)}
        for info, parts in conversation(document_of(session)):
            number = missing.pop(str(info.get("id")), None)
            if number is None or any(part.get("type") == "compaction" for part in parts):
                continue
            yield self.sized(number, (b"", {"info": info, "parts": parts}), sums_up=sums_up(info))
        if missing:
            raise _changed(session)

    def write(
        self, copy: Copy, target: Path, new: NewSession, machine: Machine, last: Callable[[], object]
    ) -> CopiedFiles:
        """Have ``opencode import`` write the copy into OpenCode's database. Call `last` just before it runs.

        Raises:
            ForkRefused: A session with the new id already exists.
            ProgramFailed: OpenCode did not take the copy.
        """
        reader = self.of.reader
        if reader.locate(new.id):
            raise ForkRefused(f"A session of this id already exists: {new.id}")
        data = b"\n".join(copy)
        last()
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "session.json"
            file.write_bytes(data)
            done = machine.processes.run(
                [Program.find(self.agent, machine.env), "import", str(file)],
                cwd=new.cwd,
                env=_environment(machine.env) | ({"PWD": str(new.cwd)} if new.cwd else {}),
                timeout=SECONDS,
            )
        if not done.ok or not reader.locate(new.id):
            raise ProgramFailed(f"OpenCode refused the copy of the session ({done.ending})", done.complaint)
        return CopiedFiles(target, (), forget=lambda: _forget(new.id, machine))


class _NewIds:
    """The new ids of a copy's messages and parts. A growing number in them replaces the time in OpenCode's own ids."""

    def __init__(self, new: NewSession) -> None:
        self._session, self._directory = new.id, new.cwd
        self._messages: dict[str, str] = {}
        self._count = self._moment = 0
        #: The new ids of the last message and of the last prompt.
        self.last = self._asked = ""

    def message(self, info: Mapping[str, Any], parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """Return a message and its parts under new ids, with new ids also in references to earlier messages."""
        before, self.last = self.last, self._id("msg")
        own = self._replaced(info) | {"id": self.last, "sessionID": self._session}
        self._moment = max(self._moment, _moment(info))
        if _moment(info) != self._moment:
            own["time"] = {**dict_in(info.get("time")), "created": self._moment}
        if own.get("role") == "user":
            self._asked = self.last
        elif info.get("parentID") not in self._messages:  # what it answers is left out
            own["parentID"] = self._asked or before
        if old := info.get("id"):
            self._messages[old] = self.last
        if own.get("model") == UNKNOWN:
            own["model"] = self._model
        named = {"messageID": self.last, "sessionID": self._session}
        return {"info": own, "parts": [self._replaced(part) | {"id": self._id("prt")} | named for part in parts]}

    @cached_property
    def _model(self) -> Mapping[str, str]:
        """The provider and model for messages that name none, as in a session that another agent began.

        Raises:
            ForkRefused: No model of OpenCode is known.
        """
        if model := usual_model(self._directory):
            return model
        raise ForkRefused(
            "No model of OpenCode is known", "Use OpenCode once, or set a model in its settings. Then try again."
        )

    def _replaced(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a message or a part. References to copied messages name the copies."""
        return {
            name: self._messages.get(one, one) if name.endswith(("ID", "_id")) and isinstance(one, str) else one
            for name, one in value.items()
        }

    def _id(self, kind: str) -> str:
        self._count += 1
        return numbered_id(kind, self._count, f"{self._session} {self._count}")


def _rowless(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message or part from a line for cuts as OpenCode's document has it: without its database row."""
    return {name: one for name, one in line.items() if name != "row"} | {"id": line["row"]["id"]}


def _changed(session: Session) -> ForkRefused:
    return ForkRefused(f"The session changed during reading: {session.session_id}", "Try again.")


def _info(found: Record, session: Session, new: NewSession) -> dict[str, Any]:
    """Return the document's field ``info`` for the copy: the source's field with the copy's id, title and times."""
    moment = int(new.now.timestamp() * 1000)
    kept = {name: value for name, value in found["info"].items() if name not in _NOT_COPIED}
    own = {"id": new.id, "time": {"created": moment, "updated": moment}}
    usual = {"slug": "fork", "title": session.session_id, "version": "0", "projectID": "", "directory": ""}
    return usual | kept | own | ({"title": new.title} if new.title else {})


def _moment(info: Mapping[str, Any]) -> int:
    made = dict_in(info.get("time")).get("created")
    return made if type(made) is int else 0


def _counted(value: Mapping[str, Any], loaded: int, own: int) -> Mapping[str, Any]:
    """Return an answer or a step with the copy's token counts, if it has counts: `own` for itself, `loaded` in all."""
    tokens = value.get("tokens")
    if not isinstance(tokens, dict) or not any(isinstance(one, int) and one for one in tokens.values()):
        return value
    cache = dict.fromkeys(dict_in(tokens.get("cache")), 0)
    now = {"total": loaded, "input": max(0, loaded - own), "output": own, "reasoning": 0, "cache": cache}
    return {**value, "tokens": {name: now[name] for name in tokens if name in now}}


def _environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return `env` for running OpenCode, without the variables by which OpenCode marks programs that it started."""
    own = {name: value for name, value in env.items() if name not in ("OPENCODE", "OPENCODE_PID")}
    return own | HOME.environment()


def _forget(session_id: str, machine: Machine) -> None:
    """Delete an unused copy with OpenCode's own command."""
    program = Program.find("opencode", machine.env)
    machine.processes.run([program, "session", "delete", session_id], env=_environment(machine.env), timeout=SECONDS)
