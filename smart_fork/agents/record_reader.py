"""Folds: readers that take the records of an agent's log one by one, collect facts, and build the session from them."""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Self

from indexer.masking import NOTHING, Masked, joined, mask, mask_once, shorten
from indexer.transcripts.base import Checkpoint, ReadResult
from indexer.transcripts.calls import CallRecorder
from indexer.transcripts.lines import Line, decode_line, first_lines, last_lines, last_records, probe, resume
from indexer.transcripts.model import AgentName, Inferred, Origin, RecordSize, Resumed, Session, Turn
from indexer.transcripts.reader_state import is_path, utc
from indexer.transcripts.texts import TITLE_CHARACTERS, also_called, headline_of, title_of
from smart_fork.agents.decoders import Codec, Record

#: The facts and turns of an earlier reading.
Kept = tuple[dict[str, Any], list[Turn]] | None
#: Limits: models of a session, and characters of a model's name.
_MAX_MODELS, _MODEL_CHARACTERS = 20, 100
#: A later time than this from now is in the future: clocks differ, and a time may lack its zone.
_AHEAD_SECONDS = 86_400
#: This many times among the last lines tell when a log was last written. For the first time, more lines are read:
#: hundreds may only report progress.
_LAST_TIMES, _LAST_LINES, _MAX_LINES = 3, 80, 2_000
#: The names that agents write if no model answered.
_NO_MODELS = ("<synthetic>", "unknown")


