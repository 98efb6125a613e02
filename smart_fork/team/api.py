"""The team as the rest of smart-fork uses it: see `smart_fork.finding.team_search.Team`."""

from __future__ import annotations

from pydantic import TypeAdapter, ValidationError

from indexer.values import Value, value
from smart_fork.errors import NotFound, ServerUnavailable, Usage, WrongVerb
from smart_fork.finding.team_search import ServerState
from smart_fork.team import client, login
from smart_fork.team.client import Client
from smart_fork.team.conversation import listed, look_into, read
from smart_fork.team.search import TeamSearch, fetched, is_shared
from smart_fork.team.wire import Administer

#: What to do about them.
JOBS_HINT = "smart-fork team jobs shows the reasons. smart-fork team jobs --retry tries again."


@value
class FailedJob(Value):
    """Work that waits for somebody who has read its error."""

    kind: str
    project: str | None
    session_id: str | None
    attempts: int
    error: str


_JOBS = TypeAdapter(tuple[FailedJob, ...])


def failed_jobs(client: Client) -> tuple[FailedJob, ...] | None:
    """Those of a server; `None` where they are not told to whoever asks.

    Raises:
        SmartForkError: it does not answer, or not as one does.
    """
    try:
        told = client.administer(Administer(verb="jobs"))
    except (WrongVerb, NotFound, Usage):
        return None
    try:
        return _JOBS.validate_python(told.get("jobs"))
    except ValidationError:
        return None


def server_state() -> ServerState | None:
    """Ask the server that one is logged in to if it is well, and what it has given up; `None` without a login.

    Raises:
        SmartForkError: it is not known who one is there.
    """
    if not login.is_known():
        return None
    account = login.account()
    try:
        found = client.within(account, failed_jobs, "ask for failed jobs")
    except ServerUnavailable:
        step = "Is it running, and is the address right? Local sessions do not need it."
        return ServerState(account.origin, client.SILENT, step)
    return ServerState(account.origin, jobs_in_words(found), JOBS_HINT) if found else ServerState(account.origin)


def jobs_in_words(failed: tuple[FailedJob, ...]) -> str:
    """Say how many jobs failed."""
    return f"The server has given up {len(failed)} job{'s' if len(failed) > 1 else ''}."


__all__ = ["fetched", "is_shared", "listed", "look_into", "read", "search", "server_state"]


def search(*, wanted: bool) -> TeamSearch:
    """Return what asks the server a question; with `wanted`, a project that has none is an error."""
    return TeamSearch(wanted=wanted)
