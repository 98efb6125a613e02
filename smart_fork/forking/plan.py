"""A fork of a session, planned: from a request to what would be started, what that will know, and what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from indexer.shapes import dataclass
from indexer.transcripts.lines import bounded
from indexer.transcripts.model import AgentName, Session
from smart_fork import foreign_sessions
from smart_fork.agents import AGENTS
from smart_fork.agents.checkpoints import in_clone
from smart_fork.agents.references import Resolved
from smart_fork.errors import ForkRefused
from smart_fork.finding import sessions
from smart_fork.finding.session_place import where_now
from smart_fork.finding.sessions import Located
from smart_fork.finding.team_search import sessions_here
from smart_fork.finding.worth import obstacles
from smart_fork.forking.bringing_back import brought_back, is_borrowed, refuse_without_log
from smart_fork.forking.budget import Answers, content_of, gathered, handed_to
from smart_fork.forking.confirmation import CONFIRM_SECONDS
from smart_fork.forking.price import loaded_within, loads_of, price_of
from smart_fork.forking.report import Launched, as_fork, done_by, named_as_shared, same_command
from smart_fork.forking.request import ForkRequest, check
from smart_fork.forking.spec import Content, WorkerSpec
from smart_fork.forking.start import Prepared, dry_run, prepare
from smart_fork.forking.started import Forked, ForkPrice, Way
from smart_fork.system.processes import Machine

if TYPE_CHECKING:
    from smart_fork.finding.library import Opening

#: The share of a look's time in which a log is read of which passages are chosen.
_CHOOSING = 0.2


class _Dropped(Exception):
    """It is not started."""


@dataclass(frozen=True, slots=True)
class Fork:
    """A fork that can be started. What was made to read its sessions is `held` until it is started or shown."""

    request: ForkRequest
    here: Sequence[Resolved]
    sessions: tuple[Session, ...]
    prepared: Prepared
    price: ForkPrice | None
    ways: tuple[Way, ...]
    held: ExitStack = field(repr=False, compare=False)

    @property
    def content(self) -> Content:
        """What goes into it."""
        return self.prepared.spec.content

    @classmethod
    def plan(cls, request: ForkRequest, library: Opening | None = None, machine: Machine | None = None) -> Self:
        """Decide everything about a fork; nothing is started.

        What answers is asked of the `library`, by default the commands' own.

        Raises:
            SmartForkError: it cannot be started.
        """
        check(request)
        measures = request.dry_run or request.budget is not None
        with bounded(_share(request), measures=measures), ExitStack() as held:
            here = held.enter_context(sessions_here(request.sessions, request.cwd, keep=not request.dry_run))
            with _answers(request, library) as answers:
                located = [sessions.locate(one.session_id) for one in here]
                refuse_without_log(located[0], request.as_agent)
                read = tuple(_read(one, request, held) for one in located)
                session = read[0]
                check_forkable(session, request.cwd)
                agent = agent_of(request, session)
                content = _content(request, read, agent, answers, borrowed=is_borrowed(located[0]))
                prepared = prepare(_spec(request, session, agent, content), machine, dry_run=request.dry_run)
                price, ways = _compared(request, session, content, prepared, answers)
            return cls(request, here, read, prepared, price, ways, held.pop_all())

    def start(self) -> Forked:
        """Start it.

        Raises:
            SmartForkError: nothing was started, and nothing is left of the attempt.
        """
        return self._told(self.launch())

    def launch(self, *, patience: float = CONFIRM_SECONDS) -> Launched:
        """Start it, and wait up to `patience` seconds until it is seen to take its prompt.

        Raises:
            SmartForkError: nothing was started, and nothing is left of the attempt.
        """
        with self.held, bounded():
            return self.prepared.launch(patience=patience)

    def preview(self) -> Forked:
        """Return what would be started."""
        with self.held:  # a team's copy is known as one until it goes
            forked = self._told(dry_run(self.prepared))
            shared = [foreign_sessions.shared_as(one.session_id) or one.session_id for one in self.sessions]
        again = same_command(shared, self.request, self.content.leaves)
        if not self.request.merge and shared[0] != self.sessions[0].session_id:
            return named_as_shared(forked, self.sessions[0].session_id, shared[0], again)
        return done_by(forked, again)

    def drop(self) -> None:
        """Start nothing: what was made for it is taken away again."""
        with suppress(_Dropped), self.held:
            raise _Dropped

    def _told(self, launched: Launched) -> Forked:
        content, first = self.content, self.content.selected[:1]
        lost = (warning for one in self.here for warning in one.warnings)
        forked = as_fork(launched)
        return replace(
            forked,
            warnings=(*self.request.notes, *lost, *content.notes, *forked.warnings),
            resolved="" if self.request.merge else self.here[0].by,
            selection=first[0].selection if first else None,
            merged=tuple(one.selection for one in content.selected[1:]),
            handed=content.handover.handed if content.handover else None,
            price=self.price,
            ways=self.ways,
        )


def fork_session(request: ForkRequest, library: Opening | None = None) -> Forked:
    """Fork a session, or only show the fork if it is a dry run.

    Raises:
        SmartForkError: nothing was started, and nothing is left of the attempt.
    """
    planned = Fork.plan(request, library)
    return planned.preview() if request.dry_run else planned.start()


@bounded()
def check_startable(request: ForkRequest) -> None:
    """Refuse what a fork of all of a session would be refused for before anything is made: no program, no login.

    Raises:
        SmartForkError: it could not be started.
    """
    found = sessions.locate(request.session)
    refuse_without_log(found, request.as_agent)
    with brought_back(found, dry_run=True) as located:
        session = sessions.read(located)
        check_forkable(session, request.cwd)
        agent = agent_of(request, session)
        point, handover = handed_to(agent, session, None, None, unmasked=request.options.unmasked)
        spec = _spec(request, session, agent, Content(point=point, handover=handover))
        plain = replace(spec.options, brief=False)  # git refuses no fork, and is asked for the note when one starts
        prepare(replace(spec, options=plain), dry_run=request.dry_run)


def agent_of(request: ForkRequest, session: Session) -> AgentName:
    """Return the agent that the fork starts.

    Raises:
        Usage: there is none of that name.
    """
    return session.agent if request.as_agent is None else AGENTS.to_start(request.as_agent)


def check_forkable(session: Session, cwd: str | None) -> None:
    """Refuse what results say cannot be forked to work in `cwd`, or where it worked.

    Raises:
        ForkRefused: it cannot.
    """
    asked = any(turn.prompt for turn in session.turns)
    log = str(session.source_path)
    whys = obstacles(
        session.agent, session.session_id, log, session.cwd, origin=session.origin, asked=asked, works_in=cwd
    )
    if whys:
        raise ForkRefused(f"{session.session_id} cannot be forked: {'; '.join(whys)}")


def _answers(request: ForkRequest, library: Opening | None) -> AbstractContextManager[Answers | None]:
    chooses = request.at_match or request.budget is not None
    return gathered(request.looked_for, request.also, library, chooses=chooses, compares=request.dry_run)


def _share(request: ForkRequest) -> float:
    """Return the share of a look's time for reading: less where each passage is looked at."""
    return _CHOOSING if request.budget is not None or request.as_agent is not None else 1.0


