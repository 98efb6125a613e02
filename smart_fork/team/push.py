"""Pushing: what a session of this machine has said since is appended to the shared one, or makes it.

Nothing is sent before somebody has seen what it is: `plan` makes it, `send` sends it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from indexer.transcripts.model import AgentName, Session
from smart_fork.agents import AGENTS, READERS
from smart_fork.agents.facets import title_of
from smart_fork.errors import Conflict, NotFound, SmartForkError, Usage
from smart_fork.foreign_sessions import refuse_owing
from smart_fork.sharing import wire
from smart_fork.sharing.digest import NOTHING, state_after, state_of, states, written
from smart_fork.sharing.limits import MIB, SUMMARY, TEXT
from smart_fork.sharing.segments import Segment, pack
from smart_fork.snippets import printable, quoted
from smart_fork.team import replay
from smart_fork.team.begun import Begun, begin
from smart_fork.team.branch import BranchAsked, alone, begun_as
from smart_fork.team.download import tail
from smart_fork.team.ids import BEGINNING
from smart_fork.team.local import Local, found, local, newest, read_log
from smart_fork.team.outgoing import Outgoing, Since, prepare
from smart_fork.team.parent import parent_of
from smart_fork.team.preview import Preview, Receiver, preview
from smart_fork.team.project import Project
from smart_fork.team.pull import default_alias, now, track
from smart_fork.team.pulled import Written
from smart_fork.team.pulled import pushed as pushed_here
from smart_fork.team.shared import Shared, shared
from smart_fork.team.tracking import Alias, Tracked
from smart_fork.team.vectors import vectors_here

#: New segments of so many bytes ride in the commit; more are sent one by one before.
RIDES = MIB


@dataclass(frozen=True, slots=True)
class PushAsked:
    """What is to be pushed, and what is said of it."""

    reference: str | None = None
    platforms: tuple[AgentName, ...] = ()
    visibility: wire.Visibility | None = None
    title: str | None = None
    tags: tuple[str, ...] | None = None
    summary: str | None = None
    images: bool = False
    force: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be sent, and to which of the sessions that are tracked. `before` is who may read that one now."""

    name: str
    out: Outgoing
    alias: Alias | None
    asked: PushAsked
    before: wire.Visibility = "private"

    @property
    def session(self) -> Session:
        """The session of this machine."""
        return self.out.session

    @property
    def creates(self) -> bool:
        """Whether there is no such session before."""
        return self.alias is None or self.alias.session_id is None or _is_another(self.alias, self.session)

    def preview(self, project: Project) -> Preview:
        """The same for a person, before it is sent."""
        to = Receiver(project.server, project.key, self.asked.visibility or self.before, self.before)
        return preview(self.out, to, created=self.creates, title=self.asked.title)


def plan(project: Project, asked: PushAsked) -> Plan:
    """What a push would send; nothing is sent.

    Raises:
        Usage: it is not said which session.
        Conflict: what was pushed has changed here.
        SmartForkError: it cannot be shared, or what would be sent would not load any more.
    """
    tracked = project.tracking.read()
    name, session = _source(project, tracked, asked)
    refuse_owing(session.session_id)
    root, alias, since = project.place.root, None, None
    if name is not None:
        alias = tracked.aliases[name]
        since = Since(alias.local_count, alias.local_digest)
    elif any(one.platform == session.agent for one in tracked.aliases.values()):
        alias, since = parent_of(project, tracked.aliases, local(session, root)) or (None, None)
    if (
        asked.force
        and alias is not None
        and since is not None
        and _is_lost(project, alias, local(session, root), since)
    ):
        alias = since = None
    out = prepare(session.source_path, session.agent, root, since=since, images=asked.images, read=session)
    replay.check(out)
    return _checked(project, Plan(name or "", out, alias, _masked(asked, out)))


def _is_lost(project: Project, alias: Alias, here: Local, since: Since) -> bool:
    """Whether a log is no continuation any more of what was shared: `--force` shares it without a parent."""
    if alias.session_id is None or not here.begins_with(since.count, since.digest):
        return True
    try:
        there = project.client.session(project.key, alias.session_id).session
    except NotFound:
        return True
    return there.record_count < alias.base_count


