"""Find the past session of a coding agent that already knows how, in this repository, and run a fork of it.

    import smart_fork as sf

    for hit in sf.find("flaky auth test", project=".", limit=1, min_score=0.3):  # nothing is forked if nothing fits
        worker = sf.fork(hit.session_id, "fix the same race in api/")

The names come from `smart_fork.public`. It is imported at the first use of a name, so that `smart-fork mcp` starts
fast.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` itself takes longer to import than all that the first answer needs
if TYPE_CHECKING:
    from smart_fork.errors import (
        Conflict,
        ForkRefused,
        IndexerError,
        IndexUnavailable,
        NotAuthenticated,
        NotFound,
        ProgramFailed,
        ProgramMissing,
        RegistryUnavailable,
        ServerUnavailable,
        SmartForkError,
        Unshareable,
        Usage,
        WrongVerb,
    )
    from smart_fork.finding.hit import Hit
    from smart_fork.public import Worker, branch, cut, find, forget, fork, merge, preview, read

__all__ = [
    "Conflict",
    "ForkRefused",
    "Hit",
    "IndexUnavailable",
    "IndexerError",
    "NotAuthenticated",
    "NotFound",
    "ProgramFailed",
    "ProgramMissing",
    "RegistryUnavailable",
    "ServerUnavailable",
    "SmartForkError",
    "Unshareable",
    "Usage",
    "Worker",
    "WrongVerb",
    "branch",
    "cut",
    "find",
    "forget",
    "fork",
    "merge",
    "preview",
    "read",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from smart_fork import errors

    if hasattr(errors, name):  # whoever catches one need not wait for what searches
        return getattr(errors, name)
    from smart_fork import public

    return getattr(public, name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
