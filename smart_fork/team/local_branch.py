"""A branch that is made without the server: a copy of the log of this machine, shared with its first push."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from smart_fork.agents import READERS
from smart_fork.agents.copier import NewSession
from smart_fork.agents.facets import starter_of
from smart_fork.copies.session_copy import Branch, write_copy
from smart_fork.errors import ServerUnavailable, Usage
from smart_fork.families.branch import command_to_resume
from smart_fork.sharing.canonical import digest_of
from smart_fork.team import pulled, unfinished
from smart_fork.team.local import local, read_log
from smart_fork.team.materialise import complete
from smart_fork.team.outgoing import last_pair, prepare
from smart_fork.team.project import Project
from smart_fork.team.pull import TakenAs, directory_of, free_alias, named, now, track, unshared
from smart_fork.team.shared import Shared
from smart_fork.team.tracking import Alias


def copied(
    project: Project, source_id: str, taken_as: TakenAs, *, at: int | None, title: str | None, visibility: str | None
) -> Shared:
    """Copy the log of a tracked session of one's own, up to message `at`, as a branch of the shared session.

    Raises:
        ServerUnavailable: the log does not tell what the server has.
        SmartForkError: it cannot be copied.
    """
    tracked = project.tracking.read()
    one = next((one for one in tracked.aliases.values() if one.session_id == source_id and one.file), None)
    if one is None or one.file is None:
        raise _needed(project, "The session is not on this machine.")
    if taken_as.platform not in (None, one.platform):
        raise _needed(project, "--platform needs it.")
    name = named(tracked, taken_as, "", None if taken_as.alias else free_alias(tracked, source_id, new=True))
    with _written(project, one, at, title or one.title, taken_as) as branch:
        said = {"title": title or one.title, "visibility": visibility or "private"}
        alias = _alias(project, one, branch).model_copy(update=said)
        if taken_as.track:
            track(project, name, alias)
        return _told(project, one, alias, branch, name if taken_as.track else None)


def _needed(project: Project, why: str) -> ServerUnavailable:
    """The refusal of what cannot be done without the server."""
    return ServerUnavailable(f"{_away(project)} {why}", project.away.hint if project.away else "")


def _away(project: Project) -> str:
    return project.away.message if project.away else ""


@contextmanager
def _written(project: Project, one: Alias, at: int | None, title: str, taken_as: TakenAs) -> Iterator[Branch]:
    """The copy, which is taken away again where what follows fails."""
    session = read_log(one.file or Path(), one.platform, project.place.root)
    end = last_pair(session)
    if at is not None:
        said = session.messages
        if not 1 <= at <= len(said):
            raise Usage(f"--at takes 1 to {len(said)}: the session has that many messages.")
        end = complete(session, said[at - 1][0])
    new, directory = starter_of(one.platform).new_id(), directory_of(project, taken_as)
    with unfinished.copy(one.platform, new, project.place):
        moment = datetime.now()  # noqa: DTZ005 - files may be named by local time
        branch = write_copy(session, end, NewSession(new, directory, moment, title or str(session.title)))
        try:
            yield branch
        except BaseException:
            branch.undo()
            if (known := pulled.find(branch.path, branch.agent)) is not None:
                known.forget()
            raise


def _alias(project: Project, one: Alias, branch: Branch) -> Alias:
    """The copy as a branch: its base is what of it the server had when it was last seen."""
    root = project.place.root
    out = prepare(branch.path, branch.agent, root)
    count = min(one.base_count, len(out.records))
    known = pulled.find(one.file or Path(), one.platform)
    digest = one.base_digest if count == one.base_count else known.digest(count) if known else ""
    if not count or digest_of(out.records[:count]) != digest:
        raise _needed(project, "Only the server knows the pushed records.")
    if known is not None:
        replace(known, path=branch.path, root=root, records=known.records[:count]).save()
    here = out.numbers[count - 1]
    session = READERS[branch.agent].read(branch.path).session
    base = {
        "base_count": count,
        "base_digest": digest,
        "files": (str(branch.path),),
        "last_pulled_at": now(),
        "local_count": here,
        "local_digest": local(session, root).digest(here) if session is not None else "",
    }
    return one.apart().model_copy(update=base)


def _told(project: Project, one: Alias, alias: Alias, branch: Branch, name: str | None) -> Shared:
    session = READERS[branch.agent].read(branch.path).session
    return replace(
        unshared("branch", project, name, alias, branch.agent),
        resume_command=command_to_resume(branch.agent, branch.session_id, session.cwd if session else ""),
        warnings=(*branch.warnings, f"{_away(project)} It lacks changes there since {one.last_pulled_at}."),
    )
