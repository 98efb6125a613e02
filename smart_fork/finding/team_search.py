"""Access to the team's sessions. Without a login at a team's server, the team's code is not imported."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from indexer.lazy import dataclass
from indexer.safe_files import state_home
from indexer.settings import Setting
from smart_fork.agents.references import Resolved
from smart_fork.errors import SmartForkError, Usage

if TYPE_CHECKING:
    from indexer.transcripts.model import AgentName
    from smart_fork.finding.answer import SharedReading, SharedSessions
    from smart_fork.finding.remote_search import RemoteSearch
    from smart_fork.finding.session_view import Conversation
    from smart_fork.finding.sessions import ReadRange

#: The team's module, which no other module imports.
_DOOR = "smart_fork.team.search"


@dataclass(frozen=True, slots=True)
class ServerState:
    """The team's server for `doctor`: its address, or its problem and the next step."""

    origin: str = ""
    problem: str = ""
    next_step: str = ""


class Team(Protocol):
    """A team's sessions, and its server. See `smart_fork.team.search`."""

    def search(self, *, wanted: bool) -> RemoteSearch:
        """Return the search of the server. With `wanted`, a project without a server is an error."""

    def fetched(self, reference: str, *, directory: Path | None, keep: bool) -> AbstractContextManager[Resolved]:
        """Write a session of the team to this machine, to `keep` or for the time of the block."""

    def is_shared(self, reference: str) -> bool:
        """Return True if the team has a session with that id."""

    def listed(self, directory: Path, agents: Collection[AgentName], limit: int) -> SharedSessions:
        """List the newest shared sessions of a directory's project."""

    def read(self, reference: str, missing: SmartForkError, directory: Path, reading: ReadRange) -> Conversation:
        """Read a shared session; raise `missing` if there is none."""

    def look_into(self, session_id: str, directory: Path) -> SharedReading:
        """Read a shared session of a directory's project, without writing a file."""

    def server_state(self) -> ServerState | None:
        """Return the state of the server; `None` without a login."""


def is_known() -> bool:
    """Return True if there may be a server to ask. The team's code is not imported for it."""
    known = bool(Setting.TEAM_URL.text()) or (state_home() / "team" / "tokens.json").exists()
    return known and find_spec(_DOOR.rpartition(".")[0]) is not None


def team_room() -> Team:
    """Import the team's code and return it.

    Raises:
        Usage: this installation has no team code.
    """
    if find_spec(_DOOR.rpartition(".")[0]) is None:
        raise Usage("Sessions of a team are not a part of this installation.")
    return cast("Team", import_module(_DOOR))


def team_search(*, wanted: bool | None = None) -> RemoteSearch | None:
    """Return the team's search if a server is known or `wanted`; `None` if not, or if it is unwanted (false)."""
    if wanted is False or not (wanted or is_known()):
        return None
    return team_room().search(wanted=wanted is True)


def is_shared(reference: str) -> bool:
    """Return True if the reference means a session of the team."""
    return is_known() and team_room().is_shared(reference)


@contextmanager
def sessions_here(
    references: Sequence[str], directory: Path | str | None = None, *, keep: bool = True
) -> Iterator[list[Resolved]]:
    """Yield the sessions that `references` mean, as sessions of this machine.

    The team's sessions are written here, for the project of `directory`. They are removed if the block fails, or if
    they are not to be kept.

    Raises:
        SmartForkError: a session is neither here nor shared by the team.
    """
    with ExitStack() as stack:
        if not is_known():
            yield [Resolved.here(one) for one in references]
            return
        fetched = team_room().fetched
        where = None if directory is None else Path(directory)
        yield [stack.enter_context(fetched(one, directory=where, keep=keep)) for one in references]
