"""Finds what ended an error when an earlier session met it. After a failed command it speaks unasked, but only if a fix
is likely.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import NamedTuple

from indexer.masking import mask, shorten
from indexer.outcome import Fate
from indexer.store.base import SessionRow, Store
from indexer.transcripts.error_lines import hashed, parted, telling
from smart_fork.finding.answer import Fix, Fixes
from smart_fork.finding.conversation import Noted
from smart_fork.finding.evidence import admitted, beginning_of
from smart_fork.finding.hints import Hint, is_plain_id, sentence
from smart_fork.finding.notes import noted_if_known
from smart_fork.finding.query import Query
from smart_fork.finding.results import UNTRUSTED, title
from smart_fork.finding.upkeep import unread_notice

#: So many passages before the end of an error are looked at for what ended it.
MOST_PASSAGES = 40
ACTION_CHARACTERS = 200
#: By how much each sign makes it likelier that this ended the same error: fitted by logistic regression on one half of
#: the kinds of repeated errors in 448 public sessions, and tried on the other.
BEGIN, SHARE, AGREE, EDIT = -1.0, 2.0, 1.4, -2.4
#: The least chance with which anything is said unasked.
LEAST = 0.6


class Signs(NamedTuple):
    """Evidence that the same fix works again: the share of its lines that a session met, weighted by rarity, how many
    families ended it in the same way, and whether by an edit.
    """

    share: float
    agree: int
    edit: bool = False

    def chance(self) -> float:
        """The probability that the fix works, from 0 to 1."""
        against = BEGIN + self.share * (SHARE + AGREE * math.log(self.agree)) + EDIT * self.edit
        return 1 / (1 + math.exp(-against))


class Ending(NamedTuple):
    """The end of an error in a session: in which exchange and turn, by which actions, and what speaks for it."""

    row: SessionRow
    exchange: int
    turn: int
    by: tuple[str, ...]
    signs: Signs

    @property
    def order(self) -> tuple[float, str]:
        return round(self.signs.chance(), 2), self.row.last_activity


class Endings(NamedTuple):
    """Endings of an error, best first, with the number of its own lines and of families that met one."""

    lines: int
    met: int
    ended: list[Ending]


def fixes(output: str, store: Store, query: Query, new: int) -> Fixes:
    """Find the fixes of the error in an output, in the sessions asked. `new` logs of them were never read."""
    found = endings(output, store, query)
    shown = found.ended[: query.limit]
    known = noted_if_known((one.row.agent, one.row.session_id) for one in shown)
    told = tuple(_fix(store, one, known.get((one.row.agent, one.row.session_id))) for one in shown)
    unread = unread_notice(new, store.counts(query.scope).sessions, scored=False)
    return Fixes(UNTRUSTED, len(told), found.lines, found.met, told, unread)


def end_of(output: str, store: Store, query: Query) -> Hint | None:
    """Find the fix of a failed call's error in another session, as one named sentence. `None` unless it is likely to
    work again.

    Raises:
        OSError: what came of the session cannot be read.
    """
    one = next(iter(endings(output, store, query).ended), None)
    if one is None or one.signs.chance() < LEAST or not is_plain_id(one.row.session_id):
        return None
    line = sentence(one.row, "met this error until", "; ".join(one.by))
    return Hint(f"{one.row.session_id}:{one.turn}", line, one.signs.chance())


def endings(output: str, store: Store, query: Query) -> Endings:
    """Look for the error in an output. Lines that are printed when all is well too do not count."""
    lines = hashed(telling(output), bytes.fromhex(store.meta("key")))
    found = store.errors(lines, query.scope) if lines else {}
    rows, _ = admitted(store.sessions(found).values(), query)
    rows = {row: one for row, one in rows.items() if not query.is_kin(one)}
    harmless = {one.line for row in rows for one in found[row] if one.fate is Fate.HARMLESS}
    met, ended = defaultdict[bytes, set[str]](set), defaultdict[bytes, set[str]](set)
    ends = defaultdict[tuple[int, int, int, bytes], list[bytes]](list)
    for row, session in rows.items():
        for error in (one for one in found[row] if one.line not in harmless):
            family = session.root_id or str(row)
            met[error.line].add(family)
            if error.by:
                ends[row, error.exchange, error.turn, error.by].append(error.line)
                for action in parted(error.by):
                    ended[action].add(family)
    weights = {line: 1 / max(1, len(met[line])) for line in lines if line not in harmless}
    known = []
    for (row, exchange, turn, by), its in ends.items():
        signs = Signs(
            sum(weights[line] for line in its) / sum(weights.values()), max(len(ended[a]) for a in parted(by))
        )
        known.append((Ending(rows[row], exchange, turn, (), signs), parted(by)))
    best: dict[str, Ending] = {}
    for one, actions in sorted(known, key=lambda both: both[0].order, reverse=True):
        family = one.row.root_id or str(one.row.row)
        if len(best) < query.limit and family not in best and (known_by := _actions(store, one, actions)):
            edit = any(action.startswith("edit ") for action in known_by)
            best[family] = one._replace(by=known_by, signs=one.signs._replace(edit=edit))
    by_chance = sorted(best.values(), key=lambda one: one.order, reverse=True)
    return Endings(len(weights), len(set().union(*met.values())), by_chance)


def _actions(store: Store, one: Ending, actions: list[bytes]) -> tuple[str, ...]:
    """The actions with these hashes, as the index has them, without the directory that the session worked in."""
    key = bytes.fromhex(store.meta("key"))
    places = [place for place in store.placements_of(one.row.row) if place.turn <= one.turn][-MOST_PASSAGES:]
    said = [line for text in store.texts([place.chunk for place in places]).values() for line in text.split("\n")]
    said += [line.rpartition(" -> ")[0] for line in said if " -> " in line]  # what failed has a note behind it
    known = dict(zip(hashed(said, key), said, strict=True))
    here = f"{one.row.cwd.rstrip('/')}/"
    return tuple(known[action].replace(here, "") for action in actions if action in known)


def _fix(store: Store, one: Ending, noted: Noted | None) -> Fix:
    row = one.row
    place, _, asked = beginning_of(store, row, one.exchange)
    return Fix(
        row.session_id, row.agent, title(row.title), row.last_activity, round(one.signs.chance(), 2),
        one.exchange + 1, place.ends if place else None, asked,
        tuple(shorten(mask(action), ACTION_CHARACTERS) for action in one.by), noted,
    )  # fmt: skip