def _checked(project: Project, made: Plan) -> Plan:
    """Look at the session on the server: who may read it now, and whether more can be added to it.

    Raises:
        NotFound: it is gone.
        Conflict: it has other records.
    """
    alias = made.alias
    if alias is None or made.creates:
        return replace(made, before=(_visible(alias) if alias is not None else None) or "private")
    try:
        there = project.client.session(project.key, alias.session_id or "").session
    except NotFound as error:
        raise NotFound(error.message, alone(made.name)) from error
    with _way_out(made):
        _reached(alias, there, made.out.records)
    return replace(made, before=there.visibility)


@contextmanager
def _way_out(made: Plan) -> Iterator[None]:
    """Tell what to do where the remote session has other records than this machine has seen."""
    try:
        yield
    except Conflict as error:
        if error.count is None:
            raise
        base = made.alias.base_count if made.alias is not None else 0
        if error.count < base:
            way = alone(made.name)
        elif made.out.records:
            way = (
                f"It was continued here as well: smart-fork team branch {made.name} makes what is here a session of its"
                f" own. Then smart-fork team push sends it, and smart-fork team pull {made.name} takes the other."
            )
        else:
            way = f"smart-fork team pull {made.name} takes what is new."
        raise Conflict(error.message, way, count=error.count, digest=error.digest) from error


def _masked(asked: PushAsked, out: Outgoing) -> PushAsked:
    """What is said of a session is masked as what was said in it."""
    title, summary = (None if one is None else out.plain(one) for one in (asked.title, asked.summary))
    tags = None if asked.tags is None else tuple(out.plain(one)[:TEXT] for one in asked.tags)
    return replace(asked, title=title, summary=summary and summary[:SUMMARY], tags=tags)


def send(project: Project, made: Plan) -> Shared:
    """Send it. The tracking file is written after the answer.

    Raises:
        Conflict: the remote session has advanced.
        SmartForkError: it was not taken.
    """
    alias, begun = made.alias, None
    if alias is None:
        begun = begin(project, "push", made.session.source_path)
        info, sent, created = _root(project, begun, made)
    elif alias.session_id is None or _is_another(alias, made.session):
        begun = begin(project, "push", made.session.source_path, alias.parent_id, alias.base_count)
        child, created = _child(project, begun, alias, made)
        info, sent = _appended(project, child, made)
    else:
        created = False
        with _way_out(made):
            info, sent = _appended(project, alias, made)
    info = _described(project, info, made, created=created)
    base = (0, NOTHING) if made.alias is None else (made.alias.base_count, made.alias.base_digest)
    session, root = made.session, project.place.root
    here = Written(session.source_path, session.agent, root, project.server, project.key, (), (info.id,))
    before = made.alias.file if made.alias is not None else None
    pushed_here(here, *base, made.out.records, before=before)
    name = _called(project, made, info.id)
    one = _tracked(info, made, "push" if made.alias is None else made.alias.kind)
    track(project, name, one, begun, in_place_of=made.name)
    return replace(
        shared("push", project.server, info, name),
        created=created,
        pushed_records=sent,
        up_to_date=not (created or sent),
        files=(str(made.session.source_path),),
        masked=dict(made.out.masked),
        left_out=dict(made.out.left_out),
        warnings=(f"It ends with its last complete pair. Left off: {made.out.left_off}.",) if made.out.left_off else (),
    )


def _called(project: Project, made: Plan, session_id: str) -> str:
    """Its alias: the one that it had, unless that is the beginning of the id of what it was before."""
    before = project.tracking.read().aliases.get(made.name)
    if before is None or (
        before.session_id not in {None, session_id} and made.name == default_alias(before.session_id or "")
    ):
        return default_alias(session_id)
    return made.name


def _source(project: Project, tracked: Tracked, asked: PushAsked) -> tuple[str | None, Session]:
    """The session that is to be pushed, and the alias that it is tracked as."""
    if len(asked.platforms) > 1:
        raise Usage("Can only specify one platform flag at a time")
    platform = asked.platforms[0] if asked.platforms else None
    if asked.reference is not None:
        return _named(project, tracked, asked.reference, platform)
    if platform is not None:
        return _as_tracked(tracked, newest(platform, project.place.root))
    current = tracked.named(None)
    if current is None:
        flags = ", ".join(f"--{agent.name}" for agent in AGENTS if agent.has("forms"))
        raise Usage(f"Must specify either a file path or a platform flag ({flags})", "Or the id of a session.")
    return current[0], _log_of(project, *current)


