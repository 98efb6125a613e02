"""Long tool calls as tasks, an MCP extension (SEP-2663). An agent can let a task run in the background.

When Claude Code's task ends, its model gets the result as a separate message. So a call becomes a task only after a few
seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver import require_client_extension
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, CallToolRequestParams, ElicitRequest, InputResponse
from mcp_types import InputResponseRequestParams as InputParams
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel

#: The longest direct call, the time for which a task is kept, and the pause between requests for its state.
DIRECT_SECONDS, KEPT_SECONDS, POLL_SECONDS = 5.0, 3600.0, 1.0


class TaskParams(InputParams):
    """The parameters of a ``tasks/…`` request; in ``tasks/update`` also the person's answers to questions."""

    task_id: str


class McpTask:
    """A running tool call. After `DIRECT_SECONDS` it becomes a task: the client gets an id, and asks for the result."""

    def __init__(self, work: Awaitable[HandlerResult]) -> None:
        current.set(self)
        self.id, self.words = uuid4().hex, "working"
        self.in_background = self.asks_directly = False
        self.work = asyncio.ensure_future(work)
        self._created = _now()
        self._question: dict[str, Any] = {}
        self._response: asyncio.Future[InputResponse] = asyncio.get_running_loop().create_future()

    def state(self, kind: str = "complete") -> dict[str, Any]:
        """Return the task's state for the client: progress, open question or result. `kind` is its ``resultType``."""
        status, more = self._status()
        times = {"createdAt": self._created, "lastUpdatedAt": _now(), "ttlMs": int(KEPT_SECONDS * 1000)}
        told = {"resultType": kind, "taskId": self.id, "status": status, "statusMessage": self.words}
        return {**told, **times, "pollIntervalMs": int(POLL_SECONDS * 1000), **more}

    def _status(self) -> tuple[str, dict[str, Any]]:
        if not self.work.done():
            return ("input_required", {"inputRequests": self._question}) if self._question else ("working", {})
        if self.work.cancelled():
            return "cancelled", {}
        if error := self.work.exception():
            return "failed", {"error": {"code": INTERNAL_ERROR, "message": str(error)}}
        return "completed", {"result": _json(self.work.result())}

    async def ask(self, name: str, question: ElicitRequest) -> InputResponse | None:
        """Add `question` to the task's state under `name`, and wait for the person's answer.

        Return `None` if the call is no task yet. The call must then return the question as its result.
        """
        self.asks_directly = not self.in_background
        if self.asks_directly:
            return None
        self._question = {name: _json(question)}
        answer = await self._response
        self._question = {}
        return answer

    def answer(self, params: TaskParams) -> None:
        """Pass the person's answer in `params` to the waiting `ask`, if one waits."""
        given = [one for name, one in (params.input_responses or {}).items() if name in self._question]
        if given and not self._response.done():
            self._response.set_result(given[0])


#: The current call, if it may become a task.
current: ContextVar[McpTask | None] = ContextVar("current", default=None)


class Tasks(Extension):
    """The MCP extension for long tool calls: it keeps the running tasks, and answers requests about them."""

    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self) -> None:
        self._tasks: dict[str, McpTask] = {}

    def methods(self) -> list[MethodBinding]:
        """Return the handlers of ``tasks/get``, ``tasks/update`` and ``tasks/cancel``."""
        modern = frozenset(MODERN_PROTOCOL_VERSIONS)
        return [MethodBinding(f"tasks/{name}", TaskParams, self._told, modern) for name in ("get", "update", "cancel")]

    async def intercept_tool_call(
        self, params: CallToolRequestParams, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        """Run a tool call; return a task if it takes long and the client supports tasks."""
        capabilities = ctx.session.client_capabilities
        if not capabilities or self.identifier not in (capabilities.extensions or {}):
            return await call_next(ctx)
        task = McpTask(call_next(ctx))
        try:
            await asyncio.wait([task.work], timeout=DIRECT_SECONDS)
            if task.work.done() or task.asks_directly:
                return await task.work
        except asyncio.CancelledError:
            task.work.cancel()
            raise
        task.in_background = True
        self._tasks[task.id] = task
        asyncio.get_running_loop().call_later(KEPT_SECONDS, self._tasks.pop, task.id, None)
        return task.state("task")

    async def _told(self, ctx: ServerRequestContext[Any, Any], params: TaskParams) -> HandlerResult:
        require_client_extension(ctx, self.identifier)
        if (task := self._tasks.get(params.task_id)) is None:
            raise MCPError(code=INVALID_PARAMS, message="There is no such task, or it is over.")
        task.answer(params)
        if ctx.method == "tasks/cancel":
            task.work.cancel()
        return task.state() if ctx.method == "tasks/get" else {"resultType": "complete"}


def _json(value: Any) -> Any:
    return value.model_dump(mode="json", by_alias=True, exclude_none=True) if isinstance(value, BaseModel) else value


def _now() -> str:
    return datetime.now(UTC).isoformat()
