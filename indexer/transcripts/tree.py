"""What the records of a log add up to that name the one before them in ``parentUuid``, whichever agent wrote them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from sys import intern
from types import MappingProxyType
from typing import Any, ClassVar

from indexer.masking import Masked, mask
from indexer.transcripts.base import Checkpoint, ReadResult
from indexer.transcripts.boilerplate import LEFT_OUT_TAG
from indexer.transcripts.chain import Chain
from indexer.transcripts.doings import Doings
from indexer.transcripts.items import GivenBack, UsedTool
from indexer.transcripts.lines import Line, changed_at, first_lines, last_records, probe, resume
from indexer.transcripts.model import AgentName, Origin, Role, Session, Turn, estimate_tokens
from indexer.transcripts.model_names import shown, with_model
from indexer.transcripts.state import is_path, pack, utc
from indexer.transcripts.titles import also_called

#: Different working directories remembered a session.
MAX_CWDS = 50
#: A file whose name is shorter is not named after its session.
ID_CHARACTERS = 32
_ASIDE = f"<{LEFT_OUT_TAG}>".encode()
#: What the first record of a copy that leaves out its beginning calls the first of its family.
ROOT = "smartForkRoot"
Record = dict[str, Any]


def rooted(record: Record, root: str) -> Record:
    """The first record of a copy, which says of whose family it is where it is not that one's first itself."""
    return record if root in ("", record.get("uuid"), record.get("id")) else record | {ROOT: root}


Kept = tuple[dict[str, Any], list[Turn]] | None


