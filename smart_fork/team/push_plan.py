"""Plans a push: which records go to which shared session, and the preview for the user. Nothing is sent here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from indexer.json_values import Value
from indexer.transcripts.model import AgentName, Session
from smart_fork import provenance
from smart_fork.agents import AGENTS
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.portable_records import HomePlace
from smart_fork.display_text import printable, quoted
from smart_fork.errors import Conflict, NotFound, SmartForkError, Usage
from smart_fork.sharing import canonical, round_trip
from smart_fork.sharing.outgoing import SentBefore, dropped_in_words, prepare
from smart_fork.sharing.tracking import Alias
from smart_fork.team import PushRequest, wire
from smart_fork.team.project import ID_BEGINNING, TeamProject
from smart_fork.team.shared_session_copies import unparented_hint

if TYPE_CHECKING:
    from smart_fork.sharing.local_logs import LocalRecords
    from smart_fork.sharing.outgoing import Outgoing
    from smart_fork.sharing.tracking import Tracked

#: The most names that a line of the preview lists.
_MAX_LISTED_NAMES = 12
_MAX_SAMPLES = 3
SEND_QUESTION = "Send?"
PUBLISH_QUESTION = "It is private. All members of the project will be able to read it. Publish?"


@dataclass(frozen=True, slots=True)
class Preview(Value):
    """A preview of a push: its content, destination and readers. Secrets in all texts are masked."""

    server: str
    project: str
    visibility: str
    before: str
    title: str
    agent: str
    created: bool
    pushed_records: int
    bytes: int
    masked: Mapping[str, int]
    samples: Mapping[str, tuple[str, ...]]
    left_out: Mapping[str, int]
    files: tuple[str, ...]
    withheld: tuple[str, ...]
    left_off: str = ""

    @property
    def readers(self) -> str:
        """The people who will be able to read the session, in words."""
        return "all members of the project" if self.visibility == "public" else "you alone"

    def lines(self) -> Iterator[str]:
        """Yield the preview as lines for a terminal."""
        what = "A new session" if self.created else "More of a session"
        yield f"{what} of {AGENTS.title_of(self.agent)}: {printable(self.title) or 'without a title'}"
        yield f"  to        {self.project} on {self.server}"
        yield f"  readable  by {self.readers}"
        yield f"  size      {_records(self.pushed_records)}, {_size(self.bytes)}"
        if self.files:
            yield f"  files     {_listed(self.files)}"
        if self.masked:
            yield f"  masked    {', '.join(f'{count} {kind}' for kind, count in sorted(self.masked.items()))}"
            for kind, samples in sorted(self.samples.items()):
                yield from (f"              {kind}: …{_line(sample)}…" for sample in samples[:_MAX_SAMPLES])
        if self.withheld:
            yield f"  withheld  tool results from {_listed(self.withheld)}"
        if left_out := dropped_in_words(self.left_out):
            yield f"  dropped   {left_out}"
        if self.left_off:
            yield f"  not sent  {self.left_off}"
        if not self.masked:
            yield "  masked    nothing looked like a secret; read it if you are not sure"

    def line(self) -> str:
        """Return the preview as one line, for a list of several sessions."""
        size = f"{_records(self.pushed_records)}, {_size(self.bytes)}"
        what = "new" if self.created else "more"
        masked = f", {sum(self.masked.values())} masked" if self.masked else ""
        off = f" (not sent: {self.left_off})" if self.left_off else ""
        title = printable(self.title) or "without a title"
        return f"{what:<4}  {AGENTS.title_of(self.agent):<11}  {self.visibility:<7}  {size}{masked}  {title}{off}"

    def questions(self) -> tuple[str, ...]:
        """Return the questions to ask the user before the push, in order."""
        sends = bool(self.created or self.pushed_records)
        publishes = self.visibility == "public" != self.before and not self.created
        return (SEND_QUESTION,) * sends + (PUBLISH_QUESTION,) * publishes


def _line(sample: str) -> str:
    return " ".join(printable(HomePlace.readable(sample)).split())


def _listed(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _MAX_LISTED_NAMES} more" if len(names) > _MAX_LISTED_NAMES else ""
    return ", ".join(map(_line, names[:_MAX_LISTED_NAMES])) + more


def _records(number: int) -> str:
    return "1 record" if number == 1 else f"{number} records"


def _size(size: int) -> str:
    return f"{size} bytes" if size < 1_000 else f"{size / 1e3:.0f} kB" if size < 1_000_000 else f"{size / 1e6:.1f} MB"


@dataclass(frozen=True, slots=True)
class Plan:
    """A planned push of the records `out`. Without `alias`, the push creates a session without a parent.

    `alias` has the data of the session that gets the records, `name` its name. `said` is the description, with masked
    secrets. `before` is the visibility before the push, `seen` the alias of the log at the time of planning. `force` is
    the user's option to proceed despite warnings.
    """

    name: str
    out: Outgoing
    alias: Alias | None
    said: wire.SessionChange
    force: bool = False
    before: wire.Visibility = "private"
    seen: Alias | None = None

    @property
    def session(self) -> Session:
        """The session on this machine that would be pushed."""
        return self.out.session

    @property
    def creates(self) -> bool:
        """True if the push creates a session on the server, False if it appends to one."""
        alias = self.alias
        return alias is None or alias.session_id is None or not alias.is_of(self.session.source_path)

    def preview(self, project: TeamProject) -> Preview:
        out, title = self.out, self.said.title
        return Preview(
            project.server,
            project.key,
            self.said.visibility or self.before,
            self.before,
            out.title if title is None else out.plain(title),
            out.session.agent,
            self.creates,
            len(out.records),
            out.size,
            dict(out.masked),
            out.samples,
            dict(out.left_out),
            tuple(map(out.plain, out.files)),
            tuple(map(out.plain, out.withheld)),
            out.left_off,
        )


def plan(project: TeamProject, request: PushRequest) -> Plan:
    """Plan the push of the requested session. Nothing is sent.

    Raises:
        Usage: no session is named.
        Conflict: already pushed records have changed here.
        SmartForkError: the session cannot be shared, or an agent could not load the sent records.
    """
    tracked = project.tracking.read()
    name, session = _source(project, tracked, request)
    provenance.refuse_pending_withdrawal(session.session_id)
    root, alias, since, seen = project.place.root, None, None, tracked.of_log(session.source_path)
    if name is not None:
        alias = tracked.aliases[name]
        since = _shared_beginning(project, alias, session)
    elif any(one.platform == session.agent for one in tracked.aliases.values()):
        alias, since = tracked_parent(project, tracked.aliases, project.logs.records(session)) or (None, None)
    if request.force and alias and since and _is_lost(project, alias, project.logs.records(session), since):
        alias = since = None
    out = prepare(session.source_path, session.agent, root, since=since, images=request.images, read=session)
    round_trip.check_outgoing(out)
    return _checked(project, Plan(name or "", out, alias, _masked(request, out), request.force, seen=seen and seen[1]))


def _shared_beginning(project: TeamProject, alias: Alias, session: Session) -> SentBefore:
    """Return how many records at the start of a local log are already shared, and their digest.

    If records of the log were withdrawn (removed by their owner), count the shared records that the log still has.
    """
    root, known = project.place.root, SentBefore(alias.local_count, alias.local_digest)
    here = project.logs.records(session)
    if not alias.base_count or here.begins_with(known.count, known.digest):
        return known
    whole = prepare(session.source_path, session.agent, root, read=session)
    base = whole.records[: alias.base_count]
    if len(base) < alias.base_count or canonical.digest_of(base) != alias.base_digest:
        return known
    count = whole.numbers[alias.base_count - 1]
    return SentBefore(count, here.digest(count))


def _is_lost(project: TeamProject, alias: Alias, here: LocalRecords, since: SentBefore) -> bool:
    """Return True if the local log no longer begins with the shared records, or if the server lacks some of these."""
    if alias.session_id is None or not here.begins_with(since.count, since.digest):
        return True
    try:
        there = project.client.session(project.key, alias.session_id).session
    except NotFound:
        return True
    return there.record_count < alias.base_count


def _checked(project: TeamProject, made: Plan) -> Plan:
    """Check that the server's session can get the plan's records. Return the plan with that session's visibility."""
    alias = made.alias
    if alias is None or made.creates:
        return replace(made, before=(chosen_visibility(alias) if alias is not None else None) or "private")
    try:
        there = project.client.session(project.key, alias.session_id or "").session
    except NotFound as error:
        raise NotFound(error.message, unparented_hint(made.name)) from error
    with hinted_conflict(made):
        already_sent(alias, there, made.out.records)
    return replace(made, before=there.visibility)


