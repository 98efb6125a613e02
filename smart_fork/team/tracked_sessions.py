"""The tracked sessions of a project: their aliases (local names), stored data, and states compared with the server.

The tracking file also stores ids of sessions that a command is about to create on the server. So a repeated command
does not create a second session.
"""

from __future__ import annotations

import secrets
import time
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Self

from indexer.json_values import Value
from smart_fork.errors import NotFound, Usage
from smart_fork.sharing.tracking import Alias, check_alias, timestamp
from smart_fork.team import PullOptions
from smart_fork.team.project import TeamProject
from smart_fork.team.wire import SessionInfo, SessionRead

if TYPE_CHECKING:
    from smart_fork.sharing.local_logs import WrittenLog
    from smart_fork.sharing.tracking import Tracked


def changed_on_server(one: Alias, info: SessionInfo) -> bool:
    """Return True if the server's records of a session differ from those that this machine last saw."""
    return (one.base_count, one.base_digest) != (info.record_count, info.head_digest)


def chosen_alias(tracked: Tracked, wanted: PullOptions, session_id: str, before: str | None = None) -> str:
    """Return the alias for a session: the user's choice, else the earlier alias `before`, else the beginning of the id.

    Raise `Usage` if another session has the chosen alias.
    """
    name = check_alias(wanted.alias) if wanted.alias else before or free_alias(tracked, session_id)
    there = tracked.aliases.get(name)
    if there is not None and name != before and there.session_id != session_id and not wanted.force:
        raise Usage(f"The alias {name} belongs to another session", "Choose another one, or --force.")
    return name


def free_alias(tracked: Tracked, session_id: str, *, new: bool = False) -> str:
    """Return the beginning of a session's id as an alias, with a number if another session has that alias.

    With `new`, do not return an alias that the session itself already has.
    """
    name = default_alias(session_id)
    names = (name, *(f"{name}-{number}" for number in range(2, len(tracked.aliases) + 3)))
    mine = [] if new else [name for name, one in tracked.aliases.items() if one.session_id == session_id]
    return next(one for one in names if one not in tracked.aliases or one in mine)


def rename(project: TeamProject, name: str, reference: str, *, force: bool) -> Alias:
    """Give a session the alias `name` in place of its earlier alias, and return the stored data.

    Raise `Usage` if another session has the alias; with `force`, take the alias from that session.
    """
    tracked, name = project.tracking.read(), check_alias(name)
    if known := tracked.named(reference):
        before, one = known
    else:
        info = project.client.session(project.key, project.session_id_of(reference)).session
        before, one = "", alias_of_session(info, None, kind="pull")
    if name in tracked.aliases and name != before and not force:
        raise Usage(f"The alias {name} belongs to another session", "Choose another one, or --force.")

    def change(now: Tracked) -> Tracked:
        others = now.without(before) if before in now.aliases else now
        return others.model_copy(update=project.location).with_alias(name, one)

    project.tracking.change(change)
    return one


def default_alias(session_id: str) -> str:
    """Return the default alias of a session: the beginning of its id.

    Of ids of version 7, which begin with the time, it takes 13 characters; of others 8.
    """
    return session_id[: 13 if session_id[14:15] == "7" else 8]


def alias_of_session(info: SessionInfo, written: WrittenLog | None, *, kind: str) -> Alias:
    """Return the data to store for a session on the server. `written` is its log on this machine, if there is one.

    `kind` names the command that the data come from: "push", "pull", "branch" or "fork".
    """
    return Alias(
        session_id=info.id,
        parent_id=info.parent_id,
        root_id=info.root_id,
        base_count=info.record_count,
        base_digest=info.head_digest,
        platform=written.agent if written else info.agent,
        files=(str(written.path),) if written else (),
        last_pulled_at=timestamp(),
        local_digest=written.local.digest(len(written.local.records)) if written else "",
        local_count=len(written.local.records) if written else 0,
        revision=info.revision,
        kind=kind,
        visibility=info.visibility,
        title=info.title,
    )


def track_session(
    project: TeamProject, name: str, one: Alias, begun: PendingCreation | None = None, *, in_place_of: str = ""
) -> None:
    """Store a shared session in the tracking file under the alias `name`, and make this the current alias.

    Remove the pending creation `begun` and the session's earlier alias `in_place_of` from the file.
    """

    def change(tracked: Tracked) -> Tracked:
        known = begun.removed_from(tracked) if begun is not None else tracked
        there = known.model_copy(update=project.location)
        if in_place_of != name and in_place_of in there.aliases:
            there = there.without(in_place_of)
        before = there.aliases.get(name)
        return there.with_alias(name, one.model_copy(update=before.model_extra) if before else one)

    project.tracking.change(change)


