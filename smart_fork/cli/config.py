"""The command ``config``: every setting, its value, and where the value comes from."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Annotated

import typer

from indexer.environment import VARIABLES, Variable
from indexer.json_values import Value, value
from smart_fork import config as config_file
from smart_fork.agents import AGENTS
from smart_fork.cli.output import out, plain, printed_as_json


@value
class ShownSetting(Value):
    """A setting as ``config`` prints it: where its current value comes from, and how to change it."""

    name: str
    value: str
    source: str
    meaning: str
    change: str


@value
class AllSettings(Value):
    """The answer of ``config``: all settings, and the path of config.toml."""

    file: str
    settings: tuple[ShownSetting, ...]


def settings() -> AllSettings:
    """Return every setting with its current value."""
    return AllSettings(file=str(config_file.file()), settings=(*_from_environment(), *_from_file()))


def agent_variables() -> tuple[Variable, ...]:
    """Return the environment variables that locate the agents' programs and folders."""
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


def _from_environment() -> Iterator[ShownSetting]:
    for one in (*VARIABLES, *agent_variables()):
        given = os.environ.get(one, "")
        shown = "(set, not shown)" if given and one.secret else given or one.default
        yield ShownSetting(
            name=str(one), value=shown, source="environment" if given else "default", meaning=one.meaning,
            change=f"export {one}=…",
        )  # fmt: skip


def _from_file() -> Iterator[ShownSetting]:
    values = {section: config_file.section(kind) for section, kind in config_file.SECTIONS.items()}
    for section, one in config_file.all_keys():
        given = getattr(values[section], one.name)
        yield ShownSetting(
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
        out.print(plain(one.name, "bold"), held, plain(f"  ({one.source})", "dim"), sep="")
        out.print(f"    {one.meaning} Change: {one.change}")
    hidden = len(found.settings) - len(changed)
    if hidden:
        out.print(f"{hidden} settings have their default value. `smart-fork config --all` lists them.")
    out.print(f"Settings file: {found.file}")
