"""The commits that came of a session, on a page of their own: git is asked for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from indexer.shapes import dataclass
from smart_fork.page.renderer import PageValues
from smart_fork.page.session import AddressedSession, located

if TYPE_CHECKING:
    from smart_fork.conversation import CommitsMade


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitsPage(PageValues):
    """The commits of the session that is `one`; `None` if none is known. `project` is where it worked."""

    one: AddressedSession
    title: str
    project: str
    made: CommitsMade | None


def commits(place: Mapping[str, str], _asked: Mapping[str, str]) -> CommitsPage:
    """The commits of the session that an address names.

    Raises:
        SmartForkError: there is no such session, or its log is gone.
    """
    from smart_fork import sessions
    from smart_fork.retrieval.commits_made import commits_made
    from smart_fork.retrieval.results import title
    from smart_fork.whereabouts import where_now

    there = located(place)
    session = sessions.look_into(there)
    made = commits_made([(there.agent, there.session_id)], session.cwd).get(there.session_id)
    one = AddressedSession(there.agent, there.session_id)
    return CommitsPage(
        one=one, title=title(session.title) or there.session_id, project=where_now(session.cwd), made=made
    )
