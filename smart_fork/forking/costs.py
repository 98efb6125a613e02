"""What each turn of a session takes: by its characters, at the rate at which its agent has counted them."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from indexer.shapes import dataclass
from indexer.transcripts.model import Session
from smart_fork.agents import AGENTS

#: Characters a token where the agent has counted nothing, and what no model's count is beyond.
USUAL, LEAST, MOST = 4.0, 1.5, 5.0
#: What is left of the context where it was compacted is less than this share; thoughts alone are not so much.
FORGOTTEN = 0.6
#: Of fewer tokens that were counted nothing is told.
COUNTED = 2_000


@dataclass(frozen=True, slots=True)
class Costs:
    """The tokens of each turn, in full and with its results shortened.

    And those of what each compaction has left, by the number of the turn it stands at.
    """

    turns: tuple[int, ...]
    short: tuple[int, ...]
    summaries: tuple[tuple[int, int], ...]
    rate: float

    def of(self, turn: int, *, full: bool) -> int:
        """What a turn takes, in full or with its results shortened."""
        return (self.turns if full else self.short)[turn]

    def of_text(self, text: str) -> int:
        """About what a text takes."""
        return ceil(len(text) / self.rate)

    def summary(self, end: int) -> int:
        """What the newest compaction up to turn `end` has left."""
        return next((tokens for number, tokens in reversed(self.summaries) if number <= end), 0)


def costs(session: Session) -> Costs:
    """What the turns of a session take.

    Raises:
        ForkRefused: the log was rewritten meanwhile.
        NotFound: a session that this one was forked from is gone.
    """
    sizes, short, sums = [0] * len(session.turns), [0] * len(session.turns), list[tuple[int, int]]()
    for number, size in enumerate(session.sizes) if session.sizes else AGENTS.copier_of(session.agent).sizes(session):
        if size.sums_up:
            sums.append((number, size.characters))
            continue
        sizes[number] += size.characters
        short[number] += size.short
    rate = _rate(session, sizes)
    turns, shorter = (tuple(ceil(size / rate) for size in some) for some in (sizes, short))
    return Costs(turns, shorter, tuple((number, ceil(size / rate)) for number, size in sums), rate)


def _rate(session: Session, sizes: Sequence[int]) -> float:
    """How many characters a token had, by how the context has grown while they came into it: from one time that the
    agent has forgotten something to the next.
    """
    grown = came = 0
    begun = last = within = pending = 0
    for turn, size in zip(session.turns, sizes, strict=True):
        pending += size
        if not turn.loaded:
            continue
        if last and turn.loaded >= FORGOTTEN * last:
            within += pending
        else:
            grown, came = grown + max(0, last - begun), came + within
            begun, within = turn.loaded, 0
        last, pending = turn.loaded, 0
    grown, came = grown + max(0, last - begun), came + within
    return min(MOST, max(LEAST, came / grown)) if grown >= COUNTED else USUAL
