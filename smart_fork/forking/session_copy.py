"""A copy of a session up to an earlier message, which the real program can resume.

A copy ends with a finished turn: no tool call lacks its result, and the agent has finished its answer. A point inside
an exchange moves forward to such a turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from indexer.files import remove
from indexer.lazy import dataclass
from indexer.transcripts.base import AgentAdapter
from indexer.transcripts.model import AgentName, Session, Turn
from smart_fork.agents import AGENTS
from smart_fork.agents.copier import Copy, Excerpt, MergedCopy, NewSession
from smart_fork.agents.record_conversion import HomePlace
from smart_fork.errors import ForkRefused, NotFound, advice
from smart_fork.system.processes import Machine


@dataclass(frozen=True, slots=True)
class Branch:
    """A written session file. `at` is its last message; `moved` means that it is later than the requested one.

    `copied` counts its records. `created` are all written files, the session's own last. `forget` undoes the parts that
    are not files.
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
        """Delete the copy, the session's own file first."""
        if self.forget:
            self.forget()
        for path in reversed(self.created):
            remove(path)


@dataclass(frozen=True, slots=True)
class Point:
    """A fork point: the last kept turn, by number and id."""

    index: int
    message_id: str

    def moved_from(self, number: int) -> str:
        """Return the note that the fork point differs from the requested message."""
        return f"Forked after message {self.index}, where the agent had finished what message {number} is part of"


def point_at(session: Session, number: int) -> Point:
    """Return the fork point at which message `number` of ``show`` is finished.

    Raises:
        NotFound: There is no such message.
        ForkRefused: See `branch_point`.
    """
    index = branch_point(session, message_at(session, number))
    return Point(index, session.turns[index].id)


def message_at(session: Session, number: int) -> str:
    """Return the id of message `number` of ``show``, or of the action there.

    Raises:
        NotFound: There is no such message.
    """
    if not 0 <= number <= max((index for index, _ in session.messages), default=-1):
        raise NotFound(
            f"No message {number} in this session",
            advice(f"smart-fork show {session.session_id} numbers them.", tool="read_session numbers them."),
        )
    return session.turns[number].id


def branch_point(session: Session, at: str) -> int:
    """Return the index of the first turn, from message `at` on, after which the session can continue.

    It is always in the exchange of `at`, and before a compaction that would make the copy forget it. An exchange that
    was never finished ends with `at` itself, if possible.

    Raises:
        ForkRefused: The agent does not remember `at`, or its exchange was never finished.
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
    """Return the index of the last turn after which the session can continue.

    Raises:
        ForkRefused: There is none.
    """
    if points := session.branch_points():
        return points[-1]
    raise ForkRefused("No conversation to branch.", "The agent has not finished an answer in it yet.")


def last_point(session: Session) -> Point:
    """Return the last fork point.

    Raises:
        ForkRefused: There is none.
    """
    end = last_branch_point(session)
    return Point(end, session.turns[end].id)


def _waits_for_nothing(turns: Sequence[Turn]) -> bool:
    """Return whether the last turn is text of the agent, and every call before has its result."""
    calls = {call.id for turn in turns for call in turn.tool_calls}
    answered = {result.tool_use_id for turn in turns for result in turn.tool_results}
    last = turns[-1]
    return last.role == "assistant" and bool(last.text) and not last.tool_calls and calls <= answered


@dataclass(frozen=True, slots=True)
class MergedPart:
    """The kept turns of one of a copy's sessions. Where it is handed over its secrets are masked, unless `unmasked`."""

    session: Session
    excerpt: Excerpt
    unmasked: bool = False


def beginning_with(text: str, excerpt: Excerpt) -> Excerpt:
    """Return the excerpt with a line at its beginning."""
    if not excerpt.kept:
        return excerpt
    first = min(excerpt.kept)
    told = "\n".join(filter(None, (text, excerpt.told.get(first, ""))))
    return replace(excerpt, told={**excerpt.told, first: told})


def without_shared(part: MergedPart, others: Sequence[Session]) -> MergedPart:
    """Return the part without the turns that its session shares with the beginning of one of `others`."""
    shared = max((_shared(part.session, other) for other in others), default=0)
    kept = frozenset(turn for turn in part.excerpt.kept if turn >= shared)
    told = {turn: text for turn, text in part.excerpt.told.items() if turn >= shared}
    return replace(part, excerpt=replace(part.excerpt, kept=kept, told=told))