@contextmanager
def hinted_conflict(made: Plan) -> Iterator[None]:
    """Add the user's next step to a `Conflict` in this context: the server has other records than planned."""
    try:
        yield
    except Conflict as error:
        if error.count is None:
            raise
        base = made.alias.base_count if made.alias is not None else 0
        if error.count < base:
            way = unparented_hint(made.name)
        elif made.out.records:
            way = (
                f"It also continued here. Run smart-fork team branch {made.name}, then smart-fork team push. Then "
                f"smart-fork team pull {made.name} gets the other one."
            )
        else:
            way = f"smart-fork team pull {made.name} gets the new records."
        raise Conflict(error.message, way, count=error.count, digest=error.digest) from error


def _masked(request: PushRequest, out: Outgoing) -> wire.SessionChange:
    asked = request.checked()
    return wire.valid_message(
        wire.SessionChange,
        title=asked.title and out.plain(asked.title)[: canonical.TEXT],
        tags=asked.tags and tuple(out.plain(one)[: canonical.TEXT] for one in asked.tags),
        summary=asked.summary and out.plain(asked.summary)[: canonical.SUMMARY],
        visibility=asked.visibility,
    )


def _source(project: TeamProject, tracked: Tracked, request: PushRequest) -> tuple[str | None, Session]:
    """Return the alias of the session that the user asked to push (`None` if it is not tracked), and the session."""
    if len(request.platforms) > 1:
        raise Usage("Can only specify one platform flag at a time")
    platform = request.platforms[0] if request.platforms else None
    if request.reference is not None:
        return _named(project, tracked, request.reference, platform)
    if platform is not None:
        return _as_tracked(tracked, project.logs.newest(platform))
    current = tracked.named(None)
    if current is None:
        flags = ", ".join(f"--{agent.name}" for agent in AGENTS if agent.has("converter"))
        raise Usage(f"Must specify either a file path or a platform flag ({flags})", "Or the id of a session.")
    return current[0], _log_of(project, *current)


