"""Frequent answers to shells and agents, given before the complete command line is imported.

These are shell completion, the status line (several times a minute), and the welcome line. Options are completed by
typer, which takes five times as long. Zsh evaluates the words that it gets, and a title may be hostile, so only words
without special characters are printed.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import apsw

from indexer.project import project_of
from indexer.safe_files import index_db
from smart_fork.cli.command_table import COMMANDS
from smart_fork.cli.session_ids import is_id, short
from smart_fork.workers.registry_path import registry_file

#: The variable that the shell scripts of `--install-completion` set.
VARIABLE = "_SMART_FORK_COMPLETE"
_OF_SESSIONS = ("show", "export", "fork", "branch", "lineage", "forget", "resume", "verdict", "tag", "pin", "archive")
_OF_WORKERS = ("read", "message", "wait", "close", "compare")
#: Options with a session as value; below, options without a value.
_SESSION_OPTIONS = ("--fork-from", "--resume")
_FLAGS = (
    "--json", "--html", "--markdown", "--force", "--worktree", "-w", "--dry-run", "--yes", "-y", "--any", "--start",
)  # fmt: skip
_OFFERED, _TITLE = 40, 60
#: Allowed characters beside letters and digits: none of them has a meaning for a shell, a pattern or a completion.
_PLAIN = " .,_-/+@"


class Completion(NamedTuple):
    """A word that completes the command line, and its `meaning`, a short description."""

    value: str
    meaning: str


def completions(env: Mapping[str, str]) -> tuple[str, int] | None:
    """Return the completions for a shell that asks with the variables `env`, and an exit code.

    Only commands, sessions, workers and tags are completed. Return `None` for all else, which typer completes.
    """
    shell = env.get(VARIABLE, "").removeprefix("complete_")
    asked = words_before(shell, env)
    if asked is None:
        return None
    words, beginning = asked
    kind = _kind(words, beginning)
    if kind is None:
        return None
    found = _CANDIDATES[kind](beginning)
    return _formatted(shell, [one for one in found if one.value not in words], env, described=kind != "command")


def words_before(shell: str, env: Mapping[str, str]) -> tuple[list[str], str] | None:
    """Return the words before the one to complete, and the typed part of that word; `None` if a quote is open."""
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


def harmless(text: str, limit: int) -> str:
    """Return `text` on one line of at most `limit` characters, without those that a shell could interpret."""
    plain = "".join(one if one.isalnum() or one in _PLAIN else " " for one in text[: 4 * limit])
    words = " ".join(plain.split())
    return words if len(words) <= limit else words[: limit - 1].rstrip() + "…"


def _commands(beginning: str) -> list[Completion]:
    return [
        Completion(name, harmless(command.purpose, _TITLE))
        for name, command in COMMANDS.items()
        if name.startswith(beginning) and not command.hidden
    ]


def _sessions(beginning: str) -> list[Completion]:
    index, here = index_db(), project_of(os.getcwd()).key  # noqa: PTH109 - one import less
    typed = beginning.lower()
    found = newest(index, here, _OFFERED, typed)
    if typed and not found:
        found = newest(index, None, _OFFERED, typed)
    known = [(one, short(one.session_id)) for one in found if is_id(one.session_id)]
    return [
        Completion(brief if brief.startswith(typed) else one.session_id, harmless(f"{one.agent} {one.title}", _TITLE))
        for one, brief in known
    ]


def _workers(beginning: str) -> list[Completion]:
    return [
        Completion(one.worker_id, harmless(f"{one.status or 'running'} {one.name}", _TITLE))
        for one in running_workers()
        if one.worker_id.startswith(beginning) and is_id(one.worker_id)
    ]


def _tags(beginning: str) -> list[Completion]:
    from indexer import state_db

    begun = "mark >= ?1 AND mark < ?1 || ?2 AND mark NOT LIKE ':%'"
    query = f"SELECT mark, count(*) FROM marks WHERE {begun} GROUP BY mark"  # noqa: S608 - our own words
    found = rows(state_db.path(), query, (beginning.lower(), "\U0010ffff"))
    return [Completion(name, f"sessions {number}") for name, number in found]


_CANDIDATES = {"tag": _tags, "command": _commands, "session": _sessions, "worker": _workers}


def _formatted(shell: str, found: Iterable[Completion], env: Mapping[str, str], *, described: bool) -> tuple[str, int]:
    """Return the completions `found` in the form that `shell` reads, and an exit code.

    With `described`, bash gets the descriptions of the words, too, if there are several.
    """
    several = list({one.value: one for one in found}.values())
    if shell == "zsh":
        pairs = "\n".join(f'"{one.value}":"{one.meaning}"' for one in several)
        return (f"_arguments '*: :(({pairs}))'" if several else "_files"), 0
    if shell == "fish":
        if env.get("_TYPER_COMPLETE_FISH_ACTION") == "is-args":
            return "", int(not several)
        return "\n".join(f"{one.value}\t{one.meaning}" for one in several), 0
    # bash has no meanings: where it lists several they follow as a comment, and stay one if a menu takes it all.
    alone = len(several) == 1 or not described
    return "\n".join(one.value if alone else f"{one.value}  # {one.meaning}" for one in several), 0


MAX_BYTES = 1 << 20
_FORK_TITLE = 32


def print_segment() -> NoReturn:
    """Print smart-fork's part of an agent's status line, which may be empty, and end this process."""
    _print_and_exit(lambda: f"{said}\n" if (said := _segment_for_stdin()) else "")


def _segment_for_stdin() -> str:
    try:
        return status_segment(json.loads(sys.stdin.buffer.read(MAX_BYTES)))
    except ValueError:
        return ""


def print_welcome() -> NoReturn:
    """Print the line that welcomes a new session, which may be empty, and end this process."""
    _print_and_exit(welcome_line)


def _print_and_exit(answer: Callable[[], str]) -> NoReturn:
    """Print the result of `answer` and exit with 0, even after an error, so that no agent fails because of it."""
    try:
        sys.stdout.buffer.write(answer().encode())
        sys.stdout.buffer.flush()
    except BaseException:  # noqa: BLE001, S110 - see above
        pass
    os._exit(0)


def status_segment(status: Any) -> str:
    """Return smart-fork's part of Claude Code's status line, such as ``fork of … · 2 workers, 1 asks``.

    `status` is the JSON with which Claude Code describes its session. Without a parent and workers, the text is empty.
    """
    session_id = _text(status, "session_id")
    directory = _text(status, "workspace", "project_dir") or _text(status, "cwd")
    parts = [_worker_count(running_workers(), session_id, directory)]
    if parent := source_of(session_id):
        parts.insert(0, f"fork of {harmless(title_of(index_db(), parent) or parent[:13], _FORK_TITLE)}")
    return " · ".join(filter(None, parts))


def _worker_count(running: list[KnownWorker], session_id: str, directory: str) -> str:
    """Return the number of workers in words, such as ``2 workers, 1 asks``; empty without workers.

    A worker counts if the session started it, or if it works in the project of `directory`.
    """
    here = project_of(directory).key if directory else ""
    mine = [
        one
        for one in running
        if one.session_id != session_id
        and ((session_id and one.caller_session_id == session_id) or (here and project_of(one.cwd).key == here))
    ]
    if not mine:
        return ""
    asking = sum(one.status == "waiting" for one in mine)
    asks = f", {asking} ask{'s' if asking == 1 else ''}" if asking else ""
    return f"{len(mine)} worker{'s' if len(mine) > 1 else ''}{asks}"


def _text(value: Any, *names: str) -> str:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""


class KnownWorker(NamedTuple):
    """A running worker in the registry (the table of workers). `status` is what its hooks last reported."""

    worker_id: str
    name: str
    status: str
    session_id: str
    caller_session_id: str
    cwd: str
    pid: int | None


def running_workers() -> list[KnownWorker]:
    """Return the running workers, newest first, without importing the modules that write the registry.

    Workers with a process that has ended are left out.
    """
    query = (
        "SELECT id, name, status, coalesce(session_id, ''), coalesce(caller_session_id, ''), cwd,"
        " pid FROM workers WHERE state IN ('starting', 'running') ORDER BY started_at DESC"
    )
    found = [KnownWorker(*row) for row in rows(registry_file(), query, ())]
    return [one for one in found if one.pid is None or _lives(one.pid)]


def source_of(session_id: str) -> str:
    """Return the id of the session that a worker's session was forked from; empty if it was not forked."""
    query = "SELECT source_session_id FROM workers WHERE session_id = ? AND kind IN ('fork', 'branch')"
    found = rows(registry_file(), query, (session_id,))
    return str(found[0][0]) if found else ""


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        pass  # somebody else's, or no number of a process
    return True


