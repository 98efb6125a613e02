"""What of a session that is written here somebody else has said, so that whoever goes on from it is asked first."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from smart_fork import foreign_sessions
from smart_fork.errors import NotFound
from smart_fork.sharing.canonical import decode
from smart_fork.sharing.wire import SessionInfo
from smart_fork.team.materialise import Materialised
from smart_fork.team.project import Project
from smart_fork.team.pulled import all_written, identity_of

#: So many sessions above one are asked for.
_DEPTH = 100


def note(project: Project, info: SessionInfo, records: Iterable[bytes], made: Materialised, *, others: bool) -> None:
    """Keep which messages of a session that was written are somebody else's; `others` says that it is itself."""
    told = tuple(records)
    count = len(told) if others else _begun_by_others(project, info)
    if not count:
        return
    pushed = {digest for one in all_written() for digest, key in one.records if not key}
    own = {
        identity_of(decode(one))
        for number, one in enumerate(told)
        if number >= count or sha256(one).hexdigest() in pushed
    }
    said = (identity_of(decode(one)) for one in made.local.records)
    foreign_sessions.remember(made.session_id, (one for one in said if one and one not in own))


def _begun_by_others(project: Project, info: SessionInfo) -> int:
    """How many of one's own session's records are those of a session above it that is not known to be one's own."""
    for _ in range(_DEPTH):
        if info.parent_id is None:
            return 0
        try:
            parent = project.client.session(project.key, info.parent_id).session
        except NotFound:
            return info.base_count
        if not project.is_mine(parent):
            return info.base_count
        info = parent
    return info.base_count
