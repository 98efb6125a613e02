"""A team project: its folder, its tracked sessions, its server, and the download of sessions.

Each download is compared with digests that this machine stored before. So a server cannot change earlier records of a
session unnoticed.
"""

from __future__ import annotations

import re
import secrets
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from indexer.project import project_of, resolve
from indexer.values import Value, rare
from smart_fork.display_text import quoted
from smart_fork.errors import (
    Conflict,
    NotAuthenticated,
    NotFound,
    ServerUnavailable,
    SmartForkError,
    TooLarge,
    Unshareable,
    Usage,
)
from smart_fork.sharing import canonical
from smart_fork.sharing.local_logs import ProjectLogs
from smart_fork.sharing.outgoing import SentBefore
from smart_fork.sharing.tracking import Alias, ProjectFolder, Tracking
from smart_fork.team import client, stored_logins, wire
from smart_fork.team.client import Client
from smart_fork.team.records import unpack
from smart_fork.team.wire import NOT_FOUND_HINT, SessionInfo, SessionRead

if TYPE_CHECKING:
    from smart_fork.sharing.tracking import Tracked

Verb = Literal["push", "pull", "branch", "fork"]


@dataclass(frozen=True, slots=True)
class Shared(Value):
    """The result of ``team push``, ``pull``, ``branch`` or ``fork``.

    `session_id` and `url` are `None` if the session is not on the server yet.
    """

    verb: Verb
    server: str
    project: str
    session_id: str | None
    alias: str | None
    url: str | None
    title: str
    owner: str
    visibility: str
    agent: str
    root_id: str | None
    parent_id: str | None
    base_count: int
    base_digest: str
    head_digest: str
    record_count: int
    created: bool = False
    pushed_records: int = 0
    up_to_date: bool = False
    moved: bool | None = rare()
    files: tuple[str, ...] = ()
    resume_command: str | None = rare()
    masked: Mapping[str, int] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)
    lost: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def shared(verb: Verb, server: str, info: SessionInfo, alias: str | None) -> Shared:
    """Return the result of a command about `info`, a session on the server.

    The caller adds the fields that depend on its command, such as the written files.
    """
    same = {one: getattr(info, one) for one in SessionInfo.model_fields if one in Shared.__dataclass_fields__}
    url = canonical.url_of(server, info.project, info.id)
    return Shared(verb=verb, server=server, session_id=info.id, alias=alias, url=url, **same)


@dataclass(frozen=True, slots=True)
class TeamProject:
    """The project of a team command: its folder, its tracked sessions and a client of its server.

    `away` is the error of the server if it was checked at the start and did not answer.
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
        """Return the id of the shared session that `reference` names: an alias, an id, its beginning, or a URL.

        Without a reference, it is the current alias.

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
        """Return the shared session that `reference` names, or raise `ServerUnavailable` after a moment."""

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
    `ask`, first check if the server answers, for commands that can work without it.

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


def has_moved(one: Alias, info: SessionInfo) -> bool:
    """Return True if the server's records of a session differ from those that this machine last saw."""
    return (one.base_count, one.base_digest) != (info.record_count, info.head_digest)


def session_not_found(reference: str) -> NotFound:
    """Return the error for a session that does not exist or that the user may not read, with one text."""
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


