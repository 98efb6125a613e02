"""Finds a session's parent, for agents whose forks copy the parent's records and ids."""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from indexer.transcripts.base import LogFile
from indexer.transcripts.chain import Chain
from indexer.transcripts.lines import LineReader
from indexer.transcripts.model import Session, Turn
from indexer.transcripts.state import utc
from indexer.transcripts.tree import parent_of
from indexer.unchecked import dict_in, text_in
from smart_fork.agents.ancestry import HEAD_RECORDS, Copied, Heads, Kin, connected
from smart_fork.agents.distilled import is_aside


class TreeHeads(Heads):
    """Reads the beginnings of logs whose records name their parents."""

    #: The types of records that are messages.
    said: tuple[str, ...] = ("user", "assistant")

    @abstractmethod
    def is_native(self, record: dict[str, Any]) -> bool:
        """Return whether a record before the first message shows that the agent itself began the file."""

    @abstractmethod
    def names_a_copy(self, record: dict[str, Any]) -> bool:
        """Return whether a record names a copy, and is as old as the copy."""

    @abstractmethod
    def folder(self, directory: str) -> str:
        """Return the name of a directory's project folder."""

    def project(self, log: Path) -> Path:
        """Return the project folder of a log."""
        return log.parent

    def family(self, session_id: str, root: str, forks: Mapping[str, str]) -> list[Kin]:
        """Look into the project's folder and those of the family's other sessions; without a `root` into all."""
        in_folder: dict[Path, list[LogFile]] = defaultdict(list)
        folders_of: dict[str, set[Path]] = defaultdict(set)
        for file in self.reader.discover():
            in_folder[self.project(file.path)].append(file)
            folders_of[file.path.stem].add(self.project(file.path))
        here = self.folder(root) if root else ""
        looked_at: set[Path] = set()
        heads: list[Kin] = []
        family: list[Kin] = []  # where all logs of the project are gone
        folders = {folder for folder in in_folder if not here or f"{folder.name}-".startswith(f"{here}-")}
        folders |= folders_of[session_id]
        while folders:
            heads += self.kin(file for folder in folders for file in in_folder[folder])
            looked_at |= folders
            family = connected(session_id, heads, forks)
            known = {kin.session_id for kin in family} | {kin.recorded for kin in family}
            known |= {one for pair in forks.items() if known & set(pair) for one in pair}
            folders = {folder for one in known for folder in folders_of.get(one, ())} - looked_at
        self.read_all(family)
        return family

    def shared(self, kin: Kin, parent: Kin, above: Session, fork: Callable[[], Session | None]) -> int:
        shared = set(_left_after(kin, parent))
        known = [i for i, turn in enumerate(above.turns) if turn.id in shared]
        return known[-1] + 1 if known else 0

    def begins(self, kin: Kin) -> bool:
        """See `Heads.begins`."""
        messages = _Messages(self.said)
        for line in islice(LineReader(kin.path), HEAD_RECORDS):
            if not messages:
                kin.begun = max(kin.begun, _time(line.record))
                kin.native = kin.native or self.is_native(line.record)
            messages.add(line.record)
            if messages.begin:
                break
        kin.first = next(iter(messages), None)
        kin.recorded = kin.first.session_id if kin.first else ""
        return kin.first is not None

    def messages(self, kin: Kin) -> Iterable[Copied]:
        """See `Heads.messages`. A copy's time comes from its own note, since its first records are as old as its
        parent's.
        """
        made = ""
        messages = _Messages(self.said)
        for line in LineReader(kin.path):
            message = messages.add(line.record)
            own = self.names_a_copy(line.record) if message is None else not message.session_id
            if own and not made:
                made = utc(line.record.get("timestamp"))
        if kin.recorded:
            kin.begun = made or utc(kin.mtime_ns / 1e9)
        return messages


def _left_after(kin: Kin, parent: Kin) -> list[str]:
    """Return the ids of the messages that `kin` has from `parent`, in order."""
    there = {message.id for message in parent.messages}
    found = []
    for message in kin.messages:
        if message.id in there:
            found.append(message.id)
        elif message.message_id in there:
            found.append(message.message_id)
        else:
            break
    return found


class _Messages:
    """A log's messages in the indexer's order, which can differ from the file's."""

    def __init__(self, said: Collection[str]) -> None:
        self._said = said
        self._chain = Chain()
        self._copied: dict[str, Copied] = {}

    def add(self, record: dict[str, Any]) -> Copied | None:
        """Add the next record of the file; return it if it is a message."""
        identity = record.get("uuid")
        if not isinstance(identity, str) or not identity or record.get("isSidechain") is True:
            return None
        if record.get("type") not in self._said or is_aside(record):
            self._chain.link(identity, parent_of(record))
            return None
        message = self._copied.setdefault(identity, _copied(identity, record.get("forkedFrom")))
        self._chain.add(Turn(identity, parent_of(record), "user", ""))
        return message

    @property
    def begin(self) -> bool:
        """Return whether the first message is known."""
        return self._chain.beginning() is not None

    def __len__(self) -> int:
        return len(self._copied)

    def __iter__(self) -> Iterator[Copied]:
        return (self._copied[turn.id] for turn in self._chain.in_order())


def _copied(identity: str, origin: object) -> Copied:
    named = dict_in(origin)
    return Copied(identity, text_in(named.get("sessionId")), text_in(named.get("messageUuid")))


def _time(record: dict[str, Any]) -> str:
    """Return a record's time; for a snapshot before a prompt, the snapshot's."""
    snapshot = record.get("snapshot")
    return utc(record.get("timestamp")) or (utc(snapshot.get("timestamp")) if isinstance(snapshot, dict) else "")
