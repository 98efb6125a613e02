"""The access to the team's sessions. Without a login or a server nothing of the team's code is imported."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from indexer.environment import Setting
from indexer.lazy_compilation import dataclass
from indexer.safe_files import state_home
from smart_fork.agents.references import Resolved
from smart_fork.errors import Ambiguous, NotFound, SmartForkError, Usage

if TYPE_CHECKING:
    from indexer.transcripts.model import AgentName
    from smart_fork.finding.answer import SharedReading, SharedSessions
    from smart_fork.finding.conversation import Conversation, Exported, ReadRange
    from smart_fork.finding.remote_search import RemoteSearch


#: The module that gives access to the team's server. It is only imported by this name, if it is needed.
_DOOR = "smart_fork.team.facade"


@dataclass(frozen=True, slots=True)
class ServerState:
    """The state of the team's server for `smart-fork doctor`: its address, or its problem and the next step."""

    origin: str = ""
    problem: str = ""
    next_step: str = ""


class Team(Protocol):
    """The functions of the module `smart_fork.team.facade`, which reads sessions on the team's server."""

    def search(self, *, wanted: bool) -> RemoteSearch:
        """Return the search of the team's server. With `wanted`, a project without a server is an error."""

    def fetched(self, reference: str, *, directory: Path | None, keep: bool) -> AbstractContextManager[Resolved]:
        """Write a team's session to this machine for the block; with `keep`, also for afterwards."""

    def is_shared(self, reference: str) -> bool:
        """Return True if the team shares a session with that id."""

    def listed(self, directory: Path, agents: Collection[AgentName], limit: int) -> SharedSessions:
        """Return the newest sessions that the team shares in the project of a directory."""

    def read(self, reference: str, missing: SmartForkError, directory: Path, reading: ReadRange) -> Conversation:
        """Return the messages of a shared session; raise the error `missing` if the team shares no such session."""

    def look_into(self, session_id: str, directory: Path) -> SharedReading:
        """Return a session that the team shares in a directory's project. No file is written."""

    def server_state(self) -> ServerState | None:
        """Return the state of the team's server; `None` without a login."""


def is_known() -> bool:
    """Return True if a team's server is configured or logged in to, without importing the team's code."""
    known = bool(Setting.TEAM_URL.text()) or (state_home() / "team" / "tokens.json").exists()
    return known and find_spec(_DOOR.rpartition(".")[0]) is not None


def team_room() -> Team:
    """Import the module that gives access to the team's sessions; raise `Usage` if this installation lacks it."""
    if find_spec(_DOOR.rpartition(".")[0]) is None:
        raise Usage("Sessions of a team are not a part of this installation.")
    return cast("Team", import_module(_DOOR))


def team_search(*, wanted: bool | None = None) -> RemoteSearch | None:
    """Return the search of the team's server; `None` if no server is known or `wanted` is False.

    If `wanted` is True, a missing server is an error.
    """
    if wanted is False or not (wanted or is_known()):
        return None
    return team_room().search(wanted=wanted is True)


def is_shared(reference: str) -> bool:
    """Return True if the reference means a session that the team shares."""
    return is_known() and team_room().is_shared(reference)


@contextmanager
def sessions_here(
    references: Sequence[str], directory: Path | str | None = None, *, keep: bool = True
) -> Iterator[list[Resolved]]:
    """Yield the sessions that `references` mean, as sessions of this machine.

    A team's sessions are written to this machine, for the project of `directory`. After the block they are removed,
    unless `keep` is set and the block succeeded.
    """
    with ExitStack() as stack:
        if not is_known():
            yield [Resolved.here(one) for one in references]
            return
        fetched = team_room().fetched
        where = None if directory is None else Path(directory)
        yield [stack.enter_context(fetched(one, directory=where, keep=keep)) for one in references]


def conversation_of(
    reference: str, reading: ReadRange, project: Path | None, *, notice: str = ""
) -> Conversation | Exported:
    """Read the part `reading` of a session of this machine, or of one that the team of `project` shares.

    `notice` is a text to add to the result.
    """
    from smart_fork.finding.conversation import conversation  # what only searches the team needs no database
    from smart_fork.finding.index_access import kept_open
    from smart_fork.finding.session_lookup import locate

    with kept_open():
        try:
            located = locate(reference)
        except (NotFound, Usage) as missing:
            if isinstance(missing, Ambiguous) or project is None:
                raise
            if not is_known():
                raise
            return team_room().read(reference, missing, project, reading)
        return conversation(located, reading, notice=notice, resolved=Resolved.here(reference).by)