def new_id() -> str:
    """Return a UUID of version 7, which begins with the time: new sessions are neighbors in the server's indexes."""
    value = (time.time_ns() // 1_000_000 & (1 << 48) - 1) << 80 | secrets.randbits(80)
    value = value & ~(0xF << 76) & ~(0x3 << 62) | 0x7 << 76 | 0x2 << 62
    return str(uuid.UUID(int=value))


def last_part(reference: str) -> str:
    """Return the last part of a URL's path, which is a session id. A text that is not a URL is returned unchanged."""
    return re.split(r"[?#]", reference.strip(), maxsplit=1)[0].rstrip("/").rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class PendingCreation:
    """A planned creation of a session on the server, with the session's id.

    The id is stored before the request is sent, so that a repeated command does not create a second session. `what`
    identifies the command. `again` is true if an earlier run of the command stored the id.
    """

    project: TeamProject
    what: str
    session_id: str
    again: bool

    def existing_session(self) -> wire.SessionRead | None:
        """Return the session if an earlier run of the command already created it on the server, or `None`."""
        if not self.again:
            return None
        try:
            return self.project.client.session(self.project.key, self.session_id)
        except NotFound:
            return None

    def with_new_id(self) -> PendingCreation:
        """Replace the stored id, because its session was deleted, or has other records by now."""
        other = new_id()
        self.project.tracking.change(lambda now: now.with_begun(self.what, other))
        return replace(self, session_id=other, again=False)

    def removed_from(self, tracked: Tracked) -> Tracked:
        """Return tracking data without this pending creation, since the session exists."""
        return tracked.with_begun(self.what, None)


def pending_creation(project: TeamProject, *what: object) -> PendingCreation:
    """Return the pending creation for the command that `what` identifies, with a new or an earlier stored id."""
    key, fresh = " ".join(map(str, (project.server, project.key, *what))), new_id()
    kept = project.tracking.change(lambda now: now if key in now.begun else now.with_begun(key, fresh)).begun[key]
    return PendingCreation(project, key, kept, again=kept != fresh)


#: The most tries to download a session that changes meanwhile.
_DOWNLOAD_TRIES = 3


_DAMAGED_HINT = "The server's answer is damaged. Nothing was written. Try again, or tell its operator."


@dataclass(frozen=True, slots=True)
class Download:
    """A downloaded session: the server's description of it, and its records in canonical (normalized) form."""

    info: wire.SessionInfo
    records: tuple[bytes, ...]


@contextmanager
def _hinted_errors() -> Iterator[None]:
    """Add a hint to errors that are raised in this context about damaged data from a server."""
    try:
        yield
    except Unshareable as error:
        raise type(error)(error.message, error.hint or _DAMAGED_HINT) from error


def download(client: Client, read: wire.SessionRead, *, base: SentBefore | None = None) -> Download:
    """Download all records of a session, again if a push replaces its last records meanwhile.

    `base` is the number and digest of the first records that this machine already knows.
    """
    for _ in range(_DOWNLOAD_TRIES):
        try:
            return _downloaded(client, read, base)
        except NotFound:
            known, read = read, client.session(read.session.project, read.session.id)
            if read.session.head_digest == known.session.head_digest:
                raise
    return _downloaded(client, read, base)


@_hinted_errors()
def _downloaded(client: Client, read: wire.SessionRead, base: SentBefore | None) -> Download:
    """Download the records of a session once, and check them.

    Raises:
        Unshareable: the records do not match the server's digests.
        TooLarge: there are more records than a session can have.
        Conflict: the records do not begin with the already known ones in `base`.
    """
    info = read.session
    _check_bounds(read)
    records: list[bytes] = []
    state, known = canonical.START, {0: canonical.START}
    wanted = {info.base_count, *([base.count] if base else [])}
    for place in read.segments:
        if place.first_record != len(records) or place.chain_start != state:
            raise Unshareable("A segment does not begin where the one before it ends.")
        lines = unpack(client.segment(info.project, place.digest), place.digest)
        if len(lines) != place.records:
            raise Unshareable("A segment has a wrong number of records.")
        for line, after in zip(lines, canonical.chain_states(lines, state), strict=True):
            records.append(line)
            if len(records) in wanted:
                known[len(records)] = after
        state = canonical.state_after(lines, state)
    if len(records) != info.record_count or canonical.digest_of_state(state) != info.head_digest:
        raise Unshareable("The records do not match the server's digest.")
    if canonical.digest_of_state(known.get(info.base_count, b"")) != info.base_digest:
        raise Unshareable("The first records do not match the server's digest.")
    if base is not None and canonical.digest_of_state(known.get(base.count, b"")) != base.digest:
        raise Conflict(
            "The remote session has changed its past.",
            "Its owner may have withdrawn messages. Run smart-fork team sync, or accept it with --force.",
        )
    return Download(info, tuple(records))


@_hinted_errors()
def open_segment(client: Client, read: wire.SessionRead) -> tuple[int, list[bytes]]:
    """Find where new records of a session go: into its last segment (block of records), or into a new one.

    A segment has no room if it is full, or is the parent's too. If the last segment has room, return the number of
    segments before it, and its records; else the number of all segments, and an empty list. Raise `Unshareable` if the
    records do not match the session's digest.
    """
    if not read.segments:
        return 0, []
    last = read.segments[-1]
    if last.full or last.end == read.session.base_count:
        return len(read.segments), []
    lines = unpack(client.segment(read.session.project, last.digest), last.digest)
    end = canonical.digest_of_state(canonical.state_after(lines, last.chain_start))
    if end != read.session.head_digest or last.first_record + len(lines) != read.session.record_count:
        raise Unshareable("The last records do not match the server's digest.")
    return len(read.segments) - 1, lines


def _check_bounds(read: wire.SessionRead) -> None:
    records = sum(place.records for place in read.segments)
    size = sum(place.raw_bytes for place in read.segments)
    if records > canonical.LIMITS.session_records or size > canonical.LIMITS.session_bytes:
        raise TooLarge(f"The session has {records} records and {size} bytes, more than the limit.")
