"""The public functions for scripts, such as `smart_fork.find`.

Whatever is answered is a frozen value: `as_json()` gives its JSON.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indexer.lazy import dataclass
from smart_fork.errors import Ambiguous, IndexUnavailable, NotFound, Usage
from smart_fork.finding.session_view import Hit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from indexer.embedder import Embedder
    from smart_fork.excise.answer import Excised
    from smart_fork.excise.erasure import Removal
    from smart_fork.finding.remote_search import RemoteSearch
    from smart_fork.finding.session_library import Library
    from smart_fork.finding.session_view import Conversation, Exported
    from smart_fork.finding.sessions import ReadRange
    from smart_fork.forking.request import Wanted
    from smart_fork.forking.results import Branched, Forked
    from smart_fork.workers.state import WorkerClosed, WorkerMessaged, WorkerRead, WorkerWaited


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker that was started, and what can be done with it from then on. `started` is what is known of its start."""

    started: Forked

    @property
    def id(self) -> str:
        """Its own id, by which every command knows it."""
        return self.started.worker_id

    @property
    def session_id(self) -> str | None:
        """Its session's id; `None` where the agent had not told it when the worker was started."""
        return self.started.new_session_id

    def as_json(self) -> dict[str, Any]:
        """JSON values: what is known of its start."""
        return self.started.as_json()

    def wait(self, timeout: float | None = None) -> WorkerWaited:
        """Wait until it is done, asks something or ends, for `timeout` seconds at most; `settled` says whether it is.

        `last_words` are what it said last.

        Raises:
            SmartForkError: there is no such worker any more, or the time is negative.
        """
        from smart_fork.workers.roster import wait_workers

        (seen,) = wait_workers([self.id], timeout=timeout).workers
        return seen

    def read(self, exchanges: int = 3) -> WorkerRead:
        """Its last exchanges, without what it has from the session that was forked.

        Raises:
            SmartForkError: there is no such worker any more, or fewer than one exchange is asked for.
        """
        from smart_fork.workers.roster import read_worker

        return read_worker(self.id, exchanges=exchanges)

    def say(self, text: str, *, queue: bool = False) -> WorkerMessaged:
        """Say something to it; with `queue` also while it works, for when it is done.

        Raises:
            SmartForkError: it does not hear that now, and was not told.
        """
        from smart_fork.workers.messages import message_worker

        return message_worker(self.id, text, queue=queue)

    def close(self, *, remove_worktree: bool = False) -> WorkerClosed:
        """End it; with `remove_worktree` its worktree goes as well, where that holds nothing unsaved.

        Raises:
            SmartForkError: there is no such worker any more.
        """
        from smart_fork.workers.termination import close_workers

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
    """The sessions of `project` (the working directory's by default) that answer `intent`, best first.

    Those that a team shares are among them where one has logged in, unless `team` is false; their `origin` says whose.

    `also` says the same in other words, in up to eight texts: what they agree on is found more surely. A score is the
    chance that the session is the one that is meant; with `min_score` those below it are left out.

    Raises:
        Usage: something in the request is not acceptable.
        IndexUnavailable: nothing can be searched.
    """
    from smart_fork.finding.answer import Unsearched
    from smart_fork.finding.request import FindRequest
    from smart_fork.finding.team_search import team_search

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
    """Run a fork of a session with `prompt`, from message number `at` on where given; the original stays untouched.

    One that the team shares is written here first, and taken away again where nothing is started.

    Within a `budget` (a number of tokens, such as 30000 or "30k", or "match" for as little as answers) it has only what
    answers the `intent`, by default the prompt, which `also` says in other words; the exchanges of the numbers in
    `keep` are kept, and those in `drop` left out, whatever they take. `started.selection` says what it has.

    With `as_agent` it is handed over: a new session of that agent, such as "codex", which is told what was said and
    done. `started.handed` says how much of it. Secrets are masked, unless `unmasked` is true.

    `options` are those of `Options`: `worktree` (true, or its name), `with_changes` (a worktree of its own that has the
    uncommitted changes of the directory as well), `place`, `name`, `skip_permissions`, `unmasked`.

    Raises:
        SmartForkError: nothing was started, and nothing is left of the attempt.
    """
    asked = {"at": at, "cwd": cwd, "intent": intent or None, "also": also, "as_agent": as_agent}
    return Worker(_forked([session_id], prompt, options, asked, _wanted(budget, intent, also, keep, drop)))


def read(
    session_id: str, *, at: int | None = None, context: int | None = None, project: str | None = None
) -> Conversation | Exported:
    """A session's conversation, its messages numbered as `fork` takes them. With `at` from that message on, or so many
    before and after it. One that is not here may be of those that the team of `project` shares.

    Of one whose log is gone it is the export, as `markdown`.

    Raises:
        SmartForkError: there is no such session or message, or it cannot be read.
    """
    from smart_fork.finding.sessions import ReadRange

    return conversation(session_id, ReadRange(at, context or 0, context), Path(project or Path.cwd()))