def _read(found: Located, request: ForkRequest, held: ExitStack) -> Session:
    located = held.enter_context(brought_back(found, dry_run=request.dry_run))
    return in_clone(sessions.read(located), str(found.path))


def _spec(request: ForkRequest, session: Session, agent: AgentName, content: Content) -> WorkerSpec:
    return WorkerSpec(
        "fork",
        agent,
        session,
        request.options,
        content,
        cwd=Path(request.cwd) if request.cwd else None,
        or_without=request.or_without,
        caller_session_id=request.caller_session_id,
    )


def _content(
    request: ForkRequest, read: Sequence[Session], agent: AgentName, answers: Answers | None, *, borrowed: bool
) -> Content:
    if request.merge is None or request.budget is None:
        return content_of(request, read[0], agent, answers, borrowed=borrowed)
    from smart_fork.forking.budget import merged

    return merged(request, read, request.budget, agent, answers)


def _compared(
    request: ForkRequest, session: Session, content: Content, prepared: Prepared, answers: Answers | None
) -> tuple[ForkPrice | None, tuple[Way, ...]]:
    """What a fork of one session loads; of a dry run also what the other ways to fork it would."""
    if request.merge:
        return None, ()
    loads, handover = loads_of(session), content.handover
    elsewhere = str(prepared.cwd) != where_now(session.cwd)
    kept = content.selected[0] if content.selected else None
    within, new_from = None, None
    if handover is not None:
        within = handover.handed.tokens
    elif kept is not None:
        new_from = kept.selection.new_from
        within = loaded_within(session, kept.selection, kept.excerpt.end) if kept.excerpt else None
    price = price_of(session, content.point, within, loads, new_from=new_from, elsewhere=elsewhere)
    if not request.dry_run or handover is not None:
        return price, ()
    from smart_fork.forking.price import ways

    matched, evidence = request.at_match, answers.if_any(session) if answers else None
    return price, ways(
        session, content.asked, request.budget, evidence, matched=matched, kept=kept, loads=loads, elsewhere=elsewhere
    )
