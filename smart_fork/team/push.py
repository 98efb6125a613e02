"""The push of sessions: send the records that `push_plan` selected, to a new or an existing shared session."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from indexer.default_embedder import LightEmbedder
from indexer.errors import what_failed
from indexer.json_values import Value
from indexer.project import project_of
from indexer.safe_files import index_db
from indexer.transcripts.model import AgentName, Session
from smart_fork.agents import AGENTS
from smart_fork.agents.log_readers import OWN
from smart_fork.display_text import printable
from smart_fork.errors import Conflict, IndexUnavailable, NotFound, ServerUnavailable, SmartForkError, Unshareable
from smart_fork.finding.index_access import opened
from smart_fork.finding.recent import recent_sessions
from smart_fork.sharing import canonical, log_register
from smart_fork.sharing.outgoing import NothingToPush, NotSent, SentBefore
from smart_fork.sharing.tracking import Alias
from smart_fork.team import PushRequest, wire
from smart_fork.team.download import open_segment
from smart_fork.team.project import TeamProject
from smart_fork.team.push_plan import Plan, Preview, already_sent, chosen_visibility, hinted_conflict, plan
from smart_fork.team.searchable_session import as_float16, passage_hash, searchable_form, vector_space
from smart_fork.team.segments import Segment, pack
from smart_fork.team.shared_session_copies import create_with_common_records, unparented_hint, update_description
from smart_fork.team.sharing_result import SharingResult, shared_result
from smart_fork.team.tracked_sessions import PendingCreation, alias_of_session, default_alias, track_session

#: New segments of at most so many bytes are sent inside the push message, larger ones before it.
MAX_ENCLOSED_BYTES = canonical.MIB


def send(project: TeamProject, made: Plan) -> SharingResult:
    """Send a planned push, and update the tracking file. Wait first for other pushes of this machine."""
    with project.tracking.push_lock():
        found = project.tracking.read().of_log(made.session.source_path)
        if found is None and not made.force and (told := _from_another_checkout(project, made)) is not None:
            return told
        if found is None or found[1] == made.seen or found[1].session_id is None:
            return _sent(project, made)
        name, one = found
        if one.local_count >= made.out.local.count:
            return _only_described(project, made, name, one)
        base = Alias(base_digest=canonical.NOTHING) if made.alias is None else made.alias
        alias = one.model_copy(update={"base_count": base.base_count, "base_digest": base.base_digest})
        return _sent(project, replace(made, name=name, alias=alias))


def _from_another_checkout(project: TeamProject, made: Plan) -> SharingResult | None:
    """Return the result if another checkout of this machine already pushed all records of the log. Else return `None`.

    Raise `Conflict` if the log has new records: paths in the shared session are relative to the other checkout.
    """
    found = log_register.tracked_in(made.session.source_path, made.session.agent)
    if found is None:
        return None
    known, name, one = found
    elsewhere = known.root != project.place.root and (known.server, known.project) == (project.server, project.key)
    if one.session_id is None or not elsewhere:
        return None
    if one.local_count >= made.out.local.count:
        return _only_described(project, made, name, one)
    raise Conflict(
        f"{made.session.session_id} was pushed from another checkout: {known.root}",
        f"Push new records from there: cd {shlex.quote(str(known.root))} && smart-fork team push {name}",
    )


def _only_described(project: TeamProject, made: Plan, name: str, one: Alias) -> SharingResult:
    """Change only the session's description, since another push has sent its records. Return the push's result."""
    info = project.client.session(project.key, one.session_id or "").session
    info = update_description(project, info, made.said)
    return replace(shared_result("push", project, info, name), up_to_date=True, files=one.files)


def _sent(project: TeamProject, made: Plan) -> SharingResult:
    alias, begun = made.alias, None
    if alias is None:
        begun = PendingCreation.begin(project, "push", made.session.source_path)
        info, sent, created = _push_root(project, begun, made)
    elif made.creates:
        begun = PendingCreation.begin(project, "push", made.session.source_path, alias.parent_id, alias.base_count)
        child, created = _create_child(project, begun, alias, made)
        info, sent = _appended(project, child, made)
    else:
        created = False
        with hinted_conflict(made):
            info, sent = _appended(project, alias, made)
    info = info if created else update_description(project, info, made.said)
    base = (0, canonical.NOTHING) if made.alias is None else (made.alias.base_count, made.alias.base_digest)
    session, root = made.session, project.place.root
    log = log_register.ReceivedLog(
        session.source_path, session.agent, root, project.server, project.key, (), (info.id,)
    )
    before = made.alias.file if made.alias is not None else None
    log_register.store_pushed(log, *base, made.out.records, before=before)
    name = _alias_name(project, made, info.id)
    here = {
        "files": (str(made.session.source_path),),
        "local_digest": made.out.local.digest,
        "local_count": made.out.local.count,
    }
    one = alias_of_session(info, None, kind="push" if made.alias is None else made.alias.kind).model_copy(update=here)
    track_session(project, name, one, begun, in_place_of=made.name)
    return replace(
        shared_result("push", project, info, name),
        created=created,
        pushed_records=sent,
        up_to_date=not (created or sent),
        files=(str(made.session.source_path),),
        masked=dict(made.out.masked),
        left_out=dict(made.out.left_out),
        warnings=(f"It ends with its last complete pair. Dropped: {made.out.left_off}.",) if made.out.left_off else (),
    )


def _alias_name(project: TeamProject, made: Plan, session_id: str) -> str:
    """Return the plan's alias if it is tracked and not another session's default alias; else the default alias."""
    before = project.tracking.read().aliases.get(made.name)
    if before is None or (
        before.session_id not in {None, session_id} and made.name == default_alias(before.session_id or "")
    ):
        return default_alias(session_id)
    return made.name


def _push_root(project: TeamProject, begun: PendingCreation, made: Plan) -> tuple[wire.SessionInfo, int, bool]:
    """Push a session without a parent: create it on the server with all its records.

    If an interrupted push created it, append the missing records. Return the session, the number of sent records, and
    True if the session is new.
    """
    if (read := begun.existing_session()) is not None:
        try:
            return *_appended_to(project, Alias(base_digest=canonical.NOTHING), read, made), False
        except Conflict as error:
            if not made.force:
                hint = f"smart-fork team pull {begun.session_id} gets it; --force pushes this as a separate session."
                raise Conflict(error.message, hint, count=error.count, digest=error.digest) from None
        begun = begun.with_new_id()
    try:
        pushed = _create(project, begun, made)
    except NotFound:
        if not begun.again:
            raise
        pushed = _create(project, begun.with_new_id(), made)  # it was made, and deleted since
    return pushed.session, 0 if pushed.up_to_date else len(made.out.records), pushed.created


def _create(project: TeamProject, begun: PendingCreation, made: Plan) -> wire.Pushed:
    records = made.out.records
    segments = list(pack(records))
    return _committed(project, _push(made, begun.session_id, (0, canonical.NOTHING), records, segments, 0), segments)


def _create_child(project: TeamProject, begun: PendingCreation, alias: Alias, made: Plan) -> tuple[Alias, bool]:
    """Create a branch or fork on the server with the records that it has in common with its parent.

    Return its tracking data, and True if this call created it.
    """
    source_id = alias.session_id or alias.parent_id
    if source_id is None:
        raise SmartForkError("Its parent session is unknown.", unparented_hint(made.name))
    named = alias.title if alias.session_id is None else ""  # else it is the title of what this goes on from
    description = wire.valid_message(
        wire.SessionChange,
        title=made.said.title or named or _title(made) or None,
        tags=made.said.tags,
        summary=made.said.summary,
        visibility=made.said.visibility or chosen_visibility(alias),
    )
    child, created = create_with_common_records(
        project, begun, source_id, alias, description, name=made.name or made.session.session_id
    )
    return alias.model_copy(update={"session_id": child.id, "parent_id": child.parent_id}), created


def _appended(project: TeamProject, alias: Alias, made: Plan) -> tuple[wire.SessionInfo, int]:
    """Append the plan's new records to the session of `alias` on the server. Return (session, number of records)."""
    return _appended_to(project, alias, project.client.session(project.key, alias.session_id or ""), made)


