"""Copies of sessions that the session's agent can resume.

Existing files are never overwritten, and a failed copy leaves no files behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from indexer.lazy_compilation import dataclass
from indexer.safe_files import remove
from indexer.transcripts.model import AgentName, Session
from smart_fork.agents import AGENTS
from smart_fork.agents.copier import Copy, Excerpt, NewSession
from smart_fork.agents.portable_records import HomePlace
from smart_fork.errors import ForkRefused
from smart_fork.forking.fork_points import branch_point, last_branch_point
from smart_fork.forking.handover_text import QUOTED_DATA_NOTICE, as_session, read_neutral, utterances
from smart_fork.system.processes import Machine


@dataclass(frozen=True, slots=True)
class SessionCopy:
    """A session copy that was written. `at` is the id of its last message, `copied` the number of its records.

    `moved` is true if `at` is later than requested. `created` lists all written files, the log last. `forget` deletes
    records about the copy in other places, such as a database.
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
        """Delete the records about the copy in other places (`forget`), then its files, the session's log first."""
        if self.forget:
            self.forget()
        for path in reversed(self.created):
            remove(path)


@dataclass(frozen=True, slots=True)
class MergedPart:
    """The kept turns (`excerpt`) of one session, for a copy that merges the turns of several sessions.

    Secrets in turns that are handed over (written as text for another agent) are masked unless `unmasked`.
    """

    session: Session
    excerpt: Excerpt
    unmasked: bool = False


def beginning_with(text: str, excerpt: Excerpt) -> Excerpt:
    """Return `excerpt` with `text` as a line of its own before the first turn."""
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

    With an `excerpt`, write only its turns, then the kept turns of `others`. `asked` is the id of the message at which
    the user wanted the copy to end. The log appears when it is complete; an error leaves no files behind.

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
    """Yield a list with the kept turns of each part, as records for the log of the session `new` of `agent`.

    Parts from other agents are handed over (as text).
    """
    with ExitStack() as stack:
        own = [part if part.session.agent == agent else stack.enter_context(_converted(part, agent)) for part in parts]
        yield [AGENTS.copier_of(agent).copy(part.session, part.excerpt, new) for part in own]


@contextmanager
def _converted(part: MergedPart, agent: AgentName) -> Iterator[MergedPart]:
    """Yield a part of another agent's session, converted to a temporary session of `agent`."""
    session, excerpt = part.session, part.excerpt
    told = read_neutral(session, excerpt.end, excerpt.kept, unmasked=part.unmasked)
    said = utterances(session, told.messages, beginning_with(QUOTED_DATA_NOTICE, excerpt).told)
    place = HomePlace(session.cwd, str(Path.home()))
    with as_session(agent, said, place, source_id=session.session_id) as made:
        sizes = tuple(turn.token_est for turn in made.turns)
        yield MergedPart(made, Excerpt(frozenset(range(len(made.turns))), len(made.turns) - 1, {}, sizes))
