"""Says how suitable a session is for a fork: its worth, the obstacles, and the time that the model's cache keeps its
text.

The worth is the outcome of the session's work, later changes of its files, and its tokens. Sessions that answer a
question about equally well are ordered by their worth.
"""

from __future__ import annotations

import logging
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from indexer.json_values import seconds_in
from indexer.lazy_compilation import dataclass
from indexer.project import Project, project_of
from indexer.repositories import recorded
from indexer.session_work import Edits, Outcome
from indexer.store.base import SessionRow
from indexer.transcripts.model import AgentName, Cache, Session
from smart_fork.agents import AGENTS, repository_sessions
from smart_fork.display_text import shown
from smart_fork.errors import SmartForkError, advice
from smart_fork.finding.candidates import Candidate
from smart_fork.finding.git import Repository
from smart_fork.finding.hit import Drift
from smart_fork.finding.project_places import inside, tops
from smart_fork.finding.session_place import WorkDirectory
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
    """Return the smallest score that counts as equal to `best`, the best score (a chance, 0…1) of a search."""
    return best - min(CLOSE, CLOSE_SHARE * best)


def close(hits: Sequence[Candidate]) -> int:
    """Return how many of the `hits`, best first, have a score that counts as equal to the best one."""
    least = least_close(hits[0].score) if hits else 0.0
    return sum(hit.score >= least for hit in hits[:MAX_COMPARED])


def better_first(hits: Sequence[Candidate], worth: Mapping[int, ForkWorth]) -> tuple[Candidate, ...]:
    """Return `hits` with those that count as equal to the best hit sorted by their worth as a fork."""
    count = close(hits)
    return (*sorted(hits[:count], key=lambda hit: worth[hit.session.row].key), *hits[count:])


def best_fork(rows: Sequence[SessionRow], store: Store, directory: Path) -> SessionRow | None:
    """Return the best session to fork in `directory`, among those with committed work or passed tests."""
    rows = [row for row in rows if row.outcome in (Outcome.COMMITTED, Outcome.TESTS_PASSED)]
    worth = worth_of(rows, store, project_of(directory), directory, Processes())
    return min(rows, key=lambda row: worth[row.row].key, default=None)


def worth_of(
    rows: Sequence[SessionRow], store: Store, project: Project | None, directory: Path, processes: Processes
) -> dict[int, ForkWorth]:
    """Return the worth of sessions as forks, by row number.

    Files of `project` are compared with the branch that is checked out in `directory`.
    """
    edited = store.edits(row.row for row in rows)
    of_repository: defaultdict[str, dict[int, Edits]] = defaultdict(dict)
    for row in rows:
        if row.row in edited and (now := recorded(row.repo_root)) and call_context.permits(str(now)):
            of_repository[str(now)][row.row] = edited[row.row]
    drift: dict[int, Drift] = {}
    until = time.monotonic() + DRIFT_SECONDS
    for root, sessions in of_repository.items():
        if time.monotonic() < until:
            here = project is not None and project.root == root
            try:
                drift |= drifts(Repository.open_to_look_back(directory if here else Path(root), processes), sessions)
            except (SmartForkError, OSError) as error:  # the answer is good without
                log.info("what has changed since is not known: %s", error)
    return {row.row: ForkWorth(row.outcome, drift.get(row.row), row.tokens) for row in rows}


# The obstacles to a fork. Results show them, and a fork is refused because of them: one function decides.


