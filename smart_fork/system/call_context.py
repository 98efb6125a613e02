"""The context of a call from a client: the agent that called, the projects that it may read, and its cancellation.

Context variables hold all three, and follow a request into its threads, so that no code must pass them on. A client of
the service is limited to its own projects; other callers are not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, TypeVar

from indexer.lazy_compilation import dataclass
from indexer.project import Project, is_within, project_of, resolve
from indexer.repositories import recorded
from smart_fork.errors import ForkRefused, NotFound

if TYPE_CHECKING:
    from indexer.transcripts.model import AgentName

T = TypeVar("T")

HINT = 'The client names its projects as roots; config.toml can allow more: [service] projects = ["~/code/shop"].'


@dataclass(frozen=True, slots=True)
class Permitted:
    """A project that a client may read. With `below`, a project outside git includes the directories below its root."""

    project: Project
    below: bool


_allowed: ContextVar[tuple[Permitted, ...] | None] = ContextVar("allowed", default=None)


def permitted(claimed: Iterable[str], settled: Iterable[str] = ()) -> tuple[Permitted, ...]:
    """Return the projects that a client may read: the directories that it has `claimed`, and the `settled` ones.

    The latter are from config.toml. A client that claims the home directory, or one above it, may not read everything
    below. Invalid paths are ignored.
    """
    home = resolve(Path.home())
    found = [Permitted(one, below=not is_within(home, one.root)) for one in _projects(claimed)]
    return (*found, *(Permitted(one, below=True) for one in _projects(settled)))


def limit_to(allowed: Iterable[Permitted]) -> None:
    """Limit the rest of this call to the `allowed` projects."""
    _allowed.set(tuple(allowed))


def limited() -> bool:
    """Return True if the caller may read only about some projects."""
    return _allowed.get() is not None


def permits(directory: str, *, below: bool = False) -> bool:
    """Return True if the caller may read about `directory`; with `below`, also about everything in it.

    Only a caller that may read about all projects may read about an unknown directory.
    """
    allowed = _allowed.get()
    if allowed is None:
        return True
    inner = recorded(directory)
    if inner is None:
        return False
    found = project_of(inner)
    for one in allowed:
        if one.project.key == found.key and (found.git or one.below or not below):
            return True
        if not one.project.git and one.below and is_within(inner, one.project.root):
            return True
        if one.project.had_worktree(inner):
            return True
    return False


def projects() -> tuple[Project, ...] | None:
    """Return the projects that the caller may read; `None` for all."""
    allowed = _allowed.get()
    return None if allowed is None else tuple(one.project for one in allowed)


def require(directory: str, what: str, *, below: bool = False) -> None:
    """Refuse (`NotFound`) a request for `what`, unless the caller may read about its `directory`.

    Call this before any other check, since the answer must not reveal that `what` exists.
    """
    try:
        meant = str(resolve(directory)) if directory else ""
    except (OSError, ValueError):  # a NUL, half a character
        meant = ""
    if not permits(meant, below=below):
        raise NotFound(f"Not found in the projects that this client may read: {what}", HINT)


def hint(otherwise: str) -> str:
    """Return the next step after an empty result: `otherwise`, or for a limited caller a text that reveals nothing."""
    return HINT if limited() else otherwise


def _projects(directories: Iterable[str]) -> Iterator[Project]:
    for directory in directories:
        try:
            yield project_of(directory)
        except (OSError, ValueError):  # a NUL, half a character
            continue


#: The agent that made the call; `None` for a person or an unknown caller.
calling: ContextVar[AgentName | None] = ContextVar("calling", default=None)

#: The event outside of a call, which is never set.
_NEVER = Event()
_given_up: ContextVar[Event] = ContextVar("given_up", default=_NEVER)


class Cancelled(ForkRefused):
    """The error of a call that its caller has cancelled."""

    code = "cancelled"


def cancellable(given_up: Event, work: Callable[[], T]) -> T:
    """Run `work` and return its result. In it, `refuse_cancelled` raises once another thread has set `given_up`."""
    _given_up.set(given_up)
    return work()


def refuse_cancelled(seconds: float = 0.0) -> None:
    """Wait for `seconds`, and raise `Cancelled` as soon as the call is cancelled.

    Call this before a step that cannot be undone.
    """
    if _given_up.get().wait(seconds):
        raise Cancelled("The call was cancelled, so nothing was started or changed")
