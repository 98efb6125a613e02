"""Copies of sessions that the session's agent can resume, and the logs to copy from.

A copy ends with a finished turn: each tool call has its result, and the agent has finished its answer. A fork asked for
inside an exchange (a prompt and its answer) ends with the next finished turn. If the agent has deleted a log,
smart-fork copies from its own backup. Existing files are never overwritten, and a failed fork leaves no files behind.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Self

import orjson

from indexer import kept_logs
from indexer.errors import what_failed
from indexer.kept_logs import CompressedFile, pieces
from indexer.lazy import dataclass
from indexer.safe_files import private_dir, remove, write_new
from indexer.transcripts.lines import bounded
from indexer.transcripts.model import AgentName, Session, Turn
from smart_fork import provenance
from smart_fork.agents import AGENTS, repository_sessions
from smart_fork.agents.copier import Copy, Excerpt, NewSession
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.portable_records import HomePlace
from smart_fork.errors import Ambiguous, ForkRefused, NotFound, Usage, advice
from smart_fork.finding import session_lookup
from smart_fork.finding.session_lookup import Located
from smart_fork.forking.handover_text import QUOTED_DATA_NOTICE, as_session, read_neutral, utterances
from smart_fork.forking.record_masking import MaskedSecrets, RecordMasker
from smart_fork.system.processes import Machine
from smart_fork.workers.registry import Registry, WorkerRecord


@dataclass(frozen=True, slots=True)
class SessionCopy:
    """A session copy that was written. `at` is the id of its last message.

    `moved` is true if that is later than requested. `copied` counts the records. `created` lists all written files, the
    log last. `forget` deletes what was recorded outside these files, such as in a database.
    """

    agent: AgentName
    session_id: str
    source_session_id: str
    path: Path
    copied: int
    at: str
    moved: bool
    created: tuple[Path, ...] = ()
    warnings: tuple[str, ...] = ()
    forget: Callable[[], object] | None = None

    def undo(self) -> None:
        """Delete what was recorded about the copy elsewhere, then all files of the copy, the session's log first."""
        if self.forget:
            self.forget()
        for path in reversed(self.created):
            remove(path)


@dataclass(frozen=True, slots=True)
class ForkPoint:
    """The point at which a fork leaves its session: the last turn that is copied, by number and id."""

    index: int
    message_id: str

    @classmethod
    def after(cls, session: Session, index: int) -> Self:
        """Return the fork point (the last turn to copy) for a fork directly after turn `index` of `session`."""
        return cls(index, session.turns[index].id)


def point_at(session: Session, number: int) -> ForkPoint:
    """Return the fork point (the last turn to copy) for message `number` of the command ``show``."""
    return ForkPoint.after(session, branch_point(session, message_at(session, number)))


def message_at(session: Session, number: int) -> str:
    """Return the id of message (or tool call) `number`, counted as the command ``show`` does; else raise `NotFound`."""
    if not 0 <= number <= max((index for index, _ in session.messages), default=-1):
        raise NotFound(
            f"No message {number} in this session",
            advice(f"smart-fork show {session.session_id} numbers them.", tool="read_session numbers them."),
        )
    return session.turns[number].id


def branch_point(session: Session, at: str) -> int:
    """Return the index of the first turn, from message `at` on, after which a copy of the session can continue.

    It belongs to the exchange (a prompt and its answer) of `at`, and comes before any compaction that would make the
    copy forget `at`. In an exchange that was never finished, it is the turn of `at`, if a copy can continue there.

    Raises:
        ForkRefused: the agent does not remember `at`, or never finished its exchange.
    """
    start = next((index for index, turn in enumerate(session.turns) if turn.id == at), None)
    if start is None:
        raise ForkRefused(
            f"Invalid or inactive branch point: {at}",
            advice("Choose a message from smart-fork show.", tool="Choose a message from read_session."),
        )
    exchange = [one for one in session.exchanges() if one.start <= start][-1]
    end, points = exchange.start + len(exchange.turns), session.branch_points()
    point = next((point for point in points if start <= point < end), None)
    remembered = session.ends()[start]
    if remembered is not None and remembered < (end if point is None else point):
        return remembered
    if point is not None:
        return point
    if end < len(session.turns) and _waits_for_nothing(exchange.turns[: start - exchange.start + 1]):
        return start
    if session.resumed.reason == "gap" and start == len(session.turns) - 1:  # its agent would fork it there as well
        return start
    around = [max((p for p in points if p < start), default=None), next((p for p in points if p >= end), None)]
    hint = " or ".join(str(p) for p in around if p is not None)
    raise ForkRefused(
        f"Invalid or inactive branch point: {at}: the agent has not finished its answer",
        f"The nearest possible messages: {hint}." if hint else "",
    )


