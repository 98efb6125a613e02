"""The command ``sync``: your own sessions on several machines."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from indexer.errors import joined
from smart_fork.cli.command import CommandApp
from smart_fork.cli.options import ProjectOption, with_options
from smart_fork.cli.output import out, printed_as_json, progress_bar, say
from smart_fork.sharing.sync import run
from smart_fork.sharing.sync import setup as synchronization

if TYPE_CHECKING:
    from smart_fork.sharing.sync.run import MovedSession, Synced


app = CommandApp(help="Move your sessions between your machines over a git remote.", invoke_without_command=True)

DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show what would be done. Change nothing.")]


@app.callback()
@with_options
def sync(
    ctx: typer.Context,
    dry_run: DryRunOption = False,
    accept_older: Annotated[bool, "Accept a remote with an older state."] = False,
) -> None:
    """Send this machine's sessions and receive those of your other machines, encrypted, over a git remote."""
    if ctx.invoked_subcommand is None:
        with progress_bar() as progress:
            done = run.sync(dry_run=dry_run, older=accept_older, progress=progress)
        _print(done)


@app.command("setup")
def setup(
    remote: Annotated[str, typer.Argument(metavar="REMOTE", help="A git remote that only you use: URL or directory.")],
    key: Annotated[bool, "Read the key of your other machine from stdin."] = False,
    project: ProjectOption = None,
) -> None:
    """Choose the remote and the key, and add this repository."""
    done = synchronization.set_up(remote, _read_key() if key else None, project)
    if printed_as_json(done):
        return
    out.print(f"{done.directories[0] if done.directories else ''} takes part. Remote: {done.remote}")
    say("Next: smart-fork sync. On the other machine: smart-fork sync setup --key REMOTE.")
    if not key:
        say("`smart-fork sync key` prints the key for it. Keep a copy: only the key opens the remote.")


def _read_key() -> str:
    """Read the sync key of the person's other machine from stdin. On a terminal, the key is not shown."""
    if sys.stdin.isatty():
        return str(typer.prompt("Key", hide_input=True, err=True))
    return sys.stdin.readline(1_000)


@app.command("key", json=False)
def show_key() -> None:
    """Print the key for another machine. Who has it can read all synced sessions."""
    out.print(synchronization.key_words())


@app.command("add")
def add(project: ProjectOption = None) -> None:
    """Add this repository: its sessions are sent and received."""
    done = synchronization.add(project)
    if not printed_as_json(done):
        out.print("\n".join(done.directories))


@app.command("remove")
def remove(project: ProjectOption = None) -> None:
    """Stop sending this repository's sessions. Sent sessions stay until you withdraw them."""
    done = synchronization.remove(project)
    if not printed_as_json(done):
        out.print("\n".join(done.directories) or "No repository takes part.")


@app.command("leave")
def leave() -> None:
    """Delete the key and all settings of sync from this machine. Sessions stay."""
    done = synchronization.leave()
    if not printed_as_json(done):
        out.print(f"This machine no longer syncs with {done.remote}.")


@app.command("withdraw")
def withdraw(
    session: Annotated[str, typer.Argument(metavar="SESSION", help="Session id, 8 characters or more.")],
) -> None:
    """Remove a session from the remote and your other machines for good.

    The original log stays.
    """
    with progress_bar() as progress:
        done = run.withdraw(session, progress=progress)
    _print(done)


def _print(done: Synced) -> None:
    """Print what was sent, received and withdrawn. Exit with 1 if a session could not be moved."""
    if not printed_as_json(done):
        for line in _lines(done):
            out.print(line)
        for left in done.failed:
            say(joined(f"Not moved: {left.session_id}: {left.error}", left.hint))
    if done.failed:
        raise typer.Exit(1)


def _lines(done: Synced) -> Iterator[str]:
    for what, moved in (("sent", done.sent), ("received", done.received), ("withdrawn", done.withdrawn)):
        yield from (f"  {what:<9}  {_line(one)}" for one in moved)
    for one in done.waiting:
        many = f"{one.sessions} session{'s' * (one.sessions != 1)}"
        where = f"{one.remote or one.directory} (from {one.machine})"
        yield f"  waiting    {many} of {where}. In a clone: smart-fork sync add"
    counts = f"{len(done.sent)} sent, {len(done.received)} received, {len(done.withdrawn)} withdrawn"
    yield f"{counts}. Nothing was changed." if done.dry_run else f"{counts}."


def _line(one: MovedSession) -> str:
    return f"{one.session_id[:13]}  {one.title or 'untitled'}{f' (from {one.machine})' if one.machine else ''}"
