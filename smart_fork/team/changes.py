"""A server is asked what was withdrawn, before anything is done with it: at most every ten minutes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from indexer import state
from indexer.transcripts.model import AgentName
from smart_fork import foreign_sessions
from smart_fork.agents.readers import READERS
from smart_fork.errors import NotAuthenticated, ServerUnavailable, SmartForkError
from smart_fork.sharing import pulled
from smart_fork.sharing.withdrawal import settle
from smart_fork.team import client, login, wire
from smart_fork.team.client import Client
from smart_fork.team.download import download
from smart_fork.team.project import Project
from smart_fork.team.project import opened as project_opened

if TYPE_CHECKING:
    from smart_fork.sharing.withdrawal import Taken

#: A server is asked once in so long.
EVERY = timedelta(minutes=10)


_PAGES = 1_000


@contextmanager
def opened(
    server: str | None = None, project: str | None = None, *, directory: Path | None = None, ask: bool = False
) -> Iterator[Project]:
    """A project and its server, after what was withdrawn has been taken over, if it is time to ask for that."""
    with project_opened(server, project, directory=directory, ask=ask) as one:
        if one.away is None:
            take_over(one.client)
        else:
            settle()
        yield one


def take_over(client: Client, *, at_once: bool = False, remove: bool = False) -> Taken:
    """Take out of this machine's copies what was withdrawn since; with `remove` the copies themselves."""
    learn(client, at_once=at_once)
    return settle(remove=remove)


def learn(client: Client, *, at_once: bool = False) -> None:
    """Write down what was withdrawn since, if it is time to ask for that; nothing is taken out yet."""
    moment = datetime.now(UTC)
    name = f"changes of {client.account.origin}"
    asked = state.fact(name)
    if asked and not at_once and timedelta() <= moment - datetime.fromisoformat(asked["at"]) < EVERY:
        return
    found, since = _new(client, asked["since"] if asked else None)
    owing = [(one, edits) for one in pulled.all_written() if (edits := _of(one, client, found))]
    records = _replacing(client, found, {new for _, edits in owing for new in edits.values() if new is not None})
    for one, edits in owing:
        known = {old: records.get(new) if new is not None else None for old, new in edits.items()}
        one.owe(known)
    state.keep(name, {"since": since, "at": moment.isoformat()})


def take_over_of(path: Path, agent: AgentName) -> None:
    """The same before a log of this machine is forked, if it was written from a server, which may be away: then it
    is waited for no longer than a moment.

    Raises:
        Conflict: something of it was withdrawn that is still in it.
    """
    known = pulled.find(path, agent)
    if known is None:
        return
    if known.server:
        with suppress(NotAuthenticated, ServerUnavailable):
            client.within(login.account(known.server), learn, "ask for withdrawals")
    settle()
    foreign_sessions.refuse_owing(READERS[agent].id_of(path))


def _new(client: Client, since: str | None) -> tuple[list[wire.Change], str | None]:
    """Return the withdrawals since then."""
    found: list[wire.Change] = []
    for _ in range(_PAGES):
        page = client.changes(since)
        since = page.next_page
        if not page.changes:
            break
        found += page.changes
    return found, since


def _of(one: pulled.Written, client: Client, found: Sequence[wire.Change]) -> dict[str, str | None]:
    """Return all withdrawals that concern a log, combined: by digest, the digest of the replacement, or None."""
    if one.server != client.account.origin:
        return {}
    ends: dict[str, str | None] = {}
    for change in found:
        if not one.sessions or change.session_id in one.sessions:
            step = {edit.old: edit.new for edit in change.edits}
            ends = {old: step.get(new, new) if new is not None else None for old, new in ends.items()} | step
    return ends if not one.is_owed.isdisjoint(ends) else {}


def _replacing(client: Client, found: Sequence[wire.Change], wanted: Collection[str]) -> dict[str, bytes]:
    """The records that take the place of others.

    One that cannot be had, since its session is no longer to be read, is taken out instead.
    """
    records: dict[str, bytes] = {}
    for project, session_id in {(change.project, change.session_id): None for change in reversed(found)}:
        if all(digest in records for digest in wanted):
            break
        with suppress(SmartForkError):
            taken = download(client, client.session(project, session_id)).records
            records |= {digest: one for one in taken if (digest := sha256(one).hexdigest()) in wanted}
    return records
