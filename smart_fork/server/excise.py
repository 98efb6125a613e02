"""The tool that cuts turns out of a past session."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from smart_fork.caller import Caller
from smart_fork.cuts.answer import Excised
from smart_fork.errors import Usage
from smart_fork.system import permission


def excise_session(
    *,
    caller: Caller,
    session_id: Annotated[str | None, Field(description="The session's id, or at least 8 characters of it.")] = None,
    path: Annotated[str | None, Field(description="Its transcript, instead of session_id.")] = None,
    turns: Annotated[str, Field(description="Which turns, as read_session numbers them: 5-7,9.")] = "",
    ids: Annotated[list[str] | None, Field(description="Which turns, by their ids (message_id).")] = None,
    secrets: Annotated[bool, Field(description="Mask secrets instead, in all turns or in the given ones.")] = False,
    force: Annotated[bool, Field(description="Cut against warnings.")] = False,
    dry_run: Annotated[bool, Field(description="Only show the plan; false cuts.")] = True,
) -> Excised:
    """Cut turns out of a past session, which its agent can still resume. By default it only shows the plan.

    Results of tool calls go with their calls. A snapshot is kept, so that the user can undo the cut.
    Running sessions are refused. Cut only turns that the user asked to cut.
    """
    from smart_fork import sessions
    from smart_fork.excise.request import Request
    from smart_fork.removal.cuts import cut

    reference = session_id or path
    if not reference or (session_id and path):
        raise ToolError("give session_id or path: the session to cut")
    known = caller.session_id or ""
    if known and (known in reference or known.startswith(reference.strip().lower())):
        raise ToolError("this is the calling session: it is running and cannot be cut")
    if permission.limited():
        if session_id is None:
            raise Usage("Give session_id instead of path")
        sessions.read(sessions.locate(reference))  # refuses another project's
    request = Request(
        reference, turns, tuple(ids or ()), secrets=secrets, force=force, dry_run=dry_run, command="excise_session"
    )
    found = cut(request)
    return replace(found, next=_next(found))


def _next(found: Excised) -> str:
    if found.dry_run:
        force = ", force: true against the warnings" if found.warnings else ""
        return f"Nothing was cut. Show the user this plan. Only if the user agrees, call with dry_run: false{force}."
    return "Tell the user which turns were cut, and name the snapshot. Only the user may undo or discard it."
