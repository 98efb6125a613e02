"""A session that the team shares, to read before anything of it is on this machine."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from smart_fork.errors import NotFound
from smart_fork.page.phrases import session_link
from smart_fork.page.scope import folder
from smart_fork.page.session import AddressedSession, SessionPage, read_of
from smart_fork.page.since import Since, mark_in, since


def shared(place: Mapping[str, str], asked: Mapping[str, str], project: str) -> SessionPage:
    """A session that is shared of a project, read as its server has it now; nothing of it is written.

    Raises:
        SmartForkError: there is none that may be read, no such message in it, or the server is away.
    """
    from smart_fork.team.conversation import look_into

    there = look_into(place["session_id"], folder(project))
    session = there.session
    if session.agent != place["agent"]:
        raise NotFound(f"No such session of {place['agent']}")
    one = AddressedSession(session.agent, place["session_id"])
    _, shown = read_of(session, asked)
    return SessionPage(
        **shown,
        one=one,
        title=there.title or one.session_id,
        command=shlex.join(("smart-fork", "fork", one.session_id)),
        kind="shared",
        owner=there.owner,
        within=project,
    )


def grown(place: Mapping[str, str], asked: Mapping[str, str], project: str) -> tuple[Since, str]:
    """What has become of a shared session since the state that is asked about, and where that is shown.

    Raises:
        SmartForkError: no such state can have been shown, or the session cannot be read now.
    """
    from smart_fork.team.conversation import look_into

    mark = mark_in(asked.get("mark", ""))
    one = AddressedSession(place["agent"], place["session_id"])
    way = session_link(one, kind="shared", project=project, since=str(mark))
    return since(mark, look_into(one.session_id, folder(project)).session), f"{way}#more"
