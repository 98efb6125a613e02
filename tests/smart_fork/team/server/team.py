"""A team in a test: users, a project, and pushes as clients send them."""

from __future__ import annotations

import itertools
import secrets
import uuid
from collections.abc import Sequence

import psycopg

from smart_fork.sharing.canonical import NOTHING, digest_of, encode
from smart_fork.team.segments import pack, unpack
from smart_fork.team.server import auth, segment_store, sessions
from smart_fork.team.server.database import Connection, Database
from smart_fork.team.server.push import check_bodies, push
from smart_fork.team.server.sessions import branch
from smart_fork.team.wire import Branch, Push, Pushed

_numbers = itertools.count()


def record(number: int, text: str = "") -> bytes:
    """Return the record of a prompt that the agent's reader can read."""
    said = {"role": "user", "content": f"prompt {number} {text}"}
    identity = str(uuid.uuid5(uuid.NAMESPACE_OID, str(said)))
    return encode({"type": "user", "uuid": identity, "timestamp": "2026-07-01T10:00:00.000Z", "message": said})


def push_of(
    session: str, old: Sequence[bytes], new: Sequence[bytes], *, bodies: bool = True, **options: object
) -> Push:
    """Return the push of a client that has these records, on the base of the first ones."""
    packed = list(pack([*old, *new]))
    stays = sum(1 for one in packed if one.place.end <= len(old) and one.place.full)
    places = tuple(one.place for one in packed)[stays:]
    sent = packed[stays:] if bodies else []
    return Push.model_validate(
        {
            "id": session,
            "agent": "claude",
            "base_count": len(old),
            "base_digest": digest_of(old) if old else NOTHING,
            "count": len(old) + len(new),
            "digest": digest_of([*old, *new]),
            "position": stays,
            "segments": places,
            "bodies": [{"digest": one.place.digest, "body": one.body} for one in sent],
            **options,
        },
        strict=False,
    )


class Team:
    """Users by name. All are writers of one project by default."""

    def __init__(self, pool: Database, owned: psycopg.Connection) -> None:
        self.pool, self.owned = pool, owned
        self.mark = f"{next(_numbers)}-{secrets.token_hex(3)}"
        self.key = f"example.org/team/{self.mark}"
        self.people: dict[str, auth.Person] = {}
        self.tokens: dict[str, str] = {}

    def add(self, name: str, role: auth.Role | None = "writer", *, admin: bool = False) -> auth.Person:
        full = f"{name}-{self.mark}"
        with self.pool.transaction() as db:
            auth.add_user(db, full, admin=admin)
            invitation = auth.invite(db, full, "admin" if admin else "write")
            self.tokens[name] = auth.login(db, invitation, "laptop")[1]
            person = self.people[name] = auth.token_owner(db, self.tokens[name])
            if not self._exists():
                self.owned.execute("INSERT INTO projects(key) VALUES (%s)", (self.key,))
            auth.set_member(db, self.key, full, role)
        return person

    def _exists(self) -> bool:
        return self.owned.execute("SELECT 1 FROM projects WHERE key = %s", (self.key,)).fetchone() is not None

    def project(self, name: str) -> auth.MemberProject:
        with self.pool.transaction(self.people[name].id) as db:
            return auth.project(db, self.people[name], self.key)

    def push(self, name: str, wanted: Push) -> Pushed:
        return push(self.pool, self.project(name), self.people[name], check_bodies(wanted))

    def branch(self, name: str, source: str, **options: object) -> Pushed:
        wanted = Branch.model_validate({"verb": "branch", "id": new_id(), "source_id": source, **options}, strict=False)
        return branch(self.pool, self.project(name), self.people[name], wanted)

    def stored(self, session: str) -> list[bytes]:
        """Return the stored records of a session, without a check of the reader."""
        project = self.owned.execute("SELECT project_id FROM sessions WHERE id = %s", (session,)).fetchone()
        if project is None:
            return []
        with self.pool.transaction() as db:
            places = sessions.places(db, project[0], session)
            bodies = segment_store.bodies(db, project[0], (place.digest for place in places))
        return [line for place in places for line in unpack(bodies[place.digest], place.digest)]


def new_id() -> str:
    return str(uuid.uuid4())


def handed_over(options: Sequence[str]) -> dict[str, object]:
    """Return the argument that `team serve` passes to the server for these options."""
    said: dict[str, object] = {}
    words = [part for word in options for part in word.split("=", 1 if word.startswith("--") else 0)]
    for word, value in zip(words, [*words[1:], "--"], strict=False):
        if word.startswith("--"):
            said[word.removeprefix("--").replace("-", "_")] = True if value.startswith("--") else value
    return said


def put(db: Connection, kind: str, project_id: int, session_id: str, revision: int | None = None) -> None:
    """Insert a job, as the triggers of the tables do."""
    db.execute(
        "INSERT INTO jobs(kind, project_id, session_id, revision) VALUES (%s, %s, %s, %s)",
        (kind, project_id, session_id, revision),
    )