def last_branch_point(session: Session) -> int:
    """Return the index of the last turn after which a copy of the session can continue; else raise `ForkRefused`."""
    if points := session.branch_points():
        return points[-1]
    raise ForkRefused("No conversation to branch.", "The agent has not finished an answer in it yet.")


def _waits_for_nothing(turns: Sequence[Turn]) -> bool:
    """Return True if the last turn is text by the agent, and every tool call in `turns` has its result."""
    calls = {call.id for turn in turns for call in turn.tool_calls}
    answered = {result.tool_use_id for turn in turns for result in turn.tool_results}
    last = turns[-1]
    return last.role == "assistant" and bool(last.text) and not last.tool_calls and calls <= answered


@dataclass(frozen=True, slots=True)
class MergedPart:
    """The kept turns (`excerpt`) of one session, for a copy that merges the turns of several sessions.

    Secrets in turns that are handed over (written as text for another agent) are masked unless `unmasked`.
    """

    session: Session
    excerpt: Excerpt
    unmasked: bool = False


def beginning_with(text: str, excerpt: Excerpt) -> Excerpt:
    """Return `excerpt` with the line `text` put before its first turn."""
    if not excerpt.kept:
        return excerpt
    first = min(excerpt.kept)
    told = "\n".join(filter(None, (text, excerpt.told.get(first, ""))))
    return replace(excerpt, told={**excerpt.told, first: told})


def write_branch(
    session: Session, becomes: NewSession, *, at: str | None, machine: Machine | None = None,
    excerpt: Excerpt | None = None, others: Sequence[MergedPart] = (),
) -> SessionCopy:  # fmt: skip
    """Write a copy of a session up to message `at`, or of all finished turns, as the new session `becomes`.

    With an `excerpt`, copy only its turns, then the kept turns of `others`. The session's log is never changed.

    Raises:
        ForkRefused: see `branch_point`; or a session with the new id exists.
    """
    AGENTS.check_id(session.agent, becomes.id, "new")
    if excerpt:
        end, at = excerpt.end, session.turns[excerpt.end].id
    else:
        end = last_branch_point(session) if at is None else branch_point(session, at)
    asked = at or session.turns[-1].id
    return write_copy(session, end, becomes, asked=asked, machine=machine, excerpt=excerpt, others=others)


def write_copy(
    session: Session, end: int, becomes: NewSession, *, asked: str = "", machine: Machine | None = None,
    excerpt: Excerpt | None = None, others: Sequence[MergedPart] = (),
) -> SessionCopy:  # fmt: skip
    """Write turns 0 to `end` of `session` as the new session `becomes`, with the files beside its log.

    With an `excerpt`, write only its turns, then the kept turns of `others`. `asked` is the id of the requested
    message. The log appears when it is complete; an error leaves no files behind.

    Raises:
        ForkRefused: a session with the new id exists, or the source was rewritten meanwhile.
        OSError: the copy cannot be written.
    """
    AGENTS.check_id(session.agent, becomes.id, "new")
    if not any(turn.prompt for turn in session.turns[: end + 1]):
        raise ForkRefused("No conversation to branch.", "No prompt up to that message.")
    agent = AGENTS.copier_of(session.agent)
    target = agent.place(session.source_path, becomes)
    circular = ("Parent ids form a cycle: records are in the order of the file",) if session.circular else ()
    machine = machine or Machine()
    with ExitStack() as stack:
        copy = agent.copy(session, end, becomes)
        if excerpt:
            parts = [MergedPart(session, excerpt), *others]
            copy, *copy.following = stack.enter_context(distilled(parts, session.agent, becomes))
        written = agent.write(copy, target, becomes, machine, lambda: None)
    last = session.turns[end].id
    return SessionCopy(
        session.agent, becomes.id, session.session_id, written.path, copy.copied, last, bool(asked) and last != asked,
        written.created, (*circular, *written.warnings), written.forget,
    )  # fmt: skip


