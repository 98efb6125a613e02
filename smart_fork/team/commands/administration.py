"""The commands of a team's server and its users: ``serve``, ``user``, ``jobs``, ``backup`` and ``restore``.

``backup`` and ``restore`` work on the server's database, on its own machine.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from indexer.environment import Setting
from smart_fork.agents.request_fields import takes
from smart_fork.cli.command import CommandApp
from smart_fork.cli.output import out, plain, print_json, printed_as_json, say, wants_json
from smart_fork.errors import NotFound, Usage
from smart_fork.system.processes import Processes
from smart_fork.team import stored_logins
from smart_fork.team.commands.team_group import app
from smart_fork.team.server import ServerLocation, ServerOptions, check_installed

people = CommandApp(help="Manage users and their projects.", no_args_is_help=True)
tokens = CommandApp(help="List and revoke tokens.", no_args_is_help=True)
app.add_typer(people, name="user")
people.add_typer(tokens, name="token")


UserArgument = Annotated[str, typer.Argument(help="User name: 1 to 32 of a-z, 0-9 and -.")]


@app.command("serve")
def serve(options: ServerOptions) -> None:
    """Run a team server in this terminal. Ctrl-C ends it."""
    check_installed(embedded=not (options.dsn or os.environ.get(Setting.TEAM_DSN)))
    said = asdict(replace(options, as_json=wants_json()))
    for variable, name in ((Setting.TEAM_DSN, "dsn"), (Setting.TEAM_READ_DSN, "read_dsn")):
        if given := said.pop(name):
            os.environ[variable] = given  # and not in the command line, which everybody on this machine can read
    sys.stdout.flush()
    words = Processes.python("smart_fork.team.server", json.dumps(said, default=str))
    os.execv(sys.executable, words)  # noqa: S606 - no shell


@people.command("add")
def add(
    name: UserArgument,
    *,
    admin: Annotated[bool, "Make this user an admin."] = False,
    project: Annotated[
        str | None, typer.Option("--project", metavar="KEY", help="Project to read and write: github.com/acme/shop.")
    ] = None,
    where: ServerLocation,
) -> None:
    """Add a user and print an invitation."""
    _print_invitation(_administered(where, verb="add", name=name, admin=admin, project=project or ""))


@people.command("invite")
def invite(name: UserArgument, where: ServerLocation) -> None:
    """Print another invitation, for another machine."""
    _print_invitation(_administered(where, verb="invite", name=name))


@people.command("list")
def list_users(where: ServerLocation) -> None:
    """List users and their roles."""
    told = _administered(where, verb="users")
    if printed_as_json(told):
        return
    for one in told["users"]:
        kind = "disabled" if one["disabled"] else one["role"]
        out.print(plain(f"{one['name']:<32}  {kind:<8}  {one['bytes']:>12} bytes  {one['seen'] or 'never here'}"))
        for key, role in sorted(one["projects"].items()):
            out.print(plain(f"  {role:<10}  {key}"))


@people.command("disable")
def disable(name: UserArgument, where: ServerLocation) -> None:
    """Disable a user. Pushed sessions stay."""
    _done(_administered(where, verb="disable", name=name), f"{name} can no longer sign in.")


@people.command("enable")
def enable(name: UserArgument, where: ServerLocation) -> None:
    """Enable a user again with a new invitation."""
    told = _administered(where, verb="enable", name=name)
    _done(told, f"{name} can sign in again. Invite: smart-fork team user invite {name}")


@people.command("member")
def member(
    name: UserArgument,
    role: Annotated[Literal["reader", "writer", "maintainer", "none"], typer.Argument(help="Role in the project.")],
    *,
    project: Annotated[str, typer.Option("--project", metavar="KEY", help="Key of the project: github.com/acme/shop.")],
    make: Annotated[bool, "Create the project if it does not exist."] = False,
    where: ServerLocation,
) -> None:
    """Set a user's role in a project."""
    told = _administered(where, verb="member", name=name, role=role, project=project, make=make)
    said = f"{name} is not a member of {project}." if role == "none" else f"{name} is a {role} of {project}."
    _done(told, said)


@tokens.command("list")
def list_tokens(where: ServerLocation) -> None:
    """List machines that are logged in."""
    told = _administered(where, verb="tokens")
    if printed_as_json(told):
        return
    for one in told["tokens"]:
        last = "revoked" if one["revoked"] else one["used"] or "never used"
        out.print(plain(f"{one['id']:>6}  {one['user']:<32}  {one['scope']:<5}  {last:<25}  {one['machine']}"))


