"""Which sessions are of one family, and whose fork each is: from the first records of logs, and the ids they share.

Codex and the branches that are written say whose copies they are. Claude Code's own forks say nothing, but copy the
records of their parent with their ids: the parent is the session that shares the longest beginning and began first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from indexer.transcripts.base import LogFile
from indexer.transcripts.chain import Chain
from indexer.transcripts.lines import LineReader
from indexer.transcripts.model import Agent, Turn
from indexer.transcripts.state import utc
from smart_fork.agents import AGENTS
from smart_fork.agents.claude.fold import parent_of
from smart_fork.agents.claude.slugs import slug

#: What Claude Code writes at the top of a new file.
_BEGINNING = ("mode", "permission-mode", "queue-operation", "custom-title")
#: The first message of a log is among so many records.
_HEAD_RECORDS = 500


class Copied(NamedTuple):
    """A message's id, and of what session and message it says that it is a copy."""

    id: str
    session_id: str = ""
    message_id: str = ""


@dataclass(slots=True, eq=False)
class Kin:
    """A log. `recorded` is the session that it says it is a fork of, `begun` when it was made, as far as that shows.

    `first` is its first message; `messages` are all of them, none before its parent, read for Claude Code's alone.
    `base` is the number of the parent's first record that a fork of Codex's has no more. `native` says that Claude Code
    itself began the file: what is recorded in it was copied from its parent, together with the rest.
    """

    agent: Agent
    session_id: str
    path: Path
    mtime_ns: int = 0
    first: Copied | None = None
    recorded: str = ""
    begun: str = ""
    base: int | None = None
    native: bool = False
    messages: list[Copied] = field(default_factory=list)


def family_of(agent: Agent, session_id: str, root: str, forks: Mapping[str, str]) -> list[Kin]:
    """The logs of the family of a session of the project at `root`, that session's among them, in no order.

    `forks` are further ones that are known, each with its parent.
    """
    logs = list(AGENTS[agent].discover())
    if agent == "codex":
        return _connected(session_id, [kin for file in logs if (kin := _codex_kin(file))], forks)
    in_folder: dict[Path, list[LogFile]] = defaultdict(list)
    folders_of: dict[str, set[Path]] = defaultdict(set)
    for file in logs:
        in_folder[file.path.parent].append(file)
        folders_of[file.path.stem].add(file.path.parent)
    here = slug(root)
    looked_at: set[Path] = set()
    heads: list[Kin] = []
    folders = {folder for folder in in_folder if folder.name == here or folder.name.startswith(f"{here}-")}
    folders |= folders_of[session_id]
    while folders:
        heads += [kin for folder in folders for file in in_folder[folder] if (kin := _claude_kin(file))]
        looked_at |= folders
        family = _connected(session_id, heads, forks)
        known = {kin.session_id for kin in family} | {kin.recorded for kin in family}
        known |= {one for pair in forks.items() if known & set(pair) for one in pair}
        folders = {folder for one in known for folder in folders_of.get(one, ())} - looked_at
    for kin in family:
        _read_messages(kin)
    return family


def parents(family: Sequence[Kin], forks: Mapping[str, str]) -> dict[str, str]:
    """Whose fork each session is; the first ones of all are not in it. There are no circles in it."""
    found: dict[str, str] = {}
    guess = _Shared(family)
    for kin in sorted(family, key=lambda kin: (kin.begun, kin.session_id)):
        parent = forks.get(kin.session_id) or guess.parent(kin)
        above: str | None = parent
        while above and above != kin.session_id:
            above = found.get(above)
        if parent and above is None:
            found[kin.session_id] = parent
    return found


class _Shared:
    """Which messages the logs have in common; sets of logs are bits of a number, since there may be hundreds."""

    def __init__(self, family: Sequence[Kin]) -> None:
        self._family = sorted(family, key=lambda kin: (kin.begun, kin.session_id))
        self._has: dict[str, int] = defaultdict(int)
        for place, kin in enumerate(self._family):
            for message in kin.messages:
                self._has[message.id] |= 1 << place

    def parent(self, kin: Kin) -> str:
        """The one that began earlier and shares most; of several the one that is recorded, or records the same."""
        earlier = (1 << self._family.index(kin)) - 1
        alive, shared = self._alive(kin, earlier)
        said = sum(1 for _ in _while_copied(kin.messages, kin.recorded)) if kin.recorded else 0
        candidates = [one for place, one in enumerate(self._family) if shared and alive >> place & 1]
        if kin.native and kin.recorded:
            candidates = [one for one in candidates if one.recorded == kin.recorded] or candidates
        elif shared <= said:  # also where that one is gone
            return kin.recorded
        best = max(
            candidates, key=lambda one: (one.session_id == kin.recorded, one.recorded == kin.recorded), default=None
        )
        return best.session_id if best else kin.recorded

    def _alive(self, kin: Kin, alive: int) -> tuple[int, int]:
        """Those of `alive` that share the longest beginning with `kin`, and how long it is."""
        shared = 0
        for message in kin.messages:
            left = alive & (self._has.get(message.id, 0) | self._has.get(message.message_id, 0))
            if not left:
                break
            alive, shared = left, shared + 1
        return alive, shared


