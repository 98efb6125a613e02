"""``alias``: what shared sessions are called on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from smart_fork.agents.options import takes
from smart_fork.cli.command import Commands
from smart_fork.cli.output import out, plain, printed_as_json, say
from smart_fork.team.commands.words import ForceOption, SessionArgument, TeamPlace, app

aliases = Commands(help="Names for shared sessions on this machine.", no_args_is_help=True)
app.add_typer(aliases, name="alias")

NameArgument = Annotated[
    str, typer.Argument(metavar="ALIAS", help="Alias: letters, digits, dots, dashes and underscores.")
]


@aliases.command("list")
@takes(without=("server",))
def list_aliases(place: TeamPlace) -> None:
    """List aliases. A star marks the current one."""
    from smart_fork.sharing.tracking import ProjectFolder, Tracking

    tracked = Tracking(ProjectFolder.of(place.project)).read()
    if printed_as_json(tracked.as_json()):
        return
    for name, one in tracked.aliases.items():
        star = "*" if name == tracked.current else " "
        out.print(plain(f"{star} {name}", "bold") + plain(f"  {one.session_id or 'not pushed yet'}  {one.title}"))
    if not tracked.aliases:
        say("Nothing is tracked here.")


@aliases.command("set")
def set_alias(
    *,
    name: NameArgument,
    session: SessionArgument,
    force: ForceOption = False,
    place: TeamPlace,
) -> None:
    """Give a shared session an alias."""
    from smart_fork.team.pull import rename

    with place.opened() as where:
        one = rename(where, name, session, force=force)
    if not printed_as_json({"alias": name, "session_id": one.session_id}):
        out.print(plain(f"{name} is {one.session_id or 'not pushed yet'}"))


@aliases.command("use")
@takes(without=("server",))
def use_alias(name: NameArgument, place: TeamPlace) -> None:
    """Make an alias the default for this project."""
    from smart_fork.sharing.tracking import ProjectFolder, Tracking

    after = Tracking(ProjectFolder.of(place.project)).change(lambda tracked: tracked.with_current(name))
    if not printed_as_json({"current": after.current}):
        out.print(plain(f"{name} is current."))


@aliases.command("remove")
@takes(without=("server",))
def remove_alias(name: NameArgument, place: TeamPlace) -> None:
    """Remove an alias. The session stays."""
    from smart_fork.sharing.tracking import ProjectFolder, Tracking

    Tracking(ProjectFolder.of(place.project)).change(lambda tracked: tracked.without(name))
    if not printed_as_json({"removed": name}):
        out.print(plain(f"{name} is no longer an alias."))
