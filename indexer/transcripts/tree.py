"""Folds logs whose records name the one before them in ``parentUuid``, whichever agent wrote them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from sys import intern
from typing import ClassVar

from indexer.masking import mask, mask_once
from indexer.transcripts.boilerplate import LEFT_OUT_TAG
from indexer.transcripts.chain import Chain
from indexer.transcripts.fold import Kept, LineFold, Record
from indexer.transcripts.items import GivenBack, UsedTool
from indexer.transcripts.lines import Line, LineReader, first_lines
from indexer.transcripts.model import Inferred, RecordSize, Resumed, Role, Turn, turn_of
from indexer.transcripts.state import is_path, pack, utc

#: Different working directories remembered a session.
MAX_CWDS = 50
#: A file whose name is shorter is not named after its session.
ID_CHARACTERS = 32
_ASIDE = f"<{LEFT_OUT_TAG}>".encode()
#: What the first record of a copy that leaves out its beginning calls the first of its family.
ROOT = "smartForkRoot"


def rooted(record: Record, root: str) -> Record:
    """The first record of a copy, which says of whose family it is where it is not that one's first itself."""
    return record if root in ("", record.get("uuid"), record.get("id")) else record | {ROOT: root}


class Tree(LineFold):
    """What the records of one file add up to."""

    #: Whether the agent goes on with what stands before a record whose parent is missing.
    bridged: ClassVar[bool] = True
    #: Fields of nearly every record of which the last one counts.
    noted: ClassVar[tuple[str, ...]] = ("gitBranch", "version")

    def __init__(self, path: Path, kept: Kept, *, keep_raw: bool, of_subagent: bool = False) -> None:
        super().__init__(path, kept, keep_raw=keep_raw)
        self._of_subagent = of_subagent
        self._place: tuple[object, ...] = ()
        self._moment = ""

    def begin(self, turns: list[Turn]) -> None:
        """See `Fold.begin`."""
        links, moments, leaf = (self.facts.pop(name, None) for name in ("links", "moments", "leaf"))
        self.chain = Chain(turns, links, bridged=self.bridged, moments=moments, leaf=leaf or "")
        self.elsewhere: list[Tree] = []
        self._own = 0

    @abstractmethod
    def turn(self, record: Record, identity: str, line: Line) -> Turn | None:
        """A record as a turn of the conversation; `None` where it is none, but only stands between two."""

    @abstractmethod
    def folder(self) -> str:
        """The name of the project's folder that the file is in."""

    @abstractmethod
    def folder_for(self, directory: str) -> str:
        """The name of the project's folder of a working directory."""

    def size_of(self, line: Line) -> RecordSize | None:
        """Return the size of a record; `None` for one outside the conversation, or if the agent's are not measured."""
        return None

    def moment_of(self, record: Record) -> tuple[str, bool]:
        """See `LineFold.moment_of`."""
        return utc(record.get("timestamp")), not self.is_name(record)

    def is_name(self, record: Record) -> bool:
        """Whether a record says what the session is called, or whose copy it is: nothing was done in it then."""
        return False

    def is_aside(self, record: Record) -> bool:
        """Whether a record is a sub-agent's, which is no part of the conversation of another one."""
        return record.get("isSidechain") is True and not self._of_subagent

    def is_copied(self, record: Record) -> bool:
        """Whether a fork has a record from its parent, as far as that can be told."""
        return isinstance(record.get("forkedFrom"), dict)

    def own(self, turns: tuple[Turn, ...]) -> int:
        """See `Fold.own`."""
        if "own" not in self.facts:  # a log that has another's name is none
            return len(turns) if self.facts.get("copied") and self.facts.get("parent") else 0
        first, moment = self.facts["own"]
        there = (at for at, turn in enumerate(turns) if turn.id == first)
        later = (at for at, turn in enumerate(turns) if moment and turn.timestamp >= moment)  # it was taken back
        return next(there, next(later, len(turns)))

    def guessed(self) -> str:
        """The directory that the project's folder is named after, for a log that states none; empty where unknown."""
        return ""

    def twins(self) -> Iterable[Path]:
        """Other logs of the session: it was moved or copied, and perhaps went on there."""
        return ()

    def of_twin(self, path: Path) -> Tree:
        """Return what reads such a log."""
        return type(self)(path, None, keep_raw=self.keep_raw)

    def finish(self, *, turns: bool) -> bool:
        """See `LineFold.finish`. Of a session that was moved or copied, and went on there as well, both ends count."""
        for path in self.twins() if turns and not self._of_subagent else ():
            other = self.of_twin(path)
            other.masks, other.sizes, other.doings.names_code = self.masks, self.sizes, self.doings.names_code
            with suppress(OSError):
                other.take(LineReader(path))
                if {turn.id for turn in other.active()}.difference(turn.id for turn in self.chain.turns):
                    self.elsewhere.append(other)
                    self.doings.share(other.doings)
        self.elsewhere.sort(key=lambda one: one.last_activity())
        return False

    def pack(self) -> bytes:
        """See `LineFold.pack`. What is in several logs is read again."""
        if self.elsewhere:
            return b""
        chain = {"links": self.chain.links, "moments": self.chain.moments, "leaf": self.chain.leaf}
        return pack(self.facts, chain | self.doings.kept(), list(self.chain.turns))

    def feed(self, line: Line) -> None:
        """See `LineFold.feed`."""
        record = line.record
        self._note_facts(record)
        identity = record.get("uuid")
        if not isinstance(identity, str) or not identity:
            return
        if self.is_aside(record):
            self.facts["sidechain"] = True
            return
        identity = intern(identity)
        if self.sizes is not None and identity not in self.sizes and (size := self.size_of(line)) is not None:
            self.sizes[identity] = size
        turn = self.turn(record, identity, line)
        if turn is None:
            self.chain.link(identity, parent_of(record), self._moment)
        else:
            if next(iter(self.chain.turns), None) is None:
                self._note_beginning(record, turn, line)
            if self.is_copied(record):  # a first prompt alone may still be noted as of the session that was cleared
                self.facts["copied"] = self.facts.get("copied") or turn.role == "assistant"
            elif self.facts.get("copied"):
                self.facts.setdefault("own", [identity, self._moment])
            self.chain.add(self.said(turn))

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
        self._moment, done = self.moment_of(record)
        self.note_moment(self._moment, done=done)
        forked = record.get("forkedFrom")
        if "parent" not in facts and isinstance(forked, dict) and isinstance(forked.get("sessionId"), str):
            facts["parent"] = forked["sessionId"]
        self.note_title(record)

    def _note_place(self, cwd: object, session_id: object, *noted: object) -> None:
        facts = self.facts
        if is_path(cwd) and cwd not in (known := facts.setdefault("cwds", [])) and len(known) < MAX_CWDS:
            known.append(cwd)
        self.stands_in(cwd)
        if isinstance(cwd, str) and "\0" in cwd:
            facts["no_path"] = True
        if isinstance(session_id, str):
            facts.setdefault("first_session_id", session_id)
        for key, value in zip(self.noted, noted, strict=True):
            if isinstance(value, str) and value:
                facts[key] = mask(value)

    def make(
        self, record: Record, identity: str, line: Line, role: Role, text: str, *,
        calls: Sequence[UsedTool] = (), results: Sequence[GivenBack] = (), prompt: bool = False, group: str = "",
        loaded: int = 0, cached_for: int = 0,
    ) -> Turn:  # fmt: skip
        """A turn that says, calls or answers this."""
        return turn_of(
            identity, parent_of(record), role, self._moment, text,
            tool_calls=self.doings.calls(calls), tool_results=self.doings.results(results), prompt=prompt,
            group=intern(group), raw=line.raw if self.keep_raw else b"", loaded=loaded, cached_for=cached_for,
        )  # fmt: skip

    def summary(self, record: Record, identity: str, line: Line, text: str, loaded: int) -> Turn:
        """The summary that a compaction has left: `loaded` counts it, and nobody has said it."""
        return replace(self.make(record, identity, line, "system", "", loaded=loaded), summary=mask_once(text))

    def excluded(self) -> str:
        """See `Fold.excluded`."""
        return "only sub-agent records" if self.facts.get("sidechain") and not any(self.chain.turns) else ""

    def active(self) -> tuple[Turn, ...]:
        """See `Fold.active`. The other ends stand before this log's own."""
        turns, self._own = [*self.chain.active()], 0
        known = {turn.id for turn in self.chain.turns} if self.elsewhere else set()
        for other in self.elsewhere:
            theirs = {turn.id: turn for turn in other.active()}
            at = max((at + 1 for at, turn in enumerate(turns) if turn.id in theirs), default=0)
            new = [turn for turn in theirs.values() if turn.id not in known]
            turns[at:at] = new
            known |= theirs.keys()
            self._own = max(self._own, at) + len(new)
        return tuple(turns)

    def last_activity(self) -> str:
        """See `Fold.last_activity`."""
        return max((super().last_activity(), *(one.last_activity() for one in self.elsewhere)))

    def resumed(self, turns: tuple[Turn, ...]) -> Resumed:
        """See `Fold.resumed`. What stands before a gap is shown, but the agent does not find it."""
        compacted = super().resumed(turns)
        gap = next((at for at, turn in enumerate(turns) if turn.id == self.chain.after_gap), 0)
        found = Resumed(gap, "gap") if gap > compacted.start else compacted
        return Resumed(self._own, "elsewhere") if found.start < self._own else found

    def family(self, turns: tuple[Turn, ...]) -> str:
        """See `Fold.family`. A beginning that says what is left out is no other session's."""
        begun, root = self.facts.get("root") or ("", "")
        begins_aside = turns[0].id == self.facts.get("aside") and len(turns) > 1
        return root if turns[0].id == begun else turns[1 if begins_aside else 0].id

    def is_circular(self) -> bool:
        """See `Fold.is_circular`."""
        return self.chain.circular

    def is_interrupted(self, turns: tuple[Turn, ...]) -> bool:
        """See `Fold.is_interrupted`: nothing was said or done after the record that says so."""
        after = takewhile(lambda turn: not turn.speaks, reversed(turns))
        return any(turn.id == self.facts.get("interrupted") for turn in after)

    def is_copy(self) -> bool:
        """Whether the directory of its first record has another folder, or the session another name than the file.

        Agents go on writing where a session began, however its directory drifts; their forks say of all that they copy
        that it was in their own.
        """
        first: str = next(iter(self.facts.get("cwds", ())), "")
        return self.own_id() != self.path.stem or (first != "" and self.folder_for(first) != self.folder())

    def own_id(self) -> str:
        """See `Fold.own_id`."""
        stem = self.path.stem
        return stem if len(stem) >= ID_CHARACTERS else str(self.facts.get("first_session_id", stem))

    def directory(self) -> tuple[str, Inferred]:
        """See `Fold.directory`.

        The records' ``cwd`` drifts, and a fork's begin with its parent's: the folder's name, which cannot be decoded,
        tells which of them it is; failing that the first. A log that states no path of a system is of no project.
        """
        if known := self.facts.get("cwds"):
            return next((cwd for cwd in known if self.folder_for(cwd) == self.folder()), known[0]), ""
        guessed = "" if self.facts.get("no_path") else self.guessed()
        return guessed, "folder" if guessed else ""


class FolderlessTree(Tree):
    """A tree whose log's folder does not tell the directory. A copy is named after another session than it states."""

    def folder(self) -> str:
        """See `Tree.folder`."""
        return ""

    def folder_for(self, directory: str) -> str:
        """See `Tree.folder_for`."""
        return ""

    def is_copy(self) -> bool:
        """See `Fold.is_copy`."""
        return str(self.facts.get("first_session_id", self.own_id())) != self.own_id()


def is_copy(tree: Callable[..., Tree], path: Path) -> bool:
    """See `AgentAdapter.is_copy`."""
    begun = tree(path, None, keep_raw=False)
    for line in first_lines(path):
        begun.feed(line)
        if "cwds" in begun.facts:
            break
    return begun.is_copy()


def parent_of(record: Record) -> str | None:
    """The record before this one: after a compaction only the logical parent leads on to what was before."""
    parent = record.get("parentUuid") or record.get("logicalParentUuid")
    return intern(parent) if isinstance(parent, str) else None
