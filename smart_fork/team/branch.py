"""Branches of one's own shared sessions and forks of others': made on the server immediately, and written here."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Literal

from smart_fork.errors import Conflict, NotFound, Usage, WrongVerb
from smart_fork.sharing import wire
from smart_fork.sharing.digest import digest_of
from smart_fork.team.begun import Begun, begin
from smart_fork.team.download import Download, download
from smart_fork.team.materialise import Materialised, arrived
from smart_fork.team.project import Project
from smart_fork.team.pull import FILE, TakenAs, named, now, told, track, tracked_as, writing
from smart_fork.team.shared import Shared
from smart_fork.team.tracking import Alias

NOT_YOURS = "You don't own this session. Use smart-fork team fork."
BranchVerb = Literal["branch", "fork"]
YOURS = "You own this session. Use smart-fork team branch to create a copy."


@dataclass(frozen=True, slots=True)
class BranchAsked:
    """What the new session is. `at` counts its messages; `pull` is whether it is written here as well.

    `local` keeps it from the server until it is pushed.
    """

    at: int | None = None
    title: str | None = None
    tags: tuple[str, ...] | None = None
    summary: str | None = None
    visibility: wire.Visibility | None = None
    local: bool = False
    pull: bool = True


@dataclass(frozen=True, slots=True)
class _Cut:
    """The first records of a session that a new one has."""

    source: Download
    count: int
    moved: bool | None


def branch(project: Project, reference: str | None, asked: BranchAsked, taken_as: TakenAs) -> Shared:
    """Make a session with the first messages of one's own.

    Raises:
        WrongVerb: it is somebody else's.
        SmartForkError: nothing was made.
    """
    return _made(project, "branch", project.meant(reference), asked, taken_as)


def fork(project: Project, reference: str, asked: BranchAsked, taken_as: TakenAs) -> Shared:
    """The same of somebody else's, whose thoughts are left out here: they are tied to his account.

    Raises:
        WrongVerb: it is one's own.
        SmartForkError: nothing was made.
    """
    return _made(project, "fork", project.meant(reference), asked, taken_as)


def _made(project: Project, verb: BranchVerb, source_id: str, asked: BranchAsked, taken_as: TakenAs) -> Shared:
    if asked.local and not asked.pull:
        raise Usage("--local and --no-pull leave nothing to be made", "Give one of them.")
    project = project.at(taken_as.into)
    taken_as = taken_as.within(project.place.root)
    read = project.client.session(project.key, source_id)
    mine = project.is_mine(read.session)
    if verb == "branch" and not mine:
        raise WrongVerb(NOT_YOURS)
    if verb == "fork" and mine and not taken_as.force:
        raise WrongVerb(YOURS)
    if taken_as.platform not in (None, read.session.agent):
        if taken_as.platform == FILE:
            raise Usage("--platform file is for pull alone", "Pull the session, or branch it for an agent.")
        if not asked.pull:
            raise Usage("--platform says how it is written here, and --no-pull that it is not", "Give one of them.")
        asked, taken_as = replace(asked, local=True), taken_as.of(read.session.agent)
    if asked.local:  # nothing else says to the server who has a copy, to be told of what is withdrawn
        read = project.client.session(project.key, source_id, "fork")
    source = download(project.client, read) if asked.pull or asked.at is not None else Download(read.session, ())
    cut = _cut(project, source, asked.at)
    begun = None if asked.local else begin(project, verb, source_id, cut.count)
    name = named(project.tracking.read(), taken_as, source_id if begun is None else begun.session_id)
    writes = writing(project, source, taken_as, others=not mine, count=cut.count) if asked.pull else nullcontext()
    with writes as written:
        if begun is not None:
            return _on_server(project, verb, cut, asked, taken_as, written, begun, name)
        assert written is not None  # noqa: S101 - what is kept from the server is written here
        return _kept_here(project, verb, cut, asked, taken_as, written, name)


def _cut(project: Project, source: Download, at: int | None) -> _Cut:
    if at is None:
        return _Cut(source, source.info.record_count, None)
    info = source.info
    with arrived(source.records, info.agent, info.id, project.place.root, others=False) as one:
        end = one.end(at)
    return _Cut(source, end.records, end.moved)


def _on_server(  # noqa: PLR0917 - what was asked for
    project: Project, verb: BranchVerb, cut: _Cut, asked: BranchAsked, taken_as: TakenAs, written: Materialised | None,
    begun: Begun, name: str,
) -> Shared:  # fmt: skip
    there = begun.there()
    if there is not None and there.session.record_count != cut.count:  # somebody goes on in that one already
        begun, there = begun.anew(), None
    if there is not None:
        info = _described(project, there.session, asked)
    else:
        info = create(project, begun, cut.source.info, cut.count, asked, verb=verb, force=taken_as.force)
    if not _begins_as(info, cut):
        raise Conflict("The session that the server has made does not begin as this one does.", "Try again.")
    one = replace(tracked_as(info, written, kind=verb), visibility=info.visibility)
    if taken_as.track and (written is not None or not asked.pull):
        track(project, name, one, begun)
    else:
        project.tracking.change(begun.done)
    done = told(project, verb, info, written, name if taken_as.track else None)
    return replace(done, created=True, moved=cut.moved)


def _begins_as(info: wire.SessionInfo, cut: _Cut) -> bool:
    """Whether a child is what was asked for: of the same agent, and with the records that were read."""
    records = cut.source.records[: cut.count]
    return info.agent == cut.source.info.agent and (not records or info.base_digest == digest_of(records))


def create(
    project: Project,
    begun: Begun,
    source: wire.SessionInfo,
    count: int,
    asked: BranchAsked,
    *,
    verb: BranchVerb,
    force: bool = False,
) -> wire.SessionInfo:
    """Make the child on the server.

    Raises:
        WrongVerb: it is the other verb's, or no writer asks.
        NotFound: the source is there no more.
    """
    wanted = wire.Branch(
        verb=verb,
        id=begun.session_id,
        source_id=source.id,
        count=count,
        visibility=asked.visibility,
        title=asked.title,
        tags=asked.tags,
        summary=asked.summary,
        force=force,
    )
    try:
        return project.client.branch(project.key, wanted).session
    except NotFound:
        if not begun.again:
            raise
        other = wanted.model_copy(update={"id": begun.anew().session_id})  # it was made, and deleted since
        return project.client.branch(project.key, other).session


def _described(project: Project, info: wire.SessionInfo, asked: BranchAsked) -> wire.SessionInfo:
    """What is said of a session that is there, where it is to be something else."""
    wanted = wire.SessionChange(visibility=asked.visibility, title=asked.title, tags=asked.tags, summary=asked.summary)
    return project.client.change(project.key, info.id, wanted) if wanted != wire.SessionChange() else info


def _kept_here(  # noqa: PLR0917 - what was asked for
    project: Project,
    verb: BranchVerb,
    cut: _Cut,
    asked: BranchAsked,
    taken_as: TakenAs,
    written: Materialised,
    name: str,
) -> Shared:
    """A session that nobody but this machine knows of, until it is pushed."""
    info = cut.source.info
    digest = digest_of(cut.source.records[: cut.count])
    alias = Alias(
        parent_id=info.id,
        root_id=info.root_id,
        base_count=cut.count,
        base_digest=digest,
        platform=written.agent,
        files=(str(written.path),),
        last_pulled_at=now(),
        local_digest=written.local.digest(len(written.local.records)),
        local_count=len(written.local.records),
        revision=info.revision,
        kind=verb,
        visibility=asked.visibility or "private",
        title=asked.title or info.title,
    )
    if taken_as.track:
        track(project, name, alias)
    done = told(project, verb, info, written, name if taken_as.track else None)
    return replace(
        done, session_id=None, url=None, title=alias.title, owner=project.client.account.user, created=True,
        visibility=alias.visibility, parent_id=info.id, base_count=cut.count, base_digest=digest, head_digest=digest,
        record_count=cut.count, moved=cut.moved,
    )  # fmt: skip
