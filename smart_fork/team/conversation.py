"""Shared sessions to list and to read, and the family of one, as those of this machine are answered."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from indexer.masking import mask
from indexer.transcripts.model import AgentName, Role, Session, Turn
from indexer.values import Value
from smart_fork.agents.readers import READERS
from smart_fork.errors import NotAuthenticated, NotFound, SmartForkError, Usage
from smart_fork.finding import sessions
from smart_fork.finding.answer import SharedReading, SharedSession, SharedSessions
from smart_fork.finding.remote_search import written_by
from smart_fork.finding.results import UNTRUSTED, title
from smart_fork.finding.session_view import Conversation
from smart_fork.finding.sessions import ReadRange
from smart_fork.sharing.local_logs import arrived
from smart_fork.sharing.tracking import Alias
from smart_fork.snippets import printable
from smart_fork.team import client, wire
from smart_fork.team.client import Client
from smart_fork.team.download import Download, download
from smart_fork.team.login import is_known
from smart_fork.team.project import TeamProject, opened
from smart_fork.team.wire import SessionInfo


def listed(directory: Path, agents: Collection[AgentName], limit: int) -> SharedSessions:
    """The newest sessions that are shared of a directory's project; or why none can be told, without waiting long."""

    def ask(client: Client) -> tuple[wire.SessionInfo, ...]:
        return client.page(where.key, limit=str(max(1, min(limit, wire.PAGE)))).sessions

    try:
        with opened(directory=directory) as where:
            found = client.within(where.client.account, ask, "list what the team shares")
            here = {one.session_id: one.file for one in where.tracking.read().aliases.values() if one.session_id}
    except SmartForkError as error:
        return SharedSessions(error=error.message)
    return SharedSessions(tuple(_listed(one, here.get(one.id)) for one in found if one.agent in agents))


def read(reference: str, missing: SmartForkError, directory: Path, reading: ReadRange) -> Conversation:
    """A shared session to read, after an alias. Its messages are numbered as those of the copy that a fork is made of.

    Raises:
        SmartForkError: it is `missing` on this machine, and the team has none; or it cannot be had.
    """
    if not is_known():
        raise missing
    try:
        with opened(directory=directory) as where:
            known = where.tracking.read().named(reference)
            if known is not None and known[1].file is not None:
                session = sessions.look_into(sessions.locate(READERS[known[1].platform].id_of(known[1].file)))
                return sessions.told(session, reading, notice=UNTRUSTED, resolved="alias")
            return _read(where, reference, reading)
    except (NotFound, NotAuthenticated, Usage):
        raise missing from None


def look_into(session_id: str, directory: Path) -> SharedReading:
    """A shared session of a directory's project, to be read by a person. Nothing of it is written here.

    Raises:
        SmartForkError: there is none that may be read, or it cannot be had.
    """
    with opened(directory=directory) as where:
        info, session = _there(where, session_id)
    return SharedReading(session, info.owner, title(info.title or session.title))


def _read(where: TeamProject, reference: str, reading: ReadRange) -> Conversation:
    info, session = _there(where, reference)
    return sessions.told(
        session, reading, notice=written_by([info.owner], UNTRUSTED), resolved="team", owner=info.owner,
        called=info.title,
    )  # fmt: skip


def _there(where: TeamProject, reference: str) -> tuple[wire.SessionInfo, Session]:
    """Return the server's description of a session, and the session."""
    taken = download(where.client, where.found(reference))
    info, mine = taken.info, where.is_mine(taken.info)
    with arrived(taken.records, info.agent, info.id, where.place.root, others=not mine, keep_raw=True) as one:
        return info, one.session


def _listed(info: wire.SessionInfo, file: Path | None) -> SharedSession:
    said = info.meta
    return SharedSession(
        session_id=info.id,
        agent_type=info.agent,
        title=title(info.title),
        owner=info.owner,
        visibility=info.visibility,
        git_branch=printable(said.branch),
        last_activity=said.last_activity.isoformat() if said.last_activity else "",
        turns=said.turns,
        also_local=READERS[info.agent].id_of(file) if file else None,
    )


#: Pages of a family that are read: nobody looks at more.
_PAGES = 10
#: Messages of each that are told where two part.
_TOLD = 3


@dataclass(frozen=True, slots=True)
class Member(Value):
    """One of a family. `session_id` is `None` where it is on this machine alone; `depth` counts from the root."""

    session_id: str | None
    alias: str | None
    title: str
    owner: str
    visibility: str
    agent: str
    parent_id: str | None
    base_count: int
    record_count: int
    depth: int = 0


@dataclass(frozen=True, slots=True)
class TeamMessage(Value):
    """Something that was said, by its number from 1."""

    number: int
    role: Role
    text: str
    timestamp: str


@dataclass(frozen=True, slots=True)
class Side(Value):
    """One of two that are compared, and what it said first where they part."""

    session_id: str
    owner: str
    title: str
    record_count: int
    said: tuple[TeamMessage, ...]


