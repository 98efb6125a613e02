"""The tool that cuts turns out of a past session."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp_types import ToolAnnotations
from pydantic import Field

from smart_fork import permission
from smart_fork.cuts.answer import Excised
from smart_fork.errors import Usage
from smart_fork.server.calls import caller_of, in_thread, strict

if TYPE_CHECKING:
    from smart_fork.excise.request import Request


def tool() -> Tool:
    """The tool: unlike all others it takes something away."""
    made = strict(excise_session, "Cut turns out of a past session", Excised, reads=False)
    made.annotations = ToolAnnotations(
        read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False
    )
    return made


async def excise_session(  # noqa: PLR0917 - the tool's parameters
    ctx: Context[Any, Any],
    session_id: Annotated[str | None, Field(description="The session's id, or at least 8 characters of it.")] = None,
    path: Annotated[str | None, Field(description="Its transcript, instead of session_id.")] = None,
    turns: Annotated[str | None, Field(description="Which turns, as read_session numbers them: 5-7,9.")] = None,
    ids: Annotated[list[str] | None, Field(description="Which turns, by their ids (message_id).")] = None,
    secrets: Annotated[  # noqa: FBT002
        bool | None, Field(description="Mask secrets instead, in all turns or in the given ones.")
    ] = False,
    force: Annotated[bool | None, Field(description="Cut against warnings.")] = False,  # noqa: FBT002
    dry_run: Annotated[bool | None, Field(description="Only show the plan; false cuts.")] = True,  # noqa: FBT002
) -> Excised:
    """Cut turns out of a past session, which its agent can still resume. By default it only shows the plan.

    Results of tool calls go with their calls. A snapshot is kept, so that the user can undo the cut.
    Running sessions are refused. Cut only turns that the user asked to cut.
    """
    from smart_fork.excise.request import Request

    reference = session_id or path
    if not reference or (session_id and path):
        raise ToolError("give session_id or path: the session to cut")
    caller = await caller_of(ctx)
    known = caller.session_id or ""
    if known and (known in reference or known.startswith(reference.strip().lower())):
        raise ToolError("this is the calling session: it is running and cannot be cut")
    request = Request(
        reference, turns or "", tuple(ids or ()), secrets=secrets is True, force=force is True,
        dry_run=dry_run is not False, command="excise_session",
    )  # fmt: skip
    found = await in_thread(partial(_cut, request, by_path=session_id is None))
    return replace(found, next=_next(found))


def _next(found: Excised) -> str:
    if found.dry_run:
        force = ", force: true against the warnings" if found.warnings else ""
        return f"Nothing was cut. Show the user this plan. Only if the user agrees, call with dry_run: false{force}."
    return "Tell the user which turns were cut, and name the snapshot. Only the user may undo or discard it."


def _cut(request: Request, *, by_path: bool) -> Excised:
    from smart_fork import sessions
    from smart_fork.session_cuts import cut

    if permission.limited():
        if by_path:
            raise Usage("Give session_id instead of path")
        sessions.read(sessions.locate(request.reference or ""))  # refuses another project's
    return cut(request)