def _appended_to(
    project: TeamProject, alias: Alias, read: wire.SessionRead, made: Plan
) -> tuple[wire.SessionInfo, int]:
    info = read.session
    if info.agent != made.session.agent:
        raise Conflict("The remote session belongs to another agent.", unparented_hint(made.name))
    new = made.out.records[already_sent(alias, info, made.out.records) :]
    if not new:
        return info, 0
    try:
        return _extended(project, read, new, made), len(new)
    except (NotFound, Unshareable):
        # A push from another machine replaces the last segment: what is there now decides.
        now = project.client.session(project.key, info.id)
        if now.session.head_digest == info.head_digest:
            raise
        return _appended_to(project, alias, now, made)


def _extended(project: TeamProject, read: wire.SessionRead, new: tuple[bytes, ...], made: Plan) -> wire.SessionInfo:
    info = read.session
    position, before = open_segment(project.client, read)
    first = info.record_count - len(before)
    start = read.segments[position].chain_start if before else canonical.state_of(info.head_digest)
    segments = list(pack([*before, *new], first, start))
    base = (info.record_count, info.head_digest)
    return _committed(project, _push(made, info.id, base, new, segments, position), segments).session


def _push(  # noqa: PLR0917 - the message
    made: Plan, session_id: str, base: tuple[int, str], new: tuple[bytes, ...], segments: list[Segment], position: int
) -> wire.Push:
    return wire.valid_message(
        wire.Push,
        id=session_id,
        agent=made.session.agent,
        base_count=base[0],
        base_digest=base[1],
        count=base[0] + len(new),
        digest=canonical.digest_of_state(canonical.state_after(new, canonical.state_of(base[1]))),
        position=position,
        segments=tuple(one.place for one in segments),
        **made.said.model_dump() | {"title": _title(made)},
        meta=_meta(made),
        vectors=local_vectors(made.session, made.out.records),
    )