@dataclass(frozen=True, slots=True)
class Divergence(Value):
    """The point where two sessions diverge, after the records and messages that they share."""

    common_records: int
    common_messages: int
    a: Side
    b: Side


@dataclass(frozen=True, slots=True)
class TeamConversation(Value):
    """A shared session to read."""

    session: SessionInfo
    messages: tuple[TeamMessage, ...]

    def as_json(self) -> dict[str, Any]:
        return {"session": self.session.model_dump(mode="json"), "messages": [one.as_json() for one in self.messages]}


def family(project: TeamProject, reference: str | None) -> tuple[Member, ...]:
    """All of a family that may be read or are here, each behind its parent.

    Raises:
        NotFound: there is no such session.
    """
    asked = project.client.session(project.key, project.meant(reference)).session
    there = {one.id: one for one in _all_of(project, asked.root_id)} | {asked.id: asked}
    aliases = project.tracking.ours().aliases
    names = {one.session_id: name for name, one in aliases.items() if one.session_id}
    members = [_member(one, names.get(one.id), session_id=one.id) for _, one in sorted(there.items())]
    user = project.client.account.user
    members += [
        _member(one, name, owner=user, agent=one.platform, record_count=one.base_count)
        for name, one in aliases.items()
        if one.session_id is None and one.root_id == asked.root_id
    ]
    return tuple(_in_order(members))


def divergence(project: TeamProject, a: str | None, b: str | None = None) -> Divergence:
    """Find where two sessions diverge. Without `b`, compare a session with the one it was made of.

    Raises:
        Usage: it was made of none.
        NotFound: there is none.
    """
    one = _downloaded(project, project.meant(a))
    other_id = project.meant(b) if b is not None else one.info.parent_id
    if other_id is None:
        raise Usage("That session has no parent.", "Name a second session to compare.")
    other = _downloaded(project, other_id)
    pairs = zip_longest(one.records, other.records)
    records = next((n for n, (x, y) in enumerate(pairs) if x != y), len(one.records))
    said, others = _messages(project, one), _messages(project, other)
    texts = zip_longest((m.text for m in said), (m.text for m in others))
    messages = next((n for n, (x, y) in enumerate(texts) if x != y), len(said))
    return Divergence(records, messages, _side(one, said[messages:]), _side(other, others[messages:]))


def told(project: TeamProject, reference: str | None, at: int | None = None) -> TeamConversation:
    """A shared session to read, up to message `at`.

    Raises:
        Usage: it has no so many.
        NotFound: there is none.
    """
    one = _downloaded(project, project.meant(reference))
    said = _messages(project, one)
    if at is not None and not 1 <= at <= len(said):
        raise Usage(f"--at takes 1 to {len(said)}: the session has that many messages.")
    return TeamConversation(one.info, said[:at])


def _downloaded(project: TeamProject, session_id: str) -> Download:
    return download(project.client, project.client.session(project.key, session_id))


def _messages(project: TeamProject, one: Download) -> tuple[TeamMessage, ...]:
    info = one.info
    with arrived(one.records, info.agent, info.id, project.place.root, others=False) as read:
        return tuple(_message(number, turn) for number, (_, turn) in enumerate(read.session.messages, 1))


def _message(number: int, turn: Turn) -> TeamMessage:
    return TeamMessage(number, turn.role, printable(mask(turn.text)), turn.timestamp)


def _side(one: Download, said: Sequence[TeamMessage]) -> Side:
    return Side(one.info.id, one.info.owner, one.info.title, one.info.record_count, tuple(said[:_TOLD]))


def _all_of(project: TeamProject, root: str) -> Iterator[SessionInfo]:
    asked: dict[str, str] = {"root": root}
    for _ in range(_PAGES):
        page = project.client.page(project.key, **asked)
        yield from page.sessions
        if page.next_page is None:
            return
        asked["page"] = page.next_page
    raise SmartForkError("This family has more members than the list.")


def _member(one: SessionInfo | Alias, alias: str | None, **more: Any) -> Member:
    same = {name: getattr(one, name) for name in type(one).model_fields if name in Member.__dataclass_fields__}
    return Member(**same | {"alias": alias} | more)


def _in_order(members: Sequence[Member]) -> Iterator[Member]:
    """Each behind its parent, as a tree; one whose parent cannot be read begins a tree."""
    below: dict[str | None, list[Member]] = {}
    ids = {one.session_id for one in members if one.session_id}
    for one in members:
        below.setdefault(one.parent_id if one.parent_id in ids else None, []).append(one)
    waiting = [(one, 0) for one in reversed(below.get(None, []))]
    seen: set[int] = set()
    while waiting:
        one, depth = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield replace(one, depth=depth)
        if one.session_id:
            waiting += [(child, depth + 1) for child in reversed(below.get(one.session_id, []))]