@contextmanager
def distilled(parts: Sequence[MergedPart], agent: AgentName, new: NewSession) -> Iterator[list[Copy]]:
    """Yield the kept turns of each part as records for a log of `agent`, which becomes the session `new`.

    Parts from other agents are handed over (as text).
    """
    with ExitStack() as stack:
        own = [part if part.session.agent == agent else stack.enter_context(_told(part, agent)) for part in parts]
        yield [AGENTS.copier_of(agent).copy(part.session, part.excerpt, new) for part in own]


@contextmanager
def _told(part: MergedPart, agent: AgentName) -> Iterator[MergedPart]:
    """Yield a part from another agent's session, converted to a temporary session of `agent`."""
    session, excerpt = part.session, part.excerpt
    told = read_neutral(session, excerpt.end, excerpt.kept, unmasked=part.unmasked)
    said = utterances(session, told.messages, beginning_with(QUOTED_DATA_NOTICE, excerpt).told)
    place = HomePlace(session.cwd, str(Path.home()))
    with as_session(agent, said, place, source_id=session.session_id) as made:
        sizes = tuple(turn.token_est for turn in made.turns)
        yield MergedPart(made, Excerpt(frozenset(range(len(made.turns))), len(made.turns) - 1, {}, sizes))


#: The most ancestors that are checked; this also ends cycles of recorded parents.
_DEPTH = 100


def is_others(session_id: str, session: Session | None = None) -> bool:
    """Return True if this machine's records say that another user made the session, or one of its ancestors.

    Pass its `session` if its log was read already. If sessions of several agents have this id, return True as well.
    """
    if not provenance.has_foreign():
        return False
    for _ in range(_DEPTH):
        try:
            session = session or _read(session_id)
        except Ambiguous:
            return True
        worker = Registry.known_worker(session_id)
        messages = (turn.id for turn in session.turns) if session else ()
        if provenance.foreign_among((session_id, *messages)) or (
            worker and worker.permission_mode == WorkerRecord.ASKED
        ):
            return True
        above = session.parent_id if session else None
        above = above or (worker.source_session_id if worker and worker.is_fork else None)
        if not above or above == session_id:
            return False
        session_id, session = above, None
    return True


@bounded()
def _read(session_id: str) -> Session | None:
    try:
        return session_lookup.look_into(session_lookup.locate(session_id))
    except Ambiguous:
        raise
    except (NotFound, Usage):
        return None


@contextmanager
def brought_back(located: Located, *, dry_run: bool = False) -> Iterator[Located]:
    """Yield `located` (a session and its log's path) with a log that exists.

    A log that the agent has deleted is restored from smart-fork's own backup; in a `dry_run`, only as a temporary file.

    Raises:
        NotFound: the backup of the log, or of its parent's log, is missing or cannot be read.
        ForkRefused: another file has the log's path.
    """
    copy = kept_logs.find(located.agent, located.session_id) if located.path is None else None
    if is_borrowed(located):
        with _borrowed(located) as there:
            yield there
    elif copy is None:
        yield located
    elif dry_run:
        with ExitStack() as stack:
            with _reading(copy):
                path = stack.enter_context(kept_logs.opened(copy))
            yield dataclasses.replace(located, path=path)
    else:
        created: list[Path] = []
        try:
            for one in reversed(_with_parents(copy)):
                path = _put_back(one, created)
            yield dataclasses.replace(located, path=path)
        except BaseException:
            for made in reversed(created):
                remove(made)
            raise


def forkable(located: Located) -> AbstractContextManager[Located]:
    """Yield `located` (a session and its log's path) with a log to copy, temporary if a repository stores it."""
    return _borrowed(located) if is_borrowed(located) else nullcontext(located)


def refuse_borrowed(located: Located) -> None:
    """Refuse (`ForkRefused`) a session that is stored in a repository, for actions that change its log."""
    if is_borrowed(located):
        raise ForkRefused(
            f"{located.session_id} is {repository_sessions.author_of(str(located.path))}'s, and kept in a repository",
            advice(f"Fork it: smart-fork fork {located.session_id}", tool="Fork it: fork_from."),
        )


