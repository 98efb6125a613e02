"""The authorization of requests: users, invitations, tokens, projects and the roles of their members.

A token belongs to one machine of a user. Its scope limits what it allows.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Literal

from smart_fork.errors import NotAuthenticated, NotFound, Usage, WrongVerb
from smart_fork.team.server.database import Connection

Scope = Literal["read", "write", "admin"]
Role = Literal["reader", "writer", "maintainer"]
INVITATION_PREFIX, TOKEN_PREFIX = "sfi_", "sft_"
INVITATION_LIFETIME = timedelta(days=7)
#: A token that was replaced stays valid for this long, for commands that still use it.
REPLACED_TOKEN_LIFETIME = timedelta(hours=1)
SECRET_BYTES = 32
#: The random part of a token or invitation: 32 bytes in URL-safe base64.
_SECRET_PART = re.compile(r"[A-Za-z0-9_-]{43}")
#: The name in the audit log for admin requests on the server's own machine, which need no token.
LOCAL_ADMIN = "on-the-server"
_NAME = re.compile(r"[a-z0-9-]{1,32}")
_SCOPES: tuple[Scope, ...] = ("read", "write", "admin")
_ROLES: tuple[Role, ...] = ("reader", "writer", "maintainer")
_NOT_AUTHENTICATED = "Not authenticated. Please run smart-fork team login first."


@dataclass(frozen=True, slots=True)
class Person:
    """The user who sends a request. `token` is the number of the user's token, `scope` what it allows."""

    id: int
    name: str
    admin: bool
    token: int
    scope: Scope

    def needs(self, scope: Scope) -> None:
        """Raise `WrongVerb` if the user's token does not allow `scope`."""
        if _SCOPES.index(self.scope) < _SCOPES.index(scope):
            raise WrongVerb("This token may only read." if self.scope == "read" else "This token is not an admin's.")


def add_user(db: Connection, name: str, *, admin: bool = False) -> None:
    """Create a user. Raise `Usage` if the name is not allowed, or a user has it."""
    if not _NAME.fullmatch(name):
        raise Usage("The name of a user has 1 to 32 of the letters a-z, digits and -.")
    if name == LOCAL_ADMIN:
        raise Usage(f"{name} is reserved for the server's own machine.", "Take another name")
    made = db.execute(
        "INSERT INTO users(name, role) VALUES (%s, %s) ON CONFLICT (name) DO NOTHING",
        (name, "admin" if admin else "member"),
    )
    if not made.rowcount:
        raise Usage(f"User {name} already exists.", f"To add a machine: smart-fork team user invite {name}")


def disable_user(db: Connection, name: str) -> None:
    """Disable a user: revoke all of the user's tokens and invitations."""
    user = _user(db, name)
    db.execute("UPDATE users SET disabled_at = coalesce(disabled_at, now()) WHERE id = %s", (user,))
    db.execute("UPDATE tokens SET revoked_at = now() WHERE user_id = %s AND revoked_at IS NULL", (user,))
    db.execute("UPDATE invites SET revoked_at = now() WHERE user_id = %s AND revoked_at IS NULL", (user,))


def enable_user(db: Connection, name: str) -> None:
    """Enable a disabled user again. Tokens and invitations that were revoked before stay revoked."""
    db.execute("UPDATE users SET disabled_at = NULL WHERE id = %s", (_user(db, name),))


def invite(db: Connection, name: str, scope: Scope = "write") -> str:
    """Return a new invitation for a user, for one use in seven days. Raise `Usage` if the user is disabled."""
    secret, digest = _made(INVITATION_PREFIX)
    made = db.execute(
        "INSERT INTO invites(user_id, hash, machine, scope, expires_at)"
        " SELECT id, %s, '', %s, now() + %s FROM users WHERE id = %s AND disabled_at IS NULL",
        (digest, scope, INVITATION_LIFETIME, _user(db, name)),
    )
    if not made.rowcount:
        raise Usage(f"{name} is disabled.", f"smart-fork team user enable {name}")
    return secret


