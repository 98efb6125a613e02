"""What others keep on a team's server that is attacked, as the intruder knows of it, and as it is stored."""

from __future__ import annotations

import base64
import secrets
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from smart_fork.sharing.canonical import NOTHING, digest_of_state, encode, state_after
from smart_fork.team import wire
from smart_fork.team.client import Client
from smart_fork.team.segments import pack
from smart_fork.team.stored_logins import Account


@dataclass(frozen=True)
class Scene:
    """What there is: addresses, who may do what, sessions by their kind, and texts that nobody else may see.

    `tokens`: of ``writer`` and ``reader``, members of `key`, and of a ``stranger``. All of it is somebody else's.
    """

    url: str
    key: str
    other: str
    tokens: Mapping[str, Sequence[str]]
    ids: Mapping[str, str]
    digests: Mapping[str, str]
    heads: Mapping[str, tuple[int, str]]
    hidden: Sequence[str]


def lay_out(owner: Account, key: str, other: str, tokens: Mapping[str, Sequence[str]]) -> Scene:
    """Sessions of somebody in two projects, of which the intruder is no member of the second."""
    ids: dict[str, str] = {}
    digests: dict[str, str] = {}
    heads: dict[str, tuple[int, str]] = {}
    hidden = [owner.token]
    with Client(owner) as client:
        for kind in ("public", "private", "deleted", "foreign"):
            mark = secrets.token_hex(12)
            records = [record(f"{kind} {number} {mark}") for number in range(6)]
            where = other if kind == "foreign" else key
            told = {"title": f"{kind} {mark}", "tags": [mark], "summary": mark}
            visibility = "public" if kind in ("public", "foreign") else "private"
            sent = push_of(str(uuid.uuid4()), records, visibility=visibility, **told)
            done = client.push(where, wire.Push.model_validate(sent, strict=False)).session
            ids[kind], digests[kind] = done.id, sent["segments"][0]["digest"]
            heads[kind] = done.record_count, done.head_digest
            if kind == "deleted":
                client.delete(where, done.id)
            hidden += [mark] if kind != "public" else []
    ids["missing"], digests["missing"], heads["missing"] = str(uuid.uuid4()), "0" * 64, (1, NOTHING)
    return Scene(owner.origin, key, other, tokens, ids, digests, heads, hidden)


def record(text: str) -> bytes:
    """A prompt that its agent reads."""
    said = {"role": "user", "content": text}
    return encode({
        "type": "user", "uuid": str(uuid.uuid5(uuid.NAMESPACE_OID, text)), "timestamp": "2026-07-01T10:00:00.000Z",
        "message": said,
    })  # fmt: skip


def push_of(session: str, records: Sequence[bytes], **more: Any) -> dict[str, Any]:
    """A first push, as JSON."""
    packed = list(pack(records))
    return {
        "id": session, "agent": "claude", "base_count": 0, "base_digest": NOTHING, "count": len(records),
        "digest": digest_of_state(state_after(records)),
        "segments": [
            {"digest": one.place.digest, "first_record": one.place.first_record,
             "records": one.place.records, "raw_bytes": one.place.raw_bytes,
             "chain_start": digest_of_state(one.place.chain_start)}
            for one in packed
        ],
        "bodies": [{"digest": one.place.digest, "body": base64.b64encode(one.body).decode()} for one in packed], **more,
    }  # fmt: skip


#: What is others' in a database, whose numbers are given: it is the same before and after.
OTHERS = {
    "sessions": "SELECT to_jsonb(s) FROM sessions s WHERE owner_id = ANY(%s) ORDER BY id",
    "records": "SELECT g.session_id, g.position, g.digest, g.first_record, g.records, g.chain_start, sha256(b.body)"
    " FROM session_segments g JOIN segments b USING (project_id, digest) JOIN sessions s"
    " ON s.project_id = g.project_id AND s.id = g.session_id WHERE s.owner_id = ANY(%s) ORDER BY 1, 2",
    "users": "SELECT to_jsonb(u) FROM users u WHERE id = ANY(%s) ORDER BY id",
    "tokens": "SELECT to_jsonb(t) - 'used_at' FROM tokens t WHERE user_id = ANY(%s) ORDER BY id",
    "invites": "SELECT to_jsonb(i) FROM invites i WHERE user_id = ANY(%s) ORDER BY id",
    "members": "SELECT m.* FROM members m WHERE user_id = ANY(%s) ORDER BY 1, 2",
    "rewrites": "SELECT r.seq FROM rewrites r JOIN sessions s ON s.project_id = r.project_id AND s.id = r.session_id"
    " WHERE s.owner_id = ANY(%s)",
    "words": "SELECT w.session_id, w.reach FROM session_words w JOIN sessions s ON s.project_id = w.project_id"
    " AND s.id = w.session_id WHERE s.owner_id = ANY(%s) ORDER BY 1",
}


def others(db: Any, people: Sequence[int]) -> dict[str, str]:
    """All that is these people's, as it is stored."""
    return {name: repr([tuple(row.values() if isinstance(row, dict) else row)
                        for row in db.execute(statement, (list(people),)).fetchall()])
            for name, statement in OTHERS.items()}  # fmt: skip
