"""A project that is shared: where it is on this machine, what is tracked of it, and the server that is asked."""

from __future__ import annotations

import re
import secrets
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from indexer.project import project_of, resolve
from smart_fork.errors import NotAuthenticated, NotFound, ServerUnavailable, SmartForkError, Usage
from smart_fork.sharing.wire import NOT_FOUND, SessionInfo, SessionRead
from smart_fork.team import away, login
from smart_fork.team.client import Client
from smart_fork.team.tracking import Alias, ProjectFolder, Tracked, Tracking, place_of
from smart_fork.text.snippets import quoted


@dataclass(frozen=True, slots=True)
class Project:
    """What every verb is about. `away` is why the server does not answer, where that was asked first."""

    client: Client
    place: ProjectFolder
    tracking: Tracking
    away: ServerUnavailable | None = None

    @property
    def key(self) -> str:
        """The name of the project, which is the same for everybody."""
        return self.place.key

    @property
    def server(self) -> str:
        """The origin of the server."""
        return self.client.account.origin

    @property
    def named(self) -> dict[str, str]:
        """What a tracking file says of both."""
        return {"server": self.server, "project": self.key}

    def meant(self, reference: str | None) -> str:
        """The id of the shared session that somebody means: an alias, an id or the beginning of one, or an address.

        Raises:
            NotFound: there is none.
            Usage: none is named, and none is current; or it means several.
        """
        named = self._tracked(reference).named(reference)
        if named is not None:
            return _shared_id(*named)
        if reference is None:
            raise Usage(
                "Which session?", "Name it: `smart-fork team list` lists them. This project has no current alias."
            )
        text = last_part(reference).lower()
        if is_id(text):
            return text
        if BEGINNING.fullmatch(text) is None:
            raise missing(reference)
        page = self.client.page(self.key, id=text, limit="2").sessions
        if len(page) > 1:
            raise Usage(f"{quoted(reference)} means several sessions", ", ".join(one.id for one in page))
        if not page or not page[0].id.startswith(text):
            raise missing(reference)
        return page[0].id

    def _tracked(self, reference: str | None) -> Tracked:
        """What is tracked; an id is one whosever this folder is."""
        if reference is not None and BEGINNING.fullmatch(last_part(reference).lower()):
            return self.tracking.ours()
        return self.tracking.read()

    def at(self, directory: Path | None) -> Project:
        """The same where it is tracked: in the clone that `directory` is in, if that is another one of this project."""
        if directory is None or resolve(directory).is_relative_to(self.place.root):
            return self
        try:
            there = place_of(directory=directory)
        except SmartForkError:
            return self
        if there.key != self.key or project_of(there.root).key == project_of(self.place.root).key:
            return self
        return replace(self, place=there, tracking=Tracking(there, self.server))

    def found(self, reference: str | None) -> SessionRead:
        """The shared session that somebody means. Whether there is one is known in a moment, or the server is away.

        Raises:
            ServerUnavailable: it is.
            SmartForkError: as `meant`.
        """

        def ask(client: Client) -> SessionRead:
            return client.session(self.key, replace(self, client=client).meant(reference))

        return away.within(self.client.account, ask, "look for a session")

    def is_mine(self, info: SessionInfo) -> bool:
        """Whether a session is one's own. Who has no name here, since a variable brought the token, asks the server."""
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
) -> Iterator[Project]:
    """A project and its server: the one that is named, that the environment names, that is tracked, or the last one.

    With `ask` it is found out first whether the server answers, for what can be done without it.

    Raises:
        NotAuthenticated: nobody has logged in there.
        Usage: the project has no name, or that is no server.
    """
    place = place_of(project, directory)
    with Client(_account(server, Tracking(place))) as client:
        if client.account.is_due and not away.is_away(client.account.origin):
            with suppress(SmartForkError):  # the old token is still valid, or the command itself says that it is not
                client.renew()
        yield Project(client, place, Tracking(place, client.account.origin), _away(client.account) if ask else None)


def _away(account: login.Account) -> ServerUnavailable | None:
    """Why a server does not answer now; what it answers wrongly is told by who asks."""
    try:
        with away.quick(account) as client:
            client.hello()
    except ServerUnavailable as error:
        return None if error.answered else error
    return None


def has_moved(one: Alias, info: SessionInfo) -> bool:
    """Whether the server has other records than when it was last seen."""
    return (one.base_count, one.base_digest) != (info.record_count, info.head_digest)


def missing(reference: str) -> NotFound:
    """One answer for all that cannot be had."""
    return NotFound(f"Session not found: {quoted(reference)}", NOT_FOUND)


def _account(server: str | None, tracking: Tracking) -> login.Account:
    if server is not None or login.is_in_environment():
        return login.account(server)
    tracked = tracking.ours().server
    try:
        return login.account(tracked or None)
    except Usage as error:
        raise SmartForkError(f"{tracking.path} is damaged: {error.message}", error.hint) from error
    except NotAuthenticated as error:
        if not tracked:
            raise
        raise NotAuthenticated(
            error.message, f"This project is shared on {tracked}: log in there. --server names another one."
        ) from error


def _shared_id(name: str, one: Alias) -> str:
    if one.session_id is None:
        raise NotFound(f"{name} is not shared yet.", f"smart-fork team push {name} shares it.")
    return one.session_id


#: An id, or the beginning of one that is enough to be looked for.
BEGINNING = re.compile(r"[0-9a-f-]{8,36}")
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def new_id() -> str:
    """An id of version 7, which begins with the time: what is new stands together in the server's indexes."""
    value = (time.time_ns() // 1_000_000 & (1 << 48) - 1) << 80 | secrets.randbits(80)
    value = value & ~(0xF << 76) & ~(0x3 << 62) | 0x7 << 76 | 0x2 << 62
    return str(uuid.UUID(int=value))


def is_id(text: str) -> bool:
    """Whether that is a whole id."""
    return _ID.fullmatch(text) is not None


def last_part(reference: str) -> str:
    """What an address names, however much of it was copied: its last part, without what stands behind it."""
    return re.split(r"[?#]", reference.strip(), maxsplit=1)[0].rstrip("/").rpartition("/")[2]
