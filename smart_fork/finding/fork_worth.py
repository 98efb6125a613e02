"""Computes how much a session is worth as a fork, and the obstacles to forking it.

The worth is the outcome of the session's work, later changes of its files, and its tokens. Sessions that answer a
question about equally well are ordered by their worth. The module also tells how long the model's cache has a session.
"""

from __future__ import annotations

import logging
import os
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from indexer.lazy import dataclass
from indexer.outcome import Edits, Outcome
from indexer.project import Project
from indexer.repositories import recorded
from indexer.store.base import SessionRow
from indexer.transcripts.model import AgentName, Cache, Session
from indexer.values import seconds_in
from smart_fork.agents import AGENTS, repository_sessions
from smart_fork.display_text import shown
from smart_fork.errors import SmartForkError, advice
from smart_fork.finding.query import Candidate
from smart_fork.finding.session_place import WorkDirectory
from smart_fork.repository.git import Repository
from smart_fork.repository.history import SECONDS, Drift, drifts
from smart_fork.system import call_context
from smart_fork.system.processes import Processes

if TYPE_CHECKING:
    from indexer.store.sqlite import Store

log = logging.getLogger(__name__)

#: Chances count as equal to the best chance if they are this near to it; for low chances, within this share of it.
CLOSE, CLOSE_SHARE = 0.05, 0.15
#: The number of results whose worth is compared, even if fewer are wanted.
MAX_COMPARED = 10
#: The notice for results that are not in the order of their scores.
BETTER_FIRST = (
    f"Scores within {CLOSE:g} of the best ({CLOSE_SHARE:.0%} of a low one) count as equal. Among equals the better "
    "outcome is first: committed, tests passed, unknown, failed, abandoned. Then come fewer changed files, then "
    "fewer tokens."
)
_RANKS = {outcome: rank for rank, outcome in enumerate(Outcome)}


@dataclass(frozen=True, slots=True)
class ForkWorth:
    """A session's worth as a fork: its outcome, its tokens, and its drift (how many of its files have changed since).

    `drift` is `None` if the session edited no file, or if the changes are unknown.
    """

    outcome: Outcome
    drift: Drift | None
    tokens: int

    @property
    def key(self) -> tuple[int, float, int]:
        """Return a sort key, smallest for the best session to fork. An unknown drift counts as none."""
        return _RANKS[self.outcome], self.drift.share if self.drift else 0.0, self.tokens


def least_close(best: float) -> float:
    """Return the smallest score (a chance, 0…1) that counts as equal to the `best` score of a search."""
    return best - min(CLOSE, CLOSE_SHARE * best)


def close(hits: Sequence[Candidate]) -> int:
    """Return how many of the `hits`, best first, have a score that counts as equal to the best one."""
    least = least_close(hits[0].score) if hits else 0.0
    return sum(hit.score >= least for hit in hits[:MAX_COMPARED])


def better_first(hits: Sequence[Candidate], worth: Mapping[int, ForkWorth]) -> tuple[Candidate, ...]:
    """Return `hits` with those that count as equal to the best hit sorted by their worth as a fork."""
    count = close(hits)
    return (*sorted(hits[:count], key=lambda hit: worth[hit.session.row].key), *hits[count:])


def worth_of(
    rows: Sequence[SessionRow], store: Store, project: Project | None, directory: Path, processes: Processes
) -> dict[int, ForkWorth]:
    """Return the worth of sessions as forks, by row number.

    Files in the repository of `project` are compared with the branch checked out in `directory`. Each repository is
    asked once.
    """
    edited = store.edits(row.row for row in rows)
    of_repository: defaultdict[str, dict[int, Edits]] = defaultdict(dict)
    for row in rows:
        if row.row in edited and (now := recorded(row.repo_root)) and call_context.permits(str(now)):
            of_repository[str(now)][row.row] = edited[row.row]
    drift: dict[int, Drift] = {}
    until = time.monotonic() + SECONDS
    for root, sessions in of_repository.items():
        if time.monotonic() < until:
            here = project is not None and project.root == root
            drift |= _drift(directory if here else Path(root), sessions, processes)
    return {row.row: ForkWorth(row.outcome, drift.get(row.row), row.tokens) for row in rows}


