"""The result of ``team push``, ``pull``, ``branch`` or ``fork``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from indexer.json_values import Value, rare
from indexer.project import project_of
from indexer.transcripts.model import AgentName
from smart_fork.finding.session_place import belongs
from smart_fork.forking.branch import command_to_resume
from smart_fork.sharing import canonical
from smart_fork.sharing.tracking import Alias
from smart_fork.team.project import TeamProject
from smart_fork.team.wire import SessionInfo

if TYPE_CHECKING:
    from smart_fork.sharing.local_logs import WrittenLog


Verb = Literal["push", "pull", "branch", "fork"]


@dataclass(frozen=True, slots=True)
class SharingResult(Value):
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


OUTSIDE_PROJECT_WARNING = "Its directory is outside this project, so it is not tracked here. Push it from there."


OTHER_AGENT_WARNING = "It belongs to another agent now. A push shares it as a separate session."


def shared_result(
    verb: Verb, project: TeamProject, info: SessionInfo, alias: str | None, written: WrittenLog | None = None
) -> SharingResult:
    """Return the result of a command about `info`, a session on the server, and the log `written` here, if any."""
    same = {one: getattr(info, one) for one in SessionInfo.model_fields if one in SharingResult.__dataclass_fields__}
    more = written_fields(project, info, written) if written is not None else {}
    url = canonical.url_of(project.server, info.project, info.id)
    return SharingResult(verb=verb, server=project.server, session_id=info.id, alias=alias, url=url, **same, **more)


def unshared_result(verb: Verb, project: TeamProject, name: str | None, one: Alias, agent: AgentName) -> SharingResult:
    """Return the result of a command that made a session which the server does not have yet."""
    same = {field: getattr(one, field) for field in Alias.model_fields if field in SharingResult.__dataclass_fields__}
    about = {"server": project.server, "project": project.key, "owner": project.client.account.user}
    head = {"head_digest": one.base_digest, "record_count": one.base_count}
    return SharingResult(**same | about | head, verb=verb, alias=name, url=None, agent=agent, created=True)


def written_fields(project: TeamProject, info: SessionInfo, written: WrittenLog) -> dict[str, Any]:
    """Return the result fields about a log that was written here, such as its path and resume command."""
    return {
        "files": (str(written.path),),
        "resume_command": command_to_resume(written.agent, written.session_id, written.local.session.cwd),
        "lost": written.lost,
        "warnings": (*written.branch.warnings, *_warnings(project, info, written)),
    }


def _warnings(project: TeamProject, info: SessionInfo, written: WrittenLog) -> Iterator[str]:
    if written.agent != info.agent:
        yield OTHER_AGENT_WARNING
    elif not belongs(written.local.session, project_of(project.place.root)):
        yield OUTSIDE_PROJECT_WARNING
