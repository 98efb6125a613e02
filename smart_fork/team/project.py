"""A project that is shared: where it is on this machine, what is tracked of it and was begun, and its server."""

from __future__ import annotations

import re
import secrets
import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from indexer import state
from indexer.project import project_of, resolve
from indexer.transcripts.model import AgentName
from indexer.values import Value, rare
from smart_fork import session_origins
from smart_fork.agents.readers import READERS
from smart_fork.errors import NotAuthenticated, NotFound, ServerUnavailable, SmartForkError, Usage
from smart_fork.sharing import received_logs
from smart_fork.sharing.local_logs import ahead
from smart_fork.sharing.project_keys import url_of
from smart_fork.sharing.tracking import Alias, ProjectFolder, Tracking
from smart_fork.sharing.withdrawal import apply_pending
from smart_fork.snippets import quoted
from smart_fork.team import client, login, wire
from smart_fork.team.client import Client
from smart_fork.team.download import download
from smart_fork.team.wire import NOT_FOUND, SessionInfo, SessionRead

if TYPE_CHECKING:
    from smart_fork.sharing.tracking import Tracked
    from smart_fork.sharing.withdrawal import SettledWithdrawals

Verb = Literal["push", "pull", "branch", "fork"]


@dataclass(frozen=True, slots=True)
class Shared(Value):
    """The result of a sharing command. `session_id` and `url` are `None` if the server has no such session yet."""

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
    """Describe a session that the server has. The caller adds the rest."""
    same = {one: getattr(info, one) for one in SessionInfo.model_fields if one in Shared.__dataclass_fields__}
    url = url_of(server, info.project, info.id)
    return Shared(verb=verb, server=server, session_id=info.id, alias=alias, url=url, **same)


@dataclass(frozen=True, slots=True)
class TeamProject:
    """The project that a command works on. `away` says why the server does not answer, if it was asked before."""

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
        """The names of project and server in the tracking file."""
        return {"server": self.server, "project": self.key}

    def meant(self, reference: str | None) -> str:
        """The id of the shared session that somebody means: an alias, an id or the beginning of one, or an address.

        Raises:
            NotFound: there is none.
            Usage: none is named, and none is current; or it means several.
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
        """Return the tracking data. A session's id is valid whatever project this folder belongs to."""
        if reference is not None and BEGINNING.fullmatch(last_part(reference).lower()):
            return self.tracking.ours()
        return self.tracking.read()

    def at(self, directory: Path | None) -> TeamProject:
        """The same where it is tracked: in the clone that `directory` is in, if that is another one of this project."""
        if directory is None or resolve(directory).is_relative_to(self.place.root):
            return self
        try:
            there = ProjectFolder.of(directory=directory)
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

        return client.within(self.client.account, ask, "look for a session")

    def is_mine(self, info: SessionInfo) -> bool:
        """Return True if the session is this user's own. Asks the server if a token from the environment hides the
        user's name.
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
    """A project and its server: the one that is named, that the environment names, that is tracked, or the last one.

    With `ask` it is found out first whether the server answers, for what can be done without it.

    Raises:
        NotAuthenticated: nobody has logged in there.
        Usage: the project has no name, or that is no server.
    """
    place = ProjectFolder.of(project, directory)
    with Client(_account(server, Tracking(place))) as asked:
        if asked.account.is_due and not client.is_away(asked.account.origin):
            with suppress(SmartForkError):  # the old token is still valid, or the command itself says that it is not
                asked.renew()
        yield TeamProject(asked, place, Tracking(place, asked.account.origin), _away(asked.account) if ask else None)


def _away(account: login.Account) -> ServerUnavailable | None:
    """Why a server does not answer now; what it answers wrongly is told by who asks."""
    try:
        with client.quick(account) as quick:
            quick.hello()
    except ServerUnavailable as error:
        return None if error.answered else error
    return None


def has_moved(one: Alias, info: SessionInfo) -> bool:
    """Return True if the server's records differ from those seen last."""
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


