"""The team's sessions beside those of this machine. Where nobody has logged in, nothing of a team is imported."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from indexer.files import state_home
from indexer.lazy import dataclass
from indexer.settings import Setting
from smart_fork.agents.references import Resolved
from smart_fork.errors import SmartForkError, Usage

if TYPE_CHECKING:
    from indexer.transcripts.model import AgentName
    from smart_fork.finding.answer import SharedReading, SharedSessions
    from smart_fork.finding.remote_search import RemoteSearch
    from smart_fork.finding.session_view import Conversation
    from smart_fork.finding.sessions import ReadRange

#: The door of the team's room, which nothing else imports.
_DOOR = "smart_fork.team.search"


@dataclass(frozen=True, slots=True)
class ServerState:
    """The team's server as `doctor` reports it: its address, or its problem and the next step."""

    origin: str = ""
    problem: str = ""
    next_step: str = ""


class Team(Protocol):
    """A team's sessions, and its server. See `smart_fork.team.search`."""

    def search(self, *, wanted: bool) -> RemoteSearch:
        """Return what asks the server a question; with `wanted`, a project that has none is an error."""

    def fetched(self, reference: str, *, directory: Path | None, keep: bool) -> AbstractContextManager[Resolved]:
        """Write a session of the team on this machine, to `keep` or for a while."""

    def is_shared(self, reference: str) -> bool:
        """Tell if the team has a session of that id."""

    def listed(self, directory: Path, agents: Collection[AgentName], limit: int) -> SharedSessions:
        """List the newest sessions that are shared of a directory's project."""

    def read(self, reference: str, missing: SmartForkError, directory: Path, reading: ReadRange) -> Conversation:
        """Read a shared session; where there is none, raise what is `missing` here."""

    def look_into(self, session_id: str, directory: Path) -> SharedReading:
        """Read a shared session of a directory's project, and write nothing of it."""

    def server_state(self) -> ServerState | None:
        """Ask the server if it is well; `None` if nobody has logged in."""


def is_known() -> bool:
    """Tell if there may be a server to ask. Nothing of a team is imported: nearly nobody has one."""
    known = bool(Setting.TEAM_URL.text()) or (state_home() / "team" / "tokens.json").exists()
    return known and find_spec(_DOOR.rpartition(".")[0]) is not None


def team_room() -> Team:
    """Open the door of the team's room.

    Raises:
        Usage: this installation has no such room.
    """
    if find_spec(_DOOR.rpartition(".")[0]) is None:
        raise Usage("Sessions of a team are not a part of this installation.")
    return cast("Team", import_module(_DOOR))


def team_search(*, wanted: bool | None = None) -> RemoteSearch | None:
    """Return the team's search if its server is known or `wanted`; `None` if it is unwanted (false)."""
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
    """Sessions as those of this machine. The team's are written here, for the project of a `directory`.

    They are taken away again if what follows fails, or if they are not to be kept.

    Raises:
        SmartForkError: one is neither here nor the team's.
    """
    with ExitStack() as stack:
        if not is_known():
            yield [Resolved.here(one) for one in references]
            return
        fetched = team_room().fetched
        where = None if directory is None else Path(directory)
        yield [stack.enter_context(fetched(one, directory=where, keep=keep)) for one in references]