def welcome_line() -> str:
    """Return a line that tells a new session how many past sessions of its project can be searched.

    It is empty in a worker's session, and without past sessions. It contains no titles, because text from logs must not
    reach the model unasked.
    """
    if os.environ.get("SMART_FORK_WORKER_ID"):
        return ""
    known = session_count(index_db(), project_of(os.getcwd()).key)  # noqa: PTH109
    if not known:
        return ""
    sessions = "1 past session" if known == 1 else f"{known:,} past sessions"
    return (
        f"smart-fork: {sessions} of this repository can be searched and forked. Before work that resembles something"
        " done earlier, ask its tools for a session that knows how.\n"
    )


# As commands of the whole command line, which `launcher` needs only for their options.


def statusline() -> None:
    """Print one segment of a status line, for the JSON on stdin: the session's parent, and its workers."""
    from smart_fork.cli.output import print_json, wants_json

    if not wants_json():
        print_segment()
    print_json({"segment": _segment_for_stdin()})


def welcome() -> None:
    """Print one line about the number of past sessions, or nothing. The plugin's hook runs this."""
    from smart_fork.cli.output import print_json, wants_json

    if not wants_json():
        print_welcome()
    print_json({"line": welcome_line()})


#: How long a query waits for an index that is being written.
PATIENCE_MILLISECONDS = 50


