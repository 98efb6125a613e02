"""The command group ``smart-fork team``: the common options of its commands, questions, and printed results."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated

import typer

from indexer.lazy_compilation import dataclass
from smart_fork.agents.request_fields import said
from smart_fork.cli.command import CommandApp
from smart_fork.cli.output import out, plain, printed_as_json, say
from smart_fork.errors import Usage

if TYPE_CHECKING:
    from smart_fork.team.project import TeamProject
    from smart_fork.team.sharing_result import SharingResult


app = CommandApp(help="Share sessions with a team, and fork the sessions of others.", no_args_is_help=True)


SessionArgument = Annotated[str, typer.Argument(metavar="ID", help="Session id, alias or address.")]
CurrentArgument = Annotated[
    str | None, typer.Argument(metavar="[ID]", help="Session id, alias or address. Default: the current alias.")
]
ForceOption = Annotated[bool, typer.Option("--force", help="Proceed despite warnings.")]


@dataclass(frozen=True, slots=True)
class TeamPlace:
    """The server and the project that a command is for."""

    server: str | None = said(help="Address of the server. Default: this project's.")
    project: str | None = said(help="Directory or key of the project: github.com/acme/shop.", flags=("--project", "-p"))

    def opened(self, *, ask: bool = False) -> AbstractContextManager[TeamProject]:
        """Return a context with the opened project. With `ask`, its `away` has the error of a server without answer."""
        from smart_fork.team.project import opened

        return opened(self.server, self.project, ask=ask)

    def current(self, *, ask: bool = False) -> AbstractContextManager[TeamProject]:
        """Return a context with the opened project, after removing text that its owners withdrew from copies here."""
        from smart_fork.team.withdraw import opened_current

        return opened_current(self.server, self.project, ask=ask)


def message_count(at: str | None) -> int | None:
    """Return the number in the option `--at`; `None` for ``head`` or no text. Raise `Usage` for other texts."""
    if at is None or at == "head":
        return None
    if not (at.isascii() and at.isdigit() and int(at[:9])):
        raise Usage("--at takes a number of messages, from 1, or head", "`smart-fork team show ID` numbers them.")
    return int(at[:9])


def confirm(question: str, *, yes: bool = False) -> None:
    """Ask the user, unless `yes` is set. Abort the command if the answer is no, or if there is no terminal."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Usage("Cannot ask: no terminal", "--yes confirms in advance.")
    if not typer.confirm(question, err=True):
        raise typer.Abort


def print_shared(done: SharingResult) -> None:
    """Print the result of a sharing command, as JSON or in a few lines."""
    if printed_as_json(done):
        return
    said = {"push": "Pushed", "pull": "Pulled", "branch": "Branched", "fork": "Forked"}[done.verb]
    what = "Nothing is new" if done.up_to_date else f"{said} {done.record_count} records"
    if done.verb == "push" and not done.up_to_date:
        what = f"Pushed {done.pushed_records} records"
    out.print(plain(f"{what}: ") + plain(done.title or "untitled", "bold"))
    where = f"{done.session_id} ({done.visibility})" if done.session_id else "only on this machine until the first push"
    out.print(plain(f"  session  {where}"))
    if done.alias:
        out.print(plain(f"  alias    {done.alias}"))
    for file in done.files:
        out.print(plain(f"  file     {file}"))
    if done.resume_command:
        out.print(plain(f"  resume   {done.resume_command}"))
    if done.moved:
        say("It ends after the requested message, where the agent had finished.")
    for what, numbers in (("Masked", done.masked), ("Dropped", done.left_out), ("Not in it", done.lost)):
        if numbers:
            say(f"{what}: {', '.join(f'{kind} ({number})' for kind, number in numbers.items())}")
    for warning in done.warnings:
        say(warning)
