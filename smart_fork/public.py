"""What a script author uses, as `smart_fork.find` and so on."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from smart_fork.errors import (
    ForkRefused,
    IndexUnavailable,
    NotFound,
    ProgramFailed,
    ProgramMissing,
    RegistryUnavailable,
    SmartForkError,
    Usage,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from indexer.embedding import Embedder

__all__ = [
    "ForkRefused",
    "IndexUnavailable",
    "NotFound",
    "ProgramFailed",
    "ProgramMissing",
    "RegistryUnavailable",
    "SmartForkError",
    "Usage",
    "branch",
    "find",
    "forget",
    "fork",
]


def find(
    intent: str,
    *,
    also: Sequence[str] = (),
    project: str | None = None,
    limit: int = 5,
    agent: str = "both",
    min_score: float | None = None,
) -> list[dict[str, Any]]:
    """The sessions of `project` (the working directory's by default) that answer `intent`, best first.

    `also` says the same in other words, in up to eight texts: what they agree on is found more surely. A score is the
    chance that the session is the one that is meant; with `min_score` those below it are left out.

    Raises:
        Usage: something in the request is not acceptable.
        IndexUnavailable: nothing can be searched.
    """
    from smart_fork.retrieval.finding import Engine, Request
    from smart_fork.retrieval.finding import find as answer
    from smart_fork.retrieval.rerank import configured_reranker

    request = Request(intent, agent_type=agent, limit=limit, project_path=project, min_score=min_score, also=also)
    found = answer(request, Engine(_embedder(), rerank=configured_reranker()))
    if "results" not in found:
        raise IndexUnavailable(found["message"], found["next_steps"][0])
    results: list[dict[str, Any]] = found["results"]
    return results


def fork(
    session_id: str,
    prompt: str | None = None,
    *,
    at: int | None = None,
    worktree: str | bool | None = None,
    with_changes: bool = False,
    place: str | None = None,
    cwd: str | None = None,
    name: str | None = None,
) -> dict[str, Any]:
    """Run a fork of a session with `prompt`, from message number `at` on where given; the original stays untouched.

    With `with_changes` in a worktree of its own that has the uncommitted changes of the directory as well.

    Raises:
        SmartForkError: nothing was started, and nothing is left of the attempt.
    """
    from smart_fork.forking.launch import fork_session

    return fork_session(
        session_id, prompt, at=at, worktree=worktree, with_changes=with_changes, place=place, cwd=cwd, name=name
    )


def branch(
    session_id: str, *, at: int | None = None, title: str | None = None, cwd: str | None = None
) -> dict[str, Any]:
    """Copy a session under a title of its own, up to message number `at` where given; nothing runs.

    Raises:
        SmartForkError: nothing was made.
    """
    from smart_fork.families.branching import branch as copy

    return copy(session_id, at=at, title=title, cwd=cwd)


def forget(session_id: str, *, undo: bool = False) -> dict[str, Any]:
    """Remove all that is held of a session and never index it again, or with `undo` let it be indexed again.

    Raises:
        SmartForkError: there is no such session, or another process is indexing for too long.
    """
    from smart_fork import forgetting

    return forgetting.undo(session_id) if undo else forgetting.forget(session_id)


@cache
def _embedder() -> Embedder:
    """One for all questions of a process: a model is loaded once."""
    from indexer.models import configured_embedder

    return configured_embedder()
