"""Completes commands and ids in a shell: sessions with their titles, workers with their tasks.

The shells call as the command line's library has them do. Options are left to that library, which takes five times as
long. Titles are hostile, and zsh evaluates what it is given: only words without any sign reach it.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from indexer.project import project_of
from indexer.safe_files import index_db
from smart_fork.cli import index_queries, statusline
from smart_fork.cli.command_table import COMMANDS
from smart_fork.cli.short_ids import harmless, is_id, short

#: What the shell scripts of `--install-completion` set; nobody else does.
VARIABLE = "_SMART_FORK_COMPLETE"
_OF_SESSIONS = ("show", "export", "fork", "branch", "lineage", "forget", "resume", "verdict", "tag", "pin", "archive")
_OF_WORKERS = ("read", "message", "wait", "close", "compare")
#: Options whose value is a session, and options that have none.
_SESSION_OPTIONS = ("--fork-from", "--resume")
_FLAGS = (
    "--json", "--html", "--markdown", "--force", "--worktree", "-w", "--dry-run", "--yes", "-y", "--any", "--start",
)  # fmt: skip
_OFFERED, _TITLE = 40, 60


class Completion(NamedTuple):
    """A word that fits, and what it stands for."""

    value: str
    meaning: str


def answer(env: Mapping[str, str]) -> tuple[str, int] | None:
    """Return the completions and the exit code; `None` if neither a command nor an id is being completed."""
    shell = env.get(VARIABLE, "").removeprefix("complete_")
    asked = words_before(shell, env)
    if asked is None:
        return None
    words, beginning = asked
    kind = _kind(words, beginning)
    if kind is None:
        return None
    found = _CANDIDATES[kind](beginning)
    return _said(shell, [one for one in found if one.value not in words], env, meant=kind != "command")


def words_before(shell: str, env: Mapping[str, str]) -> tuple[list[str], str] | None:
    """The words before the one that is completed, and the beginning of that one; `None` where that is hard to tell."""
    try:
        if shell == "bash":
            words, at = shlex.split(env["COMP_WORDS"]), int(env["COMP_CWORD"])
            return words[1:at], words[at] if at < len(words) else ""
        if shell in ("zsh", "fish"):
            line = env["_TYPER_COMPLETE_ARGS"]
            words = shlex.split(line)[1:]
            return (words, "") if line[-1:].isspace() or not words else (words[:-1], words[-1])
    except (KeyError, ValueError):  # an open quote
        pass
    return None


def _kind(words: list[str], beginning: str) -> str | None:
    if beginning.startswith("-"):
        return None
    if not words:
        return "command"
    begun = any(not word.startswith("-") for word in words[1:])
    if words[-1] == "--tag" or (words[0] == "tag" and begun):
        return "tag"
    if words[0] == "verdict" and begun:  # an outcome comes second
        return None
    if words[0] == "spawn":
        return "session" if words[-1] in _SESSION_OPTIONS else None
    if (words[-1].startswith("-") and words[-1] not in _FLAGS) or "--" in words:
        return None
    if words[0] == "export" and begun:  # a file comes second
        return None
    return "session" if words[0] in _OF_SESSIONS else "worker" if words[0] in _OF_WORKERS else None


def _commands(beginning: str) -> list[Completion]:
    return [
        Completion(name, harmless(command.purpose, _TITLE))
        for name, command in COMMANDS.items()
        if name.startswith(beginning) and not command.hidden
    ]


def _sessions(beginning: str) -> list[Completion]:
    index, here = index_db(), project_of(os.getcwd()).key  # noqa: PTH109 - one import less
    typed = beginning.lower()
    found = index_queries.newest(index, here, _OFFERED, typed)
    if typed and not found:
        found = index_queries.newest(index, None, _OFFERED, typed)
    known = [(one, short(one.session_id)) for one in found if is_id(one.session_id)]
    return [
        Completion(brief if brief.startswith(typed) else one.session_id, harmless(f"{one.agent} {one.title}", _TITLE))
        for one, brief in known
    ]


def _workers(beginning: str) -> list[Completion]:
    return [
        Completion(one.worker_id, harmless(f"{one.status or 'running'} {one.name}", _TITLE))
        for one in statusline.running()
        if one.worker_id.startswith(beginning) and is_id(one.worker_id)
    ]


def _tags(beginning: str) -> list[Completion]:
    from indexer import state

    begun = "mark >= ?1 AND mark < ?1 || ?2 AND mark NOT LIKE ':%'"
    query = f"SELECT mark, count(*) FROM marks WHERE {begun} GROUP BY mark"  # noqa: S608 - our own words
    found = index_queries.rows(state.path(), query, (beginning.lower(), "\U0010ffff"))
    return [Completion(name, f"sessions {number}") for name, number in found]


_CANDIDATES = {"tag": _tags, "command": _commands, "session": _sessions, "worker": _workers}


def _said(shell: str, found: Iterable[Completion], env: Mapping[str, str], *, meant: bool) -> tuple[str, int]:
    """`meant` says whether a value needs its meaning to be told from others."""
    several = list({one.value: one for one in found}.values())
    if shell == "zsh":
        pairs = "\n".join(f'"{one.value}":"{one.meaning}"' for one in several)
        return (f"_arguments '*: :(({pairs}))'" if several else "_files"), 0
    if shell == "fish":
        if env.get("_TYPER_COMPLETE_FISH_ACTION") == "is-args":
            return "", int(not several)
        return "\n".join(f"{one.value}\t{one.meaning}" for one in several), 0
    # bash has no meanings: where it lists several they follow as a comment, and stay one if a menu takes it all.
    alone = len(several) == 1 or not meant
    return "\n".join(one.value if alone else f"{one.value}  # {one.meaning}" for one in several), 0
