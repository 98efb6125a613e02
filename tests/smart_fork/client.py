"""One call of the MCP server by one client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp import Client

from tests.smart_fork.tool_server import create_server
from tests.smart_fork.world import WordsModel, World


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
