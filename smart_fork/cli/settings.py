"""The value of every setting, and where it comes from; as ``smart-fork config`` shows it.

Variables are in `indexer.settings`, keys of config.toml in `smart_fork.config`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from indexer.settings import VARIABLES, Variable
from indexer.values import Value, value
from smart_fork import config
from smart_fork.agents import AGENTS


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
    return Settings(file=str(config.file()), settings=(*_from_environment(env), *_from_file()))


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
            name=str(one),
            value=shown,
            source="environment" if given else "default",
            meaning=one.meaning,
            change=f"export {one}=…",
        )


def _from_file() -> Iterator[Setting]:
    values = {section: config.section(kind) for section, kind in config.SECTIONS.items()}
    for section, one in config.all_keys():
        given = getattr(values[section], one.name)
        yield Setting(
            name=f"{section}.{one.name}" if section else one.name,
            value=_written(given),
            source="default" if given == one.default else "config.toml",
            meaning=one.metadata["meaning"],
            change=f"{one.name} = … in [{section}]" if section else f"{one.name} = … above the first section",
        )


def _written(given: object) -> str:
    if isinstance(given, tuple):
        return ", ".join(given) or "none"
    return str(given).lower() if isinstance(given, bool) else str(given)
