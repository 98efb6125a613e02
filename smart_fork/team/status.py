"""How what is tracked stands to what the server has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from indexer.values import Value
from smart_fork.errors import NotFound
from smart_fork.sharing.wire import SessionInfo
from smart_fork.team.local import ahead
from smart_fork.team.project import Project, has_moved
from smart_fork.team.tracking import Alias

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


def status(project: Project) -> tuple[AliasStatus, ...]:
    """That of every alias of a project."""
    tracked = project.tracking.read()
    return tuple(_of(project, name, one, current=name == tracked.current) for name, one in tracked.aliases.items())


def _of(project: Project, name: str, one: Alias, *, current: bool) -> AliasStatus:
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


def _there(project: Project, one: Alias) -> SessionInfo | None:
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
