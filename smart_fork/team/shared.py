"""A session that is shared, as it is answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import quote

from indexer.values import Value, rare
from smart_fork.sharing.wire import SessionInfo

Verb = Literal["push", "pull", "branch", "fork"]


@dataclass(frozen=True, slots=True)
class Shared(Value):
    """What one of these verbs has done. `session_id` and `url` are `None` where the server does not have it yet."""

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
    """What is known of a session that the server has; the rest is added by who did it."""
    same = {one: getattr(info, one) for one in SessionInfo.model_fields if one in Shared.__dataclass_fields__}
    url = url_of(server, info.project, info.id)
    return Shared(verb=verb, server=server, session_id=info.id, alias=alias, url=url, **same)


def url_of(server: str, project: str, session_id: str) -> str:
    """The address of a session: to be handed on, and to be given in place of its id."""
    return f"{server}/v1/sessions/{session_id}?project={quote(project, safe='')}"