def _named(
    project: Project, tracked: Tracked, reference: str, platform: AgentName | None
) -> tuple[str | None, Session]:
    if named := tracked.named(reference):
        session = _log_of(project, *named)
        _check_platform(session, platform)
        return named[0], session
    path = Path(reference).expanduser()
    if path.is_file() and BEGINNING.fullmatch(reference) is None:
        agent = next((one.name for one in READERS if one.log_at(str(path.resolve())) is not None), None)
        if agent is None:
            raise Usage(f"Unsupported session file format. {quoted(reference)} is no log of an agent's own folder.")
        session = read_log(path.resolve(), agent, project.place.root)
    else:
        session = found(reference, project.place.root)
    _check_platform(session, platform)
    return _as_tracked(tracked, session)


def _check_platform(session: Session, platform: AgentName | None) -> None:
    if platform not in (None, session.agent):
        raise Usage(
            f"Platform mismatch: that is a session of {title_of(session.agent)}, not of {title_of(platform or '')}"
        )


def _as_tracked(tracked: Tracked, session: Session) -> tuple[str | None, Session]:
    for name, one in tracked.aliases.items():
        if one.file is not None and one.file == session.source_path:
            return name, session
    return None, session


def _log_of(project: Project, name: str, one: Alias) -> Session:
    if one.file is None:
        raise NotFound(f"{name} is not on this machine.", f"smart-fork team pull {name} writes it here.")
    return read_log(one.file, one.platform, project.place.root)


def _is_another(alias: Alias, session: Session) -> bool:
    return alias.file != session.source_path


def _root(project: Project, begun: Begun, made: Plan) -> tuple[wire.SessionInfo, int, bool]:
    """Make a session of its own, or go on with what an earlier push has made of it: how many records that took."""
    if (read := begun.there()) is not None:
        try:
            return *_appended_to(project, Alias(base_digest=NOTHING), read, made), False
        except Conflict as error:
            if not made.asked.force:
                hint = f"smart-fork team pull {begun.session_id} has it; --force pushes this as a session of its own."
                raise Conflict(error.message, hint, count=error.count, digest=error.digest) from None
        begun = begun.anew()
    try:
        pushed = _made(project, begun, made)
    except NotFound:
        if not begun.again:
            raise
        pushed = _made(project, begun.anew(), made)  # it was made, and deleted since
    return pushed.session, 0 if pushed.up_to_date else len(made.out.records), pushed.created


def _made(project: Project, begun: Begun, made: Plan) -> wire.Pushed:
    records = made.out.records
    segments = list(pack(records))
    wanted = _push(made, begun.session_id, (0, NOTHING), len(records), written(state_after(records)), segments, 0)
    return _committed(project, wanted, segments)


def _child(project: Project, begun: Begun, alias: Alias, made: Plan) -> tuple[Alias, bool]:
    """Make a session on the server that begins as the shared one does of which this is a branch or a fork."""
    source_id = alias.session_id or alias.parent_id
    if source_id is None:
        raise SmartForkError("It is not known what this is a branch of.", alone(made.name))
    asked = BranchAsked(
        title=made.asked.title or alias.title or None,
        tags=made.asked.tags,
        summary=made.asked.summary,
        visibility=made.asked.visibility or _visible(alias),
    )
    child, created = begun_as(project, begun, source_id, alias, asked, name=made.name or made.session.session_id)
    return replace(alias, session_id=child.id, parent_id=child.parent_id), created


def _visible(alias: Alias) -> wire.Visibility | None:
    return "public" if alias.session_id is None and alias.visibility == "public" else None


def _appended(project: Project, alias: Alias, made: Plan) -> tuple[wire.SessionInfo, int]:
    """The session with what is new, and how many records that was."""
    return _appended_to(project, alias, project.client.session(project.key, alias.session_id or ""), made)


