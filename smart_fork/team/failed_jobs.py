"""What a server was to do in the background and has given up, as it tells those who may see it: admins."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import TypeAdapter, ValidationError

from indexer.values import Value, value
from smart_fork.doctor import Check
from smart_fork.errors import NotFound, ServerUnavailable, Usage, WrongVerb
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


def checks() -> Iterator[Check]:
    """For ``doctor``: whether the server that one is logged in to answers, and what it has given up. None without one.

    Raises:
        SmartForkError: it is not known who one is there.
    """
    if not login.is_known():
        return
    account = login.account()
    try:
        found = client.within(account, failed_jobs, "ask for failed jobs")
    except ServerUnavailable:
        step = "Is it running, and is the address right? Local sessions do not need it."
        yield Check("team", ok=False, detail=client.SILENT, next_step=step, optional=True)
        return
    if found:
        yield Check("team", ok=False, detail=in_words(found), next_step=NEXT, optional=True)
    else:
        yield Check("team", ok=True, detail=account.origin, optional=True)


def in_words(failed: tuple[FailedJob, ...]) -> str:
    """How many there are, in a sentence."""
    return f"The server has given up {len(failed)} job{'s' if len(failed) > 1 else ''}."
