"""What the server says that it can do: no more than there is, for clients ask for all of it before they begin."""

from __future__ import annotations

from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

_INTRODUCTIONS = ("initialize", "server/discover")
#: The SDK serves these whether there are any or not; and for them Claude Code adds three tools of its own.
_ABSENT = ("resources",)


async def only_what_there_is(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Middleware of a server: it names only what it has."""
    result = await call_next(ctx)
    if ctx.method in _INTRODUCTIONS and isinstance(result, dict):
        for name in _ABSENT:
            result["capabilities"].pop(name, None)
    return result