def _named(
    project: TeamProject, tracked: Tracked, reference: str, platform: AgentName | None
) -> tuple[str | None, Session]:
    if named := tracked.named(reference):
        session = _log_of(project, *named)
        _check_platform(session, platform)
        return named[0], session
    path = Path(reference).expanduser()
    if path.is_file() and ID_BEGINNING.fullmatch(reference) is None:
        agent = next((one.name for one in READERS if one.log_at(str(path.resolve())) is not None), None)
        if agent is None:
            raise Usage(f"Unsupported session file format. {quoted(reference)} is not a log in an agent's folder.")
        session = project.logs.read(path.resolve(), agent)
    else:
        session = project.logs.found(reference)
    _check_platform(session, platform)
    return _as_tracked(tracked, session)


def _check_platform(session: Session, platform: AgentName | None) -> None:
    if platform not in (None, session.agent):
        its, other = AGENTS.title_of(session.agent), AGENTS.title_of(platform or "")
        raise Usage(f"Platform mismatch: that is a session of {its}, not of {other}")


def _as_tracked(tracked: Tracked, session: Session) -> tuple[str | None, Session]:
    known = tracked.of_log(session.source_path)
    return known and known[0], session


def _log_of(project: TeamProject, name: str, one: Alias) -> Session:
    if one.file is None:
        raise NotFound(f"{name} is not on this machine.", f"smart-fork team pull {name} writes it here.")
    return project.logs.read(one.log or one.file, one.platform)


def already_sent(alias: Alias, info: wire.SessionInfo, new: tuple[bytes, ...]) -> int:
    """Return how many of the `new` records the server has already, because an earlier push got no answer.

    Raise `Conflict` if the server has other records.
    """
    more = info.record_count - alias.base_count
    if more == 0 and info.head_digest == alias.base_digest:
        return 0
    if 0 < more <= len(new):
        known = list(canonical.chain_states(new[:more], canonical.state_of(alias.base_digest)))
        if canonical.digest_of_state(known[-1]) == info.head_digest:
            return more
    raise Conflict(
        f"The remote session has advanced ({alias.base_count} -> {info.record_count} records).",
        count=info.record_count,
        digest=info.head_digest,
    )


def chosen_visibility(alias: Alias) -> wire.Visibility | None:
    """Return "public" if the user chose this for a session that is not on the server yet. Else return `None`."""
    return "public" if alias.session_id is None and alias.visibility == "public" else None


def tracked_parent(
    project: TeamProject, aliases: Mapping[str, Alias], here: LocalRecords
) -> tuple[Alias, SentBefore] | None:
    """Return the tracked session that a local one continues, with number and digest of the common records.

    Return `None` if there is none. For agents that rewrite records in a fork, the texts of messages are compared.
    """
    own = (one for one in aliases.values() if one.platform == here.session.agent)
    known = sorted(own, key=lambda one: -one.local_count)
    for one in known:
        if one.local_count and here.begins_with(one.local_count, one.local_digest):
            return one, SentBefore(one.local_count, one.local_digest)
    above = here.session.parent_id
    for one in known:
        if one.file and above == READERS[one.platform].id_of(one.file):
            count = _repeated_records(project, one, one.file, here.session)
            return (one, SentBefore(count, here.digest(count))) if count else None
    return None


def _repeated_records(project: TeamProject, one: Alias, file: Path, fork: Session) -> int:
    """Return how many records at the start of `fork` repeat the shared messages of its parent's log, `file`.

    Return 0 if a message differs.
    """
    try:
        parent = project.logs.read(file, one.platform)
    except SmartForkError:
        return 0
    answers = (end for end in parent.pairs() if parent.turns[end].text)
    ends = (end for end in answers if _count(parent, end) == one.local_count)
    if (end := next(ends, None)) is None:
        return 0
    shared = [turn.text for number, turn in parent.messages if number <= end]
    said = fork.messages[: len(shared)]
    if [turn.text for _, turn in said] != shared or said[-1][0] not in fork.pairs():
        return 0
    return _count(fork, said[-1][0])


def _count(session: Session, end: int) -> int:
    return sum(1 for _ in AGENTS.converter_of(session.agent).records_of(session, end))
