"""``mcp``."""

from __future__ import annotations

import gc
from typing import Annotated, Literal

import typer


def mcp(
    tools: Annotated[
        Literal["few", "all"],
        typer.Option("--tools", envvar="SMART_FORK_TOOLS", help="Tools that the agent sees: few or all."),
    ] = "few",
    begun: Annotated[str, typer.Option("--begun", hidden=True)] = "",
) -> None:
    """Serve the tools over MCP on stdin and stdout; your agents start this."""
    gc.disable()  # nearly all that is made until it serves are modules, which stay: to look through them takes a tenth
    from indexer.models import configured_embedder
    from smart_fork.server import run_stdio
    from smart_fork.server.stdio import Begun

    gc.freeze()
    gc.enable()
    run_stdio(Begun.of(begun), configured_embedder(background=True), everything=tools == "all")