def write_branch(
    adapter: AgentAdapter, source: Path, becomes: NewSession, *, at: str | None, session: Session | None = None,
    machine: Machine | None = None, excerpt: Excerpt | None = None, others: Sequence[MergedPart] = (),
) -> Branch:  # fmt: skip
    """Write a copy up to message `at`, or of all finished turns, to where the agent finds it as `becomes`.

    With an `excerpt`, only its turns are copied, then the kept turns of `others`. The source is only read, and not at
    all if `session` is given.

    Raises:
        NotFound: The source is gone or has no conversation.
        ForkRefused: See `branch_point`; or a session of that id exists.
    """
    AGENTS.check_id(adapter.name, becomes.id, "new")
    try:
        session = session or adapter.read(source).session
    except FileNotFoundError as error:
        raise NotFound(f"The session's log is gone: {source}") from error
    if session is None:
        raise NotFound(f"Source session not found or empty: {adapter.id_of(source)}")
    if excerpt:
        end, at = excerpt.end, session.turns[excerpt.end].id
    else:
        end = last_branch_point(session) if at is None else branch_point(session, at)
    asked = at or session.turns[-1].id
    return write_copy(session, end, becomes, asked=asked, machine=machine, excerpt=excerpt, others=others)


def write_copy(
    session: Session, end: int, becomes: NewSession, *, asked: str = "", machine: Machine | None = None,
    excerpt: Excerpt | None = None, others: Sequence[MergedPart] = (),
) -> Branch:  # fmt: skip
    """Write turns 0 to `end` of `session`, or those of an `excerpt`, as a new session with its side files.

    The kept turns of `others` follow. The file appears when it is complete; an error leaves nothing behind.

    Raises:
        ForkRefused: A session of that id exists, or the source was rewritten meanwhile.
        OSError: The copy cannot be written.
    """
    AGENTS.check_id(session.agent, becomes.id, "new")
    if not any(turn.prompt for turn in session.turns[: end + 1]):
        raise ForkRefused("No conversation to branch.", "No prompt up to that message.")
    agent = AGENTS.copier_of(session.agent)
    target = agent.place(session.source_path, becomes)
    circular = ("Parent ids form a cycle: records are in the order of the file",) if session.circular else ()
    machine = machine or Machine()
    with ExitStack() as stack:
        copy: Copy | MergedCopy = agent.copy(session, end, becomes)
        if excerpt:
            parts = [MergedPart(session, excerpt), *others]
            copy = MergedCopy(stack.enter_context(distilled(parts, session.agent, becomes)))
        written = agent.write(copy, target, becomes, machine, lambda: None)
    last = session.turns[end].id
    return Branch(
        session.agent, becomes.id, session.session_id, written.path, copy.copied, last, bool(asked) and last != asked,
        written.created, (*circular, *written.warnings), written.forget,
    )  # fmt: skip


@contextmanager
def distilled(parts: Sequence[MergedPart], agent: AgentName, new: NewSession) -> Iterator[list[Copy]]:
    """Yield the kept turns of each part as `agent` writes them. Parts of other agents are handed over.

    Raises:
        Usage: Sessions of one agent cannot be handed over to the other.
        ForkRefused: A log was rewritten meanwhile, or turns of that agent's sessions cannot be dropped.
    """
    with ExitStack() as stack:
        own = [part if part.session.agent == agent else stack.enter_context(_told(part, agent)) for part in parts]
        yield [AGENTS.copier_of(agent).copy(part.session, part.excerpt, new) for part in own]


@contextmanager
def _told(part: MergedPart, agent: AgentName) -> Iterator[MergedPart]:
    """Yield a part of another agent's session as a session of `agent`, in a temporary private file."""
    # Only forks to another agent, and merges, need these.
    from smart_fork.forking.handover_log import DATA, as_session, utterances
    from smart_fork.forking.neutral_form import read

    session, excerpt = part.session, part.excerpt
    told = read(session, excerpt.end, excerpt.kept, unmasked=part.unmasked)
    said = utterances(session, told.messages, beginning_with(DATA, excerpt).told)
    place = HomePlace(session.cwd, str(Path.home()))
    with as_session(agent, said, place, source_id=session.session_id) as made:
        sizes = tuple(turn.token_est for turn in made.turns)
        yield MergedPart(made, Excerpt(frozenset(range(len(made.turns))), len(made.turns) - 1, {}, sizes))


def _shared(one: Session, other: Session) -> int:
    """Return how many turns at the beginning are the same in both."""
    if one.agent != other.agent or one.root_id != other.root_id:
        return 0
    count = 0
    for mine, theirs in zip(one.turns, other.turns, strict=False):
        if (mine.id, mine.role, mine.text, mine.timestamp) != (theirs.id, theirs.role, theirs.text, theirs.timestamp):
            break
        count += 1
    return count
