"""How far the vectors that somebody sends are believed: as far as those that were made here as well were the same.

To make one takes longer than all else that is done for a session. So of somebody new some of each push are compared,
and later one in so many, which nobody knows beforehand. Who has sent another vector than that of the text is believed
no more for a time, and all that is searched of theirs is made anew: also what nobody had compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import SystemRandom

from smart_fork.teamserver.database import Connection

#: A vector of the same text by the same model, on any machine, is at least so near.
SAME = 0.98
#: So many of each push are compared until so many were the same; from then on one in so many.
CHECKED, KNOWN_AFTER, ONE_IN = 2, 16, 64
#: The job that makes anew what is searched of a session.
JOB = "doubt"

_chance = SystemRandom()


@dataclass(frozen=True, slots=True)
class Sender:
    """Who has sent vectors: how many of them were compared and the same, and whether one was another."""

    id: int
    compared: int
    lied: bool

    def tried(self, texts: Sequence[bytes]) -> list[bytes]:
        """Of these texts those whose vectors are made here as well."""
        number = CHECKED if self.compared < KNOWN_AFTER else int(len(texts) / ONE_IN + _chance.random())
        return _chance.sample(texts, min(number, len(texts)))


def sender(db: Connection, token: int) -> Sender:
    """Whose token that is."""
    row = db.execute(
        "SELECT t.user_id AS id, coalesce(u.compared, 0) AS compared,"
        " coalesce(u.lied_at > now() - interval '30 days', false) AS lied"
        " FROM tokens t LEFT JOIN trust u ON u.user_id = t.user_id WHERE t.id = %s",
        (token,),
    ).fetchone()
    assert row is not None  # noqa: S101 - tokens are revoked, and stay
    return Sender(**row)


def confirm(db: Connection, one: Sender, number: int) -> None:
    """So many more of theirs were the same."""
    if number:
        db.execute(
            "INSERT INTO trust AS t(user_id, compared) VALUES (%s, %s)"
            " ON CONFLICT (user_id) DO UPDATE SET compared = t.compared + excluded.compared",
            (one.id, number),
        )


def lose(db: Connection, one: Sender) -> None:
    """One of theirs was another: none is believed, and what is searched of theirs is made anew."""
    db.execute(
        "INSERT INTO trust(user_id, compared, lied_at) VALUES (%s, 0, now())"
        " ON CONFLICT (user_id) DO UPDATE SET compared = 0, lied_at = excluded.lied_at",
        (one.id,),
    )
    db.execute("SELECT doubt(%s)", (one.id,))