class Fold(ABC):
    """A reader that collects facts and turns from the records of one session, and builds the session from them.

    The keys of `facts` differ by agent, except these. `started` and `last` are the session's first and last time,
    `parent` is the id of the session it was forked from, `root` is an id that it shares with all its forks.
    `compactions`, `models`, `names`, `version`, `gitBranch` and `head` (a commit) are as in `Session`. `interrupted` is
    true if the person stopped the agent's last answer.
    """

    agent: AgentName
    #: Finds a log in the line of an action. A command that opens a log reads more of smart-fork's answer.
    session_logs: ClassVar[re.Pattern[str]]
    #: Its tools.
    codec: Codec
    #: The class that notes its calls and results.
    notes: ClassVar[type[CallRecorder]] = CallRecorder
    #: The types of its records that are known; a later version of the agent may write others.
    known: ClassVar[frozenset[str]] = frozenset()
    #: The reason why a log without turns is no session.
    empty: ClassVar[str] = "no conversation"
    #: The index reads masked texts, can keep them and continue from there.
    masks = False

    def __init__(self, path: Path, kept: Kept, *, keep_raw: bool) -> None:
        self.path, self.keep_raw = path, keep_raw
        #: The sizes of records by turn; `None` if they are not measured.
        self.sizes: dict[str, RecordSize] | None = None
        #: The bytes at the end of a very large log that were not read.
        self.unread = 0
        self._model: object = None
        self._ahead = utc(time.time() + _AHEAD_SECONDS)
        self.facts, turns = kept or ({}, [])
        self.recorder = self.notes(self.facts, self.codec, self.session_logs.search)
        self.begin(turns)

    @abstractmethod
    def begin(self, turns: list[Turn]) -> None:
        """Begin with the turns of an earlier reading of the log; empty for a log that is read from its start."""

    @abstractmethod
    def active(self) -> tuple[Turn, ...]:
        """Return the turns of the conversation, without those that a person abandoned by going back."""

    @abstractmethod
    def own_id(self) -> str:
        """Return the session's id."""

    @abstractmethod
    def directory(self) -> tuple[str, Inferred]:
        """Return the session's directory, and the source that it was inferred from: "" if the log states it."""

    @abstractmethod
    def is_copy(self) -> bool:
        """Return True if the log is a copy: not at the path at which the agent began the session's log."""

    def excluded(self) -> str:
        """Return the reason why the log cannot be a session, such as that it is a sub-agent's; else empty."""
        return ""

    def given_name(self) -> str:
        """Return the name that a person gave the session; empty without one."""
        return ""

    def own_name(self, turns: tuple[Turn, ...]) -> str:
        """Return the name that the agent made up for the session; empty without one."""
        return ""

    def names(self, turns: tuple[Turn, ...]) -> Iterable[str]:
        """Return all present and former names of the session."""
        return list[str](self.facts.get("names", []))

    def title(self, turns: tuple[Turn, ...]) -> Masked:
        """Return the session's title. A fork gets one from its own prompts, or "Fork of" before its parent's title."""
        own = turns[self.own(turns) :]
        said = title_of(
            self.given_name(), (turn.text for turn in own or turns if turn.prompt), by_agent=self.own_name(turns)
        )  # fmt: skip
        asked = any(turn.prompt for turn in own) or self.given_name()
        return said if asked else shorten(joined(" ", (mask("Fork of"), said)), TITLE_CHARACTERS)

    def own(self, turns: tuple[Turn, ...]) -> int:
        """Return how many turns at the beginning a fork took over from its parent; 0 for other sessions."""
        return 0

    def origin(self) -> Origin:
        """Return who started the session: "person", "automated" (a program) or "subagent" (another session)."""
        return "person"

    def family(self, turns: tuple[Turn, ...]) -> str:
        """Return the id that a session and all its forks have in common; empty if it is unknown."""
        return str(self.facts.get("root", ""))

    def last_activity(self) -> str:
        """Return the time of the last message or action; the log file's time if no record has one."""
        facts = self.facts
        return facts.get("last") or facts.get("started") or _changed_at(self.path)

    def is_interrupted(self, turns: tuple[Turn, ...]) -> bool:
        """Return True if the person interrupted the agent's last answer."""
        return bool(self.facts.get("interrupted"))

    def resumed(self, turns: tuple[Turn, ...]) -> Resumed:
        """Return which of `turns` the agent loads when it resumes the session: those since the last compaction."""
        start = max((at for at, turn in enumerate(turns) if turn.sums_up), default=None)
        return Resumed() if start is None else Resumed(start, "compaction")

    def is_circular(self) -> bool:
        """Return True if records name each other as parents, in a circle."""
        return False

    def note_moment(self, moment: str, *, done: bool = True) -> None:
        """Note a record's time if it is the session's first or, for a message or an action (`done`), its last.

        A time in the future is ignored: the clock was wrong, or the record is damaged.
        """
        if moment and moment < self._ahead:
            facts = self.facts
            if moment < facts.setdefault("started", moment):
                facts["started"] = moment
            if done and moment > facts.get("last", ""):
                facts["last"] = moment

    def said(self, turn: Turn) -> Turn:
        """Return a turn with the directory noted last (see `stands_in`), and masked if the index reads the log."""
        masked = mask_once(turn.text) if self.masks and turn.text else turn.text
        cwd = self.facts.get("stands", "")
        return turn if masked == turn.text and not cwd else replace(turn, text=masked, cwd=cwd)

    def stands_in(self, cwd: object) -> None:
        """Note the directory in which the agent works from this record on. Turns get it unless it is the first one."""
        if is_path(cwd):
            began = self.facts.setdefault("began_in", cwd)
            self.facts["stands"] = cwd if cwd != began else ""

    def note_model(self, name: object) -> None:
        """Note the name of the model that answered."""
        if name != self._model:  # nearly all answers are of the same again
            self._model = name
            self.facts["models"] = _with_model(self.facts.get("models", ()), name)

    def note_compaction(self) -> None:
        """Note that the conversation was compacted."""
        self.facts["compactions"] = self.facts.get("compactions", 0) + 1

    def is_known(self, record: Record) -> bool:
        """Return True if the type of a record is known, even if the record is not used."""
        return isinstance(kind := record.get("type"), str) and kind in self.known

    def count(self, record: Record) -> None:
        """Count a record, and count it as unknown if its type is not known."""
        facts = self.facts
        facts["records"] = facts.get("records", 0) + 1
        if not self.is_known(record):
            facts["unknown"] = facts.get("unknown", 0) + 1

    def counts(self) -> tuple[int, int]:
        """Return the number of records, and the number of those with an unknown type; both 0 if not counted."""
        return self.facts.get("records", 0), self.facts.get("unknown", 0)

    def session(self) -> tuple[Session | None, str]:
        """Return (session, "") from the collected facts, or (`None`, reason) if the log is no session."""
        if reason := self.excluded():
            return None, reason
        facts, turns = self.facts, self.active()
        if not turns:
            return None, self.empty
        if not any(turn.prompt for turn in turns):
            return None, "it has no prompt"
        (cwd, inferred_from), title, head = self.directory(), self.title(turns), facts.get("head", "")
        return Session(
            agent=self.agent,
            session_id=self.own_id(),
            source_path=self.path,
            turns=turns,
            cwd=cwd,
            git_branch=facts.get("gitBranch", NOTHING),
            title=title,
            also_called=also_called(title, self.names(turns)),
            headline=headline_of(title, turns[self.own(turns) :] or turns),
            version=facts.get("version", ""),
            started=facts.get("started", ""),
            last_activity=self.last_activity(),
            origin=self.origin(),
            parent_id=facts.get("parent"),
            root_id=self.family(turns),
            compactions=facts.get("compactions", 0),
            symbols=tuple(self.recorder.symbols),
            wrote=tuple(self.recorder.wrote),
            copied=self.is_copy(),
            named=bool(self.given_name()),
            circular=self.is_circular(),
            interrupted=self.is_interrupted(turns),
            inferred_from=inferred_from,
            head=head if not cwd or inferred_from == "commands" else "",
            begun_at=head,
            remote=facts.get("remote") or self.recorder.remote,
            commits=tuple(self.recorder.commits),
            models=tuple(facts.get("models", ())),
            own=self.own(turns),
            resumed=self.resumed(turns),
            sizes=self.sizes_of(turns),
            unread=self.unread,
        ), ""

    def sizes_of(self, turns: tuple[Turn, ...]) -> tuple[tuple[int, RecordSize], ...]:
        """Return pairs of a turn's number and its record's size; empty unless all turns' records were measured."""
        known = self.sizes or {}
        return tuple(enumerate(known[turn.id] for turn in turns)) if all(turn.id in known for turn in turns) else ()


