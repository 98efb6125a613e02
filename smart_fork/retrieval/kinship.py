"""Which sessions are of one family, also where one was told to another agent: of those only one is a result."""

from __future__ import annotations

from collections.abc import Iterable

from indexer.store.base import Searchable, SessionRow, Store
from smart_fork import handovers


def family_of(session: SessionRow) -> str:
    """The family that its own log says it is of."""
    return session.root_id or session.session_id


def families(sessions: Iterable[SessionRow]) -> dict[int, str]:
    """The family of each of these sessions, by its row."""
    sessions = list(sessions)
    own = {one.session_id: family_of(one) for one in sessions}
    above = _above(own)
    return {one.row: _first(own[one.session_id], above) for one in sessions}


def _above(own: dict[str, str]) -> dict[str, str]:
    """Of each family that begins with another agent's session that one's, as far as it is known."""
    told = (one for one in handovers.all_known() if not one.merged and not one.copied and one.session_id in own)
    return {own[one.session_id]: own.get(one.source_session_id, one.source_session_id) for one in told}


def _first(family: str, above: dict[str, str]) -> str:
    seen = {family}
    while (before := above.get(family)) is not None and before not in seen:
        seen.add(before)
        family = before
    return family


def relatives(store: Store, session: SessionRow) -> tuple[SessionRow, ...]:
    """The sessions of other families that have something of what this one's family said, or it of theirs: one was told
    of the other, or they were merged.
    """
    ties = [{one.session_id, one.source_session_id} for one in handovers.all_known()]
    if not ties:
        return ()
    found: dict[str, SessionRow] = {}
    reached, waiting = set[str](), {session.session_id}
    while waiting:
        known = [row for name in waiting for row in store.find_sessions(name) if row.session_id == name]
        found |= {row.session_id: row for one in known for row in (one, *store.family(family_of(one)))}
        reached |= waiting | found.keys()
        waiting = {name for tie in ties if reached & tie for name in tie} - reached
    return tuple(row for row in found.values() if family_of(row) != family_of(session))


def known_to(store: Searchable, session: SessionRow, relatives: Iterable[SessionRow]) -> set[int]:
    """The chunks that a session has, and those of its `relatives` that say what it says.

    Of an exchange that both have all is known but, where it is the last, what came after they parted.
    """
    own = {place.chunk for place in store.placements_of(session.row)}
    said = set(store.texts(own).values()) if relatives else set[str]()
    for one in relatives:
        places = store.placements_of(one.row)
        texts = store.texts({place.chunk for place in places})
        begins = {place.exchange: texts[place.chunk] for place in reversed(places)}
        shared = {exchange for exchange, text in begins.items() if text in said}
        past = shared - {max(shared, default=-1)}
        own |= {place.chunk for place in places if place.exchange in past or texts[place.chunk] in said}
    return own
