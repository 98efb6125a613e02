"""Copies of OpenCode's sessions: documents under new ids, which OpenCode itself takes into its database.

``opencode import`` puts a session into the project, and the directory, that it is run in. It writes over nothing: of
what has an id that is known, the old stays. It sorts what was said by its time, and then by its id.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson

from indexer.transcripts.model import Session
from indexer.values import dict_in, json_at, list_in
from smart_fork.agents.codec import aside
from smart_fork.agents.copier import Copier, Copy, Entry, LiveRecord, MergedCopy, NewSession, WrittenCopy, read_again
from smart_fork.agents.opencode import HOME, settings_folder
from smart_fork.agents.opencode.database import Document, decoded, opened
from smart_fork.agents.opencode.fold import CODEC, LEFT_OUT, conversation, sums_up, text_of, written
from smart_fork.agents.opencode.forms import UNKNOWN, document_of
from smart_fork.agents.opencode.log import database
from smart_fork.agents.programs import Program
from smart_fork.errors import ForkRefused, ProgramFailed
from smart_fork.system.processes import Machine

_NAMES = ("opencode.json", "config.json")
_NEWEST = "SELECT CAST(data AS BLOB) FROM message WHERE length(data) < 1048576 ORDER BY time_created DESC LIMIT 50"


def usual_model(directory: Path | None) -> Mapping[str, str] | None:
    """The provider and the model, as messages name them, in `directory`; `None` where nobody has said any."""
    places = [*([directory] if directory else []), settings_folder()]
    said = (_named(dict_in(json_at(folder / name)).get("model")) for folder in places for name in _NAMES)
    return next((one for one in (*said, *_chosen(), *_asked()) if one), None)


def _named(model: object) -> Mapping[str, str] | None:
    provider, slash, name = model.partition("/") if isinstance(model, str) else ("", "", "")
    return _model({"providerID": provider, "modelID": name}) if slash else None


def _model(value: object) -> Mapping[str, str] | None:
    if not isinstance(value, Mapping):
        return None
    named = {name: value.get(name) for name in ("providerID", "modelID")}
    found = {name: one for name, one in named.items() if isinstance(one, str) and one not in ("", "unknown")}
    return found if len(found) == len(named) else None


def _chosen() -> Iterator[Mapping[str, str] | None]:
    folder = os.environ.get("XDG_STATE_HOME", "")
    state = Path(folder) if folder.startswith("/") else Path.home() / ".local/state"
    yield from map(_model, list_in(dict_in(json_at(state / "opencode/model.json")).get("recent")))


def _asked() -> Iterator[Mapping[str, str] | None]:
    try:
        with opened(database()) as db:
            rows = [row[0] for row in db.execute(_NEWEST)]
    except OSError:
        return
    for row in rows:
        message, _ = decoded(row)
        yield _model((message or {}).get("model"))


#: How long the program may take to start and to take a session; it is slow on a busy machine.
SECONDS = 120.0
_CHANCE = 14
#: A message and its parts.
Said = tuple[dict[str, Any], list[dict[str, Any]]]
#: What speaks of a session's own past, or of where it was.
_NOT_COPIED = ("revert", "parentID", "workspaceID", "share", "summary", "projectID", "path", "directory")


class OpenCodeCopy(Copy):
    """Messages of a session in a new one, as the lines of its document. Each keeps its time, so that it is known as a
    copy.

    Where several sessions follow each other, what was said later elsewhere comes first: its time is that of the message
    before it then. Where something is left out, what an answer says was in the context is replaced by what is there
    now: OpenCode compacts by it.
    """

    carried = ("renamed", "loaded")
    loaded = 0

    @cached_property
    def renamed(self) -> _Renamed:
        """The new ids."""
        return _Renamed(self._new)

    def header(self) -> Iterator[bytes]:
        with read_again(self._source.source_path):
            info = _info(written(self._source.source_path, 1), self._source, self._new)
        yield b'{"info":' + orjson.dumps(info) + b',"messages":['

    def up_to(self, end: int) -> Iterator[Entry]:
        """See `Copy.up_to`. What was taken back is none of it."""
        kept = {turn.id for turn in self._source.turns[: end + 1]}
        said = [one for one in _said(document_of(self._source)) if one[0].get("id") in kept]
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
        """See `Copy.line`. It says whose family the copy is of, where that begins with what is left out."""
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
    """Copies of sessions of OpenCode."""

    codec, copies = CODEC, OpenCodeCopy

    def place(self, source: Path, new: NewSession) -> Path:
        """See `Copier.place`: it finds all its sessions in its database."""
        return database() / new.id

    def of_records(self, session: Session, records: Iterable[Entry], new: NewSession) -> Copy:
        """See `Copier.of_records`: the lines that a cut leaves, of which each message has one (see `rows`)."""
        lines = ({"info": _plainly(one["info"]), "parts": _parts(one)} for _, one in records if "info" in one)
        return OpenCodeCopy(self, session, new, ((b"", one) for one in lines))

    def live(self, session: Session) -> Iterator[LiveRecord]:
        """See `Copier.live`: message by message. That it was to be compacted says nothing."""
        missing = {turn.id: number for number, turn in enumerate(session.turns)}
        for info, parts in _said(document_of(session)):
            number = missing.pop(str(info.get("id")), None)
            if number is None or any(part.get("type") == "compaction" for part in parts):
                continue
            yield self.sized(number, (b"", {"info": info, "parts": parts}), sums_up=sums_up(info))
        if missing:
            raise _changed(session)

    def write(
        self, copy: Copy | MergedCopy, target: Path, new: NewSession, machine: Machine, last: Callable[[], object]
    ) -> WrittenCopy:
        """See `Copier.write`: OpenCode is run to take it."""
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
                env=_plain(machine.env) | ({"PWD": str(new.cwd)} if new.cwd else {}),
                timeout=SECONDS,
            )
        if not done.ok or not reader.locate(new.id):
            raise ProgramFailed(f"OpenCode refused the copy of the session ({done.ending})", done.complaint)
        return WrittenCopy(target, (), forget=lambda: _forget(new.id, machine))


class _Renamed:
    """Messages and their parts under new ids, which grow as their times do: by number, where OpenCode's begin with a
    time.
    """

    def __init__(self, new: NewSession) -> None:
        self._session, self._directory = new.id, new.cwd
        self._messages: dict[str, str] = {}
        self._count = self._moment = 0
        #: The last message, and the last that a person has said.
        self.last = self._asked = ""

    def message(self, info: Mapping[str, Any], parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """A message and its parts as the copy has them."""
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
        """The model to use in a session that another agent began.

        Raises:
            ForkRefused: nobody has said which model there is.
        """
        if model := usual_model(self._directory):
            return model
        raise ForkRefused(
            "No model of OpenCode is known",
            "Use OpenCode once, or set a model in its settings. Then try again.",
        )

    def _replaced(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """With the new ids of messages where it names others, as answers do that of their question."""
        return {
            name: self._messages.get(one, one) if name.endswith(("ID", "_id")) and isinstance(one, str) else one
            for name, one in value.items()
        }

    def _id(self, kind: str) -> str:
        self._count += 1
        chance = hashlib.blake2b(f"{self._session} {self._count}".encode()).hexdigest()[:_CHANCE]
        return f"{kind}_{self._count:012x}{chance}"


def _plainly(line: Mapping[str, Any]) -> dict[str, Any]:
    """A message or a part as its line has it, without its row."""
    return {name: one for name, one in line.items() if name != "row"} | {"id": line["row"]["id"]}


def _parts(line: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [_plainly(part) for part in line["parts"] if "type" in part]


def _said(found: Document) -> Iterator[Said]:
    return conversation(found["messages"], found["info"].get("revert"))


def _changed(session: Session) -> ForkRefused:
    return ForkRefused(f"The session changed during reading: {session.session_id}", "Try again.")


def _info(found: Document, session: Session, new: NewSession) -> dict[str, Any]:
    """Return the copy's own description."""
    moment = int(new.now.timestamp() * 1000)
    kept = {name: value for name, value in found["info"].items() if name not in _NOT_COPIED}
    own = {"id": new.id, "time": {"created": moment, "updated": moment}}
    usual = {"slug": "fork", "title": session.session_id, "version": "0", "projectID": "", "directory": ""}
    return usual | kept | own | ({"title": new.title} if new.title else {})


