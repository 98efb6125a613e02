"""Which projects a caller may ask about. Everything, unless it is limited: a client of the service is, to its own.

Held in a context variable, which goes with the request into its threads: no tool can forget to pass it on.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar

from indexer.project import Project, is_within, project_of, resolve
from smart_fork.errors import NotFound

_allowed: ContextVar[tuple[Project, ...] | None] = ContextVar("allowed", default=None)


def limit_to(directories: Iterable[str]) -> None:
    """From here on in this context, only these directories' projects may be asked about."""
    _allowed.set(tuple(project_of(directory) for directory in directories))


def limited() -> bool:
    """Whether not everything may be asked about."""
    return _allowed.get() is not None


def permits(directory: str) -> bool:
    """Whether what is in `directory` may be told; what is in no known directory, only to who may ask everything."""
    allowed = _allowed.get()
    if allowed is None:
        return True
    if not directory:
        return False
    project, inner = project_of(directory), resolve(directory)
    return any(one.key == project.key or (not one.git and is_within(inner, one.root)) for one in allowed)


def require(directory: str, what: str) -> None:
    """Refuse to tell of `what`, in `directory`, in the words for what is not there: its existence is nobody's business.

    Raises:
        NotFound: it may not be told.
    """
    if not permits(directory):
        raise NotFound(f"Not found among the projects that you may ask about: {what}", HINT)


HINT = 'The client names its projects as roots; config.toml can allow more: [service] projects = ["~/code/shop"].'