def login(
    db: Connection, invitation: str, machine: str, expires_at: datetime | None = None, *, token: str | None = None
) -> tuple[str, str, Scope]:
    """Exchange an invitation for a token. Return the user's name, the token and its scope (what it allows).

    A client that chose the `token` itself can repeat the request if the answer was lost. Raise `NotAuthenticated` if
    the invitation was used for another token, is too old, was revoked, or is unknown.
    """
    given, digest = (token, _hash(token, TOKEN_PREFIX)) if token is not None else _made(TOKEN_PREFIX)
    row = db.execute(
        "UPDATE invites i SET used_at = now(), machine = %s FROM users u"
        " WHERE u.id = i.user_id AND u.disabled_at IS NULL"
        " AND i.hash = %s AND i.used_at IS NULL AND i.revoked_at IS NULL AND i.expires_at > now()"
        " RETURNING i.user_id, i.scope, u.name",
        (machine, _hash(invitation, INVITATION_PREFIX)),
    ).fetchone()
    if row is None:
        name, scope = _user_of_login(db, invitation, digest)
        return name, given, scope
    made = db.execute(
        "INSERT INTO tokens(user_id, hash, machine, scope, expires_at) SELECT %s, %s, %s, %s, %s"
        " WHERE length(%s) = 32 ON CONFLICT (hash) DO NOTHING RETURNING id",
        (row["user_id"], digest, machine, row["scope"], expires_at, digest),
    ).fetchone()
    if made is None:  # and the invitation is as it was
        raise NotAuthenticated("This kind of token cannot be made.", "Log in again")
    return row["name"], given, row["scope"]


def renew_token(db: Connection, person: Person, expires_at: datetime | None) -> str:
    """Return a new token for the machine that sends the request.

    The old token stays valid for an hour, since the answer with the new one may be lost.
    """
    token, digest = _made(TOKEN_PREFIX)
    db.execute(
        "INSERT INTO tokens(user_id, hash, machine, scope, expires_at)"
        " SELECT user_id, %s, machine, scope, %s FROM tokens WHERE id = %s",
        (digest, expires_at, person.token),
    )
    db.execute(
        "UPDATE tokens SET expires_at = least(expires_at, now() + %s) WHERE id = %s",
        (REPLACED_TOKEN_LIFETIME, person.token),
    )
    return token


def expires_at(db: Connection, token: str) -> datetime | None:
    """Return the time at which a token expires; `None` if it never expires."""
    row = db.execute("SELECT expires_at FROM tokens WHERE hash = %s", (_hash(token, TOKEN_PREFIX),)).fetchone()
    return row["expires_at"] if row else None


def _user_of_login(db: Connection, invitation: str, digest: bytes) -> tuple[str, Scope]:
    """Return (name, scope) of the user who has logged in with the invitation and got the token with this hash."""
    row = db.execute(
        "SELECT u.name, t.scope FROM invites i JOIN users u ON u.id = i.user_id JOIN tokens t ON t.user_id = u.id"
        " WHERE i.hash = %s AND i.used_at = t.created_at AND t.hash = %s AND t.revoked_at IS NULL"
        " AND u.disabled_at IS NULL",
        (_hash(invitation, INVITATION_PREFIX), digest),
    ).fetchone()
    if row is None:
        raise NotAuthenticated(
            "This invitation is invalid: used, older than 7 days, or unknown.", "Ask for another one."
        )
    return row["name"], row["scope"]


def token_owner(db: Connection, token: str) -> Person:
    """Return the user of a token, or raise `NotAuthenticated` if it is unknown, expired or revoked."""
    row = db.execute(
        "SELECT t.id, t.scope, u.id AS user_id, u.name, u.role FROM tokens t JOIN users u ON u.id = t.user_id"
        " WHERE t.hash = %s AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > now())"
        " AND u.disabled_at IS NULL",
        (_hash(token, TOKEN_PREFIX),),
    ).fetchone()
    if row is None:
        raise NotAuthenticated(_NOT_AUTHENTICATED)
    # When it was used last is good to know, and not worth a write with each request.
    db.execute(
        "UPDATE tokens SET used_at = now() WHERE id = %s AND (used_at IS NULL OR used_at < now() - interval '1 hour')",
        (row["id"],),
    )
    admin = row["role"] == "admin" and row["scope"] == "admin"
    return Person(row["user_id"], row["name"], admin, row["id"], row["scope"])