def _drift(directory: Path, edited: Mapping[int, Edits], processes: Processes) -> dict[int, Drift]:
    try:
        return drifts(Repository.open_to_look_back(directory, processes), edited)
    except (SmartForkError, OSError) as error:  # the answer is good without
        log.info("what has changed since is not known: %s", error)
        return {}


# The obstacles to a fork. Results show them, and a fork is refused because of them: one function decides.


def obstacles(
    agent: AgentName, session_id: str, path: str | None, cwd: str, *, origin: str, asked: bool,
    works_in: str | None = None,
) -> list[str]:  # fmt: skip
    """Return the reasons why a session cannot be forked now; empty if it can.

    `cwd` is the session's directory, `works_in` another one for the fork. `origin` says who started the session,
    `asked` if it has a prompt.
    """
    whys = [_of_its_log(agent, session_id, path or "", asked=asked)]
    if origin == "subagent":
        whys.append("it is a sub-agent's log; fork the session that started it")
    if works_in is None and not WorkDirectory(WorkDirectory(cwd).now).is_there:
        elsewhere = advice("give one: smart-fork fork ID --cwd DIR", tool="give one: project_path")
        whys.append(f"{WorkDirectory(cwd).problem or f'its directory no longer exists: {shown(cwd)}'}; {elsewhere}")
    return [why for why in whys if why]


def _of_its_log(agent: AgentName, session_id: str, path: str, *, asked: bool) -> str:
    file = _file_of(path) if path else ""
    size = _size(file)
    if size is None:
        from indexer import kept_logs  # nearly all sessions have their logs

        if kept_logs.find(agent, session_id) is not None:
            return ""
        return advice(
            "its log is deleted; `smart-fork show` prints it, but it cannot be forked",
            tool="its log is deleted; read_session reads it, but it cannot be forked",
        )
    if size == 0 or not asked:
        return "it has no prompt yet"
    return "" if os.access(file, os.R_OK) else "its log cannot be read"


def _size(path: str) -> int | None:
    try:
        return os.stat(path).st_size if path else None  # noqa: PTH116 - may be an empty text
    except OSError:
        return None


# The model's cache: reading cached tokens costs a fraction.


def own_cached_until(path: str, cache: Cache) -> str:
    """Return when the model's cache of the session in the log `path` expires; empty for another person's session."""
    return "" if repository_sessions.author_of(path) else cached_until(cache)


def cached_until(cache: Cache) -> str:
    """Return when the model's cache of a session expires; empty if the log does not say, or claims a future use."""
    if not cache.seconds or age_of(cache.used) is None:
        return ""
    until = datetime.fromisoformat(cache.used) + timedelta(seconds=cache.seconds)
    return until.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def shared_until(session: Session, end: int | None = None, *, elsewhere: bool = False) -> str:
    """Return the time until which the model's cache holds the text of a fork up to turn `end`; empty if unknown.

    It is also empty if the fork begins with other text than the session: for another user's session, after a gap in the
    log, or `elsewhere` (in another directory, which most agents name before the conversation).
    """
    until = own_cached_until(str(session.source_path), session.cache(end))
    if elsewhere and is_cached(until) and not AGENTS.tail_of(session.agent).keeps_prompt(session.source_path):
        return ""
    return until


def is_cached(until: str) -> bool:
    """Return True if `until`, the time at which a model's cache expires, is in the future."""
    return (_left(until) or 0) > 0


def cache_in_words(until: str, first: int = 0) -> str:
    """Say for a person how long the model's cache still has a session, or its `first` tokens; empty if unknown."""
    left = _left(until)
    if left is None or left <= 0:
        return "" if left is None else "no longer cached"
    minutes = round(left / 60)
    words = f"still cached for about {minutes} minute{'s' * (minutes > 1)}" if minutes else "still cached for seconds"
    return f"the first {first:,} {words}" if first else words


def age_of(moment: str) -> float | None:
    """Return how many seconds ago a timestamp was; `None` for an invalid or future time."""
    left = _left(moment)
    return -left if left is not None and left <= 0 else None


def _left(moment: str) -> float | None:
    at = seconds_in(moment)
    return None if at is None else at - time.time()


def _file_of(location: str) -> str:
    """Return the file of the log at `location`, which may be one of several logs inside a file."""
    within = os.path.dirname(location)  # noqa: PTH120 - as text
    return within if os.path.isfile(within) else location  # noqa: PTH113 - False on any error
