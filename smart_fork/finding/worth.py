"""Which of the sessions that answer about equally well is the better one to fork: what became of it, how much of what
it knows has changed since, and what a fork of it loads.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from indexer.outcome import Edits, Outcome
from indexer.project import Project, recorded
from indexer.shapes import dataclass
from indexer.store.base import SessionRow, Store
from smart_fork.errors import SmartForkError
from smart_fork.finding.found import Candidate
from smart_fork.repository.drift import SECONDS, Drift, drifts
from smart_fork.repository.git import opened_to_look_back
from smart_fork.system import permission
from smart_fork.system.processes import Processes

log = logging.getLogger(__name__)

#: Chances so near to the best one are as good as the same. Where all are low, 0.05 is a large part of them: then it is
#: the share of the best one that counts.
CLOSE, CLOSE_SHARE = 0.05, 0.15
#: So many are compared, however few are wanted.
COMPARED = 10
#: Why results do not stand in the order of their scores.
BETTER_FIRST = (
    f"Scores within {CLOSE:g} of the best ({CLOSE_SHARE:.0%} of a low one) count as equal. Among equals the better "
    "outcome is first: committed, tests passed, unknown, failed, abandoned. Then come fewer changed files, then "
    "fewer tokens."
)
_RANKS = {outcome: rank for rank, outcome in enumerate(Outcome)}


@dataclass(frozen=True, slots=True)
class Worth:
    """How good a session is to fork. `drift` is `None` where it edited nothing, or where it is not known."""

    outcome: Outcome
    drift: Drift | None
    tokens: int

    @property
    def key(self) -> tuple[int, float, int]:
        """The least is the best. A drift that is not known counts as none."""
        return _RANKS[self.outcome], self.drift.share if self.drift else 0.0, self.tokens


def least_close(best: float) -> float:
    """The least chance that is about as good as the `best` one."""
    return best - min(CLOSE, CLOSE_SHARE * best)


def close(hits: Sequence[Candidate]) -> int:
    """How many of `hits`, best first, are about as likely as the best."""
    least = least_close(hits[0].score) if hits else 0.0
    return sum(hit.score >= least for hit in hits[:COMPARED])


def better_first(hits: Sequence[Candidate], worth: Mapping[int, Worth]) -> tuple[Candidate, ...]:
    """`hits`, best first, those about as likely as the best one by their worth."""
    count = close(hits)
    return (*sorted(hits[:count], key=lambda hit: worth[hit.session.row].key), *hits[count:])


def worth_of(
    rows: Sequence[SessionRow], store: Store, project: Project | None, directory: Path, processes: Processes
) -> dict[int, Worth]:
    """The worth of sessions, by row. `directory`, which is of `project`, says which branch counts there.

    Git is asked once for each repository in which one of them has edited anything.
    """
    edited = store.edits(row.row for row in rows)
    of_repository: defaultdict[str, dict[int, Edits]] = defaultdict(dict)
    for row in rows:
        if row.row in edited and (now := recorded(row.repo_root)) and permission.permits(str(now)):
            of_repository[str(now)][row.row] = edited[row.row]
    drift: dict[int, Drift] = {}
    until = time.monotonic() + SECONDS
    for root, sessions in of_repository.items():
        if time.monotonic() < until:
            here = project is not None and project.root == root
            drift |= _drift(directory if here else Path(root), sessions, processes)
    return {row.row: Worth(row.outcome, drift.get(row.row), row.tokens) for row in rows}


def _drift(directory: Path, edited: Mapping[int, Edits], processes: Processes) -> dict[int, Drift]:
    try:
        return drifts(opened_to_look_back(directory, processes), edited)
    except (SmartForkError, OSError) as error:  # the answer is good without
        log.info("what has changed since is not known: %s", error)
        return {}
