"""A withdrawal whose answer has not come: it is kept before the server is asked.

Messages are meant by their numbers, and a withdrawal moves these: after an answer that was lost, the same words would
withdraw others.
"""

from __future__ import annotations

from contextlib import suppress

from indexer import state
from smart_fork.errors import Conflict
from smart_fork.sharing import wire
from smart_fork.team.project import Project


class Unanswered(wire.Message):
    """The messages that were named, of which server and project, and what was sent."""

    server: str
    project: str
    messages: str
    wanted: wire.Rewrite


def keep(project: Project, session_id: str, messages: str, wanted: wire.Rewrite) -> None:
    """Remember what is about to be withdrawn.

    Raises:
        OSError: it cannot be kept, so nothing may be sent.
    """
    one = Unanswered(server=project.server, project=project.key, messages=messages, wanted=wanted)
    asked = one.model_dump_json(exclude_none=True)
    state.change("INSERT OR REPLACE INTO withdrawals VALUES (?, ?)", session_id, asked)


def forget(session_id: str) -> None:
    """The answer has come."""
    state.change("DELETE FROM withdrawals WHERE session_id = ?", session_id)


def answered(project: Project, session_id: str, messages: str) -> wire.Rewritten | None:
    """What the same words have withdrawn already, though its answer never came; nothing where nothing was.

    Raises:
        Conflict: other words have, so that messages have other numbers than they had then.
    """
    found = state.rows("SELECT asked FROM withdrawals WHERE session_id = ?", session_id)
    if not found:
        return None
    kept = Unanswered.model_validate_json(found[0][0])
    if (kept.server, kept.project) != (project.server, project.key):
        return None
    said = None
    if project.client.session(project.key, session_id).session.revision != kept.wanted.revision:
        with suppress(Conflict):  # it never arrived, and the session was changed otherwise
            said = project.client.rewrite(project.key, session_id, kept.wanted)
    if said is not None and kept.messages != messages:
        forget(session_id)
        what = kept.messages or "the secrets"
        raise Conflict(
            f"The earlier request is withdrawn ({what}). Its answer was lost.",
            f"Messages may have other numbers now: smart-fork team show {session_id}",
        )
    if said is None:
        forget(session_id)
    return said