#: An id, or the beginning of one that is enough to be looked for.
BEGINNING = re.compile(r"[0-9a-f-]{8,36}")
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def new_id() -> str:
    """An id of version 7, which begins with the time: what is new stands together in the server's indexes."""
    value = (time.time_ns() // 1_000_000 & (1 << 48) - 1) << 80 | secrets.randbits(80)
    value = value & ~(0xF << 76) & ~(0x3 << 62) | 0x7 << 76 | 0x2 << 62
    return str(uuid.UUID(int=value))


def is_id(text: str) -> bool:
    """Return True if the text is a complete session id."""
    return _ID.fullmatch(text) is not None


def last_part(reference: str) -> str:
    """Return the last part of an address, without query and fragment."""
    return re.split(r"[?#]", reference.strip(), maxsplit=1)[0].rstrip("/").rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class PendingCreation:
    """The session `session_id`, which `what` is to make. `again` is whether it was begun before."""

    project: TeamProject
    what: str
    session_id: str
    again: bool

    def there(self) -> wire.SessionRead | None:
        """The session, if the server has made it already."""
        if not self.again:
            return None
        try:
            return self.project.client.session(self.project.key, self.session_id)
        except NotFound:
            return None

    def anew(self) -> PendingCreation:
        """The same with another id: the first one is of a session that is another one, or is no more."""
        other = new_id()
        self.project.tracking.change(lambda now: now.with_begun(self.what, other))
        return replace(self, session_id=other, again=False)

    def done(self, tracked: Tracked) -> Tracked:
        """Return the tracking data once the session is made and known."""
        return tracked.with_begun(self.what, None)


def begin(project: TeamProject, *what: object) -> PendingCreation:
    """The session that `what` makes, with the id that it was given before, or a new one.

    Raises:
        SmartForkError: the id cannot be kept, so nothing is asked.
    """
    key, fresh = " ".join(map(str, (project.server, project.key, *what))), new_id()
    kept = project.tracking.change(lambda now: now if key in now.begun else now.with_begun(key, fresh)).begun[key]
    return PendingCreation(project, key, kept, again=kept != fresh)


State = Literal["up_to_date", "ahead", "behind", "diverged", "changed", "pending", "withdrawn", "missing"]


@dataclass(frozen=True, slots=True)
class AliasStatus(Value):
    """One alias. `ahead` counts records of this machine that are not pushed, `behind` those that are not here.

    `changed`: what was pushed is not as it was. `pending`: the server does not have it yet. `missing`: its log is gone.
    `seen` is when the server was last asked; where it does not answer `behind` is `None`, and `state` is as of then.
    """

    alias: str
    current: bool
    session_id: str | None
    title: str
    kind: str
    visibility: str
    state: State
    ahead: int
    behind: int | None
    files: tuple[str, ...]
    seen: str = ""


def status(project: TeamProject) -> tuple[AliasStatus, ...]:
    """Return the status of every alias of a project."""
    tracked = project.tracking.read()
    return tuple(_of(project, name, one, current=name == tracked.current) for name, one in tracked.aliases.items())


def _of(project: TeamProject, name: str, one: Alias, *, current: bool) -> AliasStatus:
    info = None if project.away else _there(project, one)
    ahead_by = ahead(one, project.place.root)
    away = project.away is not None
    moved = info is not None and has_moved(one, info)
    behind = None if away else max(info.record_count - one.base_count, 0) if info is not None else 0
    state, more = _state(one, ahead_by, gone=info is None and not away, moved=moved)
    title, visibility = (info.title, info.visibility) if info is not None else (one.title, one.visibility)
    return AliasStatus(
        name, current, one.session_id, title, one.kind, visibility, state, more, behind, one.files, one.last_pulled_at
    )


def _there(project: TeamProject, one: Alias) -> SessionInfo | None:
    if one.session_id is None:
        return None
    try:
        return project.client.session(project.key, one.session_id).session
    except NotFound:
        return None


def _state(one: Alias, more: int | None, *, gone: bool, moved: bool) -> tuple[State, int]:
    """The state, and how many records are not pushed. Without the server, as far as it is known."""
    if one.session_id is None or gone:
        return "pending" if one.session_id is None else "withdrawn", max(more or 0, 0)
    if more is None:
        return "behind" if moved else "missing", 0
    if more < 0:
        return "changed", 0
    if more and moved:
        return "diverged", more
    return "ahead" if more else "behind" if moved else "up_to_date", more


#: A server is asked once in so long.
CHECK_INTERVAL = timedelta(minutes=10)


_PAGES = 1_000


@contextmanager
def opened_current(
    server: str | None = None, project: str | None = None, *, directory: Path | None = None, ask: bool = False
) -> Iterator[TeamProject]:
    """A project and its server, after what was withdrawn has been taken over, if it is time to ask for that."""
    with opened(server, project, directory=directory, ask=ask) as one:
        if one.away is None:
            apply_withdrawals(one.client)
        else:
            apply_pending()
        yield one


def apply_withdrawals(client: Client, *, at_once: bool = False, remove: bool = False) -> SettledWithdrawals:
    """Take out of this machine's copies what was withdrawn since; with `remove` the copies themselves."""
    fetch_withdrawals(client, at_once=at_once)
    return apply_pending(remove=remove)


def fetch_withdrawals(client: Client, *, at_once: bool = False) -> None:
    """Write down what was withdrawn since, if it is time to ask for that; nothing is taken out yet."""
    moment = datetime.now(UTC)
    name = f"changes of {client.account.origin}"
    asked = state.fact(name)
    if asked and not at_once and timedelta() <= moment - datetime.fromisoformat(asked["at"]) < CHECK_INTERVAL:
        return
    found, since = _new(client, asked["since"] if asked else None)
    owing = [(one, edits) for one in received_logs.all_received() if (edits := _withdrawn_of(one, client, found))]
    records = _replacing(client, found, {new for _, edits in owing for new in edits.values() if new is not None})
    for one, edits in owing:
        known = {old: records.get(new) if new is not None else None for old, new in edits.items()}
        one.owe(known)
    state.keep(name, {"since": since, "at": moment.isoformat()})


def apply_withdrawals_to(path: Path, agent: AgentName) -> None:
    """The same before a log of this machine is forked, if it was written from a server, which may be away: then it
    is waited for no longer than a moment.

    Raises:
        Conflict: something of it was withdrawn that is still in it.
    """
    known = received_logs.find(path, agent)
    if known is None:
        return
    if known.server:
        with suppress(NotAuthenticated, ServerUnavailable):
            client.within(login.account(known.server), fetch_withdrawals, "ask for withdrawals")
    apply_pending()
    session_origins.refuse_pending_withdrawal(READERS[agent].id_of(path))


def _new(client: Client, since: str | None) -> tuple[list[wire.WithdrawnRecords], str | None]:
    """Return the withdrawals since then."""
    found: list[wire.WithdrawnRecords] = []
    for _ in range(_PAGES):
        page = client.changes(since)
        since = page.next_page
        if not page.changes:
            break
        found += page.changes
    return found, since


def _withdrawn_of(
    one: received_logs.ReceivedLog, client: Client, found: Sequence[wire.WithdrawnRecords]
) -> dict[str, str | None]:
    """Return all withdrawals that concern a log, combined: by digest, the digest of the replacement, or None."""
    if one.server != client.account.origin:
        return {}
    ends: dict[str, str | None] = {}
    for change in found:
        if not one.sessions or change.session_id in one.sessions:
            step = {edit.old: edit.new for edit in change.edits}
            ends = {old: step.get(new, new) if new is not None else None for old, new in ends.items()} | step
    return ends if not one.is_owed.isdisjoint(ends) else {}


def _replacing(client: Client, found: Sequence[wire.WithdrawnRecords], wanted: Collection[str]) -> dict[str, bytes]:
    """The records that take the place of others.

    One that cannot be had, since its session is no longer to be read, is taken out instead.
    """
    records: dict[str, bytes] = {}
    for project, session_id in {(change.project, change.session_id): None for change in reversed(found)}:
        if all(digest in records for digest in wanted):
            break
        with suppress(SmartForkError):
            taken = download(client, client.session(project, session_id)).records
            records |= {digest: one for one in taken if (digest := sha256(one).hexdigest()) in wanted}
    return records
