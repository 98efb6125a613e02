"""Which sessions are of one family, also where one was told to another agent: of those only one is a result."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

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


# Who may be found of those that were asked the same: not who was only asked, where another one did it. Of a family
# that is the session that a fork was forked from, where the fork was only asked something.


#: Members of a family that one is compared with, those of the fewest turns first: the original is among them.
MAX_COMPARED = 8


def without_askers(store: Searchable, rows: Mapping[int, SessionRow], asked: Sequence[str]) -> dict[int, SessionRow]:
    """`rows` without forks that know no more than another of these sessions, and without those of one prompt that have
    only talked about it where it was given again, so that two have one title, and was done there.

    Such a fork has only asked smart-fork something since, or was given a prompt and has done nothing about it.
    """
    done = {row.title for row in rows.values() if row.acted >= 0 and row.title}
    rows = {number: row for number, row in rows.items() if row.acted >= 0 or row.prompts > 1 or row.title not in done}
    families: defaultdict[str, list[SessionRow]] = defaultdict(list)
    for row in rows.values():
        families[row.root_id or row.session_id].append(row)
    left = dict(rows)
    for members in families.values():
        members.sort(key=lambda row: (row.turns, row.started, row.session_id))
        for one in members if len(members) > 1 else ():
            others = [other for other in members if other is not one][:MAX_COMPARED]
            if any(_gives_way(store, one, other, asked) for other in others):
                del left[one.row]
    return left


def _gives_way(store: Searchable, one: SessionRow, other: SessionRow, asked: Sequence[str]) -> bool:
    if not _only_asked(store, one, other, asked):
        return False
    return other.turns < one.turns or not _only_asked(store, other, one, asked)


def _only_asked(store: Searchable, one: SessionRow, other: SessionRow, asked: Sequence[str]) -> bool:
    """Whether all that `one` has beside `other` is asking smart-fork, or a prompt that came to nothing.

    That is one without an answer, or what is `asked` word for word, about which it has done nothing.
    """
    asked_last = one.until < one.last_activity
    if not asked_last and one.acted >= one.prompts - 1:
        return False
    own = store.own_passages(one.row, other.row)
    if not own:
        return asked_last
    if len({place.exchange for place in own}) > 1 or own[0].exchange <= one.acted:
        return False
    if own[-1].role == "user" and own[-1].turn == one.turns - 1:
        return True
    said = " ".join(store.texts([own[0].chunk])[own[0].chunk].split())
    return said.startswith(tuple(" ".join(f"User: {phrasing}".split()) for phrasing in asked))
