"""The table of all commands: module, purpose, and panel (section) in the help.

The list of commands and shell completion read it, because importing all commands takes as long as a search.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from os.path import dirname, isdir
from types import ModuleType
from typing import NamedTuple

from smart_fork.errors import Usage


class CommandEntry(NamedTuple):
    """A row of the command table: a command, or a group of commands such as ``team``."""

    #: The command's function, or the group's app, with its module. A module without a package is in `smart_fork.cli`.
    place: str
    #: The first line of its help.
    purpose: str
    #: Its panel in `smart-fork --help`.
    panel: str

    @property
    def hidden(self) -> bool:
        """Return True if agents and services run this command. Only ``help --all`` lists it."""
        return self.panel == _AGENTS

    @property
    def module(self) -> str:
        name = self.place.rpartition(".")[0]
        return name if "." in name else f"smart_fork.cli.{name}"


_AGENTS = "Run by agents and services"
#: The commands by panel, in the order of the help: what people need first comes first.
_PANELS = {
    "Find and fork": {
        "find": ("find.find", "Find past sessions of this repository that know how."),
        "fork": ("fork.fork", "Run a fork of a session. The original stays untouched."),
        "why": ("find.why", "Print each change of a line with the prompt that caused it."),
        "fix": ("find.fix", "Print what ended the error on standard input before."),
        "list": ("sessions.list_sessions", "List recent sessions, newest first."),
        "show": ("sessions.show", "Print a session's conversation with numbered messages."),
        "resume": ("start_agents.resume", "Resume a session in the directory it worked in."),
        "continue": ("start_agents.continue_newest", "Resume the newest session of this directory."),
        "demo": ("demo.demo", "Find and fork on made-up sessions in a temporary home."),
    },
    "Sessions": {
        "branch": ("fork.branch", "Copy a session, whole or up to a message, without running it."),
        "lineage": ("sessions.lineage", "Show a session's forks, branches and parents as a tree."),
        "verdict": ("marks.verdict", "Note what came of a session. Results say it from then on."),
        "tag": ("marks.tag", "Tag a session, or list all tags."),
        "pin": ("marks.pin", "Put sessions first in lists."),
        "archive": ("marks.archive", "Leave sessions out of lists. find still finds them."),
        "export": ("sessions.export", "Write a session to one HTML or Markdown file, secrets masked."),
        "excise": ("excise.app", "Cut turns or secrets out of a session. Every cut can be undone."),
        "project": ("project.app", "Show which directories this project's sessions come from."),
        "forget": ("excise.forget", "Remove a session from everything that smart-fork keeps."),
    },
    "Workers": {
        "new": ("start_agents.new", "Start an agent in a new session."),
        "spawn": ("start_agents.spawn", "Start up to four workers, each with its own prompt."),
        "active": ("workers.active", "List running workers and what each one does."),
        "read": ("workers.read", "Print a worker's last prompt and answer."),
        "message": ("workers.message", "Send a message to a worker."),
        "wait": ("workers.wait", "Wait until workers are idle, need an answer or have ended."),
        "close": ("workers.close", "End workers by name. Their work stays."),
        "stop": ("workers.stop", "End all workers of this project. Their work stays."),
        "compare": ("workers.compare", "Compare workers: answers, changes, tokens and time."),
        "worktrees": ("workers.worktrees", "List the git worktrees of workers, and remove the unneeded ones."),
    },
    "Team": {
        "sync": ("sync.app", "Move your sessions between your machines over a git remote."),
        "team": ("smart_fork.team.commands.app", "Share sessions with a team, and fork the sessions of others."),
    },
    "Index and service": {
        "status": ("status.status", "Show index, service, workers and the last error on one screen."),
        "open": ("service_commands.open_page", "Open the page: search, read and fork in the browser."),
        "index": ("index.app", "Update the search index, or show its state."),
        "service": ("service_commands.app", "Keep the index fresh with launchd or systemd."),
    },
    _AGENTS: {
        "serve": ("service_commands.serve", "Run the service in this terminal. Ctrl-C ends it."),
        "logs": ("service_commands.logs", "Print the service's log."),
        "recall": ("find.recall", "Find the one session that knows, or what this one said before."),
        "choices": ("session_picker.choices", "Print sessions as lines for fzf. smart-fork alone runs this."),
        "mcp": ("main.mcp", "Serve MCP on stdin and stdout. Agents start this."),
        "statusline": ("quick_answers.statusline", "Print one segment for an agent's status line."),
        "hook": ("main.hook", "Take one hook event from stdin. Agents run this."),
        "welcome": ("quick_answers.welcome", "Print how many sessions this project has. The plugin's hook runs this."),
    },
    "Setup": {
        "setup": ("setup.app", "Connect smart-fork to your agents. --remove undoes it."),
        "config": ("config.config", "Show every setting, its value and where the value comes from."),
        "help": ("main.show_help", "Print the help of a command."),
        "agents": ("agents.agents", "List the agents on this machine and what each one supports."),
        "doctor": ("doctor.doctor", "Test every part and name the next step for each failure."),
    },
}
COMMANDS = {name: CommandEntry(*entry, panel) for panel, entries in _PANELS.items() for name, entry in entries.items()}

if not isdir(f"{dirname(dirname(__file__))}/team"):  # noqa: PTH112, PTH120 - pathlib is not imported for this
    del COMMANDS["team"]


#: Other names of commands, which work, and below words for which an error suggests a command.
ALIASES = {"search": "find"}
_MEANT = {
    "ls": "list", "history": "list", "query": "find", "ask": "find", "grep": "find", "cat": "show", "view": "show",
    "ps": "active", "workers": "active", "kill": "close", "init": "setup", "install": "setup", "web": "open",
    "start": "new", "run": "new", "blame": "why", "delete": "forget", "rm": "forget", "settings": "config",
}  # fmt: skip


def unknown_command(words: list[str], path: str, names: Iterable[str]) -> Exception:
    """Return the error for an unknown command, the first of `words`, in the program or command group `path`.

    It suggests a similar command of `names`, or a search if there is none and there are several words.
    """
    from difflib import get_close_matches

    known = [*names, *(ALIASES if "find" in names else ())]
    meant = [_MEANT[words[0]]] if _MEANT.get(words[0]) in known else get_close_matches(words[0], known, 2)
    asked = " ".join(word for word in words if not word.startswith("-"))
    if not meant and asked != words[0] and "find" in known:
        return Usage(f"No such command: {words[0]}", f'To search: {path} find "{asked}"')
    hint = " or ".join(f"`{path} {one}`" for one in meant)
    return Usage(f"No such command: {words[0]}", f"Did you mean {hint}?" if meant else f"`{path} --help` lists them.")


def command_module(name: str) -> ModuleType:
    """Import and return the module of the command `name`.

    Raises:
        Usage: this installation does not have the command.
    """
    if name not in COMMANDS:
        raise Usage(f"smart-fork {name} is not a part of this installation.")
    return import_module(COMMANDS[name].module)


def command_in(words: list[str]) -> str | None:
    """Return the command that the arguments `words` call: the first word without a dash; `None` if it is no command."""
    name = next((one for one in words if not one.startswith("-")), "")
    name = ALIASES.get(name, name)
    return name if name in COMMANDS else None
