"""The functions of smart-fork for Python scripts, such as `smart_fork.find` and `smart_fork.fork`.

All results are frozen values. Their `as_json()` returns JSON values.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indexer import default_embedder
from indexer.embedder import configured_reranker
from indexer.lazy_compilation import dataclass
from smart_fork.agents.request_fields import Options
from smart_fork.errors import IndexUnavailable, Usage
from smart_fork.excise import erasure
from smart_fork.excise.answer import CutRequest
from smart_fork.excise.cutting import cut as cut_out
from smart_fork.finding.answer import Unsearched
from smart_fork.finding.conversation import ReadRange
from smart_fork.finding.hit import Hit
from smart_fork.finding.index_refresh import Engine
from smart_fork.finding.request import FindRequest
from smart_fork.finding.session_library import Library
from smart_fork.finding.team_sessions import conversation_of, team_search
from smart_fork.forking.branch import branch as branch_session
from smart_fork.forking.plan import fork_session
from smart_fork.forking.request import BranchRequest, Budget, ForkRequest
from smart_fork.workers.messages import message_worker
from smart_fork.workers.observation import read_worker, wait_workers
from smart_fork.workers.termination import close_workers

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from indexer.embedder import Embedder
    from smart_fork.excise.answer import Excised
    from smart_fork.finding.conversation import Conversation, Exported
    from smart_fork.finding.remote_search import RemoteSearch
    from smart_fork.forking.results import Branched, Forked
    from smart_fork.workers.results import WorkerClosed, WorkerMessaged, WorkerRead, WorkerWaited


@dataclass(frozen=True, slots=True)
class Worker:
    """A fork of a session that `fork` or `merge` has started, with methods to control it. `started` has its facts."""

    started: Forked

    @property
    def id(self) -> str:
        """Return the worker's id, which every command accepts."""
        return self.started.worker_id

    @property
    def session_id(self) -> str | None:
        """Return the worker's session; `None` if the agent had not created it when the worker started."""
        return self.started.new_session_id

    def as_json(self) -> dict[str, Any]:
        """Return the facts about the worker's start as a JSON object."""
        return self.started.as_json()

    def wait(self, timeout: float | None = None) -> WorkerWaited:
        """Wait until the worker is idle, asks a question or ends, for at most `timeout` seconds.

        In the result, `settled` is False if the timeout ended the wait, and `last_words` is the worker's last message.

        Raises:
            SmartForkError: the worker no longer exists, or `timeout` is negative.
        """
        (seen,) = wait_workers([self.id], timeout=timeout).workers
        return seen

    def read(self, exchanges: int = 3) -> WorkerRead:
        """Return the worker's last `exchanges` (prompts with their answers), without those of the forked session.

        Raises:
            SmartForkError: the worker no longer exists, or `exchanges` is below one.
        """
        return read_worker(self.id, exchanges=exchanges)

    def say(self, text: str, *, queue: bool = False) -> WorkerMessaged:
        """Send a message to the worker. With `queue`, a busy worker gets it when its current work is done.

        Raises:
            SmartForkError: the worker cannot receive the message now.
        """
        return message_worker(self.id, text, queue=queue)

    def close(self, *, remove_worktree: bool = False) -> WorkerClosed:
        """End the worker. With `remove_worktree`, also remove its worktree, unless that has unsaved changes.

        Raises:
            SmartForkError: the worker no longer exists.
        """
        (closed,) = close_workers([self.id], remove_worktree=remove_worktree)
        return closed


