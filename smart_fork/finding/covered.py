"""How much of an index can be found by its meaning, and how far an early answer can be believed.

Most of what meaning finds, it finds by the first passages.
"""

from __future__ import annotations

import math

from indexer.runs import last_run
from indexer.store.base import Counts, Scope, Store
from smart_fork.finding.answer import Covered
from smart_fork.system.stages import duration

#: Points against every session while no passage has its vector; fewer as more of them have theirs.
MOST_DOUBT = 1.5
#: An answer is early while fewer of the first passages have their vector.
EARLY = 0.9


def covered(store: Store, counts: Counts, scope: Scope | None = None) -> Covered:
    """The shares of the passages that exchanges begin with, and of all, that have their vector: 1 where all of them do.

    `counts` are those of `scope`.
    """
    if counts.embedded == counts.chunks:
        return Covered(1.0, 1.0)
    number, embedded = store.first_passages(scope)
    return Covered(_share(embedded, number), _share(counts.embedded, counts.chunks))


def doubt(shares: Covered) -> float:
    """Return the points against every session for what is not known yet: the vectors to come may speak for another."""
    return MOST_DOUBT * (1 - (shares.first_passages + shares.all_passages) / 2)


def unread_notice(new: int, sessions: int, *, scored: bool = True) -> str:
    """Say that logs were never read, and what follows, also for scores if there are any; empty if all were read."""
    if not new:
        return ""
    unread, among = (
        f"{new:,} of {new + sessions:,} logs here are not read yet",
        "the session you mean may be among them.",
    )
    if not scored:
        return f"{unread}: {among}"
    return f"{unread}, so no chance is known: {among} Scores are lower until they are read."


def early_notice(shares: Covered) -> str:
    """Say that an answer is early; empty if it is not."""
    if shares.first_passages >= EARLY:
        return ""
    known = math.floor(100 * shares.all_passages)
    return (
        f"This answer is early: {known} % of the passages here are embedded. Scores are lower, and another session "
        "may come first in a minute."
    )


def in_words(shares: Covered) -> str:
    """Those shares, for people."""
    return ", ".join(
        f"{name.replace('_', ' ')} {math.floor(100 * share)} %" for name, share in shares.as_json().items()
    )


def _share(part: int, whole: int) -> float:
    """Rounded down: nearly all is not all."""
    return math.floor(1000 * part / whole) / 1000 if whole else 1.0


# What is said of an index that is not complete: how far it is, who does the rest, and about how long that takes.


def background_notice(store: Store, left: int | None, rate: float) -> str:
    """One line where the rest is being done in the background; empty where nothing is left.

    `left` changed logs have not been read; `rate` passages a second are embedded, 0 where this question has seen none.
    """
    counts = store.counts()
    missing = counts.chunks - counts.embedded
    said = [f"{left} logs are not read yet"] if left else []
    if missing:
        said.append(f"the index is {100 * counts.embedded // counts.chunks} % embedded")
    if not said:
        return ""
    state = " and ".join(said)
    return f"{state[0].upper()}{state[1:]}; the rest continues in the background{_about(store, counts, rate)}."


def _about(store: Store, counts: Counts, rate: float) -> str:
    """How long it takes, as fast as it has gone; nothing where that is not known."""
    rate = rate or _last_rate(store)
    return f", about {duration((counts.chunks - counts.embedded) / rate)}" if rate > 0 else ""


def _last_rate(store: Store) -> float:
    """Passages a second of the last run over everything, at least: it has read logs as well."""
    run = last_run(store)
    return run.embedded / run.seconds if run and run.seconds > 0 else 0.0
