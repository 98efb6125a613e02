"""The team's sessions beside those of this machine. Where nobody has logged in, nothing of a team is imported."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from indexer.files import state_home
from indexer.settings import TEAM_URL
from smart_fork.agents.references import Resolved, here

if TYPE_CHECKING:
    from smart_fork.finding.elsewhere import Elsewhere

#: What asks the team's server, and what writes a session of the team on this machine.
_SEARCH, _FETCH = "smart_fork.team.find:TeamSearch", "smart_fork.team.find:fetched"
#: What knows the ids of the team's sessions.
_SHARED = "smart_fork.team.find:is_shared"


def is_known() -> bool:
    """Whether there may be a server to ask. It imports nothing: nearly nobody has one."""
    return bool(TEAM_URL.text()) or (state_home() / "team" / "tokens.json").exists()


def team_search(*, wanted: bool | None = None) -> Elsewhere | None:
    """What asks the team's server: where it is known or `wanted`, and not where it is not (false)."""
    if wanted is False or not (wanted or is_known()):
        return None
    found: Elsewhere = resolve_name(_SEARCH)(wanted=wanted is True)
    return found


def is_shared(reference: str) -> bool:
    """Whether somebody means a session of the team by that."""
    return is_known() and bool(resolve_name(_SHARED)(reference))


@contextmanager
def sessions_here(
    references: Sequence[str], directory: Path | str | None = None, *, keep: bool = True
) -> Iterator[list[Resolved]]:
    """Sessions as those of this machine. The team's are written here, for the project of a `directory`.

    They are taken away again if what follows fails, or if they are not to be kept.

    Raises:
        SmartForkError: one is neither here nor the team's.
    """
    with ExitStack() as stack:
        if not is_known():
            yield [here(one) for one in references]
            return
        fetched = resolve_name(_FETCH)
        where = None if directory is None else Path(directory)
        yield [stack.enter_context(fetched(one, directory=where, keep=keep)) for one in references]
