"""Admin requests: manage users, tokens, project members and failed background jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from smart_fork.sharing import canonical
from smart_fork.team import wire
from smart_fork.team.server import audit_log, auth, jobs
from smart_fork.team.server.auth import Person
from smart_fork.team.server.database import Connection, owner_transaction

AdminAnswer = dict[str, Any]


def carry_out(db: Connection, wanted: wire.Administer, person: Person | None = None) -> AdminAnswer:
    """Carry out an admin request, such as adding a user, and write changes to the audit log.

    `person` is the admin, or `None` for a request on the server's own machine.
    """
    told = _ADMIN_ACTIONS[wanted.verb](db, wanted)
    if wanted.verb not in _READING_VERBS:
        about = {name: value for name in ("name", "project", "role", "token") if (value := getattr(wanted, name))}
        if wanted.verb != "member":
            about.pop("role", None)
        audit_log.add_line(db, person, f"admin_{wanted.verb}", None, None, **about)
    return told


def carry_out_locally(folder: Path, dsn: str | None, wanted: wire.Administer) -> AdminAnswer:
    """Carry out an admin request in the database `dsn`, or in the database of the server that runs in `folder`."""
    with owner_transaction(folder, dsn) as db:
        return carry_out(db, wanted)


def _member(db: Connection, wanted: wire.Administer) -> AdminAnswer:
    key = canonical.check_key(wanted.project)
    if wanted.make:
        auth.make_project(db, key)
    auth.set_member(db, key, wanted.name, None if wanted.role == "none" else wanted.role)
    return {"user": wanted.name, "project": wanted.project, "role": wanted.role}


def _disable(db: Connection, wanted: wire.Administer) -> AdminAnswer:
    auth.disable_user(db, wanted.name)
    return {"user": wanted.name, "disabled": True}


def _enable(db: Connection, wanted: wire.Administer) -> AdminAnswer:
    auth.enable_user(db, wanted.name)
    return {"user": wanted.name, "disabled": False}


def _revoke(db: Connection, wanted: wire.Administer) -> AdminAnswer:
    auth.revoke(db, wanted.token)
    return {"token": wanted.token, "revoked": True}


_READING_VERBS = ("users", "tokens", "jobs")


_ADMIN_ACTIONS: Mapping[str, Callable[[Connection, wire.Administer], AdminAnswer]] = {
    "add": lambda db, wanted: add(db, wanted.name, admin=wanted.admin, project=wanted.project or None),
    "invite": lambda db, wanted: invited(db, wanted.name),
    "users": lambda db, _: {"users": users(db)},
    "tokens": lambda db, _: {"tokens": tokens(db)},
    "jobs": lambda db, _: {"jobs": jobs.failed_jobs(db)},
    "retry": lambda db, _: {"retried": jobs.retry(db)},
    "member": _member,
    "disable": _disable,
    "enable": _enable,
    "revoke": _revoke,
}


def add(db: Connection, name: str, *, admin: bool, project: str | None = None) -> dict[str, Any]:
    """Create a user, and return an answer with an invitation. Its text is not stored: it cannot be shown again.

    With a `project`, the user becomes a writer of the project, or its maintainer if the project is new.
    """
    key = None if project is None else canonical.check_key(project)
    auth.add_user(db, name, admin=admin)
    told = invited(db, name, admin=admin)
    if key is None:
        return told
    role: auth.Role = "maintainer" if auth.make_project(db, key) else "writer"
    auth.set_member(db, key, name, role)
    return told | {"project": key, "project_role": role}


def invited(db: Connection, name: str, *, admin: bool = False) -> dict[str, Any]:
    """Return an answer with another invitation for an existing user, to log in on another machine."""
    invitation = auth.invite(db, name, "admin" if admin else "write")
    return {
        "user": name,
        "role": "admin" if admin else "member",
        "invite": invitation,
        "days": auth.INVITATION_LIFETIME.days,
    }


def users(db: Connection) -> list[dict[str, Any]]:
    """Return all users, with their roles in projects and the time of their last request."""
    rows = db.execute(
        "SELECT u.name, u.role, u.disabled_at IS NOT NULL AS disabled, u.bytes,"
        " (SELECT max(t.used_at) FROM tokens t WHERE t.user_id = u.id) AS seen,"
        " (SELECT coalesce(jsonb_object_agg(p.key, m.role), '{}') FROM members m"
        " JOIN projects p ON p.id = m.project_id WHERE m.user_id = u.id) AS projects"
        " FROM users u ORDER BY u.name"
    )
    return [row | {"seen": _time(row["seen"])} for row in rows]


def tokens(db: Connection) -> list[dict[str, Any]]:
    """Return all tokens (logins of machines): number, user, machine and times, but not the token's secret text."""
    rows = db.execute(
        "SELECT t.id, u.name AS user, t.machine, t.scope, t.created_at AS created, t.used_at AS used,"
        " t.expires_at AS expires, t.revoked_at IS NOT NULL AS revoked"
        " FROM tokens t JOIN users u ON u.id = t.user_id ORDER BY t.id"
    )
    return [row | {name: _time(row[name]) for name in ("created", "used", "expires")} for row in rows]


def _time(value: Any) -> str | None:
    return None if value is None else value.isoformat(timespec="seconds")