AliasState = Literal["up_to_date", "ahead", "behind", "diverged", "changed", "pending", "withdrawn", "missing"]


@dataclass(frozen=True, slots=True)
class AliasStatus(Value):
    """The state of one alias (the local name of a shared session), compared with the server.

    `ahead` counts local records that were not pushed, `behind` records that only the server has. States: `changed` if
    pushed records were altered here, `pending` if the server does not have the session yet, `missing` if the local log
    is gone. `seen` is the time of the server's last answer. If the server does not answer now, `behind` is `None`, and
    `state` is what this machine knows.
    """

    alias: str
    current: bool
    session_id: str | None
    title: str
    kind: str
    visibility: str
    state: AliasState
    ahead: int
    behind: int | None
    files: tuple[str, ...]
    seen: str = ""


def status(project: TeamProject) -> tuple[AliasStatus, ...]:
    """Return the state of each alias (local name of a shared session) of a project."""
    tracked = project.tracking.read()
    return tuple(
        _status_of(project, name, one, current=name == tracked.current) for name, one in tracked.aliases.items()
    )


def _status_of(project: TeamProject, name: str, one: Alias, *, current: bool) -> AliasStatus:
    info = None if project.away else _info_on_server(project, one)
    ahead_by = project.logs.ahead(one)
    away = project.away is not None
    moved = info is not None and changed_on_server(one, info)
    behind = None if away else max(info.record_count - one.base_count, 0) if info is not None else 0
    state, more = _state_of(one, ahead_by, gone=info is None and not away, moved=moved)
    title, visibility = (info.title, info.visibility) if info is not None else (one.title, one.visibility)
    return AliasStatus(
        name, current, one.session_id, title, one.kind, visibility, state, more, behind, one.files, one.last_pulled_at
    )


def _info_on_server(project: TeamProject, one: Alias) -> SessionInfo | None:
    if one.session_id is None:
        return None
    try:
        return project.client.session(project.key, one.session_id).session
    except NotFound:
        return None


def _state_of(one: Alias, more: int | None, *, gone: bool, moved: bool) -> tuple[AliasState, int]:
    """Return the state of an alias, and the number of unpushed records.

    `more` counts the local records after the pushed ones; it is negative if pushed records changed, `None` without a
    log. `gone` is true if the server lacks the session, `moved` if the server has other records than this machine last
    saw.
    """
    if one.session_id is None or gone:
        return "pending" if one.session_id is None else "withdrawn", max(more or 0, 0)
    if more is None:
        return "behind" if moved else "missing", 0
    if more < 0:
        return "changed", 0
    if more and moved:
        return "diverged", more
    return "ahead" if more else "behind" if moved else "up_to_date", more


def _new_id() -> str:
    """Return a UUID of version 7, which begins with the time: new sessions are neighbors in the server's indexes."""
    value = (time.time_ns() // 1_000_000 & (1 << 48) - 1) << 80 | secrets.randbits(80)
    value = value & ~(0xF << 76) & ~(0x3 << 62) | 0x7 << 76 | 0x2 << 62
    return str(uuid.UUID(int=value))


@dataclass(frozen=True, slots=True)
class PendingCreation:
    """A planned creation of a session on the server with the id `session_id`.

    `what` identifies the command. `again` is true if an earlier run of the same command stored the id.
    """

    project: TeamProject
    what: str
    session_id: str
    again: bool

    @classmethod
    def begin(cls, project: TeamProject, *what: object) -> Self:
        """Return the pending creation for the command that `what` identifies. A repeated command gets the same id."""
        key, fresh = " ".join(map(str, (project.server, project.key, *what))), _new_id()
        kept = project.tracking.change(lambda now: now if key in now.begun else now.with_begun(key, fresh)).begun[key]
        return cls(project, key, kept, again=kept != fresh)

    def existing_session(self) -> SessionRead | None:
        """Return the session if an earlier run of the command already created it on the server, or `None`."""
        if not self.again:
            return None
        try:
            return self.project.client.session(self.project.key, self.session_id)
        except NotFound:
            return None

    def with_new_id(self) -> PendingCreation:
        """Replace the stored id, because its session was deleted, or has other records by now."""
        other = _new_id()
        self.project.tracking.change(lambda now: now.with_begun(self.what, other))
        return replace(self, session_id=other, again=False)

    def removed_from(self, tracked: Tracked) -> Tracked:
        """Return tracking data without this pending creation, since the session exists."""
        return tracked.with_begun(self.what, None)
