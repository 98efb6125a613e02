"""Admin commands, on the server's machine over the database socket, or from anywhere with an admin's token."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from starlette.requests import Request

from smart_fork.errors import WrongVerb
from smart_fork.sharing import canonical
from smart_fork.sharing.project_keys import check_key
from smart_fork.team import wire
from smart_fork.team.server import auth, jobs, sessions
from smart_fork.team.server.auth import Person
from smart_fork.team.server.database import Connection
from smart_fork.team.server.endpoints import Endpoint, ServerContext

Told = dict[str, Any]


def do(db: Connection, wanted: wire.Administer, person: Person | None = None) -> Told:
    """Do it, and write into the audit who did, if it is not done on the server's machine.

    Raises:
        Usage: It cannot be done so.
        NotFound: There is no such user, project or token.
    """
    told = _VERBS[wanted.verb](db, wanted)
    if wanted.verb not in _LOOKS:
        about = {name: value for name in ("name", "project", "role", "token") if (value := getattr(wanted, name))}
        if wanted.verb != "member":
            about.pop("role", None)
        sessions.note(db, person, f"admin_{wanted.verb}", None, None, **about)
    return told


def _member(db: Connection, wanted: wire.Administer) -> Told:
    key = check_key(wanted.project)
    if wanted.make:
        auth.make_project(db, key)
    auth.set_member(db, key, wanted.name, None if wanted.role == "none" else wanted.role)
    return {"user": wanted.name, "project": wanted.project, "role": wanted.role}


def _disable(db: Connection, wanted: wire.Administer) -> Told:
    auth.disable_user(db, wanted.name)
    return {"user": wanted.name, "disabled": True}


def _enable(db: Connection, wanted: wire.Administer) -> Told:
    auth.enable_user(db, wanted.name)
    return {"user": wanted.name, "disabled": False}


def _revoke(db: Connection, wanted: wire.Administer) -> Told:
    auth.revoke(db, wanted.token)
    return {"token": wanted.token, "revoked": True}


_LOOKS = ("users", "tokens", "jobs")
_VERBS: Mapping[str, Callable[[Connection, wire.Administer], Told]] = {
    "add": lambda db, wanted: add(db, wanted.name, admin=wanted.admin, project=wanted.project or None),
    "invite": lambda db, wanted: invited(db, wanted.name),
    "users": lambda db, _: {"users": users(db)},
    "tokens": lambda db, _: {"tokens": tokens(db)},
    "jobs": lambda db, _: {"jobs": jobs.given_up(db)},
    "retry": lambda db, _: {"retried": jobs.retry(db)},
    "member": _member,
    "disable": _disable,
    "enable": _enable,
    "revoke": _revoke,
}


def administer(server: ServerContext, _: Request, person: Person, wanted: wire.Administer) -> canonical.WireModel:
    """The same with a token, which has to be an admin's."""
    if not person.admin:
        raise WrongVerb("This token is not an admin's.")
    with server.database.asked_by(person.id) as db:
        return wire.Administered(told=do(db, wanted, person))


ADDRESSES = (Endpoint("POST", "/v1/admin", administer, wire.Administer, scope="admin"),)


def add(db: Connection, name: str, *, admin: bool, project: str | None = None) -> dict[str, Any]:
    """Make a user, with an invitation that is told this once: a writer of the project, or where it is made by this, its
    maintainer.

    Raises:
        Usage: The name cannot be one, there is one of that name, or it is no key of a project.
    """
    key = None if project is None else check_key(project)
    auth.add_user(db, name, admin=admin)
    told = invited(db, name, admin=admin)
    if key is None:
        return told
    role: auth.Role = "maintainer" if auth.make_project(db, key) else "writer"
    auth.set_member(db, key, name, role)
    return told | {"project": key, "project_role": role}


def invited(db: Connection, name: str, *, admin: bool = False) -> dict[str, Any]:
    """Another invitation, for another machine."""
    invitation = auth.invite(db, name, "admin" if admin else "write")
    return {
        "user": name,
        "role": "admin" if admin else "member",
        "invite": invitation,
        "days": auth.INVITED_FOR.days,
    }


def users(db: Connection) -> list[dict[str, Any]]:
    """Everybody, with what they may do where, and when they were here last."""
    rows = db.execute(
        "SELECT u.name, u.role, u.disabled_at IS NOT NULL AS disabled, u.bytes,"
        " (SELECT max(t.used_at) FROM tokens t WHERE t.user_id = u.id) AS seen,"
        " (SELECT coalesce(jsonb_object_agg(p.key, m.role), '{}') FROM members m"
        " JOIN projects p ON p.id = m.project_id WHERE m.user_id = u.id) AS projects"
        " FROM users u ORDER BY u.name"
    )
    return [row | {"seen": _time(row["seen"])} for row in rows]


def tokens(db: Connection) -> list[dict[str, Any]]:
    """Every token, without what makes it one."""
    rows = db.execute(
        "SELECT t.id, u.name AS user, t.machine, t.scope, t.created_at AS created, t.used_at AS used,"
        " t.expires_at AS expires, t.revoked_at IS NOT NULL AS revoked"
        " FROM tokens t JOIN users u ON u.id = t.user_id ORDER BY t.id"
    )
    return [row | {name: _time(row[name]) for name in ("created", "used", "expires")} for row in rows]


def _time(value: Any) -> str | None:
    return None if value is None else value.isoformat(timespec="seconds")
