"""The people of a server, as its admins see them."""

from __future__ import annotations

from typing import Any, Literal

from smart_fork.sharing.remote import check_key
from smart_fork.teamserver import auth
from smart_fork.teamserver.database import Connection

MemberRole = Literal["reader", "writer", "maintainer", "none"]


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
    role: auth.Role = "maintainer" if _made(db, key) else "writer"
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


def set_member(db: Connection, key: str, name: str, role: MemberRole, *, make: bool = False) -> None:
    """Say what somebody may do in a project, which is made if that is asked for.

    Raises:
        NotFound: There is no such user, or no such project.
        Usage: It is no key of a project.
    """
    key = check_key(key)
    if make:
        _made(db, key)
    auth.set_member(db, key, name, None if role == "none" else role)


def _made(db: Connection, key: str) -> bool:
    """Whether there was no such project, which there is then."""
    made = db.execute("INSERT INTO projects(key) VALUES (%s) ON CONFLICT (key) DO NOTHING", (key,))
    return made.rowcount > 0


def _time(value: Any) -> str | None:
    return None if value is None else value.isoformat(timespec="seconds")
