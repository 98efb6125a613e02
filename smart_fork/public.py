"""What a script author uses, as `smart_fork.find` and so on."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from smart_fork.errors import IndexUnavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from indexer.embedder import Embedder


class Worker(dict[str, Any]):
    """A worker that was started: what is known of its start, and what can be done with it from then on."""

    @property
    def id(self) -> str:
        """Its own id, by which every command knows it."""
        return str(self["worker_id"])

    def wait(self, timeout: float | None = None) -> dict[str, Any]:
        """Wait until it is done, asks something or ends, for `timeout` seconds at most; `settled` says whether it is.

        `last_words` are what it said last.

        Raises:
            SmartForkError: there is no such worker any more, or the time is negative.
        """
        from smart_fork.workers.wait import wait_workers

        (seen,) = wait_workers([self.id], timeout=timeout).workers
        return seen.as_json()

    def read(self, exchanges: int = 3) -> dict[str, Any]:
        """Its last exchanges, without what it has from the session that was forked.

        Raises:
            SmartForkError: there is no such worker any more, or fewer than one exchange is asked for.
        """
        from smart_fork.workers.roster import read_worker

        return read_worker(self.id, exchanges=exchanges).as_json()

    def say(self, text: str, *, queue: bool = False) -> dict[str, Any]:
        """Say something to it; with `queue` also while it works, for when it is done.

        Raises:
            SmartForkError: it does not hear that now, and was not told.
        """
        from smart_fork.workers.messages import message_worker

        return message_worker(self.id, text, queue=queue).as_json()

    def close(self, *, remove_worktree: bool = False) -> dict[str, Any]:
        """End it; with `remove_worktree` its worktree goes as well, where that holds nothing unsaved.

        Raises:
            SmartForkError: there is no such worker any more.
        """
        from smart_fork.workers.termination import close_workers

        (closed,) = close_workers([self.id], remove_worktree=remove_worktree)
        return closed.as_json()


def find(
    intent: str,
    *,
    also: Sequence[str] = (),
    project: str | None = None,
    limit: int = 5,
    agent: str = "all",
    min_score: float | None = None,
) -> list[dict[str, Any]]:
    """The sessions of `project` (the working directory's by default) that answer `intent`, best first.

    `also` says the same in other words, in up to eight texts: what they agree on is found more surely. A score is the
    chance that the session is the one that is meant; with `min_score` those below it are left out.

    Raises:
        Usage: something in the request is not acceptable.
        IndexUnavailable: nothing can be searched.
    """
    from smart_fork.retrieval.answer import Unsearched
    from smart_fork.retrieval.finder import find as answer
    from smart_fork.retrieval.request import FindRequest
    from smart_fork.retrieval.rerank import configured_reranker
    from smart_fork.retrieval.upkeep import Engine

    request = FindRequest(intent, agent_type=agent, limit=limit, project_path=project, min_score=min_score, also=also)
    found = answer(request, Engine(_embedder(), rerank=configured_reranker()))
    if isinstance(found, Unsearched):
        raise IndexUnavailable(found.message, found.next_steps[0])
    return [hit.as_json() for hit in found.results]


def fork(
    session_id: str, prompt: str | None = None, *, at: int | None = None, cwd: str | None = None, **options: Any
) -> Worker:
    """Run a fork of a session with `prompt`, from message number `at` on where given; the original stays untouched.

    `options` are those of `Options`: `worktree` (true, or its name), `with_changes` (a worktree of its own that has the
    uncommitted changes of the directory as well), `place`, `name`, `skip_permissions`.

    Raises:
        SmartForkError: nothing was started, and nothing is left of the attempt.
    """
    from smart_fork.agents.options import Options
    from smart_fork.forking.launch import fork_session

    return Worker(fork_session(session_id, Options(prompt=prompt, **options), at=at, cwd=cwd).as_json())


def branch(
    session_id: str, *, at: int | None = None, title: str | None = None, cwd: str | None = None
) -> dict[str, Any]:
    """Copy a session under a title of its own, up to message number `at` where given; nothing runs.

    Raises:
        SmartForkError: nothing was made.
    """
    from smart_fork.families.branch import branch as copy

    return copy(session_id, at=at, title=title, cwd=cwd).as_json()


def forget(session_id: str, *, undo: bool = False) -> dict[str, Any]:
    """Remove all that is held of a session and never index it again, or with `undo` let it be indexed again.

    Raises:
        SmartForkError: there is no such session, or another process is indexing for too long.
    """
    from smart_fork import session_removal

    return session_removal.undo(session_id) if undo else session_removal.forget(session_id)


@cache
def _embedder() -> Embedder:
    """One for all questions of a process: a model is loaded once."""
    from indexer.models import configured_embedder

    return configured_embedder()