def left_after(kin: Kin, parent: Kin) -> list[str]:
    """The ids of the messages that `kin` has from `parent`, in order."""
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


def _while_copied(messages: Iterable[Copied], session_id: str) -> Iterator[Copied]:
    for message in messages:
        if message.session_id != session_id:
            return
        yield message


def _connected(session_id: str, heads: Iterable[Kin], forks: Mapping[str, str]) -> list[Kin]:
    """Those that can be reached from a session by a first message that they share, or by whose fork they are."""
    sessions: dict[str, list[Kin]] = defaultdict(list)
    ties: dict[str, set[str]] = defaultdict(set)
    for kin in heads:
        sessions[kin.session_id].append(kin)
        firsts = (f"message {one}" for one in (kin.first.id, kin.first.message_id) if one) if kin.first else ()
        for other in filter(None, (*firsts, kin.recorded, forks.get(kin.session_id))):
            ties[kin.session_id].add(other)
            ties[other].add(kin.session_id)
    reached, waiting = {session_id}, [session_id]
    while waiting:
        new = ties[waiting.pop()] - reached
        reached |= new
        waiting += new
    return [kin for one in reached for kin in sessions.get(one, ())]


def _codex_kin(file: LogFile) -> Kin | None:
    kin = Kin("codex", AGENTS["codex"].id_of(file.path), file.path, file.mtime_ns)
    try:
        metas = [_meta(line.record) for line in islice(LineReader(file.path), 2)]
    except OSError:
        return None
    first = metas[0] if metas else None
    if first is None:
        return kin
    kin.begun = utc(first.get("timestamp"))
    base = first.get("history_base")
    second = metas[1].get("id") if metas[1:] and metas[1] else None
    if isinstance(base, dict) and isinstance(base.get("thread_id"), str):
        kin.recorded = base["thread_id"]
        kin.base = end if type(end := base.get("end_ordinal_exclusive")) is int else None
    elif recorded := first.get("forked_from_id") or second:  # old versions' forks have their parent's header second
        kin.recorded = recorded if isinstance(recorded, str) and recorded != kin.session_id else ""
    return kin


def _meta(record: dict[str, Any]) -> dict[str, Any] | None:
    payload = record.get("payload")
    if record.get("type") == "session_meta" and isinstance(payload, dict):
        return payload
    return record if "type" not in record and "id" in record else None


def _claude_kin(file: LogFile) -> Kin | None:
    kin = Kin("claude", file.path.stem, file.path, file.mtime_ns)
    messages = _Messages()
    try:
        for line in islice(LineReader(file.path), _HEAD_RECORDS):
            if not messages:
                kin.begun = max(kin.begun, _time(line.record))
                kin.native = kin.native or line.record.get("type") in _BEGINNING
            messages.add(line.record)
            if messages.begin:
                break
    except OSError:
        return None
    kin.first = next(iter(messages), None)
    kin.recorded = kin.first.session_id if kin.first else ""
    return kin if kin.first else None


def _read_messages(kin: Kin) -> None:
    """All its messages; and when a copy that says so was made: its first records are as old as its parent's."""
    made = ""
    messages = _Messages()
    try:
        for line in LineReader(kin.path):
            message = messages.add(line.record)
            own = line.record.get("type") == "custom-title" if message is None else not message.session_id
            if own and not made:
                made = utc(line.record.get("timestamp"))
    except OSError:
        return
    kin.messages += messages
    if kin.recorded:
        kin.begun = made or utc(kin.mtime_ns / 1e9)


class _Messages:
    """The messages of one of Claude Code's logs in the order of the indexer, which is not always that of the file."""

    def __init__(self) -> None:
        self._chain = Chain()
        self._copied: dict[str, Copied] = {}

    def add(self, record: dict[str, Any]) -> Copied | None:
        """The next record of the file, as a message if it is one."""
        identity = record.get("uuid")
        if not isinstance(identity, str) or not identity or record.get("isSidechain") is True:
            return None
        if record.get("type") not in ("user", "assistant"):
            self._chain.link(identity, parent_of(record))
            return None
        message = self._copied.setdefault(identity, _copied(identity, record.get("forkedFrom")))
        self._chain.add(Turn(identity, parent_of(record), "user", ""))
        return message

    @property
    def begin(self) -> bool:
        """Whether the first of them all is known by now."""
        return self._chain.beginning() is not None

    def __len__(self) -> int:
        return len(self._copied)

    def __iter__(self) -> Iterator[Copied]:
        return (self._copied[turn.id] for turn in self._chain.in_order())


def _copied(identity: str, origin: object) -> Copied:
    if not isinstance(origin, dict):
        return Copied(identity)
    session_id, message_id = origin.get("sessionId"), origin.get("messageUuid")
    return Copied(
        identity,
        session_id if isinstance(session_id, str) else "",
        message_id if isinstance(message_id, str) else "",
    )


def _time(record: dict[str, Any]) -> str:
    """When a record was written; of what was tracked before a prompt, when that was."""
    snapshot = record.get("snapshot")
    return utc(record.get("timestamp")) or (utc(snapshot.get("timestamp")) if isinstance(snapshot, dict) else "")
