"""Clients of the MCP server: one call, a client that knows tasks, and a person who answers forms."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import anyio
import mcp_types as types
from mcp import Client
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from pydantic import ConfigDict

from smart_fork.server.mcp_tasks import TaskParams
from tests.smart_fork.tool_server import create_server
from tests.smart_fork.world import WordsModel, World

State = dict[str, Any]


def call(  # noqa: PLR0917
    world: World, tool: str = "smart_fork", client: str = "claude-code", meta: dict | None = None,
    model: WordsModel | None = None, progress: Any = None, roots: list[Path] | None = None, **arguments: object,
) -> types.CallToolResult:  # fmt: skip
    """One call of one client."""

    async def talk() -> types.CallToolResult:
        async def list_roots(_: object) -> types.ListRootsResult:
            return types.ListRootsResult(roots=[types.Root(uri=root.as_uri()) for root in roots or ()])

        info = types.Implementation(name=client, version="1")
        more = {"list_roots_callback": list_roots} if roots is not None else {}
        async with Client(
            create_server(model or world.model, everything=True), client_info=info, mode="legacy", **more
        ) as session:
            return await session.call_tool(tool, arguments, meta=meta, progress_callback=progress)

    return anyio.run(talk)


def answer(world: World, tool: str = "smart_fork", **arguments: Any) -> dict:
    result = call(world, tool, **arguments)
    assert not result.is_error, result.content
    assert result.structured_content is not None
    return result.structured_content


def refusal(world: World, tool: str = "smart_fork", **arguments: Any) -> str:
    result = call(world, tool, **arguments)
    assert result.is_error
    return result.content[0].text


class Created(types.Result):
    """The answer to a call that has become a task."""

    model_config = ConfigDict(extra="allow")
    result_type: Literal["task"] = "task"
    task_id: str


class TaskRequest(types.Request[TaskParams, str]):
    """A request for a task."""


class TaskState(types.Result):
    """The answer to such a request."""

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
        told = await self.session.send_request(TaskRequest(method=f"tasks/{name}", params=params), TaskState)
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


class Person:
    """Answers each form by its `number`-th choice, or by an action alone; keeps the forms."""

    def __init__(self, chooses: int | str) -> None:
        self.chooses = chooses
        self.forms: list[types.ElicitRequestFormParams] = []

    async def __call__(self, _context: Any, form: types.ElicitRequestParams) -> types.ElicitResult | types.ErrorData:
        assert isinstance(form, types.ElicitRequestFormParams)
        self.forms.append(form)
        if self.chooses == "fail":
            return types.ErrorData(code=-32601, message="what is a form?")
        if isinstance(self.chooses, str) and self.chooses in ("decline", "cancel"):
            return types.ElicitResult(action=self.chooses)
        said = self.chooses if isinstance(self.chooses, str) else list(choices(form))[self.chooses]
        return types.ElicitResult(action="accept", content={"session": said})


def choices(form: types.ElicitRequestFormParams) -> dict[str, str]:
    """The choices of a form and their labels, in the words of whichever version of the protocol."""
    (field,) = form.requested_schema["properties"].values()
    if "oneOf" in field:
        return {one["const"]: one["title"] for one in field["oneOf"]}
    return dict(zip(field["enum"], field["enumNames"], strict=True))
