"""The commands: where each is defined, its purpose and its panel in the help.

Importing all commands takes as long as finding a session. The list of commands and completion read this table instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from os.path import dirname, isdir
from types import ModuleType
from typing import NamedTuple


class CommandEntry(NamedTuple):
    """A command, or a group of commands."""

    #: A function of a module, or its app; a module without a package is one of `smart_fork.cli`.
    place: str
    #: The first line of its help.
    purpose: str
    #: Its panel in `smart-fork --help`.
    panel: str

    @property
    def hidden(self) -> bool:
        """Return True if agents and services run it, not people. `help --all` lists it."""
        return self.panel == _AGENTS

    @property
    def module(self) -> str:
        """The full name of its module."""
        name = self.place.rpartition(".")[0]
        return name if "." in name else f"smart_fork.cli.{name}"


_FIND = "Find and fork"
_SESSIONS = "Sessions"
_WORKERS = "Workers"
_TEAM = "Team"
_SERVICE = "Index and service"
_SETUP = "Setup"
_AGENTS = "Run by agents and services"

#: In the order of the help: what people need first comes first.
COMMANDS = {
    "find": CommandEntry("find.find", "Find past sessions of this repository that know how.", _FIND),
    "fork": CommandEntry("fork.fork", "Run a fork of a session. The original stays untouched.", _FIND),
    "why": CommandEntry("find.why", "Print each change of a line with the prompt that caused it.", _FIND),
    "fix": CommandEntry("find.fix", "Print what ended the error on standard input before.", _FIND),
    "list": CommandEntry("find.list_sessions", "List recent sessions, newest first.", _FIND),
    "show": CommandEntry("find.show", "Print a session's conversation with numbered messages.", _FIND),
    "resume": CommandEntry("start.resume", "Resume a session in the directory it worked in.", _FIND),
    "continue": CommandEntry("start.continue_newest", "Resume the newest session of this directory.", _FIND),
    "demo": CommandEntry("demo.demo", "Find and fork on made-up sessions in a temporary home.", _FIND),
    "branch": CommandEntry(
        "families.branch", "Copy a session, whole or up to a message, without running it.", _SESSIONS
    ),
    "lineage": CommandEntry("families.lineage", "Show a session's forks, branches and parents as a tree.", _SESSIONS),
    "verdict": CommandEntry("notes.verdict", "Note what came of a session. Results say it from then on.", _SESSIONS),
    "tag": CommandEntry("notes.tag", "Tag a session, or list all tags.", _SESSIONS),
    "pin": CommandEntry("notes.pin", "Put sessions first in lists.", _SESSIONS),
    "archive": CommandEntry("notes.archive", "Leave sessions out of lists. find still finds them.", _SESSIONS),
    "export": CommandEntry("find.export", "Write a session to one HTML or Markdown file, secrets masked.", _SESSIONS),
    "excise": CommandEntry("excise.app", "Cut turns or secrets out of a session. Every cut can be undone.", _SESSIONS),
    "project": CommandEntry("project.app", "Show which directories this project's sessions come from.", _SESSIONS),
    "forget": CommandEntry("excise.forget", "Remove a session from everything that smart-fork keeps.", _SESSIONS),
    "new": CommandEntry("start.new", "Start an agent in a new session.", _WORKERS),
    "spawn": CommandEntry("start.spawn", "Start up to four workers, each with its own prompt.", _WORKERS),
    "active": CommandEntry("workers.active", "List running workers and what each one does.", _WORKERS),
    "read": CommandEntry("workers.read", "Print a worker's last prompt and answer.", _WORKERS),
    "message": CommandEntry("workers.message", "Send a message to a worker.", _WORKERS),
    "wait": CommandEntry("workers.wait", "Wait until workers are idle, need an answer or have ended.", _WORKERS),
    "close": CommandEntry("workers.close", "End workers by name. Their work stays.", _WORKERS),
    "stop": CommandEntry("workers.stop", "End all workers of this project. Their work stays.", _WORKERS),
    "compare": CommandEntry("workers.compare", "Compare workers: answers, changes, tokens and time.", _WORKERS),
    "worktrees": CommandEntry(
        "workers.worktrees", "List the git worktrees of workers, and remove the unneeded ones.", _WORKERS
    ),
    "sync": CommandEntry("sync.app", "Move your sessions between your machines over a git remote.", _TEAM),
    "team": CommandEntry(
        "smart_fork.team.commands.app", "Share sessions with a team, and fork the sessions of others.", _TEAM
    ),
    "status": CommandEntry(
        "overview.status", "Show index, service, workers and the last error on one screen.", _SERVICE
    ),
    "open": CommandEntry("serve.open_page", "Open the page: search, read and fork in the browser.", _SERVICE),
    "index": CommandEntry("index.app", "Update the search index, or show its state.", _SERVICE),
    "service": CommandEntry("serve.app", "Keep the index fresh with launchd or systemd.", _SERVICE),
    "serve": CommandEntry("serve.serve", "Run the service in this terminal. Ctrl-C ends it.", _AGENTS),
    "logs": CommandEntry("serve.logs", "Print the service's log.", _AGENTS),
    "setup": CommandEntry("setup.app", "Connect smart-fork to your agents. --remove undoes it.", _SETUP),
    "config": CommandEntry("system.config", "Show every setting, its value and where the value comes from.", _SETUP),
    "help": CommandEntry("system.show_help", "Print the help of a command.", _SETUP),
    "agents": CommandEntry("overview.agents", "List the agents on this machine and what each one supports.", _SETUP),
    "doctor": CommandEntry("doctor.doctor", "Test every part and name the next step for each failure.", _SETUP),
    "recall": CommandEntry("find.recall", "Find the one session that knows, or what this one said before.", _AGENTS),
    "choices": CommandEntry("picker.choices", "Print sessions as lines for fzf. smart-fork alone runs this.", _AGENTS),
    "mcp": CommandEntry("system.mcp", "Serve MCP on stdin and stdout. Agents start this.", _AGENTS),
    "statusline": CommandEntry("system.statusline", "Print one segment for an agent's status line.", _AGENTS),
    "hook": CommandEntry("setup.hook", "Take one hook event from stdin. Agents run this.", _AGENTS),
    "welcome": CommandEntry(
        "system.welcome", "Print how many sessions this project has. The plugin's hook runs this.", _AGENTS
    ),
}

if not isdir(f"{dirname(dirname(__file__))}/team"):  # noqa: PTH112, PTH120 - pathlib is not imported for this
    del COMMANDS["team"]


#: Other names of commands, and what people type who do not know ours.
ALIASES = {"search": "find"}
_MEANT = {
    "ls": "list", "history": "list", "query": "find", "ask": "find", "grep": "find", "cat": "show", "view": "show",
    "ps": "active", "workers": "active", "kill": "close", "init": "setup", "install": "setup", "web": "open",
    "start": "new", "run": "new", "blame": "why", "delete": "forget", "rm": "forget", "settings": "config",
}  # fmt: skip


def unknown(words: list[str], path: str, names: Iterable[str]) -> Exception:
    """The refusal of a command that does not exist, with the one that may be meant: of several words, a search."""
    from difflib import get_close_matches

    from smart_fork.errors import Usage

    known = [*names, *(ALIASES if "find" in names else ())]
    meant = [_MEANT[words[0]]] if _MEANT.get(words[0]) in known else get_close_matches(words[0], known, 2)
    asked = " ".join(word for word in words if not word.startswith("-"))
    if not meant and asked != words[0] and "find" in known:
        return Usage(f"No such command: {words[0]}", f'To search: {path} find "{asked}"')
    hint = " or ".join(f"`{path} {one}`" for one in meant)
    return Usage(f"No such command: {words[0]}", f"Did you mean {hint}?" if meant else f"`{path} --help` lists them.")


def group(name: str) -> ModuleType:
    """Import the module of a command.

    Raises:
        Usage: it is not a part of this installation.
    """
    if name not in COMMANDS:
        from smart_fork.errors import Usage

        raise Usage(f"smart-fork {name} is not a part of this installation.")
    return import_module(COMMANDS[name].module)


def named(words: list[str]) -> str | None:
    """The command that these words of a command line name."""
    name = next((one for one in words if not one.startswith("-")), "")
    name = ALIASES.get(name, name)
    return name if name in COMMANDS else None
