"""What admins do: on the server's machine over the socket of its database, or from anywhere with an admin's token."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from psycopg.types.json import Jsonb
from starlette.requests import Request

from smart_fork.errors import WrongVerb
from smart_fork.sharing import wire
from smart_fork.teamserver import auth, jobs, people
from smart_fork.teamserver.auth import Person
from smart_fork.teamserver.database import Connection
from smart_fork.teamserver.endpoints import Address, Server

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
        db.execute(
            "INSERT INTO audit(actor, token, verb, details) VALUES (%s, %s, %s, %s)",
            (person and person.id, person and person.token, f"admin_{wanted.verb}", Jsonb(about)),
        )
    return told


def _member(db: Connection, wanted: wire.Administer) -> Told:
    people.set_member(db, wanted.project, wanted.name, wanted.role, make=wanted.make)
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
    "add": lambda db, wanted: people.add(db, wanted.name, admin=wanted.admin, project=wanted.project or None),
    "invite": lambda db, wanted: people.invited(db, wanted.name),
    "users": lambda db, _: {"users": people.users(db)},
    "tokens": lambda db, _: {"tokens": people.tokens(db)},
    "jobs": lambda db, _: {"jobs": jobs.given_up(db)},
    "retry": lambda db, _: {"retried": jobs.retry(db)},
    "member": _member,
    "disable": _disable,
    "enable": _enable,
    "revoke": _revoke,
}


def administer(server: Server, _: Request, person: Person, wanted: wire.Administer) -> wire.Message:
    """The same with a token, which has to be an admin's."""
    if not person.admin:
        raise WrongVerb("This token is not an admin's.")
    with server.database.asked_by(person.id) as db:
        return wire.Administered(told=do(db, wanted, person))


ADDRESSES = (Address("POST", "/v1/admin", administer, wire.Administer, scope="admin"),)
