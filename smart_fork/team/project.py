"""A team project: its folder, its tracked sessions, a client of its server, and the look-up of sessions by name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from indexer.project import project_of, resolve
from smart_fork.display_text import quoted
from smart_fork.errors import NotAuthenticated, NotFound, ServerUnavailable, SmartForkError, Usage
from smart_fork.sharing.local_logs import ProjectLogs
from smart_fork.sharing.tracking import ProjectFolder, Tracking
from smart_fork.team import client, stored_logins
from smart_fork.team.client import Client
from smart_fork.team.wire import NOT_FOUND_HINT, SessionInfo, SessionRead

if TYPE_CHECKING:
    from smart_fork.sharing.tracking import Tracked


@dataclass(frozen=True, slots=True)
class TeamProject:
    """The project of a team command: its folder, its tracked sessions and a client of its server.

    `away` is the server's error if `opened` checked the server and got no answer.
    """

    client: Client
    place: ProjectFolder
    tracking: Tracking
    away: ServerUnavailable | None = None

    @property
    def key(self) -> str:
        """The key of the project, such as ``github.com/acme/shop``. It is the same for all users."""
        return self.place.key

    @property
    def logs(self) -> ProjectLogs:
        """The logs of the project's sessions on this machine."""
        return ProjectLogs(self.place.root)

    @property
    def server(self) -> str:
        """The address of the server: scheme, host and port."""
        return self.client.account.origin

    @property
    def location(self) -> dict[str, str]:
        """The address of the server and the key of the project, as a tracking file stores both."""
        return {"server": self.server, "project": self.key}

    def session_id_of(self, reference: str | None) -> str:
        """Return the id of the session that `reference` names: an alias, an id, the beginning of an id, or a URL.

        Without a reference, return the id of the current alias's session.

        Raises:
            NotFound: no session matches.
            Usage: there is no reference and no current alias; or the reference matches several sessions.
        """
        named = self._tracked(reference).named(reference)
        if named is not None:
            name, one = named
            if one.session_id is None:
                raise NotFound(f"{name} is not shared yet.", f"smart-fork team push {name} shares it.")
            return one.session_id
        if reference is None:
            raise Usage(
                "Which session?", "Name it: `smart-fork team list` lists them. This project has no current alias."
            )
        text = last_part(reference).lower()
        if _ID.fullmatch(text):
            return text
        if ID_BEGINNING.fullmatch(text) is None:
            raise session_not_found(reference)
        page = self.client.page(self.key, id=text, limit="2").sessions
        if len(page) > 1:
            raise Usage(f"{quoted(reference)} means several sessions", ", ".join(one.id for one in page))
        if not page or not page[0].id.startswith(text):
            raise session_not_found(reference)
        return page[0].id

    def _tracked(self, reference: str | None) -> Tracked:
        """Read the project's tracking file (the local names of shared sessions) to look up `reference`.

        If the file is for another project or server, raise an error for an alias, but return empty data for an id.
        """
        if reference is not None and ID_BEGINNING.fullmatch(last_part(reference).lower()):
            return self.tracking.ours()
        return self.tracking.read()

    def in_clone_of(self, directory: Path | None) -> TeamProject:
        """Return this project in the clone (another copy of the repository) at `directory`.

        Return `self` if `directory` is `None`, in this clone, or in no clone of this project.
        """
        if directory is None or resolve(directory).is_relative_to(self.place.root):
            return self
        try:
            there = ProjectFolder.of(directory=directory)
        except SmartForkError:
            return self
        if there.key != self.key or project_of(there.root).key == project_of(self.place.root).key:
            return self
        return replace(self, place=there, tracking=Tracking(there, self.server))

    def find_session(self, reference: str | None) -> SessionRead:
        """Return the session that `reference` names. Raise `ServerUnavailable` if that takes over 1.5 seconds."""

        def ask(client: Client) -> SessionRead:
            return client.session(self.key, replace(self, client=client).session_id_of(reference))

        return client.ask_briefly(self.client.account, ask, "look for a session")

    def is_mine(self, info: SessionInfo) -> bool:
        """Return True if the session is the user's own.

        A token from the environment does not name its user, so the server is asked.
        """
        if self.client.account.user:
            return info.owner == self.client.account.user
        try:
            self.client.session(self.key, info.id, "pull")
        except NotFound:
            return False
        return True


@contextmanager
def opened(
    server: str | None = None, project: str | None = None, *, directory: Path | None = None, ask: bool = False
) -> Iterator[TeamProject]:
    """Yield a project with a client of its server.

    The server is `server`, or the one in the environment, in the project's tracking file, or of the last login. With
    `ask`, check first if the server answers, and store its error in `away` if not.

    Raises:
        NotAuthenticated: the user has not logged in to the server.
        Usage: the project has no name, or the address is wrong.
    """
    place = ProjectFolder.of(project, directory)
    with Client(_account(server, Tracking(place))) as asked:
        if asked.account.is_due and not client.is_unavailable(asked.account.origin):
            with suppress(SmartForkError):  # the old token is still valid, or the command itself says that it is not
                asked.renew()
        yield TeamProject(asked, place, Tracking(place, asked.account.origin), _away(asked.account) if ask else None)


def _away(account: stored_logins.Account) -> ServerUnavailable | None:
    """Return the error of a server that does not answer; `None` if it answers, even with an error."""
    try:
        with client.impatient_client(account) as quick:
            quick.hello()
    except ServerUnavailable as error:
        return None if error.answered else error
    return None


def session_not_found(reference: str) -> NotFound:
    """Return the error for a session that is missing or that the user may not read. Both have the same text."""
    return NotFound(f"Session not found: {quoted(reference)}", NOT_FOUND_HINT)


def _account(server: str | None, tracking: Tracking) -> stored_logins.Account:
    if server is not None or stored_logins.is_in_environment():
        return stored_logins.logged_in_account(server)
    tracked = tracking.ours().server
    try:
        return stored_logins.logged_in_account(tracked or None)
    except Usage as error:
        raise SmartForkError(f"{tracking.path} is damaged: {error.message}", error.hint) from error
    except NotAuthenticated as error:
        if not tracked:
            raise
        raise NotAuthenticated(
            error.message, f"This project is shared on {tracked}: log in there. --server names another one."
        ) from error


#: A session id, or at least its first 8 characters.
ID_BEGINNING = re.compile(r"[0-9a-f-]{8,36}")
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def last_part(reference: str) -> str:
    """Return the last part of a URL's path, which is a session id. A text that is not a URL is returned unchanged."""
    return re.split(r"[?#]", reference.strip(), maxsplit=1)[0].rstrip("/").rpartition("/")[2]
