"""``mcp`` and ``help``."""

from __future__ import annotations

import gc
from typing import Annotated, Literal

import typer

from smart_fork.terminal.commands import COMMANDS


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


def show_help(
    topic: Annotated[
        list[str] | None, typer.Argument(help="Command, such as: team push. Default: all commands.")
    ] = None,
) -> None:
    """Print the help of a command."""
    from smart_fork.cli import command_line

    words = topic or []
    names = [word for word in words[:1] if word in COMMANDS]
    command_line(*names)([*words, "--help"], prog_name="smart-fork", standalone_mode=False)