class Tree(ABC):
    """What the records of one file add up to. Fed line by line; `pack` is what can be kept and gone on with."""

    agent: ClassVar[AgentName]
    #: Whether the agent goes on with what stands before a record whose parent is missing.
    bridged: ClassVar[bool] = True
    #: Fields of nearly every record of which the last one counts.
    noted: ClassVar[tuple[str, ...]] = ("gitBranch", "version")
    #: Words of which a record that names the session has one.
    naming: ClassVar[tuple[bytes, ...]] = ()
    #: The names of its tools in descriptions of calls, where they differ from its own.
    tools: ClassVar[Mapping[str, str]] = MappingProxyType({})
    #: The tool that runs a shell's command lines.
    shell: ClassVar[str]
    #: How it begins the answer of a call that was not carried out.
    not_run: ClassVar[tuple[str, ...]]

    def __init__(self, path: Path, kept: Kept, *, keep_raw: bool) -> None:
        self.path = path
        self.keep_raw = keep_raw
        self._place: tuple[object, ...] = ()
        self._model: object = None
        self._moment = ""
        self.facts, turns = kept or ({}, [])
        self.chain = Chain(turns, self.facts.pop("links", None), bridged=self.bridged)
        self.doings = Doings(
            self.facts, runs=self.shell, not_run=self.not_run, opens_a_session=self.opens_a_session, tools=self.tools
        )

    @abstractmethod
    def turn(self, record: Record, identity: str, line: Line) -> Turn | None:
        """A record as a turn of the conversation; `None` where it is none, but only stands between two."""

    @abstractmethod
    def note_title(self, record: Record) -> None:
        """Note what a record says that the session is called, if it does."""

    @abstractmethod
    def title(self, turns: tuple[Turn, ...]) -> Masked:
        """What the session is called."""

    @abstractmethod
    def names(self, turns: tuple[Turn, ...]) -> Iterable[str]:
        """All that it is or was called."""

    @abstractmethod
    def folder(self) -> str:
        """The name of the project's folder that the file is in."""

    @abstractmethod
    def folder_for(self, directory: str) -> str:
        """The name of the project's folder of a working directory."""

    @abstractmethod
    def opens_a_session(self, action: str) -> bool:
        """Whether the line of an action names a log of any agent: who opens it reads more of our answer."""

    def named(self) -> bool:
        """Whether a person gave it its title."""
        return False

    def origin(self) -> Origin:
        """Who started it."""
        return "person"

    def is_name(self, record: Record) -> bool:
        """Whether a record says what the session is called, or whose copy it is: nothing was done in it then."""
        del record
        return False

    def is_aside(self, record: Record) -> bool:
        """Whether a record is a sub-agent's, which is no part of the conversation."""
        return record.get("isSidechain") is True

    def guessed(self) -> str:
        """The directory that the project's folder is named after, for a log that states none; empty where unknown."""
        return ""

    def pack(self) -> bytes:
        return pack(self.facts | {"links": self.chain.links} | self.doings.kept(), list(self.chain.turns))

    def feed(self, line: Line) -> None:
        record = line.record
        self._note_facts(record)
        identity = record.get("uuid")
        if not isinstance(identity, str) or not identity:
            return
        if self.is_aside(record):
            self.facts["sidechain"] = True
            return
        identity = intern(identity)
        turn = self.turn(record, identity, line)
        if turn is None:
            self.chain.link(identity, parent_of(record))
        else:
            if next(iter(self.chain.turns), None) is None:
                self._note_beginning(record, turn, line)
            self.chain.add(turn)

    def _note_beginning(self, record: Record, turn: Turn, line: Line) -> None:
        """Note what the first turn says of the family, where that is not its own beginning."""
        if isinstance(root := record.get(ROOT), str) and root:
            self.facts["root"] = [turn.id, root]
        elif not turn.text and _ASIDE in line.source:
            self.facts["aside"] = turn.id

    def _note_facts(self, record: Record) -> None:
        facts = self.facts
        get = record.get
        place = (get("cwd"), get("sessionId"), *map(get, self.noted))
        if place != self._place:  # nearly all records say the same again
            self._place = place
            self._note_place(*place)
        self._moment = moment = utc(get("timestamp"))
        if moment:
            if moment < facts.setdefault("started", moment):
                facts["started"] = moment
            if moment > facts.get("last", "") and not self.is_name(record):
                facts["last"] = moment
        forked = record.get("forkedFrom")
        if "parent" not in facts and isinstance(forked, dict) and isinstance(forked.get("sessionId"), str):
            facts["parent"] = forked["sessionId"]
        self.note_title(record)

    def _note_place(self, cwd: object, session_id: object, *noted: object) -> None:
        facts = self.facts
        if is_path(cwd) and cwd not in (known := facts.setdefault("cwds", [])) and len(known) < MAX_CWDS:
            known.append(cwd)
        if isinstance(cwd, str) and "\0" in cwd:
            facts["no_path"] = True
        if isinstance(session_id, str):
            facts.setdefault("first_session_id", session_id)
        for key, value in zip(self.noted, noted, strict=True):
            if isinstance(value, str) and value:
                facts[key] = value

    def make(
        self, record: Record, identity: str, line: Line, role: Role, text: str, *,
        calls: Sequence[UsedTool] = (), results: Sequence[GivenBack] = (), prompt: bool = False, group: str = "",
        loaded: int = 0,
    ) -> Turn:  # fmt: skip
        """A turn that says, calls or answers this."""
        return Turn(
            id=identity, parent_id=parent_of(record), role=role,
            timestamp=self._moment, text=text, token_est=estimate_tokens(text, len(calls)),
            tool_calls=self.doings.calls(calls), tool_results=self.doings.results(results), prompt=prompt,
            group=intern(group), raw=line.raw if self.keep_raw else b"", loaded=loaded,
        )  # fmt: skip

    def note_model(self, name: object) -> None:
        """Note which model has answered."""
        if name != self._model:  # nearly all answers are of the same again
            self._model = name
            self.facts["models"] = with_model(self.facts.get("models", ()), name)

    def session(self) -> tuple[Session | None, str]:
        """The session, or why there is none."""
        facts = self.facts
        turns = self.chain.active()
        if not turns:
            return None, "only sub-agent records" if facts.get("sidechain") else "no conversation"
        if not any(turn.prompt for turn in turns):
            return None, "it has no prompt"
        cwd, title = self._cwd(), self.title(turns)
        begun, root = facts.get("root") or ("", "")
        begins_aside = turns[0].id == facts.get("aside") and len(turns) > 1  # on what is left out: nobody else's
        return Session(
            agent=self.agent,
            session_id=self._session_id(),
            source_path=self.path,
            turns=turns,
            cwd=cwd,
            git_branch=mask(facts.get("gitBranch", "")),
            title=title,
            also_called=also_called(title, self.names(turns)),
            version=facts.get("version", ""),
            started=facts.get("started", ""),
            last_activity=facts.get("last", ""),
            origin=self.origin(),
            parent_id=facts.get("parent"),
            root_id=root if turns[0].id == begun else turns[1 if begins_aside else 0].id,
            compactions=facts.get("compactions", 0),
            symbols=tuple(self.doings.symbols),
            wrote=tuple(self.doings.wrote),
            copied=self.is_copy(),
            named=self.named(),
            circular=self.chain.circular,
            interrupted=_is_last(facts.get("interrupted"), turns),
            inferred_from="folder" if not facts.get("cwds") and cwd else "",
            models=shown(facts.get("models", ())),
        ), ""

    def is_copy(self) -> bool:
        """Whether the directory of its first record has another folder, or the session another name than the file.

        Agents go on writing where a session began, however its directory drifts; their forks say of all that they copy
        that it was in their own.
        """
        first: str = next(iter(self.facts.get("cwds", ())), "")
        return self._session_id() != self.path.stem or (first != "" and self.folder_for(first) != self.folder())

    def _session_id(self) -> str:
        stem = self.path.stem
        return stem if len(stem) >= ID_CHARACTERS else str(self.facts.get("first_session_id", stem))

    def _cwd(self) -> str:
        """Where the session was started.

        The records' ``cwd`` drifts, and a fork's begin with its parent's: the folder's name, which cannot be decoded,
        tells which of them it is; failing that the first. A log that states no path of a system is of no project.
        """
        known = self.facts.get("cwds", [])
        own = next((cwd for cwd in known if self.folder_for(cwd) == self.folder()), None)
        return own or (known[0] if known else "" if self.facts.get("no_path") else self.guessed())


