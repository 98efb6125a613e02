"""What is said of an index that is not complete: how far it is, who does the rest, and about how long that takes."""

from __future__ import annotations

from indexer.runs import last_run
from indexer.store.base import Counts, Store
from smart_fork.stages import duration


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