def refuse_without_log(located: Located, as_agent: str | None) -> None:
    """Refuse (`ForkRefused`) to fork a session stored as Markdown, unless it is handed over (as text) to `as_agent`."""
    if as_agent is None and repository_sessions.is_history(str(located.path)):
        raise ForkRefused(
            f"{located.session_id} is kept as Markdown in {repository_sessions.HISTORIES}. "
            "There is no log of it to fork",
            advice(
                f"Hand it over: smart-fork fork {located.session_id} --as {located.agent}",
                tool=f"Hand it over: as_agent '{located.agent}'.",
            ),
        )


def is_borrowed(located: Located) -> bool:
    """Return True if a repository stores the session, so that its agent has no log of it."""
    return located.path is not None and repository_sessions.is_within(str(located.path))


@contextmanager
def _borrowed(located: Located) -> Iterator[Located]:
    """Yield `located`, a session stored in a repository, with a temporary log in which secrets are masked.

    Also record on this machine that the session is another user's.
    """
    reader, secrets = READERS[located.agent], RecordMasker()
    try:
        stack = ExitStack()
        path = stack.enter_context(reader.as_file(located.path or Path()))
    except OSError as error:
        raise NotFound(f"{located.session_id} cannot be read: {what_failed(error)}") from error
    with stack:
        if AGENTS[located.agent].has("converter"):  # a session of any other is only told, which masks it
            converter, records = (
                AGENTS.converter_of(located.agent),
                [orjson.loads(line) for line in path.read_bytes().splitlines()],
            )
            secrets.learn(records)
            masked = (secrets.record(record, converter, MaskedSecrets()) for record in records)
            path.write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in masked if record))
        session = reader.read(path).session
        provenance.remember_foreign(located.session_id, (turn.id for turn in session.turns) if session else ())
        yield dataclasses.replace(located, path=path)


def _put_back(copy: kept_logs.KeptLog, created: list[Path]) -> Path:
    """Restore the backup `copy` of a deleted log, after the files beside it. Return its path; extend `created`."""
    target = READERS[copy.agent].home() / AGENTS.storage_of(copy.agent).restored(copy.place, copy.session_id)
    if target.parent.is_file():
        raise ForkRefused(
            f"{AGENTS.title_of(copy.agent)} keeps all sessions in one file, which smart-fork does not write",
            advice("`smart-fork show` reads the copy.", tool="read_session reads the copy."),
        )
    with _reading(copy):
        for name, part in copy.beside.items():
            _write(copy, part, target.with_suffix("") / name, created)
        _write(copy, copy.log, target, created)
    return target


def _write(copy: kept_logs.KeptLog, part: CompressedFile, target: Path, created: list[Path]) -> None:
    private_dir(target.parent)
    try:
        write_new(target, pieces(copy.folder, part))
    except FileExistsError:
        if target.is_symlink() or not target.is_file() or target.read_bytes() != b"".join(pieces(copy.folder, part)):
            raise ForkRefused(
                f"Another version of this session is already there: {target}", "Fork the session that is there."
            ) from None
    else:
        created.append(target)


def _with_parents(copy: kept_logs.KeptLog) -> list[kept_logs.KeptLog]:
    """Return the backup `copy` of a log, then the backups of those ancestors whose logs are deleted, nearest first.

    Forks by some agents hold only their own records, and need their parent's log.
    """
    chain = [copy]
    while base := _base(chain[-1]):
        if READERS[copy.agent].locate(base):
            break
        above = kept_logs.find(copy.agent, base)
        if above is None or above in chain or len(chain) > AGENTS.MAX_FORK_DEPTH:
            raise NotFound(f"The parent session of {copy.session_id} is gone: {base}")
        chain.append(above)
    return chain


def _base(copy: kept_logs.KeptLog) -> str:
    """Return the id of the parent if the backup `copy` lacks its first records, which the parent's log holds."""
    ancestry = AGENTS.ancestry_of(copy.agent)
    if not ancestry.goes_on:
        return ""
    with _reading(copy), kept_logs.opened(copy) as path:
        return ancestry.base(path)


@contextmanager
def _reading(copy: kept_logs.KeptLog) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise NotFound(
            f"The kept copy of {copy.session_id} cannot be used: {what_failed(error)}",
            advice("`smart-fork show` reads the export.", tool="read_session reads the export."),
        ) from error
