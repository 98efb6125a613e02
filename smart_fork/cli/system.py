"""``mcp``, ``config``, ``help``, ``statusline`` and ``welcome``."""

from __future__ import annotations

import gc
import json
import sys
from typing import Annotated, Literal

import typer

from smart_fork.cli.command_table import COMMANDS
from smart_fork.cli.output import out, plain, print_json, printed_as_json, wants_json


def mcp(
    tools: Annotated[
        Literal["few", "all"],
        typer.Option("--tools", envvar="SMART_FORK_TOOLS", help="Tools that the agent sees: few or all."),
    ] = "few",
    begun: Annotated[str, typer.Option("--begun", hidden=True)] = "",
) -> None:
    """Serve the tools over MCP on stdin and stdout; your agents start this."""
    gc.disable()  # nearly all that is made until it serves are modules, which stay: to look through them takes a tenth
    from indexer.embedding import configured_embedder
    from smart_fork.server import run_stdio

    gc.freeze()
    gc.enable()
    run_stdio(begun, configured_embedder(background=True), everything=tools == "all")


def show_help(
    topic: Annotated[
        list[str] | None, typer.Argument(help="Command, such as: team push. Default: all commands.")
    ] = None,
) -> None:
    """Print the help of a command."""
    from smart_fork.cli.main import command_line

    words = topic or []
    names = [word for word in words[:1] if word in COMMANDS]
    command_line(*names)([*words, "--help"], prog_name="smart-fork", standalone_mode=False)


AllOption = Annotated[bool, typer.Option("--all", "-a", help="Also settings that have their default value.")]


def config(every: AllOption = False) -> None:
    """Show every setting, its value and where the value comes from."""
    from smart_fork.cli.settings import settings

    found = settings()
    if printed_as_json(found):
        return
    changed = [one for one in found.settings if every or one.source != "default"]
    for one in changed:
        value = f" = {one.value or 'not set'}"
        out.print(plain(one.name, "bold"), plain(value), plain(f"  ({one.source})", "dim"), sep="")
        out.print(plain(f"    {one.meaning} Change: {one.change}"))
    hidden = len(found.settings) - len(changed)
    if hidden:
        out.print(plain(f"{hidden} settings have their default value. `smart-fork config --all` lists them."))
    out.print(plain(f"Settings file: {found.file}"))


# Without options `program` answers these two, in a tenth of the time.


def statusline() -> None:
    """One segment of a status line, for the JSON that an agent gives on stdin: whose fork it is, what workers do."""
    from smart_fork.cli.statusline import MAX_BYTES, main, segment

    if not wants_json():
        main()
    try:
        status = json.loads(sys.stdin.buffer.read(MAX_BYTES))
    except ValueError:
        status = {}
    print_json({"segment": segment(status)})


def welcome() -> None:
    """For the plugin's hook: one line on how many sessions came before, or nothing."""
    from smart_fork.cli.welcome import line, main

    if not wants_json():
        main()
    print_json({"line": line()})