def revoke(db: Connection, token: int) -> None:
    """Revoke a token by its number, or raise `NotFound`."""
    if not db.execute("UPDATE tokens SET revoked_at = coalesce(revoked_at, now()) WHERE id = %s", (token,)).rowcount:
        raise NotFound(f"Token not found: {token}", "smart-fork team user token list numbers them")


@dataclass(frozen=True, slots=True)
class MemberProject:
    """A project, with the role that one user has in it."""

    id: int
    key: str
    role: Role

    def needs(self, role: Role) -> None:
        """Raise `WrongVerb` if the user has a lower role in the project."""
        if _ROLES.index(self.role) < _ROLES.index(role):
            raise WrongVerb(
                f"You are not a {role} of {self.key}.", "Ask a maintainer of it, or an admin of the server."
            )


def project_not_found(key: str) -> NotFound:
    """Return the error for a project that is missing or that the user may not see. Both have the same text."""
    hint = "The first push creates it. An admin adds others: smart-fork team user member NAME writer --project KEY"
    return NotFound(f"Project not found: {key}", hint)


def project(db: Connection, person: Person, key: str) -> MemberProject:
    """Return the project with this key, and the user's role in it. Raise `NotFound` if the user is no member."""
    row = db.execute(
        "SELECT p.id, m.role FROM projects p JOIN members m ON m.project_id = p.id AND m.user_id = %s WHERE p.key = %s",
        (person.id, key),
    ).fetchone()
    if row is None:
        raise project_not_found(key)
    return MemberProject(row["id"], key, row["role"])


def project_to_push(db: Connection, person: Person, key: str, *, anybody: bool = True) -> MemberProject:
    """Return the project to which a user pushes. If it does not exist, create it with the user as its maintainer.

    With `anybody`, every user may create projects; otherwise only admins may.
    """
    made = make_project(db, key) if anybody or person.admin else None
    if made is not None:
        values = (made, person.id)
        db.execute("INSERT INTO members(project_id, user_id, role) VALUES (%s, %s, 'maintainer')", values)
    return project(db, person, key)


def make_project(db: Connection, key: str) -> int | None:
    """Create a project, and return its number; `None` if the project exists."""
    row = db.execute(
        "INSERT INTO projects(key) VALUES (%s) ON CONFLICT (key) DO NOTHING RETURNING id", (key,)
    ).fetchone()
    return None if row is None else int(row["id"])


def set_member(db: Connection, key: str, name: str, role: Role | None) -> None:
    """Give a user a role in a project; `None` removes the user from the project."""
    found = db.execute("SELECT id FROM projects WHERE key = %s", (key,)).fetchone()
    if found is None:
        raise project_not_found(key)
    who = (found["id"], _user(db, name))
    if role is None:
        db.execute("DELETE FROM members WHERE project_id = %s AND user_id = %s", who)
        return
    db.execute(
        "INSERT INTO members(project_id, user_id, role) VALUES (%s, %s, %s)"
        " ON CONFLICT (project_id, user_id) DO UPDATE SET role = excluded.role",
        (*who, role),
    )


def _user(db: Connection, name: str) -> int:
    row = db.execute("SELECT id FROM users WHERE name = %s", (name,)).fetchone()
    if row is None:
        raise NotFound(f"User not found: {name}", "smart-fork team user list shows them")
    return int(row["id"])


def _made(prefix: str) -> tuple[str, bytes]:
    secret = prefix + secrets.token_urlsafe(SECRET_BYTES)
    return secret, _hash(secret, prefix)


def _hash(secret: str, prefix: str) -> bytes:
    """Return the hash under which a token or invitation is stored; empty if `secret` is not in its format."""
    is_one = secret.startswith(prefix) and _SECRET_PART.fullmatch(secret.removeprefix(prefix))
    return sha256(secret.encode()).digest() if is_one else b""
