"""The commands for this machine's login and for its aliases of shared sessions."""

from __future__ import annotations

import socket
import sys
from typing import Annotated

import typer

from smart_fork.agents.request_fields import takes
from smart_fork.cli.command import CommandApp
from smart_fork.cli.output import out, plain, printed_as_json, say
from smart_fork.errors import NotAuthenticated, SmartForkError, Usage
from smart_fork.sharing.tracking import ProjectFolder, Tracking
from smart_fork.team import stored_logins
from smart_fork.team.commands.team_group import ForceOption, SessionArgument, TeamPlace, app


@app.command("login")
def log_in(
    url: Annotated[str, typer.Argument(metavar="URL", help="Address of the server: https://…")],
    invite: Annotated[str | None, typer.Argument(metavar="[INVITATION]", help="It works once.")] = None,
) -> None:
    """Log this machine in with an invitation."""
    from smart_fork.team.client import Client

    origin = stored_logins.origin_of(url)
    given = (invite or _read_invitation()).strip()
    with Client(stored_logins.Account(origin, "", "")) as client:
        said = client.login(given, socket.gethostname() or "unknown", stored_logins.pending_token(origin, given))
    renewal = stored_logins.renewal_after(said.expires_at)
    stored_logins.remember(stored_logins.Account(origin, said.user, said.token, renewal))
    if not printed_as_json({"server": origin, "user": said.user, "scope": said.scope}):
        out.print(plain(f"You are {said.user} on {origin}."))


def _read_invitation() -> str:
    if sys.stdin.isatty():
        return str(typer.prompt("Invitation", hide_input=True, err=True))
    if not (given := sys.stdin.readline(1_000).strip()):
        raise Usage("Which invitation?", "smart-fork team login URL INVITATION")
    return given


@app.command("logout")
@takes(without=("project",))
def log_out(place: TeamPlace) -> None:
    """Log this machine out."""
    from smart_fork.team.client import Client

    account = stored_logins.logged_in_account(place.server)
    revoked = True
    try:
        with Client(account) as client:
            client.logout()
    except NotAuthenticated:
        pass  # it has ended: an answer was lost, or somebody has taken it back
    except SmartForkError as error:
        revoked = False
        say(f"The server did not revoke the token: {error.message}")
    stored_logins.forget(account.origin)
    if not printed_as_json({"server": account.origin, "revoked": revoked}):
        out.print(plain(f"This machine no longer has a token for {account.origin}."))


aliases = CommandApp(help="Names for shared sessions on this machine.", no_args_is_help=True)
app.add_typer(aliases, name="alias")


NameArgument = Annotated[
    str, typer.Argument(metavar="ALIAS", help="Alias: letters, digits, dots, dashes and underscores.")
]


@aliases.command("list")
@takes(without=("server",))
def list_aliases(place: TeamPlace) -> None:
    """List aliases. A star marks the current one."""
    tracked = Tracking(ProjectFolder.of(place.project)).read()
    if printed_as_json(tracked.as_json()):
        return
    for name, one in tracked.aliases.items():
        star = "*" if name == tracked.current else " "
        out.print(plain(f"{star} {name}", "bold") + plain(f"  {one.session_id or 'not pushed yet'}  {one.title}"))
    if not tracked.aliases:
        say("Nothing is tracked here.")


@aliases.command("set")
def set_alias(*, name: NameArgument, session: SessionArgument, force: ForceOption = False, place: TeamPlace) -> None:
    """Give a shared session an alias."""
    from smart_fork.team.tracked_sessions import rename

    with place.opened() as where:
        one = rename(where, name, session, force=force)
    if not printed_as_json({"alias": name, "session_id": one.session_id}):
        out.print(plain(f"{name} is {one.session_id or 'not pushed yet'}"))


@aliases.command("use")
@takes(without=("server",))
def use_alias(name: NameArgument, place: TeamPlace) -> None:
    """Make an alias the default for this project."""
    after = Tracking(ProjectFolder.of(place.project)).change(lambda tracked: tracked.with_current(name))
    if not printed_as_json({"current": after.current}):
        out.print(plain(f"{name} is current."))


@aliases.command("remove")
@takes(without=("server",))
def remove_alias(name: NameArgument, place: TeamPlace) -> None:
    """Remove an alias. The session stays."""
    Tracking(ProjectFolder.of(place.project)).change(lambda tracked: tracked.without(name))
    if not printed_as_json({"removed": name}):
        out.print(plain(f"{name} is no longer an alias."))
