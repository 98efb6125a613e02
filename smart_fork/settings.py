"""Every setting: its name, its meaning, its value, and where the value comes from.

``smart-fork config`` and docs/reference/settings.md are made of this table.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from indexer.kept_logs import DEFAULT_MEGABYTES
from indexer.schedule import DEFAULT_INTERVAL
from indexer.values import Value, value
from smart_fork import config
from smart_fork.agents import AGENTS


class Variable(NamedTuple):
    """An environment variable, and what holds without it."""

    name: str
    meaning: str
    default: str = ""
    #: Its value is never printed.
    secret: bool = False


VARIABLES = (
    Variable("SMART_FORK_HOME", "Folder for everything that smart-fork writes.", "~/.smart-fork"),
    Variable(
        "SMART_FORK_MODEL",
        "A sentence-transformers model, by folder or by name. A name is downloaded once.",
        "all-MiniLM-L6-v2",
    ),
    Variable("SMART_FORK_DEVICE", "Device for embedding: cpu, cuda or mps.", "a GPU with equal vectors, else cpu"),
    Variable("SMART_FORK_RERANKER", "A cross-encoder that reorders the best results, by folder or name.", "none"),
    Variable("SMART_FORK_ENGINE", "Search engine: builtin or qmd. Overrides engine in config.toml.", "builtin"),
    Variable("SMART_FORK_QMD_COMMAND", "Path of the qmd program.", "qmd on PATH"),
    Variable("SMART_FORK_QMD_SECONDS", "Time limit of one qmd search, in seconds.", "20"),
    Variable(
        "SMART_FORK_INDEXING",
        "false: never index automatically. true: the service keeps the index fresh.",
        "index before each find",
    ),
    Variable("SMART_FORK_INDEX_CRON", "Interval of full runs: 15m, 6h or five cron fields.", DEFAULT_INTERVAL),
    Variable("SMART_FORK_BACKGROUND", "0: leave no process behind, such as one that completes the index.", "1"),
    Variable(
        "SMART_FORK_KEEP_TRANSCRIPTS",
        "true: keep compressed copies of all indexed logs. false: keep none.",
        "as chosen in setup",
    ),
    Variable("SMART_FORK_KEEP_MEGABYTES", "Most space for kept copies, in megabytes.", str(DEFAULT_MEGABYTES)),
    Variable("SMART_FORK_CHECKPOINTS", "false: do not read sessions that repositories keep.", "true"),
    Variable("SMART_FORK_PRELOAD", "false: keep no processes waiting for the next command. Linux only.", "true"),
    Variable("SMART_FORK_SERVICE", "false: do not use a running service.", "true"),
    Variable("SMART_FORK_PORT", "Port of the service.", "the installed port, else 8766"),
    Variable("SMART_FORK_RECALL_MS", "Longest wait of a first prompt or an edit for recall, in milliseconds.", "150"),
    Variable("SMART_FORK_TOOLS", "all: list every MCP tool. few: list seven.", "few"),
    Variable("SMART_FORK_MAX_WORKERS", "Most workers that may run together.", "8"),
    Variable("SMART_FORK_CHECK_LOGIN", "false: start a worker even if its agent is not logged in.", "true"),
    Variable("SMART_FORK_TMUX_SOCKET", "Name of the tmux server for new windows.", "the current server, else default"),
    Variable("SMART_FORK_TEAM_URL", "Address of the team server, for scripts without a login.", "the saved login"),
    Variable("SMART_FORK_TEAM_TOKEN", "Token for the team server.", "the saved login", secret=True),
    Variable("SMART_FORK_TEAM_DSN", "PostgreSQL of the team server.", "a PostgreSQL in the home", secret=True),
    Variable("SMART_FORK_TEAM_READ_DSN", "Replica of that PostgreSQL, for searches and reads.", "none", secret=True),
    Variable("NO_COLOR", "Any value: print no colors.", "colors at a terminal"),
)
#: smart-fork and the agents set these for the programs they start. People do not.
GIVEN = (
    Variable("SMART_FORK_WORKER_ID", "Id of the worker that runs this program."),
    Variable("SMART_FORK_DEPTH", "Number of workers above this one. It limits workers that start workers."),
    Variable("SMART_FORK_ASKS_SHELL", "Set while smart-fork reads your login shell's variables."),
)


class ConfigKey(NamedTuple):
    """A key of config.toml; its section is empty for the top level."""

    section: str
    name: str
    meaning: str


KEYS = (
    ConfigKey("", "engine", "Search engine: builtin or qmd."),
    ConfigKey("service", "projects", "Folders of projects that every client of the service may search."),
    ConfigKey("team", "never", "Sessions in these folders are never pushed."),
    ConfigKey("team", "redact", "Regular expressions of your own secrets, masked in every push."),
    ConfigKey("team", "allow", "Harmless texts that look like secrets. They are not masked."),
    ConfigKey("team", "auto_fork", "Let agents fork sessions of teammates without asking."),
)


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
        given = env.get(one.name, "")
        shown = "(set, not shown)" if given and one.secret else given or one.default
        yield Setting(
            name=one.name,
            value=shown,
            source="environment" if given else "default",
            meaning=one.meaning,
            change=f"export {one.name}=…",
        )


def _from_file() -> Iterator[Setting]:
    values: Mapping[str, config.TopLevel | config.ServiceSection | config.TeamSection] = {
        "": config.top(),
        "service": config.service(),
        "team": config.team(),
    }
    for section, name, meaning in KEYS:
        given = getattr(values[section], name)
        untouched = getattr(type(values[section])(), name)
        yield Setting(
            name=f"{section}.{name}" if section else name,
            value=_written(given),
            source="default" if given == untouched else "config.toml",
            meaning=meaning,
            change=f"{name} = … in [{section}]" if section else f"{name} = … above the first section",
        )


def _written(given: object) -> str:
    if isinstance(given, tuple):
        return ", ".join(given) or "none"
    return str(given).lower() if isinstance(given, bool) else str(given)
