"""Cuts (removals of turns) from logs with one record on each line, which states its own id and its parent's."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from indexer.safe_files import open_regular
from indexer.transcripts.model import GivenBack, Item, Role
from smart_fork.agents.decoders import Codec, Record
from smart_fork.agents.excision import cutter
from smart_fork.agents.excision.cutter import Cutter, Edits, RawLine
from smart_fork.agents.excision.transcript import Transcript, TranscriptTurn

NOTHING: Mapping[str, Any] = {}
COMPACTS: Mapping[str, Any] = {"compacts": True}
#: A file name that is its session's id.
_SESSION_ID = re.compile(r"[A-Za-z0-9-]{8,}")
#: A name from a log that cannot lead out of a folder.
PLAIN = re.compile(r"[A-Za-z0-9_-]{1,128}")


def files_below(folder: Path) -> list[Path]:
    """Return all files below a folder; none below a link, which may lead out of the agent's folder."""
    return [] if folder.is_symlink() else [one for one in sorted(folder.rglob("*")) if one.is_file()]


class RecordFacts(NamedTuple):
    """Facts about a record that a cut (removal of turns) needs, besides its text, tool calls and results.

    `note` is the preview of a bookkeeping line. `says` and `repeats` are names of content, as in `TranscriptTurn`.
    `meta` has other marks.
    """

    note: str = ""
    meta: Mapping[str, Any] = NOTHING
    says: tuple[str, ...] = ()
    repeats: tuple[str, ...] = ()


class SeenLine(NamedTuple):
    """The turn on a line, the id of the line's session, and its texts, by which lines that repeat others are found.

    `said` is the line's text; `None` if no line may repeat it. `repeats` is the text that it repeats from another line.
    """

    turn: TranscriptTurn
    session_id: str
    said: str | None
    repeats: str


class TreeCutter(Cutter):
    """Loads logs, so that turns can be removed, for agents whose records each name the record before."""

    codec: ClassVar[Codec]
    #: The field with the id of a record, and those with the ids of others: a cut links these again.
    identity: ClassVar[str] = "uuid"
    links: ClassVar[tuple[str, ...]] = ("parentUuid",)
    #: The roles of records by their types.
    roles: ClassVar[Mapping[str, Role]] = {}

    def load(self, path: Path, composer: str = "") -> Transcript:
        """Load the log at `path` with a new cutter, so that facts noted about one log are not used for another."""
        turns, heads, copies, first_id = list[TranscriptTurn](), dict[str, str](), dict[str, str](), ""
        see = type(self)(self.of).seen
        file, stamp = cutter.opened(path)
        with file:
            for line in cutter.raw_lines(file, path):
                turn, session_id, said, repeats = see(line)
                first_id = first_id or session_id
                turns.append(turn)
                if said is not None:
                    heads[turn.id] = cutter.head(said)
                elif repeats:
                    copies[turn.id] = cutter.head(repeats)
        session_id = path.stem if _SESSION_ID.fullmatch(path.stem) else first_id or path.stem
        return Transcript(self.tool, path, session_id, cutter.with_sources(turns, heads, copies), stamp=stamp)

    def others(self, path: Path) -> list[Path]:
        """Return logs of the same session in other folders."""
        return [*self.of.reader.twins(path)]

    def detect(self, path: Path) -> bool:
        """Return True if the first record in the file is one with which a log of this agent may begin."""
        return path.suffix.lower() == ".jsonl" and self.begins(cutter.first_record(path))

    def relinked(self, turns: Sequence[TranscriptTurn], gone: Collection[str]) -> Edits:
        """Return new bytes for kept lines that name a removed record: they name the nearest kept record before it.

        Otherwise an agent that follows the parents from the last record would lose everything before the removed one.
        """
        tree, edits = _Tree(turns, gone), {}
        for position, turn in enumerate(turns):
            if turn.id not in gone and any(name in tree.cut for name in turn.links):
                link = partial(_link, tree=tree, position=position, links=self.links)
                edits[position] = cutter.rewritten(turn.raw, link)
        return edits

    def holds(self, path: Path, keys: Collection[str]) -> bool:
        """Return True if a record has one of the ids `keys`. For speed, bytes are searched without decoding JSON."""
        named = re.compile(rb'"%b"\s*:\s*"([^"\\]{1,200})"' % self.identity.encode())
        with suppress(OSError), open_regular(path) as file:
            found = (one[1] for piece in cutter.overlapping(cutter.pieces(file.read)) for one in named.finditer(piece))
            return any(one.decode("utf-8", "replace") in keys for one in found)
        return False

    @abstractmethod
    def begins(self, record: Record) -> bool:
        """Return True if a log of this agent may begin with this record."""

    def role(self, record: Record, said: str, results: Sequence[GivenBack]) -> Role:
        """Return the role of a record: "user", "assistant", "tool" or "system"."""
        return self.roles.get(str(record.get("type")), "system")

    @abstractmethod
    def is_typed(self, record: Record) -> bool:
        """Return True if a person typed the text of a user's record, so that it is a prompt."""

    def said(self, record: Record, item: Item) -> str:
        """Return a record's text. `item` is the decoded record."""
        return item.text

    def about(self, record: Record) -> RecordFacts:
        """Return further facts about a record that a cut needs."""
        return RecordFacts()

    def copied(self, record: Record) -> str:
        """Return the text of another record that a bookkeeping record repeats; empty for other records."""
        return ""

    def may_be_copied(self, turn: TranscriptTurn) -> bool:
        """Return True if a bookkeeping record may repeat the text of this turn."""
        return turn.prompt or turn.role == "assistant"

    def session_id(self, line: RawLine) -> str:
        """Return the id of the session that a line names; empty without one."""
        return next((str(one["sessionId"]) for one in line.objects if one.get("sessionId")), "")

    def seen(self, line: RawLine) -> SeenLine:
        """Return the turn on a line, with its session's id and the texts by which lines that repeat it are found."""
        objects = line.objects or ({},)
        at = next((at for at, record in enumerate(objects) if record.get(self.identity)), 0)
        items = [self.codec.decode(record) for record in objects]
        record, said = objects[at], self.said(objects[at], items[at])
        turn = self.turn(line, record, said, items)
        session_id = self.session_id(line)
        if self.may_be_copied(turn):
            return SeenLine(turn, session_id, said, "")
        return SeenLine(turn, session_id, None, self.copied(record))

    def turn(self, line: RawLine, record: Record, said: str, items: Sequence[Item]) -> TranscriptTurn:
        results = tuple(result for item in items for result in item.results)
        identity = record[self.identity] if isinstance(record.get(self.identity), str) else ""
        role = self.role(record, said, results)
        prompt = role == "user" and not results and bool(said.strip()) and self.is_typed(record)
        ids = (one.get(self.identity) for one in line.objects if one is not record)
        named = [one[name] for one in line.objects for name in self.links if isinstance(one.get(name), str)]
        return cutter.turn_of(
            identity or f"line-{line.number}",
            role,
            said,
            Item(calls=tuple(call for item in items for call in item.calls), results=results),
            prompt=prompt,
            counts=role != "system",
            parent_id=next((record[name] for name in self.links if isinstance(record.get(name), str)), None),
            links=tuple(named),
            timestamp=str(record.get("timestamp") or ""),
            kept=line.place,
            aliases=tuple(one for one in ids if isinstance(one, str)),
            key=identity,
            **self.about(record)._asdict(),
        )