def _appended_to(project: Project, alias: Alias, read: wire.SessionRead, made: Plan) -> tuple[wire.SessionInfo, int]:
    info = read.session
    if info.agent != made.session.agent:
        raise Conflict("The remote session is another agent's.", alone(made.name))
    reached = _reached(alias, info, made.out.records)
    new = made.out.records[reached:]
    if not new:
        return info, 0
    position, before = tail(project.client, read)
    first = info.record_count - len(before)
    start = state_of(read.segments[position].chain_start) if before else state_of(info.head_digest)
    segments = list(pack([*before, *new], first, start))
    digest = written(state_after(new, state_of(info.head_digest)))
    base = (info.record_count, info.head_digest)
    wanted = _push(made, info.id, base, info.record_count + len(new), digest, segments, position)
    return _committed(project, wanted, segments).session, len(new)


def _reached(alias: Alias, info: wire.SessionInfo, new: tuple[bytes, ...]) -> int:
    """How many of the new records the server has already, from a push whose answer was never seen.

    Raises:
        Conflict: it has others.
    """
    more = info.record_count - alias.base_count
    if more == 0 and info.head_digest == alias.base_digest:
        return 0
    if 0 < more <= len(new):
        known = list(states(new[:more], state_of(alias.base_digest)))
        if written(known[-1]) == info.head_digest:
            return more
    raise Conflict(
        f"The remote session has advanced ({alias.base_count} -> {info.record_count} records).",
        count=info.record_count,
        digest=info.head_digest,
    )


def _push(  # noqa: PLR0917 - the message
    made: Plan, session_id: str, base: tuple[int, str], count: int, digest: str, segments: list[Segment], position: int
) -> wire.Push:
    places = [one.place for one in segments]
    return wire.Push(
        id=session_id,
        agent=made.session.agent,
        base_count=base[0],
        base_digest=base[1],
        count=count,
        digest=digest,
        segments=tuple(
            wire.SegmentPlace(
                position=number,
                digest=place.digest,
                first_record=place.first_record,
                records=place.records,
                raw_bytes=place.raw_bytes,
                chain_start=written(place.chain_start),
            )
            for number, place in enumerate(places, position)
        ),
        visibility=made.asked.visibility,
        title=_title(made),
        tags=made.asked.tags,
        summary=made.asked.summary,
        meta=_meta(made),
        vectors=vectors_here(made.session, made.out.records),
    )


def _title(made: Plan) -> str:
    return printable(made.asked.title if made.asked.title is not None else made.out.title)[:TEXT]


def _meta(made: Plan) -> wire.Meta:
    session = made.session
    given = {
        "branch": printable(made.out.plain(session.git_branch))[:200],
        "turns": len(session.messages),
        "tokens": session.token_estimate,
        "begun": session.started or None,
        "last_activity": session.last_activity or None,
    }
    return wire.Meta.model_validate(given, strict=False)


def _committed(project: Project, wanted: wire.Push, segments: list[Segment]) -> wire.Pushed:
    """Send what the server does not have, then the commit; a little rides in it."""
    if sum(len(one.body) for one in segments) <= RIDES:
        bodies = tuple(wire.SegmentBody(digest=one.place.digest, body=one.body) for one in segments)
        return project.client.push(project.key, wanted.model_copy(update={"bodies": bodies}))
    there: frozenset[str] = frozenset()
    for ends in range(0, len(segments), 10_000):
        asked = tuple(one.place.digest for one in segments[ends : ends + 10_000])
        there |= project.client.have(project.key, asked)
    for one in segments:
        if one.place.digest not in there:
            project.client.put_segment(project.key, one.place.digest, one.body)
    return project.client.push(project.key, wanted)


def _described(project: Project, info: wire.SessionInfo, made: Plan, *, created: bool) -> wire.SessionInfo:
    """What is said of a session that was there, where something was said."""
    asked = made.asked
    said = (asked.visibility, asked.title, asked.tags, asked.summary)
    if created or said == (None, None, None, None):
        return info
    wanted = wire.SessionChange(visibility=said[0], title=said[1], tags=said[2], summary=said[3])
    return project.client.change(project.key, info.id, wanted)


def _tracked(info: wire.SessionInfo, made: Plan, kind: str) -> Alias:
    return Alias(
        session_id=info.id,
        parent_id=info.parent_id,
        root_id=info.root_id,
        base_count=info.record_count,
        base_digest=info.head_digest,
        platform=made.session.agent,
        files=(str(made.session.source_path),),
        last_pulled_at=now(),
        local_digest=made.out.local.digest,
        local_count=made.out.local.count,
        revision=info.revision,
        kind=kind,
        visibility=info.visibility,
        title=info.title,
    )
