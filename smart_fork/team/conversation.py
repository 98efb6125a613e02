"""Shared sessions to list and to read, as those of this machine are answered."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from indexer.transcripts.model import AgentName, Session
from smart_fork import sessions
from smart_fork.agents import READERS
from smart_fork.conversation import Conversation
from smart_fork.errors import NotAuthenticated, NotFound, SmartForkError, Usage
from smart_fork.retrieval.answer import SharedSession, SharedSessions
from smart_fork.retrieval.elsewhere import written_by
from smart_fork.retrieval.results import UNTRUSTED, title
from smart_fork.sessions import Reading
from smart_fork.sharing import wire
from smart_fork.team import away
from smart_fork.team.client import Client
from smart_fork.team.download import download
from smart_fork.team.materialise import arrived
from smart_fork.team.project import Project, opened
from smart_fork.text.snippets import printable


@dataclass(frozen=True, slots=True)
class SharedReading:
    """A shared session as the server has it now, and whose it is."""

    session: Session
    owner: str
    title: str


def listed(directory: Path, agents: Collection[AgentName], limit: int) -> SharedSessions:
    """The newest sessions that are shared of a directory's project; or why none can be told, without waiting long."""

    def ask(client: Client) -> tuple[wire.SessionInfo, ...]:
        return client.page(where.key, limit=str(max(1, min(limit, wire.PAGE)))).sessions

    try:
        with opened(directory=directory) as where:
            found = away.within(where.client.account, ask, "list what the team shares")
            here = {one.session_id: one.file for one in where.tracking.read().aliases.values() if one.session_id}
    except SmartForkError as error:
        return SharedSessions(error=error.message)
    return SharedSessions(tuple(_listed(one, here.get(one.id)) for one in found if one.agent in agents))


def read(reference: str, missing: SmartForkError, directory: Path, reading: Reading) -> Conversation:
    """A shared session to read, after an alias. Its messages are numbered as those of the copy that a fork is made of.

    Raises:
        SmartForkError: it is `missing` on this machine, and the team has none; or it cannot be had.
    """
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


def _read(where: Project, reference: str, reading: Reading) -> Conversation:
    info, session = _there(where, reference)
    return sessions.told(
        session, reading, notice=written_by([info.owner], UNTRUSTED), resolved="team", owner=info.owner,
        called=info.title,
    )  # fmt: skip


def _there(where: Project, reference: str) -> tuple[wire.SessionInfo, Session]:
    """What the server says of a session, and the session."""
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
