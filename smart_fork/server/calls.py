"""What every tool of the server needs: who calls, for which project, work beside the event loop, progress."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import anyio
import anyio.from_thread
import anyio.to_thread
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.shared.message import ServerMessageMetadata
from mcp_types import ListRootsRequest, ListRootsResult, ToolAnnotations
from pydantic import BeforeValidator, WithJsonSchema

from smart_fork import permission
from smart_fork.agents.plan import plain_name
from smart_fork.caller import AROUND, Around, Caller, identify, path_of, workspaces
from smart_fork.config import allowed_projects
from smart_fork.errors import SmartForkError

#: Seconds between two progress notifications.
PROGRESS_SECONDS = 0.25
#: How long a client may take to say which folders it works in.
ROOTS_SECONDS = 2.0
#: Each is looked at on the disk.
MAX_ROOTS = 64
#: Of parameters that are not known, how many are named, and how much of each.
MAX_NAMED, MAX_SHOWN = 5, 80

#: A text that is passed on verbatim: the SDK would take one that happens to be JSON for what it describes.
Verbatim = Annotated[
    str,
    BeforeValidator(lambda value: "" if value is None else value),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}),
]
Progress = Callable[[str, int, int], None]
T = TypeVar("T")

#: A request, and the roots that its client has named for it.
_named: ContextVar[tuple[object, list[str]]] = ContextVar("named", default=(None, []))


def strict(function: Callable[..., Any], title: str, *, reads: bool = True) -> Tool:
    """A tool that refuses parameters which it does not know: a misspelt one must not be ignored silently."""
    hints = ToolAnnotations(read_only_hint=reads, destructive_hint=False, idempotent_hint=reads, open_world_hint=False)
    tool = Tool.from_function(function, title=title, annotations=hints)
    tool.parameters["additionalProperties"] = False
    known = tool.parameters.get("properties", {})
    run = tool.fn

    async def checked(ctx: Context[Any, Any], **arguments: Any) -> Any:
        if unknown := sorted(set(sent(ctx)) - set(known)):
            names = ", ".join(plain_name(name)[:MAX_SHOWN] for name in unknown[:MAX_NAMED])
            raise ToolError(f"unknown parameter: {names}. Known: {', '.join(known) or 'none'}.")
        if not _passable(sent(ctx)):
            raise ToolError("a parameter has half a character in it (a lone surrogate), or is nested too deeply")
        if _around(ctx) is None:
            permission.limit_to(await _own_projects(ctx))
        return await run(ctx=ctx, **arguments)

    tool.fn = checked
    return tool


def _passable(arguments: Mapping[str, Any]) -> bool:
    """Whether they can be stored and compared. One of the protocol's versions lets through more than text can be."""
    try:
        json.dumps(arguments, ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError):
        return False
    return True


def sent(ctx: Context[Any, Any]) -> Mapping[str, Any]:
    """What the client has sent, before any default was filled in."""
    return (ctx.request_context.params or {}).get("arguments") or {}


async def caller_of(ctx: Context[Any, Any]) -> Caller:
    """The agent and the session that this call comes from, as far as they can be known."""
    params = ctx.request_context.session.client_params
    client = params.client_info.name if params is not None else None
    around = _around(ctx) or Around({}, Path("/"))
    roots = await _roots(ctx)
    return await in_thread(partial(identify, client, _meta(ctx), roots, *around))


def _around(ctx: Context[Any, Any]) -> Around | None:
    """Where the caller's own process is: this one, or one that the guard of the service has believed to be ours.

    `None` for any other client of the service, which works in no project of its own.
    """
    request = ctx.request_context.request
    if request is None:
        return Around(os.environ, Path.cwd())
    told: Around | None = request.scope.get(AROUND)
    return told


async def _own_projects(ctx: Context[Any, Any]) -> tuple[permission.Permitted, ...]:
    """What a client of the service may ask about: its roots, its workspaces, and what is always allowed.

    The client itself names them, not the model whose words are a tool's arguments.
    """
    named = [*(path for root in await _roots(ctx) if (path := path_of(root))), *workspaces(_meta(ctx))]
    claimed = [path for path in named if Path(path).is_absolute()]
    return await in_thread(lambda: permission.permitted(claimed[:MAX_ROOTS], allowed_projects()))


def _meta(ctx: Context[Any, Any]) -> Mapping[str, Any]:
    meta = (ctx.request_context.params or {}).get("_meta")
    return meta if isinstance(meta, Mapping) else {}


async def _roots(ctx: Context[Any, Any]) -> list[str]:
    """What the client says that it works in, as URIs; asked once for each request."""
    request, roots = _named.get()
    if request is not ctx.request_context:
        roots = await _ask_for_roots(ctx)
        _named.set((ctx.request_context, roots))
    return roots


async def _ask_for_roots(ctx: Context[Any, Any]) -> list[str]:
    session = ctx.request_context.session
    params = session.client_params
    roots: list[str] = []
    # With the answer to this very request: not every client listens to anything else.
    belongs = ServerMessageMetadata(related_request_id=ctx.request_id)
    if params is not None and params.capabilities.roots is not None:
        with anyio.move_on_after(ROOTS_SECONDS):
            try:
                answer = await session.send_request(ListRootsRequest(), ListRootsResult, metadata=belongs)
                roots = [str(root.uri) for root in answer.roots]
            except Exception:  # noqa: BLE001 - a client may announce roots and refuse them
                roots = []
    return roots


def project_for(path: str | None, caller: Caller) -> str:
    """The directory that is asked about; a relative one is the caller's, not this server's."""
    if path and (path.startswith("~") or Path(path).is_absolute()):
        return path
    if caller.project is None:
        raise ToolError("project_path is required: this client does not say which project it works in")
    return str(Path(caller.project, path or "."))


async def in_thread(work: Callable[[], T]) -> T:
    """Run `work` beside the event loop (F-034). A caller's mistake becomes a tool error with its text and hint."""
    try:
        return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
    except SmartForkError as error:
        raise ToolError(f"{error.message}. {error.hint}" if error.hint else error.message) from error


def progress_of(ctx: Context[Any, Any]) -> Progress:
    """A callback for the working thread that notifies the client now and then, of numbers that only grow."""
    last = 0.0
    before: dict[str, int] = {}

    def report(stage: str, done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < PROGRESS_SECONDS and done < total:
            return
        last = now
        earlier = sum(number for other, number in before.items() if other != stage)
        if done <= before.get(stage, -1):
            return
        before[stage] = done
        anyio.from_thread.run(
            ctx.report_progress, float(earlier + done), float(earlier + total), f"{stage} {done}/{total}"
        )

    return report
