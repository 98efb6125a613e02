"""``mcp``, ``config``, ``help``, ``statusline`` and ``welcome``."""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

import typer

from indexer.settings import VARIABLES, Variable
from indexer.values import Value, value
from smart_fork import config as config_file
from smart_fork.agents import AGENTS
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
    from indexer.default_embedder import configured_embedder
    from smart_fork.server import run_stdio

    gc.freeze()
    gc.enable()
    run_stdio(begun, configured_embedder(background=True), everything=tools == "all")


def show_help(
    topic: Annotated[
        list[str] | None, typer.Argument(help="Command, such as: team push. Default: all commands.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="List every command, also those that agents run.")] = False,
) -> None:
    """Print the help of a command."""
    from smart_fork.cli.main import command_line

    words = topic or []
    names = [word for word in words[:1] if word in COMMANDS]
    command_line(*names, every=every)([*words, "--help"], prog_name="smart-fork", standalone_mode=False)


# The value of every setting, and where it comes from. Variables are in `indexer.settings`, keys of config.toml in
# `smart_fork.config`.


@value
class Setting(Value):
    """A setting: `source` says where `value` comes from, `change` how to change it."""

    name: str
    value: str
    source: str
    meaning: str
    change: str


@value
class Settings(Value):
    """The answer of ``config``."""

    file: str
    settings: tuple[Setting, ...]


def settings(env: Mapping[str, str] | None = None) -> Settings:
    """Return every setting as it holds now.

    Raises:
        Usage: config.toml cannot be read, or has an unknown key.
    """
    env = os.environ if env is None else env
    return Settings(file=str(config_file.file()), settings=(*_from_environment(env), *_from_file()))


def agent_variables() -> tuple[Variable, ...]:
    """Return the variables that locate the agents' programs and folders."""
    programs = (
        Variable(agent.command.override, f"Path of the program of {agent.title}.", f"{agent.command.name} on PATH")
        for agent in AGENTS
        if agent.command
    )
    folders: dict[str, Variable] = {}
    for agent in AGENTS:
        for name in filter(None, (agent.home.variable, *agent.home.beside)):
            meaning = f"Where {agent.title} keeps its files. {agent.title} reads this variable, too."
            if one := folders.get(name):  # several agents read it
                meaning = f"{one.meaning} {meaning}"
            usual = agent.home.usual() if name == agent.home.variable else ""
            folders[name] = Variable(name, meaning, usual)
    return (*programs, *folders.values())


def _from_environment(env: Mapping[str, str]) -> Iterator[Setting]:
    for one in (*VARIABLES, *agent_variables()):
        given = env.get(one, "")
        shown = "(set, not shown)" if given and one.secret else given or one.default
        yield Setting(
            name=str(one), value=shown, source="environment" if given else "default", meaning=one.meaning,
            change=f"export {one}=…",
        )  # fmt: skip


def _from_file() -> Iterator[Setting]:
    values = {section: config_file.section(kind) for section, kind in config_file.SECTIONS.items()}
    for section, one in config_file.all_keys():
        given = getattr(values[section], one.name)
        yield Setting(
            name=f"{section}.{one.name}" if section else one.name,
            value=_in_words(given),
            source="default" if given == one.default else "config.toml",
            meaning=one.metadata["meaning"],
            change=f"{one.name} = … in [{section}]" if section else f"{one.name} = … above the first section",
        )


def _in_words(given: object) -> str:
    if isinstance(given, tuple):
        return ", ".join(given) or "none"
    return str(given).lower() if isinstance(given, bool) else str(given)


AllOption = Annotated[bool, typer.Option("--all", "-a", help="Also settings that have their default value.")]


def config(every: AllOption = False) -> None:
    """Show every setting, its value and where the value comes from."""
    found = settings()
    if printed_as_json(found):
        return
    changed = [one for one in found.settings if every or one.source != "default"]
    for one in changed:
        held = f" = {one.value or 'not set'}"
        out.print(plain(one.name, "bold"), plain(held), plain(f"  ({one.source})", "dim"), sep="")
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
