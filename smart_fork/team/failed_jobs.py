"""Background jobs that a server has given up. Only admins see them."""

from __future__ import annotations

from pydantic import TypeAdapter, ValidationError

from indexer.values import Value, value
from smart_fork.errors import NotFound, ServerUnavailable, Usage, WrongVerb
from smart_fork.finding.team_search import ServerState
from smart_fork.team import client, login
from smart_fork.team.client import Client
from smart_fork.team.wire import Administer

#: What to do about them.
NEXT = "smart-fork team jobs shows the reasons. smart-fork team jobs --retry tries again."


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
    return ServerState(account.origin, in_words(found), NEXT) if found else ServerState(account.origin)


def in_words(failed: tuple[FailedJob, ...]) -> str:
    """Say how many jobs failed."""
    return f"The server has given up {len(failed)} job{'s' if len(failed) > 1 else ''}."