def _title(made: Plan) -> str:
    return printable(made.said.title if made.said.title is not None else made.out.title)[: canonical.TEXT]


def _meta(made: Plan) -> wire.SessionFacts:
    session = made.session
    given = {
        "branch": printable(made.out.plain(session.git_branch))[:200],
        "turns": len(session.messages),
        "tokens": session.token_estimate,
        "begun": session.started or None,
        "last_activity": session.last_activity or None,
    }
    return wire.SessionFacts.model_validate(given, strict=False)


def _committed(project: TeamProject, wanted: wire.Push, segments: list[Segment]) -> wire.Pushed:
    """Send a push with its segments (compressed blocks of records), and return the server's answer.

    Small segments are sent inside the push message. Of large ones, those that the server lacks are sent first.
    """
    if sum(len(one.body) for one in segments) <= MAX_ENCLOSED_BYTES:
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


#: The most vectors in one push (a few megabytes). The server computes the others.
MAX_VECTORS = 4_000

log = logging.getLogger(__name__)


def local_vectors(session: Session, records: Sequence[bytes]) -> wire.Vectors | None:
    """Return the vectors that the local index has for a session's passages, to be sent with a push.

    Return `None` if the index cannot be used or has another model's vectors. The server computes missing vectors.
    """
    if not records or not index_db().exists():
        return None
    model = LightEmbedder()
    try:
        with opened() as store:
            row = store.session(session.agent, session.session_id)
            if row is None or store.meta("model") != model.model:
                return None
            sent = searchable_form(records, session.agent, session.session_id, session.session_id)
            texts = {chunk.text for chunk in sent.document.chunks} if sent else set[str]()
            here = store.texts({place.chunk for place in store.placements_of(row.row)})
            same = {text: chunk for chunk, text in here.items() if text in texts}
            made = store.vectors(list(same.values())[:MAX_VECTORS])
    except (IndexUnavailable, Unshareable) as error:  # the server makes them
        log.info("no vectors go with a push: %s", error)
        return None
    names = [passage_hash(text).hex() for text, chunk in same.items() if chunk in made]
    vectors = zip(names, as_float16(made[chunk] for chunk in same.values() if chunk in made), strict=True)
    return wire.Vectors(
        space=vector_space(model.model, model.dimensions),
        vectors=tuple(wire.Vector(chunk=name, e=vector) for name, vector in vectors),
    )


#: More sessions than a project has.
_MAX_SESSIONS = 100_000
_CHANGED_SINCE_PREVIEW = "It continued after the preview."
D = TypeVar("D")


@dataclass(frozen=True, slots=True)
class NotPushed(Value):
    """A session that was not pushed, with the reason. A `skipped` one had nothing to send, which is not an error."""

    session: str
    error: str
    hint: str
    code: str
    skipped: bool = False