def find(
    intent: str,
    *,
    also: Sequence[str] = (),
    project: str | None = None,
    limit: int = 5,
    agent: str = "all",
    min_score: float | None = None,
    team: bool = True,
) -> list[Hit]:
    """Return the sessions of `project` (by default the working directory's) that answer `intent`, best first.

    With a team login, they include sessions that the team shares, unless `team` is false. Their `origin` names the
    owner.

    `also` are up to eight other phrasings; agreement between them makes the result more certain. A score is the
    probability that the session is the intended one. Sessions with a score below `min_score` are left out.

    Raises:
        Usage: an argument is invalid.
        IndexUnavailable: there is no index to search.
    """
    request = FindRequest(intent, agent_type=agent, limit=limit, min_score=min_score, also=also)
    with _library(project, team_search(wanted=None if team else False)) as library:
        found = library.find(request)
    if isinstance(found, Unsearched):
        raise IndexUnavailable(found.message, found.next_steps[0])
    return list(found.results)


def fork(
    session_id: str,
    prompt: str | None = None,
    *,
    at: int | None = None,
    cwd: str | None = None,
    budget: int | str | None = None,
    intent: str | None = None,
    also: Sequence[str] = (),
    keep: Sequence[int] = (),
    drop: Sequence[int] = (),
    as_agent: str | None = None,
    **options: Any,
) -> Worker:
    """Run a fork of a session with `prompt`, up to message number `at` if given. The original stays unchanged.

    A session that the team shares is first written to this machine.

    A `budget` is a number of tokens, such as 30000 or "30k", or "match" for as few as are needed. The fork then has
    only the exchanges that answer `intent`, by default the prompt, with `also` as other phrasings. Exchanges with a
    number in `keep` are always kept, those in `drop` never. `started.selection` describes them.

    With `as_agent`, such as "codex", a new session of another agent gets the session, as `started.handed` says. Secrets
    are masked, unless `unmasked` is true.

    `options` are fields of `Options`: `worktree` (true, or a name), `with_changes` (a worktree with the directory's
    uncommitted changes), `place`, `name`, `skip_permissions`, `unmasked`.

    Raises:
        SmartForkError: nothing was started, and nothing is left of the attempt.
    """
    own, wanted = Options(prompt=prompt, **options), _wanted(budget, intent, also, keep, drop)
    asked = ForkRequest(
        session_id, own, at=at, cwd=cwd, budget=wanted, intent=intent or None, also=tuple(also), as_agent=as_agent
    )
    return Worker(fork_session(asked, _library))


def read(
    session_id: str, *, at: int | None = None, context: int | None = None, project: str | None = None
) -> Conversation | Exported:
    """Return a session's conversation, with the message numbers that `fork` takes.

    With `at`, it begins at that message, or has `context` messages before and after it. The session may be one that the
    team of `project` shares. Without a log, its export is returned, in `markdown`.

    Raises:
        SmartForkError: the session or the message does not exist, or cannot be read.
    """
    return conversation_of(session_id, ReadRange(at, context or 0, context), Path(project or Path.cwd()))


def preview(
    session_id: str,
    prompt: str | None = None,
    *,
    at: int | None = None,
    cwd: str | None = None,
    budget: int | str | None = None,
    intent: str | None = None,
    also: Sequence[str] = (),
    keep: Sequence[int] = (),
    drop: Sequence[int] = (),
    as_agent: str | None = None,
    **options: Any,
) -> Forked:
    """Preview what `fork` would start with these arguments: its command, and its `selection` within a `budget`.

    In the result, `ways` gives the tokens of each way to fork: the whole session, up to message `at`, up to the
    exchange that answers the prompt, and within budgets.

    Raises:
        SmartForkError: the fork could not be started.
    """
    if budget is None and (keep or drop):
        raise Usage("keep and drop are only for a budget", "Give a budget as well, such as 30000.")
    wanted = None if budget is None else _wanted(budget, intent, also, keep, drop)
    own = Options(prompt=prompt, **options)
    asked = ForkRequest(
        session_id, own, at=at, cwd=cwd, budget=wanted, intent=intent or None, also=tuple(also), as_agent=as_agent
    )
    return fork_session(replace(asked, dry_run=True), _library)