def _moment(info: Mapping[str, Any]) -> int:
    made = dict_in(info.get("time")).get("created")
    return made if type(made) is int else 0


def _counted(value: Mapping[str, Any], loaded: int, own: int) -> Mapping[str, Any]:
    """An answer, or its step, with what is in the context now in the place of what was; what said nothing says that."""
    tokens = value.get("tokens")
    if not isinstance(tokens, dict) or not any(isinstance(one, int) and one for one in tokens.values()):
        return value
    cache = dict.fromkeys(dict_in(tokens.get("cache")), 0)
    now = {"total": loaded, "input": max(0, loaded - own), "output": own, "reasoning": 0, "cache": cache}
    return {**value, "tokens": {name: now[name] for name in tokens if name in now}}


def _plain(env: Mapping[str, str]) -> dict[str, str]:
    """Without what an OpenCode that has started us says of itself."""
    own = {name: value for name, value in env.items() if name not in ("OPENCODE", "OPENCODE_PID")}
    return own | HOME.environment()


def _forget(session_id: str, machine: Machine) -> None:
    """Have OpenCode delete a copy that nobody has used."""
    program = Program.find("opencode", machine.env)
    machine.processes.run([program, "session", "delete", session_id], env=_plain(machine.env), timeout=SECONDS)