@dataclass(frozen=True, slots=True)
class Planned:
    """A session to push, with its preview. `reference` is the session's name in the user's request.

    `local` describes the log's records at the time of the preview. If they change, the session is not sent.
    """

    reference: str
    session: str
    preview: Preview
    local: SentBefore


def project_logs(project: TeamProject, agents: Iterable[AgentName]) -> tuple[str, ...]:
    """Return the paths of the logs that `team push --all` sends, oldest first, but forks after their parents.

    They are the project's sessions that people started, and the tracked ones, of `agents` or of all agents.
    """
    root, chosen = project.place.root, set(agents)
    names = [one.name for one in AGENTS if one.has("converter") and (not chosen or one.name in chosen)]
    here = recent_sessions([OWN[name] for name in names], project_of(root), _MAX_SESSIONS).sessions[::-1]
    known = {one.session_id: one for one in here}
    here.sort(key=lambda one: _depth(one, known))
    tracked = [one for one in project.tracking.read().aliases.values() if one.platform in names and one.file]
    there = (one.file for one in tracked if one.file and AGENTS.files_of(one.platform).has(one.file))
    found = (*(one.source_path for one in here), *there)
    return tuple(dict.fromkeys(map(str, found)))


def preview_each(
    project: TeamProject, request: PushRequest, sessions: Iterable[str], *, every: bool
) -> Iterator[Planned | NotPushed]:
    """Yield a preview of the push of each session, or the reason why it cannot be pushed. Send nothing.

    With `every`, a session with nothing to send is marked as skipped, which is not an error.
    """

    def planned(reference: str, made: Plan) -> Planned:
        return Planned(reference, made.session.session_id, made.preview(project), made.out.local)

    return _each(project, request, sessions, planned, every=every)


def push_each(
    project: TeamProject, request: PushRequest, sessions: Iterable[str | Planned], *, every: bool
) -> Iterator[SharingResult | NotPushed]:
    """Push one session after the other. Yield each result, or the reason why a session was not sent.

    A session with a preview (`Planned`) is sent only if its log has not changed since. With `every`, a session with
    nothing to send is marked as skipped.
    """
    shown = {one if isinstance(one, str) else one.reference: one for one in sessions}

    def sent(reference: str, made: Plan) -> SharingResult:
        before = shown[reference]
        if isinstance(before, Planned) and before.local != made.out.local:
            raise Conflict(_CHANGED_SINCE_PREVIEW, f"smart-fork team push {made.session.session_id} shows it again.")
        return send(project, made)

    return _each(project, request, shown, sent, every=every)


def _each(
    project: TeamProject, request: PushRequest, sessions: Iterable[str], do: Callable[[str, Plan], D], *, every: bool
) -> Iterator[D | NotPushed]:
    """Plan the push of each session. Yield the result of `do` for the plan, or the reason why there is none.

    With `every`, a session with nothing to send is marked as skipped, which is not an error.
    """
    away: ServerUnavailable | None = None
    for reference in dict.fromkeys(sessions):
        try:
            if away is not None:  # nobody waits for it once for each session
                raise away
            made = plan(project, replace(request, reference=reference))
            if every and not _has_changes(project, made):
                found: D | NotPushed = NotPushed(
                    made.session.session_id, "Nothing is new.", "", "up_to_date", skipped=True
                )
            else:
                found = do(reference, made)
        except SmartForkError as error:
            away = error if isinstance(error, ServerUnavailable) else None
            skipped = every and isinstance(error, NotSent | NothingToPush)
            found = NotPushed(reference, error.message, error.hint, error.code, skipped)
        except OSError as error:
            found = NotPushed(reference, f"Its log cannot be read: {what_failed(error)}", "", "unreadable")
        yield found


def _has_changes(project: TeamProject, made: Plan) -> bool:
    """Return True if the push sends records, or makes a session on the server public."""
    return bool(made.out.records) or (not made.creates and bool(made.preview(project).questions()))


def _depth(one: Session, known: Mapping[str, Session]) -> int:
    """Return the generation of `one` among the `known` sessions: 1 without a parent, 2 for a fork, and so on."""
    seen = {one.session_id}
    while (parent := known.get(one.parent_id or "")) is not None and parent.session_id not in seen:
        one = parent
        seen.add(one.session_id)
    return len(seen)
