"""The fold (reader) of logs in which each record names the record before it in ``parentUuid``, for all such agents."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from sys import intern
from typing import ClassVar

from indexer.json_values import seconds_in
from indexer.masking import mask_once
from indexer.transcripts.lines import Line, LineReader, first_lines
from indexer.transcripts.model import GivenBack, Inferred, Resumed, Role, Turn, UsedTool, turn_of
from indexer.transcripts.reader_state import is_path, pack, utc
from indexer.transcripts.texts import LEFT_OUT_TAG
from smart_fork.agents.decoders import Record
from smart_fork.agents.record_reader import Kept, LineFold

#: Claude Code 2.1.197 and 2.1.332 bridge a missing record to the newest record at most this much older.
CLOSE_SECONDS = 5


class Chain:
    """Records that name their parents, in file order. A `Turn` is part of the conversation; a link only connects two.

    Of several records with one id, the first counts. A prompt may follow its answer in the file. If a parent is missing
    (a gap) and `bridged` is True, the chain continues with the record before the gap in the file.
    """

    def __init__(
        self, turns: Iterable[Turn] = (), links: Mapping[str, Sequence[str]] | None = None, *, bridged: bool = True,
        moments: Mapping[str, str] | None = None, leaf: str = "",
    ) -> None:  # fmt: skip
        self._bridged = bridged
        #: The times of links with a parent that was not read before them.
        self.moments: dict[str, str] = dict(moments or {})
        self._turns: dict[str, Turn] = {}
        self._mended: dict[str, str | None] = {}
        #: The first turn after the last gap (a record that was never written); empty without a gap.
        self.after_gap = ""
        self._links: dict[str, str | None] = {one: end or None for end, many in (links or {}).items() for one in many}
        for turn in turns:
            self.add(turn)
        #: The record to which a person went back, if nothing follows it yet; else empty.
        self.leaf = leaf

    @property
    def turns(self) -> Iterable[Turn]:
        """All turns, also abandoned ones."""
        return self._turns.values()

    @property
    def links(self) -> dict[str, list[str]]:
        """Links (records that are no turns), by the record before them; "" if none is before."""
        ends: dict[str, list[str]] = {}
        for identity, end in self._links.items():
            ends.setdefault(end or "", []).append(identity)
        return ends

    def link(self, identity: str, parent: str | None, moment: str = "") -> None:
        """Add a link: no turn, but it connects two. After other links, it gets the parent of the first of them."""
        self.leaf = ""
        end = self._links.get(parent, parent) if parent is not None else None
        if self._links.setdefault(identity, end) and end not in self._turns:
            self.moments[identity] = moment

    def add(self, turn: Turn) -> None:
        """Add a turn of the conversation."""
        self.leaf = ""
        self._turns.setdefault(turn.id, turn)

    def active(self) -> tuple[Turn, ...]:
        """Return the turns in file order, but none before its parent, without those that a rewind abandoned."""
        if not self._turns:
            return ()
        self._mend()
        alive = self._walk()
        self._add_parallel(alive)
        return tuple(self.in_order(alive))

    def in_order(self, alive: Collection[str] | None = None) -> Iterator[Turn]:
        """Yield all turns, or those with ids in `alive`, in file order, but none before its parent."""
        chosen = self._turns if alive is None else alive
        done: set[str] = set()
        for identity in self._turns:
            waiting: dict[str, Turn] = {}
            current: str | None = identity
            while current in chosen and current not in done and current not in waiting and current in self._turns:
                waiting[current] = self._turns[current]
                current = self._parent(waiting[current])
            done.update(waiting)
            yield from reversed(waiting.values())

    def beginning(self) -> Turn | None:
        """Return the first turn; `None` without turns, or if that turn names a parent, which was not added."""
        first = next(self.in_order(), None)
        return first if first and self._parent(first) is None else None

    @property
    def circular(self) -> bool:
        """True if turns name each other as parents in a circle, so that only the file tells their order."""
        return bool(self._mended)

    def _mend(self) -> None:
        """Break each circle of parents: each of its turns gets the one before it in the file as its parent."""
        self._mended = {}
        done: set[str] = set()
        for identity in self._turns:
            way: dict[str, None] = {}
            current: str | None = identity
            while current in self._turns and current not in done and current not in way:
                way[current] = None
                current = self._parent(self._turns[current])
            if current in way:
                steps = list(way)
                circle = set(steps[steps.index(current) :])
                in_file = [name for name in self._turns if name in circle]
                self._mended |= dict(zip(in_file, [None, *in_file], strict=False))
            done.update(way)

    def _parent(self, turn: Turn) -> str | None:
        if turn.id in self._mended:
            return self._mended[turn.id]
        return self._links.get(turn.parent_id, turn.parent_id) if turn.parent_id else None

    def _leaf(self) -> str:
        """Return the id of the conversation's last turn: the one to which a person went back, else the file's last.

        If answers to that turn come before it in the file, return the id of the last answer.
        """
        if (back := self._links.get(self.leaf, self.leaf)) in self._turns:
            return str(back)
        leaf = next(reversed(self._turns))
        seen: set[str] = set()
        answers = {parent: name for name, turn in self._turns.items() if (parent := self._parent(turn))}
        while leaf not in seen and leaf in answers:
            seen.add(leaf)
            leaf = answers[leaf]
        return leaf

    def _walk(self) -> set[str]:
        """Return the ids of the records from the last turn back along their parents.

        At a missing parent, the record before it in the file comes next if the agent bridges gaps; after a rewind to
        the start, none does.
        """
        names = list(self._turns)
        order = {identity: position for position, identity in enumerate(names)}
        linked = any(self._links.values()) or any(turn.parent_id for turn in self._turns.values())
        alive: set[str] = set()
        current: str | None = self._leaf()
        earliest, nearest = len(names), ""
        self.after_gap = ""
        while current is not None and current not in alive:
            alive.add(current)
            earliest = min(earliest, order.get(current, earliest))
            turn = self._turns.get(current)
            nearest = turn.id if turn else nearest
            parent = self._links.get(current) if turn is None else self._mended.get(current, turn.parent_id)
            if parent is not None and (parent in self._turns or parent in self._links):
                current = parent
                continue
            before = names[earliest - 1] if earliest > 0 else None
            rewound = parent is None and linked and (turn.prompt if turn else self._leads(before, current))
            if rewound or not self._bridged:
                break  # the person rewound to before the first message
            # The parent is not in this file, or a link record without one: go on with what stands before.
            if before and not (parent and self._is_close(before, current)):
                self.after_gap = self.after_gap or nearest
            current = before
        return alive

    def _is_close(self, before: str, current: str) -> bool:
        """Return True if two records are only seconds apart, so that the agent itself bridges the gap between them."""
        moment = self._turns[current].timestamp if current in self._turns else self.moments.get(current, "")
        then, now = seconds_in(self._turns[before].timestamp), seconds_in(moment)
        return then is not None and now is not None and 0 <= now - then <= CLOSE_SECONDS

    def _leads(self, identity: str | None, beginning: str) -> bool:
        """Return True if the parents of the turn `identity` lead back to the link `beginning`, which has no parent."""
        seen: set[str] = set()
        while identity in self._turns and identity not in seen:
            seen.add(identity)
            if self._turns[identity].parent_id == beginning:
                return True
            identity = self._parent(self._turns[identity])
        return False

    def _add_parallel(self, alive: set[str]) -> None:
        """Add to `alive` the turns of parallel calls, which a walk along parents misses: calls and their results."""
        groups = {turn.group for identity, turn in self._turns.items() if identity in alive and turn.group}
        calls: set[str] = set()
        for identity, turn in self._turns.items():
            if turn.group and turn.group in groups:
                alive.add(identity)
            if identity in alive:
                calls.update(call.id for call in turn.tool_calls if call.id)
        for identity, turn in self._turns.items():
            if identity not in alive and any(result.tool_use_id in calls for result in turn.tool_results):
                alive.add(identity)


#: The number of different working directories that are kept for a session.
MAX_CWDS = 50
#: A file whose name is shorter is not named after its session.
ID_CHARACTERS = 32
_ASIDE = f"<{LEFT_OUT_TAG}>".encode()
#: The field of a copy's first record with the id of its family's first record, if the copy lacks that record.
ROOT = "smartForkRoot"


def rooted(record: Record, root: str) -> Record:
    """Return a copy's first record with its family's first id `root` in the field `ROOT`, unless that is its own id."""
    return record if root in ("", record.get("uuid"), record.get("id")) else record | {ROOT: root}


class Tree(LineFold):
    """A fold (reader) of a log in which each record names the record before it."""

    #: True if the agent continues with the records before a missing parent.
    bridged: ClassVar[bool] = True
    #: Fields of nearly every record. The last value counts.
    noted: ClassVar[tuple[str, ...]] = ("gitBranch", "version")

    def __init__(
        self, path: Path, kept: Kept, *, keep_raw: bool, of_subagent: bool = False,
        twins: Callable[[Path], Iterable[Path]] = lambda _: (),
    ) -> None:  # fmt: skip
        super().__init__(path, kept, keep_raw=keep_raw)
        self._of_subagent, self._twins = of_subagent, twins
        self._stem = path.stem
        self._place: tuple[object, ...] = ()
        self._moment = ""

    def begin(self, turns: list[Turn]) -> None:
        links, moments, leaf = (self.facts.pop(name, None) for name in ("links", "moments", "leaf"))
        self.chain = Chain(turns, links, bridged=self.bridged, moments=moments, leaf=leaf or "")
        self.elsewhere: list[Tree] = []
        self._own = 0

    @abstractmethod
    def turn(self, record: Record, identity: str, line: Line) -> Turn | None:
        """Return a record as a turn of the conversation; `None` if it only connects two turns."""

    @abstractmethod
    def folder(self) -> str:
        """Return the name of the project folder that contains the log; empty if folders do not tell the directory."""

    @abstractmethod
    def folder_for(self, directory: str) -> str:
        """Return the name that the project folder of a working directory has; empty if folders do not tell it."""

    def moment_of(self, record: Record) -> tuple[str, bool]:
        return utc(record.get("timestamp")), not self.is_name(record)

    def is_name(self, record: Record) -> bool:
        """Return True if a record only states a name or parent of the session, and so is no activity in it."""
        return False

    def is_aside(self, record: Record) -> bool:
        """Return True if a record is a sub-agent's, and so not part of the conversation."""
        return record.get("isSidechain") is True and not self._of_subagent

    def is_copied(self, record: Record) -> bool:
        """Return True if the record says that a fork copied it from its parent session."""
        return isinstance(record.get("forkedFrom"), dict)

    def own(self, turns: tuple[Turn, ...]) -> int:
        if "own" not in self.facts:  # a log that has another's name is none
            return len(turns) if self.facts.get("copied") and self.facts.get("parent") else 0
        first, moment = self.facts["own"]
        there = (at for at, turn in enumerate(turns) if turn.id == first)
        later = (at for at, turn in enumerate(turns) if moment and turn.timestamp >= moment)  # it was taken back
        return next(there, next(later, len(turns)))

    def guessed(self) -> str:
        """Return the directory after which the project folder is named, if the log states none; empty if unknown."""
        return ""

    def twins(self) -> Iterable[Path]:
        """Return other logs of the session, in which it may have continued after it was moved or copied."""
        return self._twins(self.path)

    def of_twin(self, path: Path) -> Tree:
        """Return an empty fold for another log of the session."""
        return type(self)(path, None, keep_raw=self.keep_raw)

    def finish(self, *, turns: bool) -> bool:
        """Read the session's other logs too if `turns` is True: a copied session may continue in any of them."""
        for path in self.twins() if turns and not self._of_subagent else ():
            other = self.of_twin(path)
            other.masks, other.sizes, other.recorder.names_code = self.masks, self.sizes, self.recorder.names_code
            with suppress(OSError):
                other.take(LineReader(path))
                if {turn.id for turn in other.active()}.difference(turn.id for turn in self.chain.turns):
                    self.elsewhere.append(other)
                    self.recorder.share(other.recorder)
        self.elsewhere.sort(key=lambda one: one.last_activity())
        return False

    def pack(self) -> bytes:
        """Return the state for a later reading; empty if the session has several logs, which are all read again."""
        if self.elsewhere:
            return b""
        chain = {"links": self.chain.links, "moments": self.chain.moments, "leaf": self.chain.leaf}
        return pack(self.facts, chain | self.recorder.kept(), list(self.chain.turns))

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
        if self.sizes is not None and identity not in self.sizes and (size := self.codec.measured(line)) is not None:
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
        """Note the log's first turn for `family` if it states the family's first id, or is a note of smart-fork."""
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
                facts[key] = mask_once(value)

    def make(
        self, record: Record, identity: str, line: Line, role: Role, text: str, *,
        calls: Sequence[UsedTool] = (), results: Sequence[GivenBack] = (), prompt: bool = False, group: str = "",
        loaded: int = 0, cached_for: int = 0,
    ) -> Turn:  # fmt: skip
        return turn_of(
            identity, parent_of(record), role, self._moment, text,
            tool_calls=self.recorder.calls(calls), tool_results=self.recorder.results(results), prompt=prompt,
            group=intern(group), raw=line.raw if self.keep_raw else b"", loaded=loaded, cached_for=cached_for,
        )  # fmt: skip

    def summary(self, record: Record, identity: str, line: Line, text: str, loaded: int) -> Turn:
        """Return the turn of a compaction's summary (role "system"). `loaded` is the summary's size in tokens."""
        return replace(self.make(record, identity, line, "system", "", loaded=loaded), summary=mask_once(text))

    def excluded(self) -> str:
        return "only sub-agent records" if self.facts.get("sidechain") and not any(self.chain.turns) else ""

    def active(self) -> tuple[Turn, ...]:
        """Return the conversation's turns. New turns of another log of the session come after the last shared turn."""
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
        return max((super().last_activity(), *(one.last_activity() for one in self.elsewhere)))

    def resumed(self, turns: tuple[Turn, ...]) -> Resumed:
        """Return which turns the agent loads: none before a compaction or gap, and none of the session's other logs."""
        compacted = super().resumed(turns)
        gap = next((at for at, turn in enumerate(turns) if turn.id == self.chain.after_gap), 0)
        found = Resumed(gap, "gap") if gap > compacted.start else compacted
        return Resumed(self._own, "elsewhere") if found.start < self._own else found

    def family(self, turns: tuple[Turn, ...]) -> str:
        """Return the family's id: as the first turn states it, else the first turn's id. Inserted notes are skipped."""
        begun, root = self.facts.get("root") or ("", "")
        begins_aside = turns[0].id == self.facts.get("aside") and len(turns) > 1
        return root if turns[0].id == begun else turns[1 if begins_aside else 0].id

    def is_circular(self) -> bool:
        return self.chain.circular

    def is_interrupted(self, turns: tuple[Turn, ...]) -> bool:
        """Return True if nothing was said or done after the record of an interruption."""
        after = takewhile(lambda turn: not turn.speaks, reversed(turns))
        return any(turn.id == self.facts.get("interrupted") for turn in after)

    def is_copy(self) -> bool:
        """Return True if the log is in the folder of another directory than its first, or named after another session.

        Agents keep writing where a session began, even if its directory changes. A fork's records all state its own.
        """
        first: str = next(iter(self.facts.get("cwds", ())), "")
        return self.own_id() != self._stem or (first != "" and self.folder_for(first) != self.folder())

    def own_id(self) -> str:
        return self._stem if len(self._stem) >= ID_CHARACTERS else str(self.facts.get("first_session_id", self._stem))

    def directory(self) -> tuple[str, Inferred]:
        """Return the session's directory, and the source that it was inferred from.

        The ``cwd`` of records changes, and a fork's records begin with its parent's. The stated directory that gave the
        project folder its name counts, else the first. A log that states only an invalid path belongs to no project.
        """
        if known := self.facts.get("cwds"):
            return next((cwd for cwd in known if self.folder_for(cwd) == self.folder()), known[0]), ""
        guessed = "" if self.facts.get("no_path") else self.guessed()
        return guessed, "folder" if guessed else ""


class FolderlessTree(Tree):
    """A fold (reader) of a log whose folder does not tell the directory. A copy is named after another session."""

    def folder(self) -> str:
        return ""

    def folder_for(self, directory: str) -> str:
        return ""

    def is_copy(self) -> bool:
        return str(self.facts.get("first_session_id", self.own_id())) != self.own_id()


def is_copy(tree: Callable[..., Tree], path: Path) -> bool:
    """Return True if the log at `path` is a copy (see `Tree.is_copy`), judged by its first records."""
    begun = tree(path, None, keep_raw=False)
    for line in first_lines(path):
        begun.feed(line)
        if "cwds" in begun.facts:
            break
    return begun.is_copy()


def parent_of(record: Record) -> str | None:
    """Return the id of the record before `record`, which a compaction names only in ``logicalParentUuid``."""
    parent = record.get("parentUuid") or record.get("logicalParentUuid")
    return intern(parent) if isinstance(parent, str) else None