@tokens.command("revoke")
def revoke(
    token: Annotated[int, typer.Argument(metavar="ID", help="Token number, as in `token list`.")], where: ServerLocation
) -> None:
    """Log a machine out."""
    _done(_administered(where, verb="revoke", token=token), f"Token {token} is revoked.")


@app.command("jobs")
def jobs(*, retry: Annotated[bool, "Try all failed jobs again."] = False, where: ServerLocation) -> None:
    """List failed background jobs of the server."""
    told = _administered(where, verb="retry" if retry else "jobs")
    if printed_as_json(told):
        return
    if retry:
        out.print(plain(f"{told['retried']} are tried again."))
        return
    for one in told["jobs"]:
        about = f"{one['project'] or 'the server'}  {one['session_id'] or ''}"
        out.print(plain(f"{one['kind']:<12}  {about}  tried {one['attempts']} times: {one['error']}"))
    if not told["jobs"]:
        out.print("No job has failed.")


def _administered(where: ServerLocation, **asked: object) -> dict[str, Any]:
    """Carry out an admin request, such as adding a user, and return the answer.

    On the server's own machine, the request goes directly to the database. From other machines, it goes to the server
    with the user's token.
    """
    from smart_fork.team import client, wire

    try:
        wanted = wire.Administer.model_validate(asked)
    except ValueError as error:
        raise Usage("This is not a token number.") from error
    dsn = _dsn_of(where)
    own_server = where.server is None and (ServerLocation().folder.exists() or not stored_logins.has_login())
    if where.data or dsn or own_server:
        check_installed(embedded=False)
        from smart_fork.team.server.administration import carry_out_locally

        return carry_out_locally(where.folder, dsn, wanted)
    with client.Client(stored_logins.logged_in_account(where.server)) as connection:
        return connection.administer(wanted)


def _print_invitation(told: dict[str, Any]) -> None:
    if printed_as_json(told):
        return
    out.print(plain(told["invite"]))
    say(
        f"It works once, for {told['days']} days. {told['user']} runs: smart-fork team login URL, and pastes the "
        "invitation."
    )
    if project := told.get("project"):
        say(f"{told['user']} is a {told['project_role']} of {project}.")


def _done(told: dict[str, Any], said: str) -> None:
    if not printed_as_json(told):
        out.print(plain(said))


@app.command("backup")
@takes(without=("server",))
def backup(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder for the backup file.")],
    *,
    days: Annotated[int, typer.Option("--days", min=1, help="Days until a later backup deletes this one.")] = 30,
    where: ServerLocation,
) -> None:
    """Back up the server's database while it runs."""
    check_installed(embedded=True)
    from smart_fork.team.server import backup as backups

    with backups.opened(where.folder, _dsn_of(where)) as place:
        done = backups.backup(place, folder, now=datetime.now(UTC), days=days)
    if wants_json():
        removed = [str(one) for one in done.removed]
        until = done.until.isoformat(timespec="seconds")
        print_json({"path": str(done.path), "bytes": done.size, "until": until, "removed": removed})
        return
    out.print(plain(str(done.path)))
    say(f"{done.size} bytes. It keeps later withdrawals until {done.until:%Y-%m-%d}.")
    if done.removed:
        say(f"Removed old backups: {', '.join(one.name for one in done.removed)}")


@app.command("restore")
@takes(without=("server",))
def restore(
    file: Annotated[Path, typer.Argument(help="Backup file.")],
    *,
    where: ServerLocation,
    run_as: Annotated[
        str | None, typer.Option("--run-as", metavar="USER", help="User that runs the server. Required for root.")
    ] = None,
) -> None:
    """Restore a backup. Stop the server first."""
    if not file.is_file():  # before a database is made for it
        raise NotFound(f"No such backup: {file}", "smart-fork team backup DIR prints the files that it wrote.")
    check_installed(embedded=True)
    from smart_fork.team.server import backup as backups

    with backups.opened(where.folder, _dsn_of(where), run_as=run_as, stopped=True) as place:
        done = backups.restore(place, file)
    if printed_as_json({"path": str(file), "withdrawals": done}):
        return
    say(f"{file} restored; {done} withdrawals applied again. Start the server: smart-fork team serve")


def _dsn_of(where: ServerLocation) -> str | None:
    return where.dsn or Setting.TEAM_DSN.text() or None