def conversation(
    reference: str, reading: ReadRange, project: Path | None, *, notice: str = ""
) -> Conversation | Exported:
    """Read a session of this machine, or one that the team of `project` shares; see `read`.

    Raises:
        SmartForkError: there is no such session or message, or it cannot be read.
    """
    from smart_fork.agents.references import Resolved
    from smart_fork.finding import sessions
    from smart_fork.finding.index_access import kept_open

    with kept_open():
        try:
            located = sessions.locate(reference)
        except (NotFound, Usage) as missing:
            if isinstance(missing, Ambiguous) or project is None:
                raise
            from smart_fork.finding.team_search import is_known, team_room

            if not is_known():
                raise
            return team_room().read(reference, missing, project, reading)
        return sessions.conversation(located, reading, notice=notice, resolved=Resolved.here(reference).by)


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
    """Preview what `fork` would start with the same arguments: its command, and its `selection` within a `budget`.

    Its `ways` are what each way to fork the session loads: all of it, up to `at`, up to what answers the intent, and
    within budgets.

    Raises:
        SmartForkError: it could not be started either.
    """
    if budget is None and (keep or drop):
        raise Usage("keep and drop are only for a budget", "Give a budget as well, such as 30000.")
    wanted = None if budget is None else _wanted(budget, intent, also, keep, drop)
    asked = {"at": at, "cwd": cwd, "intent": intent or None, "also": also, "as_agent": as_agent, "dry_run": True}
    return _forked([session_id], prompt, options, asked, wanted)


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
    """Run one fork of several sessions, of each what answers, within one `budget`; else as `fork`.

    It is a fork of the first of them; what is kept of the others follows. `started.selection` says what it has of the
    first, `started.merged` of each of the others.

    Raises:
        SmartForkError: nothing was started, and nothing is left of the attempt.
    """
    if isinstance(session_ids, str):
        raise Usage("Several sessions are merged", "Give a list of their ids.")
    asked = {"cwd": cwd, "intent": intent or None, "also": also, "as_agent": as_agent, "merge": tuple(session_ids[1:])}
    return Worker(_forked(session_ids, prompt, options, asked, _wanted(budget, intent, also)))


def _forked(
    session_ids: Sequence[str],
    prompt: str | None,
    options: Mapping[str, Any],
    asked: Mapping[str, Any],
    wanted: Wanted | None,
) -> Forked:
    """Fork a session, or several merged, as is asked. A team's copy goes again if that fails, or is only a preview."""
    from smart_fork.agents.options import Options
    from smart_fork.forking.plan import fork_session
    from smart_fork.forking.request import ForkRequest

    own = Options(prompt=prompt, **options)
    first = next(iter(session_ids), "")
    return fork_session(ForkRequest(first, own, budget=wanted, **asked), _library)


def _wanted(
    budget: int | str | None,
    intent: str | None,
    also: Sequence[str],
    keep: Sequence[int] = (),
    drop: Sequence[int] = (),
) -> Wanted | None:
    """Return the budget, if one was given."""
    from smart_fork.forking.request import Wanted, amount

    if budget is None:
        if intent or also or keep or drop:
            raise Usage("intent, also, keep and drop are only for a budget", "Give a budget as well, such as 30000.")
        return None
    return Wanted(amount(budget), frozenset(keep), frozenset(drop))


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
    """Copy a session under a title of its own, up to message number `at` where given; nothing runs.

    Within a `budget` it has what answers the `intent` alone, and with `as_agent` it is handed over, as `fork` says it.

    Raises:
        SmartForkError: nothing was made.
    """
    from smart_fork.agents.options import Options
    from smart_fork.forking.branch import branch as copy
    from smart_fork.forking.request import BranchRequest

    wanted = _wanted(budget, intent, also, keep, drop)
    asked = BranchRequest(
        session_id, Options(unmasked=unmasked), at, intent, tuple(also), wanted, cwd, as_agent, title=title
    )
    return copy(asked, _library)


def cut(
    session_id: str,
    turns: str = "",
    *,
    ids: Sequence[str] = (),
    secrets: bool = False,
    force: bool = False,
    dry_run: bool = False,
) -> Excised:
    """Cut turns out of a session's transcript so that its agent can still resume it: `turns` such as "5-7,9", or `ids`.

    With `secrets` they are masked instead, in all turns or in those named; with `force` warnings do not keep it from
    being done; with `dry_run` only what would go is said. `snapshot` names what there was before.

    Raises:
        SmartForkError: nothing was cut: there is no such session or turn, it is running, or something would break.
        OSError: nothing was written.
    """
    from smart_fork.excise.answer import CutRequest
    from smart_fork.excise.cutting import cut as cut_out

    wanted = CutRequest(session_id, turns, tuple(ids), secrets=secrets, force=force, dry_run=dry_run)
    return cut_out(wanted)


def forget(session_id: str, *, undo: bool = False) -> Removal:
    """Remove all that is held of a session and never index it again, or with `undo` let it be indexed again.

    Raises:
        SmartForkError: there is no such session, or another process is indexing for too long.
    """
    from smart_fork.excise import erasure

    return erasure.undo_forgetting(session_id) if undo else erasure.forget(session_id)


def _library(project: str | None = None, elsewhere: RemoteSearch | None = None) -> AbstractContextManager[Library]:
    from indexer.embedder import configured_reranker
    from smart_fork.finding.index_refresh import Engine
    from smart_fork.finding.session_library import Library

    return Library.open(project, Engine(_embedder(), rerank=configured_reranker()), elsewhere=elsewhere)


@cache
def _embedder() -> Embedder:
    """One for all questions of a process: a model is loaded once."""
    from indexer.embedding import configured_embedder

    return configured_embedder()