def read(tree: type[Tree], path: Path, checkpoint: Checkpoint | None, *, keep_raw: bool) -> ReadResult:
    """See `AgentAdapter.read`."""
    reader, kept = resume(path, None if keep_raw else checkpoint)
    grown = tree(path, kept, keep_raw=keep_raw)
    for line in reader:
        grown.feed(line)
    state = grown.pack() if reader.worth_resuming and not keep_raw else b""
    after = Checkpoint(reader.offset, reader.lines, probe(path, reader.offset), state)
    session, skipped = grown.session()
    return ReadResult(session, reader.odd or skipped, after, tuple(reader.broken), reader.bytes_read, kept is not None)


def is_copy(tree: type[Tree], path: Path) -> bool:
    """See `AgentAdapter.is_copy`."""
    begun = tree(path, None, keep_raw=False)
    for line in first_lines(path):
        begun.feed(line)
        if "cwds" in begun.facts:
            break
    return begun.is_copy()


def glance(tree: type[Tree], path: Path) -> Session | None:
    """See `AgentAdapter.glance`."""
    begun = tree(path, None, keep_raw=False)
    for line in first_lines(path):
        begun.feed(line)
    for record in last_records(path, tree.naming):
        begun.note_title(record)
    session, _ = begun.session()
    return replace(session, last_activity=changed_at(path)) if session else None


def parent_of(record: Record) -> str | None:
    """The record before this one: after a compaction only the logical parent leads on to what was before."""
    parent = record.get("parentUuid") or record.get("logicalParentUuid")
    return intern(parent) if isinstance(parent, str) else None


def _is_last(interruption: object, turns: tuple[Turn, ...]) -> bool:
    """Whether the record of this id is there, and nothing was said or done after it."""
    after = takewhile(lambda turn: not turn.speaks, reversed(turns))
    return any(turn.id == interruption for turn in after)
