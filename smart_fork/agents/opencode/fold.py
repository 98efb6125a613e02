"""What the messages of one of OpenCode's sessions add up to."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from sys import intern
from typing import NamedTuple

import orjson

from indexer.masking import Masked
from indexer.transcripts.base import Checkpoint, ReadResult
from indexer.transcripts.boilerplate import strip_boilerplate, strip_recall
from indexer.transcripts.doings import Doings
from indexer.transcripts.lines import open_regular
from indexer.transcripts.model import BrokenLine, Origin, Role, Session, ToolCall, ToolResult, Turn, estimate_tokens
from indexer.transcripts.model_names import shown, with_model
from indexer.transcripts.state import count, is_path, utc
from indexer.transcripts.titles import title_of
from smart_fork.agents import READERS
from smart_fork.agents.opencode.codec import OpenCodeCodec, dict_in, text_in, text_of
from smart_fork.agents.opencode.database import Broken, Document, Json, document, in_file, opened

#: A file of one session is read as a whole, and one that is larger is none.
MAX_FILE_BYTES = 1 << 30
#: So many messages are looked at for a list.
_GLANCE_MESSAGES = 20
CODEC = OpenCodeCodec()
#: How a session is called before it has a name.
_NAMELESS = re.compile(r"(?:New|Child) session - \d{4}-\d\d-\d\dT[\d:.]+Z")
#: What a person's stopping of an answer is called, and how the answers of calls that were not carried out begin.
ABORTED = "MessageAbortedError"
#: Beside a line on what a copy leaves out: of which session it is, and of whose family.
LEFT_OUT = "smart-fork"
_NOT_RUN = ("The user rejected permission", "The user has specified a rule which prevents", "Tool execution aborted")
_NOTHING = Checkpoint(0, 0, "", b"")


class _Source(NamedTuple):
    """A session as it is written, how much was read, and what of it could not be decoded."""

    document: Document | None
    broken: Sequence[Broken]
    size: int


def read(path: Path, *, keep_raw: bool) -> ReadResult:
    """See `AgentAdapter.read`. It is always read as a whole."""
    source = _source(path)
    broken = tuple(BrokenLine(path, one.number, one.reason) for one in source.broken)
    if source.document is None:
        return ReadResult(None, "no conversation", _NOTHING, broken, source.size)
    session, skipped = _Fold(path, source.document, keep_raw=keep_raw).session()
    return ReadResult(session, skipped, _NOTHING, broken, source.size)


def glance(path: Path) -> Session | None:
    """See `AgentAdapter.glance`."""
    found = _source(path, _GLANCE_MESSAGES).document
    return _Fold(path, found, keep_raw=False).session()[0] if found else None


def exported(path: Path) -> bytes:
    """A session as ``opencode export`` prints it, on one line.

    Raises:
        OSError: it cannot be read, or is not there.
    """
    found = _source(path, whole=True).document
    if found is None:
        raise FileNotFoundError(f"no such session: {path}")
    return orjson.dumps(found, option=orjson.OPT_APPEND_NEWLINE)


def written(path: Path, most: int = -1, *, whole: bool = False) -> Document:
    """A session as it is written, or its first messages; `whole` with texts that are too long to be read.

    Raises:
        OSError: it cannot be read, or is not there.
    """
    found = _source(path, most, whole=whole).document
    if found is None:
        raise FileNotFoundError(f"no such session: {path}")
    return found


def of_document(path: Path, found: Document) -> Session | None:
    """The conversation in a document, also in that of a sub-agent; its turns have their records."""
    info = {name: value for name, value in found["info"].items() if name != "parentID"}
    return _Fold(path, {**found, "info": info}, keep_raw=True).session()[0]


def _source(path: Path, most: int = -1, *, whole: bool = False) -> _Source:
    if path.parent.is_file():
        with opened(path.parent) as db:
            found, broken = document(db, path.name, most, whole=whole)
        return _Source(found, broken, len(orjson.dumps(found)) if found else 0)
    with open_regular(path) as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise OSError(f"larger than any session: {path}")
    found, lost = in_file(data)
    return _Source(found, lost, len(data))


def conversation(messages: Sequence[Json], revert: object) -> Iterator[tuple[Json, list[Json]]]:
    """The messages, with their parts, that the model would be sent: what a person has taken back is there no more."""
    back = revert if isinstance(revert, Mapping) else {}
    first, part = back.get("messageID"), back.get("partID")
    for one in messages:
        info, parts = one["info"], one["parts"]
        if first is not None and info.get("id") == first:
            left = list(_before(parts, part)) if part is not None else []
            if left:
                yield info, left
            return
        yield info, parts


def _before(parts: Sequence[Json], identity: object) -> Iterator[Json]:
    for part in parts:
        if part.get("id") == identity:
            return
        yield part


class _Message(NamedTuple):
    id: str
    moment: str
    info: Json
    parts: Sequence[Json]


class _Fold:
    """One document, message by message."""

    def __init__(self, path: Path, found: Document, *, keep_raw: bool) -> None:
        self._path, self._info, self._keep_raw = path, found["info"], keep_raw
        self._messages = list(conversation(found["messages"], self._info.get("revert")))
        self._doings = Doings({}, runs="Bash", not_run=_NOT_RUN, opens_a_session=READERS.opens_a_session)
        self._turns: list[Turn] = []
        self._last, self._compactions, self._interrupted = "", 0, False
        self._models: list[str] = []

    def session(self) -> tuple[Session | None, str]:
        """The session; `None` and why, where it is none."""
        if self._info.get("parentID"):
            return None, "only sub-agent records"
        for info, parts in self._messages:
            self._add(info, parts)
        turns, info = tuple(self._turns), self._info
        if not turns:
            return None, "no conversation"
        if not any(turn.prompt for turn in turns):
            return None, "it has no prompt"
        cwd, when = info.get("directory"), dict_in(info.get("time"))
        return Session(
            agent="opencode",
            session_id=self._path.name.removesuffix(".json"),
            source_path=self._path,
            turns=turns,
            cwd=cwd if is_path(cwd) else "",
            title=self._title(turns),
            version=text_in(info.get("version")),
            started=utc(when.get("created")),
            last_activity=self._last or utc(when.get("updated")),
            origin=self._origin(),
            root_id=root_of(self._messages),
            compactions=self._compactions,
            symbols=tuple(self._doings.symbols),
            wrote=tuple(self._doings.wrote),
            copied=not self._path.parent.is_file(),
            interrupted=self._interrupted,
            models=shown(self._models),
        ), ""

    def _title(self, turns: Sequence[Turn]) -> Masked:
        called = text_in(self._info.get("title"))
        by_agent = "" if _NAMELESS.fullmatch(called) else called
        return title_of(by_agent, (turn.text for turn in turns if turn.prompt))

    def _origin(self) -> Origin:
        """A session that ``opencode run`` begins is one in which nobody can be asked anything."""
        rules = self._info.get("permission")
        asks_nobody = {"permission": "question", "pattern": "*", "action": "deny"}
        return "automated" if isinstance(rules, list) and asks_nobody in rules else "person"

    def _add(self, info: Json, parts: Sequence[Json]) -> None:
        identity = info.get("id")
        if not isinstance(identity, str) or not identity:
            return
        when = dict_in(info.get("time"))
        begun, ended = utc(when.get("created")), utc(when.get("completed"))
        self._last = max(self._last, begun, ended)
        said = _Message(intern(identity), begun, info, parts)
        if info.get("role") == "user":
            self._user(said)
        elif info.get("role") == "assistant":
            self._assistant(said)

    def _user(self, said: _Message) -> None:
        if any(part.get("type") == "compaction" for part in said.parts):
            self._compactions += 1
            self._make(said, "system", "")
            return
        text = strip_boilerplate(text_of(said.parts))
        self._make(said, "user" if text else "system", text, prompt=bool(text))
        if text:
            self._interrupted = False

    def _assistant(self, said: _Message) -> None:
        if said.info.get("summary") is True:  # of what was before it, which is sent no more
            self._make(said, "system", "", loaded=estimate_tokens(text_of(said.parts)))
            return
        item = CODEC.decode({"parts": said.parts})
        calls, results = self._doings.calls(item.calls), self._doings.results(item.results)
        self._models = with_model(self._models, said.info.get("modelID"))
        self._interrupted = dict_in(said.info.get("error")).get("name") == ABORTED
        text, loaded = strip_recall(item.text), loaded_after(said.info)
        self._make(said, "assistant", text, calls=calls, results=results, loaded=loaded)

    def _make(
        self, said: _Message, role: Role, text: str, *, calls: tuple[ToolCall, ...] = (),
        results: tuple[ToolResult, ...] = (), prompt: bool = False, loaded: int = 0,
    ) -> None:  # fmt: skip
        before = self._turns[-1].id if self._turns else None
        raw = orjson.dumps({"info": said.info, "parts": said.parts}) if self._keep_raw else b""
        tokens = estimate_tokens(text, len(calls))
        turn = Turn(said.id, before, role, said.moment, text, tokens, calls, results, prompt, raw=raw, loaded=loaded)
        self._turns.append(turn)


def root_of(messages: Sequence[tuple[Json, list[Json]]]) -> str:
    """What a session and all its forks begin with, and no other: a fork copies the messages with their times alone.

    One that leaves out its beginning says what that was.
    """
    info, parts = next(((info, parts) for info, parts in messages if info.get("role") == "user"), ({}, []))
    told = text_in(left_out(parts).get("root"))
    return told or (f"opencode-{said_in(info, parts)}" if info else "")


def left_out(parts: Sequence[Json]) -> Json:
    """What a line of ours on what is left out says of its session; nothing where it is something else."""
    return dict_in(dict_in(parts[0].get("metadata")).get(LEFT_OUT)) if len(parts) == 1 else {}


def said_in(info: Json, parts: Sequence[Json]) -> str:
    """What a message and its copies in forks have in common: whose it is, its time, and what it says."""
    words = f"{info.get('role')} {dict_in(info.get('time')).get('created')} {text_of(parts)}"
    return hashlib.blake2b(words.encode("utf-8", "replace"), digest_size=12).hexdigest()


def loaded_after(info: Json) -> int:
    """What the model had in its context when it had said this."""
    tokens = dict_in(info.get("tokens"))
    cache = dict_in(tokens.get("cache"))
    named = [*(tokens.get(name) for name in ("input", "output", "reasoning")), cache.get("read"), cache.get("write")]
    return sum(map(count, named))
