"""The group of the verbs of a team, the options that they have in common, and what they print."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from indexer.shapes import dataclass
from smart_fork.cli.command import Commands
from smart_fork.cli.output import out, plain, printed_as_json, say
from smart_fork.errors import Usage
from smart_fork.sharing.limits import TAGS, TEXT
from smart_fork.text.snippets import printable

if TYPE_CHECKING:
    from smart_fork.sharing.wire import Visibility
    from smart_fork.team.project import Project, Shared


app = Commands(
    help="Share sessions with a team, and fork the sessions of others.",
    no_args_is_help=True,
)


ServerOption = Annotated[str | None, typer.Option("--server", help="Address of the server. Default: this project's.")]
KeyOption = Annotated[
    str | None,
    typer.Option("--project", "-p", help="Directory or key of the project: github.com/acme/shop."),
]
SessionArgument = Annotated[str, typer.Argument(metavar="ID", help="Session id, alias or address.")]
CurrentArgument = Annotated[
    str | None, typer.Argument(metavar="[ID]", help="Session id, alias or address. Default: the current alias.")
]
AtOption = Annotated[str | None, typer.Option("--at", help="Number of messages to take, as in `team show`, or `head`.")]
TitleOption = Annotated[str | None, typer.Option("--title", help="Title.")]
TagsOption = Annotated[str | None, typer.Option("--tags", help="Tags, separated by commas.")]
SummaryOption = Annotated[str | None, typer.Option("--summary", help="Summary in a few sentences.")]
PublicOption = Annotated[bool, typer.Option("--public", help="All members of the project can read it.")]
PrivateOption = Annotated[bool, typer.Option("--private", help="Only you can read it. The default.")]
AliasOption = Annotated[str | None, typer.Option("--alias", help="Alias on this machine.")]
IntoOption = Annotated[Path | None, typer.Option("--into", help="Working directory here. Default: the project's root.")]
PlatformOption = Annotated[
    str | None, typer.Option("--platform", help="Agent for the copy. Default: the original agent.")
]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Resume it here immediately.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Proceed despite warnings.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


@dataclass(frozen=True, slots=True)
class TeamPlace:
    """The server and the project of a command."""

    server: ServerOption = None
    project: KeyOption = None

    def opened(self, *, ask: bool = False) -> AbstractContextManager[Project]:
        """Open the project. See `smart_fork.team.project.opened`."""
        from smart_fork.team.project import opened

        return opened(self.server, self.project, ask=ask)

    def current(self, *, ask: bool = False) -> AbstractContextManager[Project]:
        """Apply withdrawals, then open the project."""
        from smart_fork.team.changes import opened

        return opened(self.server, self.project, ask=ask)


def number_of(at: str | None) -> int | None:
    """The number that `--at` was given; ``head`` is no cut.

    Raises:
        Usage: it is none.
    """
    if at is None or at == "head":
        return None
    if not (at.isascii() and at.isdigit() and int(at[:9])):
        raise Usage("--at takes a number of messages, from 1, or head", "`smart-fork team show ID` numbers them.")
    return int(at[:9])


def tags_of(tags: str | None) -> tuple[str, ...] | None:
    """Tags as they were typed, with commas between them; each once.

    Raises:
        Usage: there are too many, or one is too long.
    """
    if tags is None:
        return None
    found = tuple(dict.fromkeys(tag for one in tags.split(",") if (tag := " ".join(printable(one).split()))))
    if len(found) > TAGS:
        raise Usage(f"--tags has {len(found)} of them: {TAGS} at most")
    for one in found:
        text_of(one, "Each of --tags", TEXT)
    return found


def text_of(text: str | None, option: str, most: int) -> str | None:
    """What was said of a session.

    Raises:
        Usage: it is too long.
    """
    if text is not None and len(text) > most:
        raise Usage(f"{option} has {most} characters at most: this is {len(text)}")
    return text


def visibility_of(*, public: bool, private: bool) -> Visibility | None:
    """Who may read it, if that was said."""
    return "public" if public else "private" if private else None


def agreed(question: str, *, yes: bool) -> bool:
    """Whether a person says yes.

    Raises:
        Usage: nobody can be asked.
    """
    if yes:
        return True
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Usage("Cannot ask: no terminal", "--yes confirms in advance.")
    return typer.confirm(question, err=True)


def print_shared(done: Shared) -> None:
    """What was done: as JSON, or in a few lines."""
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