class LineFold(Fold):
    """A fold of a log that has one record on each line."""

    #: The words that records with the session's name contain.
    naming: ClassVar[tuple[bytes, ...]] = ()

    @abstractmethod
    def feed(self, line: Line) -> None:
        """Add the record on the next line."""

    @abstractmethod
    def pack(self) -> bytes:
        """Return the state as bytes, so that a later reading of the grown log can continue; empty to read all again."""

    def take(self, lines: Iterable[Line]) -> Self:
        """Add the records on these lines, and return the fold itself."""
        for line in lines:
            if self.known:
                self.count(line.record)
            self.feed(line)
        return self

    @abstractmethod
    def moment_of(self, record: Record) -> tuple[str, bool]:
        """Return a record's time (empty without one), and True if it is a message or an action."""

    def note_title(self, record: Record) -> None:
        """Note the session's title, if a record states it."""

    def lacks(self) -> str:
        """Return what a list of sessions still lacks to show this one, such as "no prompt"; empty to stop reading."""
        if self.excluded():
            return ""
        return "" if any(turn.prompt for turn in self.active()) else "no prompt"

    def note_end(self) -> str:
        """Note and return the newest time in the log's last records; empty if none has a time."""
        found = list[str]()
        for number, line in enumerate(islice(last_lines(self.path), _MAX_LINES)):
            for _, record in decode_line(line)[0]:
                moment, done = self.moment_of(record)
                if done and "" < moment < self._ahead:
                    found.append(moment)
            if len(found) >= _LAST_TIMES or (found and number >= _LAST_LINES):
                break
        self.note_moment(max(found, default=""))
        return max(found, default="")

    def finish(self, *, turns: bool) -> bool:
        """Add facts from related logs, such as a fork's parent; with `turns`, also add their turns.

        Return True if the state must be saved, so that these logs need not be read again.
        """
        return False


def read(begun: Callable[..., LineFold], path: Path, checkpoint: Checkpoint | None, *, keep_raw: bool) -> ReadResult:
    """Read a log from `checkpoint` on (a saved position, with the state of reading there), and return the session.

    `begun` makes the fold (the object that takes the records). With `keep_raw`, the whole log is read, and each turn
    keeps its line.
    """
    reader, kept = resume(path, None if keep_raw else checkpoint)
    fold = begun(path, kept, keep_raw=keep_raw)
    fold.masks = checkpoint is not None and not keep_raw
    if fold.masks:
        reader.bound = None  # the index has whole sessions
    fold.recorder.names_code = reader.bound is None
    fold.sizes = {} if reader.bound and reader.bound.measures else None
    keeps = fold.take(reader).finish(turns=True) or reader.worth_resuming
    after = Checkpoint(
        reader.offset, reader.lines, probe(path, reader.offset), fold.pack() if keeps and fold.masks else b""
    )
    fold.unread = reader.left
    session, skipped = fold.session()
    return ReadResult(
        session, reader.odd or skipped, after, tuple(reader.broken), reader.bytes_read, kept is not None,
        *fold.counts(), fold.masks,
    )  # fmt: skip


def glance(begun: Callable[..., LineFold], path: Path) -> Session | None:
    """Read only the beginning and the end of a log, and return the session for a list; `None` if it is no session."""
    fold = begun(path, None, keep_raw=False)
    fold.recorder.names_code = False
    fold.take(first_lines(path, fold.lacks))
    for record in last_records(path, fold.naming):
        fold.note_title(record)
    fold.note_end()
    fold.finish(turns=False)
    return fold.session()[0]


def _with_model(known: Iterable[str], name: object) -> list[str]:
    """Return the names of `known` models, with `name` at the end if it is a model's name that is not among them."""
    names = list(known)
    if isinstance(name, str) and (said := name.strip()[:_MODEL_CHARACTERS]) and said not in _NO_MODELS:
        said = mask(said)
        return names if said in names or len(names) >= _MAX_MODELS else [*names, said]
    return names


def _changed_at(path: Path) -> str:
    try:
        return utc(path.stat().st_mtime)
    except OSError:
        return ""