class IndexedSession(NamedTuple):
    """A session in the index. Its title comes from a log, and may be hostile to a shell or a terminal."""

    agent: str
    session_id: str
    title: str


def newest(path: Path, project: str | None, limit: int, beginning: str = "") -> list[IndexedSession]:
    """Return at most `limit` sessions that people started, newest first, from the index at `path`.

    `project` is a project's key, or `None` for all. The ids begin with `beginning`.
    """
    begins = "AND session_id >= ? AND session_id < ? ORDER BY until DESC LIMIT ?"
    values = (project, project, beginning, beginning + "\U0010ffff", limit)
    query = f"SELECT sessions.agent, session_id, title {_OF} {begins}"
    return [IndexedSession(*row) for row in rows(path, query, values)]


def titled(path: Path, project: str, title: str) -> list[IndexedSession]:
    """Return at most two sessions of a project with this title, ignoring case. Two mean that it is ambiguous."""
    query = f"SELECT sessions.agent, session_id, title {_OF} AND title = ? COLLATE NOCASE LIMIT 2"
    return [IndexedSession(*row) for row in rows(path, query, (project, project, title))]


def title_of(path: Path, session_id: str) -> str:
    """Return the session's title from the index at `path`; empty if the index does not have it."""
    found = rows(path, "SELECT title FROM sessions WHERE session_id = ? LIMIT 1", (session_id,))
    return str(found[0][0]) if found else ""


def session_count(path: Path, project: str) -> int:
    """Return the number of the project's sessions that people started, from the index at `path`."""
    return next((int(number) for (number,) in rows(path, f"SELECT count(*) {_OF}", (project, project))), 0)


_OF = (
    "FROM sessions JOIN parts ON parts.id = sessions.part JOIN projects ON projects.id = parts.project"
    " WHERE (? IS NULL OR projects.key = ?) AND NOT parts.automated AND home IS NULL"
)


def rows(path: Path, query: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
    """Run a query on the database at `path`. Return no rows if it is missing or cannot be read immediately."""
    try:
        db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    except apsw.Error:
        return []
    try:
        db.set_busy_timeout(PATIENCE_MILLISECONDS)
        return list(db.execute(query, values))
    except apsw.Error:
        return []
    finally:
        db.close()
