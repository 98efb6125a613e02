"""``fork``."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from smart_fork.cli.output import out, plain, print_json, progress_bar, say
from smart_fork.cli.search import JsonOption
from smart_fork.errors import Usage


class PlaceChoice(StrEnum):
    """Where a fork can run."""

    tmux = "tmux"
    process = "process"
    here = "here"


def fork(  # noqa: PLR0917 - typer's way
    session: Annotated[str, typer.Argument(help="A session id, or at least 8 characters of it.")],
    prompt: Annotated[str | None, typer.Argument(help="What the fork is to do.")] = None,
    at: Annotated[
        str | None,
        typer.Option("--at", help="Fork at the message of this number (see `show`), or at the `match` for --intent."),
    ] = None,
    intent: Annotated[
        str | None, typer.Option("--intent", help="What --at match looks for in the session; the prompt by default.")
    ] = None,
    worktree: Annotated[bool, typer.Option("--worktree", "-w", help="Run it in a new git worktree.")] = False,
    worktree_name: Annotated[
        str | None, typer.Option("--worktree-name", help="The worktree's name; implies --worktree.")
    ] = None,
    place: Annotated[
        PlaceChoice | None, typer.Option("--in", help="Where it runs; tmux where it is installed.")
    ] = None,
    cwd: Annotated[
        Path | None, typer.Option("--cwd", help="The directory it works in; the session's own by default.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="The worker's name, and its window's.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the exact command, start nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a fork of a session; the original stays untouched.

    A prompt that starts with a dash goes after "--":  smart-fork fork 60309e1e -- "-Werror breaks the build, fix it"
    """
    from smart_fork.launch import fork_session

    how: dict[str, Any] = {
        "worktree": worktree_name or worktree or None,
        "place": place.value if place else None,
        "cwd": str(cwd) if cwd else None,
        "name": name,
        "dry_run": dry_run,
        "caller_session_id": os.environ.get("CLAUDE_CODE_SESSION_ID"),
    }
    if at == "match":
        forked = _fork_at_match(session, prompt, intent, as_json=as_json, how=how)
    elif intent is not None:
        raise Usage("--intent is only for --at match", "Say what the fork is to do as its prompt.")
    else:
        forked = fork_session(session, prompt, at=message_number(at), **how)
    if as_json:
        print_json(forked)
    else:
        _print_forked(forked, dry_run=dry_run)


def _fork_at_match(
    session: str, prompt: str | None, intent: str | None, *, as_json: bool, how: dict[str, Any]
) -> dict[str, Any]:
    from smart_fork.background import engine
    from smart_fork.matching import fork_at_match

    wanted = prompt if intent is None else intent
    if not (wanted and wanted.strip()):
        raise Usage("--at match needs an intent", 'Say what to look for in the session: --intent "…", or a prompt.')
    with progress_bar(quiet=as_json) as progress:
        return fork_at_match(session, wanted, engine(progress), prompt, **how)


def message_number(at: str | None) -> int | None:
    """The number that `--at` was given, if any.

    Raises:
        Usage: it is none.
    """
    if at is None:
        return None
    if not (at.isascii() and at.isdigit()):
        raise Usage(f"--at {at} is not a message number", "`smart-fork show ID` prints the numbers; or say `match`.")
    return int(at)


def _print_forked(forked: dict[str, Any], *, dry_run: bool) -> None:
    for warning in forked.get("warnings") or ():
        say(f"note: {warning}")
    if dry_run:
        out.print(plain(forked["command"]))
        return
    out.print(plain(f"Forked {forked['resume_session_id']} as {forked['new_session_id'] or '(id not known yet)'}"))
    out.print(
        plain(f"  worker {forked['worker_id']} in {forked['terminal_id'] or 'a process'}, directory {forked['cwd']}")
    )
    if forked.get("attach"):
        out.print(plain(f"  watch it: {forked['attach']}"))
    if forked.get("log"):
        out.print(plain(f"  its output: {forked['log']}"))
