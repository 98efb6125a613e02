"""The table of all environment variables: name, meaning, default, and how each value is read.

``smart-fork config`` and docs/reference/settings.md are generated from it. Hooks (code that agents run at events)
import nothing, and read their variables by name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Self

_ON = frozenset({"1", "true", "yes", "on"})
_OFF = frozenset({"0", "false", "no", "off", "never"})


class Variable(str):
    """The name of an environment variable, as a string with meaning and default.

    The value of a `secret` variable is never printed. A `kept` one is copied into the settings of an installed service.
    """

    __slots__ = ("default", "kept", "meaning", "secret")

    def __new__(cls, name: str, meaning: str, default: str = "", *, secret: bool = False, kept: bool = False) -> Self:
        made = super().__new__(cls, name)
        made.meaning, made.default, made.secret, made.kept = meaning, default, secret, kept
        return made

    meaning: str
    default: str
    secret: bool
    kept: bool

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """Pickle a variable as a plain string: its name."""
        return str, (str(self),)

    def text(self, environment: Mapping[str, str] | None = None) -> str:
        """Return the value without surrounding white space; empty if the variable is not set."""
        return (os.environ if environment is None else environment).get(self, "").strip()

    def is_on(self, environment: Mapping[str, str] | None = None) -> bool:
        """Return True if the value is ``1``, ``true``, ``yes`` or ``on``, in any case."""
        return self.text(environment).lower() in _ON

    def is_off(self, environment: Mapping[str, str] | None = None) -> bool:
        """Return True if the value is ``0``, ``false``, ``no``, ``off`` or ``never``, in any case, but not if unset."""
        return self.text(environment).lower() in _OFF

    def number(self, environment: Mapping[str, str] | None = None) -> int:
        """Return the value as a whole number. A missing or invalid value becomes the default."""
        text = self.text(environment)
        return int(text if text.isascii() and text.isdigit() and len(text) < 10 else self.default)

    def fault(self, environment: Mapping[str, str] | None = None) -> str:
        """Return what is wrong with the value; empty if it is valid or not set."""
        import re  # the status line reads settings, too

        text, (pattern, said) = self.text(environment), Setting.ALLOWED.get(self, (".*", ""))
        fits = not text or re.fullmatch(pattern, text, re.ASCII | re.IGNORECASE | re.DOTALL)
        return "" if fits else f"{self} must be {said}, not {text[:80]!r}"


#: A setting for a person's shell; and one that is copied into the settings of an installed service.
_own, _kept = Variable, partial(Variable, kept=True)


class Setting:
    """All environment variables that people may set, in the order in which they are shown."""

    HOME = _kept("SMART_FORK_HOME", "Folder for everything that smart-fork writes.", "~/.smart-fork")
    MODEL = _kept(
        "SMART_FORK_MODEL",
        "A sentence-transformers model, by folder or by name. A name is downloaded once.",
        "all-MiniLM-L6-v2",
    )
    DEVICE = _own("SMART_FORK_DEVICE", "Device for embedding: cpu, cuda or mps.", "a GPU with equal vectors, else cpu")
    RERANKER = _kept(
        "SMART_FORK_RERANKER", "A cross-encoder that reorders the best results, by folder or name.", "none"
    )
    ENGINE = _kept("SMART_FORK_ENGINE", "Search engine: builtin or qmd. Overrides engine in config.toml.", "builtin")
    QMD_COMMAND = _kept("SMART_FORK_QMD_COMMAND", "Path of the qmd program.", "qmd on PATH")
    QMD_SECONDS = _kept("SMART_FORK_QMD_SECONDS", "Time limit of one qmd search, in seconds.", "20")
    INDEXING = _own(
        "SMART_FORK_INDEXING",
        "false: never index automatically. true: the service keeps the index fresh.",
        "index before each find",
    )
    INDEX_CRON = _own("SMART_FORK_INDEX_CRON", "Interval of full runs: 15m, 6h or five cron fields.", "1h")
    BACKGROUND = _own("SMART_FORK_BACKGROUND", "0: leave no process behind, such as one that completes the index.", "1")
    KEEP_TRANSCRIPTS = _kept(
        "SMART_FORK_KEEP_TRANSCRIPTS",
        "true: keep compressed copies of all indexed logs. false: keep none.",
        "as chosen in setup",
    )
    KEEP_MEGABYTES = _kept("SMART_FORK_KEEP_MEGABYTES", "Most space for kept copies, in megabytes.", "2000")
    CHECKPOINTS = _kept("SMART_FORK_CHECKPOINTS", "false: do not read sessions that repositories keep.", "true")
    PRELOAD = _own("SMART_FORK_PRELOAD", "false: keep no processes waiting for the next command. Linux only.", "true")
    SERVICE = _own("SMART_FORK_SERVICE", "false: do not use a running service.", "true")
    PORT = _own("SMART_FORK_PORT", "Port of the service.", "the installed port, else 8766")
    RECALL_MS = _own(
        "SMART_FORK_RECALL_MS", "Longest wait of a first prompt or an edit for recall, in milliseconds.", "150"
    )
    TOOLS = _own("SMART_FORK_TOOLS", "all: list every MCP tool. few: list seven.", "few")
    MAX_WORKERS = _kept("SMART_FORK_MAX_WORKERS", "Most workers that may run together.", "8")
    CHECK_LOGIN = _kept("SMART_FORK_CHECK_LOGIN", "false: start a worker even if its agent is not logged in.", "true")
    TMUX_SOCKET = _kept(
        "SMART_FORK_TMUX_SOCKET", "Name of the tmux server for new windows.", "the current server, else default"
    )
    TEAM_URL = _own(
        "SMART_FORK_TEAM_URL", "Address of the team server, for scripts without a login.", "the saved login"
    )
    TEAM_TOKEN = _own("SMART_FORK_TEAM_TOKEN", "Token for the team server.", "the saved login", secret=True)
    TEAM_DSN = _own("SMART_FORK_TEAM_DSN", "PostgreSQL of the team server.", "a PostgreSQL in the home", secret=True)
    TEAM_READ_DSN = _own(
        "SMART_FORK_TEAM_READ_DSN", "Replica of that PostgreSQL, for searches and reads.", "none", secret=True
    )
    NO_COLOR = _own("NO_COLOR", "Any value: print no colors.", "colors at a terminal")
    _SWITCHES = (INDEXING, BACKGROUND, KEEP_TRANSCRIPTS, CHECKPOINTS, PRELOAD, SERVICE, CHECK_LOGIN)
    #: The pattern that a value must match, and its description. Names and addresses may be anything. Ports and
    #: intervals are checked by the code that reads them.
    ALLOWED: Mapping[str, tuple[str, str]] = {
        **dict.fromkeys(_SWITCHES, ("|".join((*_ON, *_OFF)), "true or false")),
        **dict.fromkeys((QMD_SECONDS, KEEP_MEGABYTES, RECALL_MS, MAX_WORKERS), (r"\d{1,9}", "a whole number")),
        DEVICE: (r"(cpu|cuda|mps)(:\d+)?", "cpu, cuda or mps"),
        TOOLS: ("few|all", "few or all"),
    }


#: All settings that people set.
VARIABLES = tuple(one for one in vars(Setting).values() if isinstance(one, Variable))
#: Variables that smart-fork and the agents set for programs that they start. People do not set them.
WORKER_ID, DEPTH, ASKS_SHELL = "SMART_FORK_WORKER_ID", "SMART_FORK_DEPTH", "SMART_FORK_ASKS_SHELL"
GIVEN = (
    Variable(WORKER_ID, "Id of the worker that runs this program."),
    Variable(DEPTH, "Number of workers above this one. It limits workers that start workers."),
    Variable(ASKS_SHELL, "Set while smart-fork reads your login shell's variables."),
)