def obstacles(
    agent: AgentName, session_id: str, path: str | None, cwd: str, *, origin: str, asked: bool,
    works_in: str | None = None,
) -> list[str]:  # fmt: skip
    """Return the reasons why a session cannot be forked now; empty if it can.

    `cwd` is the session's directory, `works_in` another one for the fork. `origin` says who started the session.
    `asked` is true if the session has a prompt.
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
    try:
        size = os.stat(file).st_size if file else None  # noqa: PTH116 - may be an empty text
    except OSError:
        size = None
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


# The model's cache: reading cached tokens costs a fraction.


def own_cached_until(path: str, cache: Cache) -> str:
    """Return when the model's cache of the session in the log `path` expires; empty for another person's session."""
    return "" if repository_sessions.author_of(path) else cached_until(cache)


def cached_until(cache: Cache) -> str:
    """Return when the model's cache of a session expires; empty if unknown, or if its last use is in the future."""
    if not cache.seconds or age_of(cache.used) is None:
        return ""
    until = datetime.fromisoformat(cache.used) + timedelta(seconds=cache.seconds)
    return until.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def shared_until(session: Session, end: int | None = None, *, elsewhere: bool = False) -> str:
    """Return the time until which the model's cache holds the text of a fork that ends at turn `end`; empty if unknown.

    It is also empty if another user wrote the session, or if the fork works `elsewhere` (in another directory, which
    most agents name before the conversation).
    """
    until = own_cached_until(str(session.source_path), session.cache(end))
    if elsewhere and is_cached(until) and not AGENTS.tail_of(session.agent).keeps_prompt(session.source_path):
        return ""
    return until


def is_cached(until: str) -> bool:
    """Return True if `until`, the time at which a model's cache expires, is in the future."""
    return (_left(until) or 0) > 0


def cache_in_words(until: str, first: int = 0) -> str:
    """Say how long the model's cache keeps a session, or the `first` tokens of it; empty if unknown."""
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


# The drift of sessions: later changes of the files that they edited.
#
# One call of git finds the changes since any number of sessions. Only committed changes on the current branch count,
# and a merge counts at its own time. Paths come from logs: git reads them from standard input as literal text.

#: The seconds that git may take; if it takes longer, the changes are unknown.
DRIFT_SECONDS = 3.0
#: Git does not read a smaller number as seconds since 1970.
_FIRST = 100_000_000
_LOG = (
    "--literal-pathspecs", "log", "--stdin", "--first-parent", "--diff-merges=first-parent", "--no-renames",
    "--name-only", "--no-ext-diff", "--no-textconv", "--no-relative", "--no-follow", "--no-color", "--no-notes",
    "--no-show-signature", "-z", "--format=%x00%H %ct",
)  # fmt: skip
Key = TypeVar("Key")


def drifts(repository: Repository, edited: Mapping[Key, Edits]) -> dict[Key, Drift]:
    """Return each session's drift (how many of the files that it edited have changed since), by the session's key.

    Missing are sessions without edits in the repository, and those before the known history.
    """
    within = tops(repository)
    files = {key: inside(edits.files, within) for key, edits in edited.items()}
    times = {key: time for key, edits in edited.items() if files[key] and (time := seconds_in(edits.until)) is not None}
    if not times:
        return {}
    asked = sorted({file for key in times for file in files[key]})
    since = [f"--since=@{int(first)}"] if (first := min(times.values())) > _FIRST else []
    lines = ("HEAD", "--", *asked, "")
    done = repository.git(*_LOG, *since, given=os.fsencode("\n".join(lines)), seconds=DRIFT_SECONDS)
    if not done.ok:  # nothing has been committed yet, or git is too old
        return {}
    commits = list(_parse_log(done.stdout))
    cut = _oldest_of_shallow_clone(repository)
    found = {}
    for key, time in times.items():
        later = {name: changed for name, made, changed in commits if made > time}
        if cut.isdisjoint(later):
            changed = set[str]().union(*later.values())
            number = len(files[key] & changed)
            found[key] = Drift(len(files[key]), number, round(number / len(files[key]), 4))
    return found


def _parse_log(said: bytes) -> Iterator[tuple[str, int, set[str]]]:
    fields = iter(os.fsdecode(said).split("\0"))
    name, time, files = "", 0, set[str]()
    for field in fields:
        if field:
            files.add(field.removeprefix("\n"))
            continue
        if name:
            yield name, time, files
        name, _, moment = next(fields, "").partition(" ")
        time, files = int(moment or 0), set()
    if name:
        yield name, time, files


def _oldest_of_shallow_clone(repository: Repository) -> frozenset[str]:
    """Return the hashes of the oldest commits of a shallow clone, which seem to add all their files."""
    try:
        return frozenset(Path(repository.place.common, "shallow").read_text("ascii").split())
    except (OSError, ValueError):
        return frozenset()
