"""A client that knows tasks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

import mcp_types as types
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from pydantic import ConfigDict

from smart_fork.server.tasks import TaskParams

State = dict[str, Any]


class Created(types.Result):
    """What a call is answered with that has become a task."""

    model_config = ConfigDict(extra="allow")
    result_type: Literal["task"] = "task"
    task_id: str


class Asked(types.Request[TaskParams, str]):
    """A request for a task."""


class Told(types.Result):
    """What it is answered with."""

    model_config = ConfigDict(extra="allow")


class Follower(ClientExtension):
    """A client that knows tasks: it does `then` at each state of one, and keeps them."""

    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self, then: Callable[[Follower, State], Awaitable[None]] | None = None) -> None:
        self.then, self.states, self.id = then, list[State](), ""

    def claims(self) -> list[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=Created, resolve=self._follow)]

    async def ask(self, name: str, **more: Any) -> State:
        params = TaskParams(task_id=self.id, **more)
        told = await self.session.send_request(Asked(method=f"tasks/{name}", params=params), Told)
        return told.model_dump(by_alias=True, mode="json", exclude_none=True)

    async def _follow(self, created: Created, ctx: ClaimContext) -> types.CallToolResult:
        self.session, self.id = ctx.session, created.task_id
        state = created.model_dump(by_alias=True, mode="json")
        while not self.states or state["status"] in ("working", "input_required"):
            if not self.states or state["status"] != self.states[-1]["status"]:
                self.states.append(state)
                if self.then:
                    await self.then(self, state)
            state = await self.ask("get")
        self.states.append(state)
        return types.CallToolResult.model_validate(state.get("result", {"content": [], "isError": True}))

    @property
    def statuses(self) -> list[str]:
        return [one["status"] for one in self.states]
