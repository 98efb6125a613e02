"""Who may be found of those that were asked the same: not who was only asked, where another one did it.

Of a family that is the session that a fork was forked from, where the fork was only asked something.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from indexer.store.base import Searchable, SessionRow

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