def merge(
    session_ids: Sequence[str],
    prompt: str | None = None,
    *,
    budget: int | str,
    cwd: str | None = None,
    intent: str | None = None,
    also: Sequence[str] = (),
    as_agent: str | None = None,
    **options: Any,
) -> Worker:
    """Run one fork with the exchanges of several sessions that answer `prompt`, within one `budget`. See `fork`.

    It begins with the first session. `started.selection` describes the exchanges kept of that one, and `started.merged`
    those of each other session.

    Raises:
        SmartForkError: nothing was started, and nothing is left of the attempt.
    """
    if isinstance(session_ids, str):
        raise Usage("Several sessions are merged", "Give a list of their ids.")
    first, *others = session_ids or [""]
    own, wanted = Options(prompt=prompt, **options), _wanted(budget, intent, also)
    asked = ForkRequest(first, own, cwd=cwd, budget=wanted, intent=intent or None, also=tuple(also), as_agent=as_agent)
    return Worker(fork_session(replace(asked, merge=tuple(others)), _library))


def _wanted(
    budget: int | str | None,
    intent: str | None,
    also: Sequence[str],
    keep: Sequence[int] = (),
    drop: Sequence[int] = (),
) -> Budget | None:
    """Return the token budget of a fork; `None` without `budget`. `keep` and `drop` are exchange numbers."""
    if budget is None:
        if intent or also or keep or drop:
            raise Usage("intent, also, keep and drop are only for a budget", "Give a budget as well, such as 30000.")
        return None
    return Budget(Budget.parse_amount(budget), frozenset(keep), frozenset(drop))


def branch(
    session_id: str,
    *,
    at: int | None = None,
    title: str | None = None,
    cwd: str | None = None,
    budget: int | str | None = None,
    intent: str | None = None,
    also: Sequence[str] = (),
    keep: Sequence[int] = (),
    drop: Sequence[int] = (),
    as_agent: str | None = None,
    unmasked: bool = False,
) -> Branched:
    """Copy a session under a new title, up to message number `at` if given, without running anything.

    Within a `budget` the copy has only the exchanges that answer the `intent`. With `as_agent`, it is a session of that
    other agent. See `fork`.

    Raises:
        SmartForkError: nothing was copied.
    """
    wanted = _wanted(budget, intent, also, keep, drop)
    asked = BranchRequest(
        session_id, Options(unmasked=unmasked), at, intent, tuple(also), wanted, cwd, as_agent, title=title
    )
    return branch_session(asked, _library)


def cut(
    session_id: str,
    turns: str = "",
    *,
    ids: Sequence[str] = (),
    secrets: bool = False,
    force: bool = False,
    dry_run: bool = False,
) -> Excised:
    """Cut turns, such as "5-7,9", out of a session's transcript so that its agent can still resume it.

    With `ids`, turns are selected by id. With `secrets`, secrets are masked instead, in all turns or the selected ones.
    `force` cuts despite warnings, and `dry_run` only reports. In the result, `snapshot` names a copy of the transcript
    before the cut.

    Raises:
        SmartForkError: nothing was cut: the session is running or would break, or a session or turn does not exist.
        OSError: the transcript cannot be written. It is unchanged.
    """
    wanted = CutRequest(session_id, turns, tuple(ids), secrets=secrets, force=force, dry_run=dry_run)
    return cut_out(wanted)


def forget(session_id: str, *, undo: bool = False) -> erasure.Removal:
    """Remove all that smart-fork stores about a session, and never index it again. Its agent's log stays.

    With `undo`, allow the session to be indexed again.

    Raises:
        SmartForkError: the session does not exist, or another process is indexing for too long.
    """
    return erasure.undo_forgetting(session_id) if undo else erasure.forget(session_id)


def _library(project: str | None = None, elsewhere: RemoteSearch | None = None) -> AbstractContextManager[Library]:
    return Library.open(project, Engine(_embedder(), rerank=configured_reranker()), elsewhere=elsewhere)


@cache
def _embedder() -> Embedder:
    """Return the process's one embedder, which turns text into vectors, so that its model is loaded once."""
    return default_embedder.configured_embedder()
