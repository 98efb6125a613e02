"""``login`` and ``logout``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from smart_fork.agents.options import takes
from smart_fork.cli.output import out, plain, printed_as_json, say
from smart_fork.errors import NotAuthenticated, SmartForkError, Usage
from smart_fork.team.commands.words import TeamPlace, app


@app.command("login")
def log_in(
    url: Annotated[str, typer.Argument(metavar="URL", help="Address of the server: https://…")],
    invite: Annotated[str | None, typer.Argument(metavar="[INVITATION]", help="It works once.")] = None,
) -> None:
    """Log this machine in with an invitation."""
    import socket

    from smart_fork.team import login
    from smart_fork.team.client import Client

    origin = login.origin_of(url)
    given = (invite or _asked_for()).strip()
    with Client(login.Account(origin, "", "")) as client:
        said = client.login(given, socket.gethostname() or "unknown", login.begin(origin, given))
    login.remember(login.Account(origin, said.user, said.token, login.renewal_after(said.expires_at)))
    if not printed_as_json({"server": origin, "user": said.user, "scope": said.scope}):
        out.print(plain(f"You are {said.user} on {origin}."))


def _asked_for() -> str:
    """The invitation, as it is typed unseen, or as another program hands it over."""
    if sys.stdin.isatty():
        return str(typer.prompt("Invitation", hide_input=True, err=True))
    if given := sys.stdin.readline(1_000).strip():
        return given
    raise Usage("Which invitation?", "smart-fork team login URL INVITATION")


@app.command("logout")
@takes(without=("project",))
def log_out(place: TeamPlace) -> None:
    """Log this machine out."""
    from smart_fork.team import login
    from smart_fork.team.client import Client

    account = login.account(place.server)
    revoked = True
    try:
        with Client(account) as client:
            client.logout()
    except NotAuthenticated:
        pass  # it has ended: an answer was lost, or somebody has taken it back
    except SmartForkError as error:
        revoked = False
        say(f"The server did not revoke the token: {error.message}")
    login.forget(account.origin)
    if not printed_as_json({"server": account.origin, "revoked": revoked}):
        out.print(plain(f"This machine no longer has a token for {account.origin}."))