class _Tree:
    """The parents of all turns, and the parts of each answer: its calls and their results.

    Parallel calls branch the tree, and an agent that follows the parents finds one branch only. If a cut removes that
    branch, the next record gets a kept part of the answer on another branch as its parent, so that this is still found.
    """

    def __init__(self, turns: Sequence[TranscriptTurn], gone: Collection[str]) -> None:
        self.turns = turns
        self.parents = {name: turn.parent_id for turn in turns for name in (turn.id, *turn.aliases)}
        self.cut = {name for turn in turns if turn.id in gone for name in (turn.id, *turn.aliases)}
        self._answers: dict[str, str] = {}
        self._left: defaultdict[str, list[int]] = defaultdict(list)
        if self.cut:
            self._find_answers(gone)

    def _find_answers(self, gone: Collection[str]) -> None:
        parts = {turn.id: key for turn in self.turns for key in turn.says if key.startswith("part:")}
        of_call = {call.id: parts[turn.id] for turn in self.turns if turn.id in parts for call in turn.tool_calls}
        for position, turn in enumerate(self.turns):
            named = (of_call.get(result.tool_use_id) for result in turn.tool_results)
            answer = parts.get(turn.id) or next(filter(None, named), None)
            if answer is None:
                continue
            if turn.id in gone:
                self._answers[turn.id] = answer
            else:
                self._left[answer].append(position)

    def nearest(self, name: str, position: int) -> str | None:
        """Return the id of the nearest kept record before `name`, if any, as new parent of the turn at `position`."""
        seen: set[str] = set()
        current: str | None = name
        while current is not None and current in self.cut and current not in seen:
            seen.add(current)
            for mate in reversed(self._left.get(self._answers.get(current, ""), ())):
                if mate < position and not self._leads(mate, position):
                    return self.turns[mate].id
            current = self.parents[current]
        return None if current in seen else current

    def _leads(self, start: int, end: int) -> bool:
        """Return True if the parents of the turn at `start` lead to the turn at `end`."""
        current: str | None = self.turns[start].id
        seen: set[str] = set()
        while current is not None and current not in seen:
            if current == self.turns[end].id:
                return True
            seen.add(current)
            current = self.parents.get(current)
        return False


def _link(record: dict[str, Any], *, tree: _Tree, position: int, links: Sequence[str]) -> bool:
    changed = False
    for field in links:
        name = record.get(field)
        if isinstance(name, str) and name in tree.cut:
            record[field] = tree.nearest(name, position)
            changed = True
    return changed
