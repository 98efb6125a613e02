"""Read shared sessions: lists, messages, families (sessions with their forks), and differences."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from indexer.json_values import Value
from indexer.masking import mask
from indexer.transcripts.model import AgentName, Role, Session
from smart_fork.agents.log_readers import READERS
from smart_fork.display_text import printable
from smart_fork.errors import NotAuthenticated, NotFound, SmartForkError, Usage
from smart_fork.finding import session_lookup
from smart_fork.finding.answer import SharedReading, SharedSession, SharedSessions
from smart_fork.finding.conversation import Conversation, ReadRange
from smart_fork.finding.results import UNTRUSTED, title, written_by
from smart_fork.sharing.local_logs import read_received
from smart_fork.sharing.tracking import Alias
from smart_fork.team import client, wire
from smart_fork.team.client import Client
from smart_fork.team.download import Download, download
from smart_fork.team.project import TeamProject, opened
from smart_fork.team.stored_logins import has_login
from smart_fork.team.wire import SessionInfo


def listed(directory: Path, agents: Collection[AgentName], limit: int) -> SharedSessions:
    """Return the newest shared sessions of the project at `directory`, or an error after at most 1.5 seconds."""

    def ask(client: Client) -> tuple[wire.SessionInfo, ...]:
        return client.page(where.key, limit=str(max(1, min(limit, wire.MAX_PAGE)))).sessions

    try:
        with opened(directory=directory) as where:
            found = client.ask_briefly(where.client.account, ask, "list what the team shares")
            here = {one.session_id: one.file for one in where.tracking.read().aliases.values() if one.session_id}
    except SmartForkError as error:
        return SharedSessions(error=error.message)
    return SharedSessions(tuple(_listed(one, here.get(one.id)) for one in found if one.agent in agents))


def read(reference: str, missing: SmartForkError, directory: Path, reading: ReadRange) -> Conversation:
    """Return the messages of a shared session that `reading` selects, numbered as in a local copy of the session.

    `reference` is an alias, an id, or the beginning of an id. If the team does not have it, raise the error `missing`.
    """
    if not has_login():
        raise missing
    try:
        with opened(directory=directory) as where:
            known = where.tracking.read().named(reference)
            if known is not None and known[1].file is not None:
                session = session_lookup.look_into(
                    session_lookup.locate(READERS[known[1].platform].id_of(known[1].file))
                )
                return reading.conversation(session, notice=UNTRUSTED, resolved="alias")
            info, session = _read_shared(where, reference)
            return reading.conversation(
                session, notice=written_by([info.owner], UNTRUSTED), resolved="team", owner=info.owner,
                called=info.title,
            )  # fmt: skip
    except (NotFound, NotAuthenticated, Usage):
        raise missing from None


def look_into(session_id: str, directory: Path) -> SharedReading:
    """Return the content of a shared session without writing a copy to this machine."""
    with opened(directory=directory) as where:
        info, session = _read_shared(where, session_id)
    return SharedReading(session, info.owner, title(info.title or session.title))


def _read_shared(where: TeamProject, reference: str) -> tuple[wire.SessionInfo, Session]:
    taken = download(where.client, where.find_session(reference))
    info, mine = taken.info, where.is_mine(taken.info)
    with read_received(taken.records, info.agent, info.id, where.place.root, others=not mine, keep_raw=True) as one:
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


#: The most pages of a family's sessions that are read.
_MAX_PAGES = 10
#: The most messages that are shown of each session after two diverge.
_MAX_SHOWN_MESSAGES = 3


@dataclass(frozen=True, slots=True)
class Member(Value):
    """A session of a family (a session with all its branches and forks).

    `session_id` is `None` if it is only on this machine. `depth` is its generation: 0 for the first ancestor.
    """

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
    """A message of a shared session, numbered from 1."""

    number: int
    role: Role
    text: str
    timestamp: str


@dataclass(frozen=True, slots=True)
class Side(Value):
    """One of two compared sessions. `said` are its first messages after the common ones."""

    session_id: str
    owner: str
    title: str
    record_count: int
    said: tuple[TeamMessage, ...]


@dataclass(frozen=True, slots=True)
class Divergence(Value):
    """The point at which two sessions begin to differ: the numbers of common records and messages, and what follows."""

    common_records: int
    common_messages: int
    a: Side
    b: Side


@dataclass(frozen=True, slots=True)
class TeamConversation(Value):
    """A shared session with its messages, or with the first ones."""

    session: SessionInfo
    messages: tuple[TeamMessage, ...]

    def as_json(self) -> dict[str, Any]:
        return {"session": self.session.model_dump(mode="json"), "messages": [one.as_json() for one in self.messages]}


def family(project: TeamProject, reference: str | None) -> tuple[Member, ...]:
    """Return all sessions with the same first ancestor as the session `reference`, each after its parent.

    They are sessions that the user may read on the server, or has here.
    """
    asked = project.client.session(project.key, project.session_id_of(reference)).session
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
    """Find the first record and message in which two sessions differ. Without `b`, compare with the parent."""
    one = _downloaded(project, project.session_id_of(a))
    other_id = project.session_id_of(b) if b is not None else one.info.parent_id
    if other_id is None:
        raise Usage("That session has no parent.", "Name a second session to compare.")
    other = _downloaded(project, other_id)
    pairs = zip_longest(one.records, other.records)
    records = next((n for n, (x, y) in enumerate(pairs) if x != y), len(one.records))
    said, others = _messages(project, one), _messages(project, other)
    texts = zip_longest((m.text for m in said), (m.text for m in others))
    messages = next((n for n, (x, y) in enumerate(texts) if x != y), len(said))
    return Divergence(records, messages, _side(one, said[messages:]), _side(other, others[messages:]))


def messages_of(project: TeamProject, reference: str | None, at: int | None = None) -> TeamConversation:
    """Return a shared session with its first `at` messages, or with all messages."""
    one = _downloaded(project, project.session_id_of(reference))
    said = _messages(project, one)
    if at is not None and not 1 <= at <= len(said):
        raise Usage(f"--at takes 1 to {len(said)}: the session has that many messages.")
    return TeamConversation(one.info, said[:at])


def _downloaded(project: TeamProject, session_id: str) -> Download:
    return download(project.client, project.client.session(project.key, session_id))


def _messages(project: TeamProject, one: Download) -> tuple[TeamMessage, ...]:
    info = one.info
    with read_received(one.records, info.agent, info.id, project.place.root, others=False) as read:
        return tuple(
            TeamMessage(number, turn.role, printable(mask(turn.text)), turn.timestamp)
            for number, (_, turn) in enumerate(read.session.messages, 1)
        )


def _side(one: Download, said: Sequence[TeamMessage]) -> Side:
    return Side(one.info.id, one.info.owner, one.info.title, one.info.record_count, tuple(said[:_MAX_SHOWN_MESSAGES]))


def _all_of(project: TeamProject, root: str) -> Iterator[SessionInfo]:
    asked: dict[str, str] = {"root": root}
    for _ in range(_MAX_PAGES):
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
    """Yield each session of a family after its parent, with its generation as `depth`.

    A session gets depth 0 if the user may not read its parent.
    """
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
