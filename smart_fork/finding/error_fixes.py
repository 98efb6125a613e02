"""Finds the actions after which an error no longer occurred in earlier sessions (its fixes)."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import NamedTuple

from indexer.masking import mask, shorten
from indexer.session_work import Fate
from indexer.store.base import SessionRow
from indexer.store.sqlite import Store
from indexer.transcripts.line_hashes import error_signatures, split_hashes, text_hashes
from smart_fork.finding.answer import Fix, Fixes
from smart_fork.finding.evidence import admitted, beginning_of
from smart_fork.finding.index_refresh import unread_notice
from smart_fork.finding.query import Query
from smart_fork.finding.results import UNTRUSTED, title
from smart_fork.finding.session_notes import SessionNotes, noted_if_known

#: The number of passages before an error's end that are searched for the actions that ended it.
MAX_PASSAGES = 40
ACTION_CHARACTERS = 200


#: The weights of `Signs`: fitted by logistic regression on one half of the kinds of repeated errors in 448 public
#: sessions, and tested on the other half.
BEGIN, SHARE, AGREE, EDIT = -1.0, 2.0, 1.4, -2.4


class Signs(NamedTuple):
    """The evidence that a fix (actions that ended an error in one session) ends the error again.

    `share` is the share of the error's lines that the session met, weighted by rarity. `agree` counts the families (a
    session and its forks) with an equal fix. `edit` is true if the fix is an edit.
    """

    share: float
    agree: int
    edit: bool = False

    def chance(self) -> float:
        """Return the probability (0…1) that the fix ends the error again."""
        against = BEGIN + self.share * (SHARE + AGREE * math.log(self.agree)) + EDIT * self.edit
        return 1 / (1 + math.exp(-against))


class Ending(NamedTuple):
    """The place in a session after which an error no longer occurred: a turn, and its `exchange` (prompt and answer).

    `by` has the actions that ended the error. `signs` is the evidence that they help again.
    """

    row: SessionRow
    exchange: int
    turn: int
    by: tuple[str, ...]
    signs: Signs

    @property
    def order(self) -> tuple[float, str]:
        return round(self.signs.chance(), 2), self.row.last_activity


def fixes(output: str, store: Store, query: Query, new: int) -> Fixes:
    """Find the actions that ended the error in a command's `output`, in the query's sessions.

    `new` is the number of logs in the query's scope that were never read.
    """
    ended, lines, met = endings(output, store, query)
    shown = ended[: query.limit]
    known = noted_if_known((one.row.agent, one.row.session_id) for one in shown)
    told = tuple(_fix(store, one, known.get((one.row.agent, one.row.session_id))) for one in shown)
    unread = unread_notice(new, store.counts(query.scope).sessions, scored=False)
    return Fixes(UNTRUSTED, len(told), lines, met, told, unread)


def endings(output: str, store: Store, query: Query) -> tuple[list[Ending], int, int]:
    """Find the places where sessions ended the error in a command's `output`, best first.

    Also return the number of the error's lines, and the number of families (a session and its forks) that met one.
    Lines that commands also print on success do not count as the error.
    """
    lines = text_hashes(error_signatures(output), bytes.fromhex(store.meta("key")))
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
                for action in split_hashes(error.by):
                    ended[action].add(family)
    weights = {line: 1 / max(1, len(met[line])) for line in lines if line not in harmless}
    known = []
    for (row, exchange, turn, by), its in ends.items():
        signs = Signs(
            sum(weights[line] for line in its) / sum(weights.values()), max(len(ended[a]) for a in split_hashes(by))
        )
        known.append((Ending(rows[row], exchange, turn, (), signs), split_hashes(by)))
    best: dict[str, Ending] = {}
    for one, actions in sorted(known, key=lambda both: both[0].order, reverse=True):
        family = one.row.root_id or str(one.row.row)
        if len(best) < query.limit and family not in best and (known_by := _action_texts(store, one, actions)):
            edit = any(action.startswith("edit ") for action in known_by)
            best[family] = one._replace(by=known_by, signs=one.signs._replace(edit=edit))
    by_chance = sorted(best.values(), key=lambda one: one.order, reverse=True)
    return by_chance, len(weights), len(set().union(*met.values()))


def _action_texts(store: Store, one: Ending, actions: list[bytes]) -> tuple[str, ...]:
    key = bytes.fromhex(store.meta("key"))
    places = [place for place in store.placements_of(one.row.row) if place.turn <= one.turn][-MAX_PASSAGES:]
    said = [line for text in store.texts([place.chunk for place in places]).values() for line in text.split("\n")]
    said += [line.rpartition(" -> ")[0] for line in said if " -> " in line]  # what failed has a note behind it
    known = dict(zip(text_hashes(said, key), said, strict=True))
    here = f"{one.row.cwd.rstrip('/')}/"
    return tuple(known[action].replace(here, "") for action in actions if action in known)


def _fix(store: Store, one: Ending, noted: SessionNotes | None) -> Fix:
    row = one.row
    place, _, asked = beginning_of(store, row, one.exchange)
    return Fix(
        row.session_id, row.agent, title(row.title), row.last_activity, round(one.signs.chance(), 2),
        one.exchange + 1, place.ends if place else None, asked,
        tuple(shorten(mask(action), ACTION_CHARACTERS) for action in one.by), noted,
    )  # fmt: skip
