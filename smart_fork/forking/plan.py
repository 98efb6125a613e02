"""Plan of a fork (a copy of a session that an agent continues): the command to run, its content, and its cost."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import field, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Self

from indexer.lazy_compilation import dataclass
from indexer.transcripts.lines import bounded
from indexer.transcripts.model import AgentName, Session
from smart_fork import provenance
from smart_fork.agents import repository_sessions
from smart_fork.agents.references import Reference, Resolved
from smart_fork.errors import ForkRefused, SmartForkError
from smart_fork.finding import session_lookup
from smart_fork.finding.fork_suitability import is_cached, obstacles, shared_until
from smart_fork.finding.hit import Hit
from smart_fork.finding.ranking import ExchangeEvidence
from smart_fork.finding.session_lookup import Located
from smart_fork.finding.session_place import WorkDirectory
from smart_fork.finding.team_sessions import sessions_here
from smart_fork.forking.budget_choice import Chooser, Selected, within
from smart_fork.forking.budget_parts import Costs, costs
from smart_fork.forking.confirmation import CONFIRM_SECONDS
from smart_fork.forking.fork_content import ForkContent, IntentEvidence, content_of, gathered, hand_over_to, merged
from smart_fork.forking.fork_points import ForkPoint, last_branch_point
from smart_fork.forking.request import Amount, Budget, ForkRequest, check
from smart_fork.forking.results import Forked, ForkPrice, Selection, Way
from smart_fork.forking.source_sessions import is_borrowed, refuse_without_log, restored
from smart_fork.forking.start import LaunchedWorker, PreparedWorker, prepare
from smart_fork.forking.worker_spec import NEEDS, WorkerSpec
from smart_fork.system.processes import Machine

if TYPE_CHECKING:
    from smart_fork.finding.session_library import Opening


#: The share of the time limit for reading a log if passages are chosen afterwards.
_CHOOSING = 0.2


class _Dropped(Exception):
    """Raised inside a plan's context to delete its temporary files when the fork is not started."""


@dataclass(frozen=True, slots=True)
class Fork:
    """A planned fork, ready to start. `held` keeps the temporary files made for it until it starts or is dropped."""

    request: ForkRequest
    here: Sequence[Resolved]
    sessions: tuple[Session, ...]
    prepared: PreparedWorker
    price: ForkPrice | None
    ways: tuple[Way, ...]
    held: ExitStack = field(repr=False, compare=False)

    @property
    def content(self) -> ForkContent:
        """Return the turns that go into the fork, or their text for another agent."""
        return self.prepared.spec.content

    @classmethod
    def plan(cls, request: ForkRequest, library: Opening | None = None, machine: Machine | None = None) -> Self:
        """Decide everything about a fork; start nothing. `library` is the index; by default, the command line's.

        Raises:
            SmartForkError: the fork cannot be started.
        """
        check(request)
        chooses, intent = request.at_match or request.budget is not None, request.looked_for
        measures = request.dry_run or request.budget is not None
        share = _CHOOSING if request.budget is not None or request.as_agent is not None else 1.0
        with bounded(share, measures=measures), ExitStack() as held:
            here = held.enter_context(sessions_here(request.sessions, request.cwd, keep=not request.dry_run))
            with gathered(intent, request.also, library, chooses=chooses, compares=request.dry_run) as answers:
                located = [session_lookup.locate(one.session_id) for one in here]
                refuse_without_log(located[0], request.as_agent)
                read = tuple(_read(one, request, held) for one in located)
                session = read[0]
                check_forkable(session, request.cwd)
                agent = request.agent_of(session)
                if request.merge is None or request.budget is None:
                    content = content_of(request, session, agent, answers, borrowed=is_borrowed(located[0]))
                else:
                    content = merged(request, read, request.budget, agent, answers)
                prepared = prepare(_spec(request, session, agent, content), machine, dry_run=request.dry_run)
                price, ways = _compared(request, session, prepared, answers)
            return cls(request, here, read, prepared, price, ways, held.pop_all())

    def start(self) -> Forked:
        """Start the fork, and return the answer about it; see `launch`."""
        return self._told(self.launch())

    def launch(self, *, patience: float = CONFIRM_SECONDS) -> LaunchedWorker:
        """Start the fork. Wait up to `patience` seconds until its log or screen shows that it has taken its prompt.

        Raises:
            SmartForkError: nothing was started, and nothing is left of the attempt.
        """
        with self.held, bounded():
            return self.prepared.launch(patience=patience)

    def preview(self) -> Forked:
        """Return the answer of a dry run: the command, its cost, and other ways to fork the session."""
        with self.held:  # a team's copy is known as one until it goes
            forked = self._told(self.prepared.preview())
            shared = [provenance.viewed_as(one.session_id) or one.session_id for one in self.sessions]
        again = same_command(shared, self.request, self.content.leaves)
        if not self.request.merge and shared[0] != self.sessions[0].session_id:
            after = forked.command.replace(self.sessions[0].session_id, "<its id>")
            note = f"A real run copies the team's session, then runs: {after}"
            warnings = (*forked.warnings, note)
            return replace(forked, command=again, resume_session_id=shared[0], warnings=warnings)
        said = (f"{one}: {again}" if one.startswith(NEEDS) else one for one in forked.warnings)
        return replace(forked, warnings=tuple(said))

    def drop(self) -> None:
        """Give up the fork; delete the temporary logs and copies made for the plan."""
        with suppress(_Dropped), self.held:
            raise _Dropped

    def _told(self, launched: LaunchedWorker) -> Forked:
        content, first = self.content, self.content.selected[:1]
        lost = (warning for one in self.here for warning in one.warnings)
        forked = launched.as_fork()
        return replace(
            forked, warnings=(*self.request.notes, *lost, *content.notes, *forked.warnings),
            resolved="" if self.request.merge else self.here[0].by, selection=first[0].selection if first else None,
            merged=tuple(one.selection for one in content.selected[1:]),
            handed=content.handover.handed if content.handover else None, price=self.price, ways=self.ways,
        )  # fmt: skip


def fork_session(request: ForkRequest, library: Opening | None = None) -> Forked:
    """Fork a session; for a dry run, only return what the fork would be.

    Raises:
        SmartForkError: nothing was started, and nothing is left of the attempt.
    """
    planned = Fork.plan(request, library)
    return planned.preview() if request.dry_run else planned.start()


@bounded()
def check_startable(request: ForkRequest) -> None:
    """Refuse (`SmartForkError`) a session that could not be forked whole, for example if its agent is not installed.

    Nothing is written or started.
    """
    found = session_lookup.locate(request.session)
    refuse_without_log(found, request.as_agent)
    with restored(found, dry_run=True) as located:
        session = session_lookup.read(located)
        check_forkable(session, request.cwd)
        agent = request.agent_of(session)
        point, handover = hand_over_to(agent, session, None, None, unmasked=request.options.unmasked)
        spec = _spec(request, session, agent, ForkContent(point=point, handover=handover))
        plain = replace(spec.options, brief=False)  # git refuses no fork, and is asked for the note when one starts
        prepare(replace(spec, options=plain), dry_run=request.dry_run)


def check_forkable(session: Session, cwd: str | None) -> None:
    """Refuse (`ForkRefused`) a session that cannot be forked to work in the directory `cwd` (by default its own)."""
    asked = any(turn.prompt for turn in session.turns)
    log = str(session.source_path)
    whys = obstacles(
        session.agent, session.session_id, log, session.cwd, origin=session.origin, asked=asked, works_in=cwd
    )
    if whys:
        raise ForkRefused(f"{session.session_id} cannot be forked: {'; '.join(whys)}")


def _read(found: Located, request: ForkRequest, held: ExitStack) -> Session:
    located = held.enter_context(restored(found, dry_run=request.dry_run))
    return repository_sessions.in_clone(session_lookup.read(located), str(found.path))


def _spec(request: ForkRequest, session: Session, agent: AgentName, content: ForkContent) -> WorkerSpec:
    return WorkerSpec(
        "fork", agent, session, request.options, content, cwd=Path(request.cwd) if request.cwd else None,
        or_without=request.or_without, caller_session_id=request.caller_session_id,
    )  # fmt: skip


def _compared(
    request: ForkRequest, session: Session, prepared: PreparedWorker, answers: IntentEvidence | None
) -> tuple[ForkPrice | None, tuple[Way, ...]]:
    """Return a fork's price in tokens and, in a dry run, other ways to fork; `None` and no ways for a merge."""
    if request.merge:
        return None, ()
    content, loads = prepared.spec.content, loads_of(session)
    handover = content.handover
    elsewhere = str(prepared.cwd) != WorkDirectory(session.cwd).now
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

    matched, evidence = request.at_match, answers.if_any(session) if answers else None
    return price, ways(
        session, content.asked, request.budget, evidence, matched=matched, kept=kept, loads=loads, elsewhere=elsewhere
    )


log = logging.getLogger(__name__)


def ways(
    session: Session, at: ForkPoint | None, wanted: Budget | None, evidence: ExchangeEvidence | None, *,
    matched: bool = False, kept: Selected | None = None, loads: Sequence[int] | None = None,
    elsewhere: bool = False,
) -> tuple[Way, ...]:  # fmt: skip
    """Return the ways to fork a session, with prices: whole, up to message `at` or the best answer, within budgets.

    The `evidence` tells the best answer; with `matched`, it ends at `at`. A way that is impossible, or costs more than
    the whole session, is left out, unless only that way includes the best answer. `kept` is the choice for the budget
    `wanted` and `loads` the result of `loads_of`, if known. `elsewhere` means that the fork has another directory.
    """
    priced = partial(price_of, session, loads=loads_of(session) if loads is None else loads, elsewhere=elsewhere)
    price = partial(_up_to, session, priced)
    counted = kept.chooser.costs if kept is not None else _counted(session)
    found = [_in_parts(session, price(None, ""), counted)]
    match = at if matched else None
    if at is not None or matched:
        found.append(price(at, "--at match" if at is None or matched else f"--at {at.index}"))
    try:
        answers = evidence is not None and evidence.fits
        if answers and evidence and evidence.point is not None and not matched:
            match = _end_of(session, evidence.point)
            found.append(price(match, "--at match"))
        if evidence is None or counted is None:
            return _offered(session, found, match, at)
        end = at.index if at is not None else last_branch_point(session)
        known = evidence if answers else ExchangeEvidence()
        chooser = kept.chooser if kept else Chooser(session, counted, end, known)
        wanted = wanted or Budget(Budget.MATCH)
        amounts: list[Amount] = [
            *([Budget.MATCH] if answers else []),
            Hit.BUDGET_TOKENS if wanted.budget == Budget.MATCH else wanted.budget,
        ]
        for budget in amounts:
            same = budget == wanted.budget
            one = kept if kept is not None and same else within(chooser, wanted if same else Budget(budget))
            told, option = one.selection, f"--budget {budget}"
            tokens = None if told.whole else loaded_within(session, told, end)
            way = _way(option, priced(at, tokens, new_from=told.new_from)) if tokens is not None else price(at, option)
            of_it = [row.kept for row in told.exchanges if match and row.message <= match.index]
            if one is kept or way.tokens <= found[0].tokens or _is_forgotten(session, match):
                found.append(replace(way, carries=of_it[-1:] not in ([], ["nothing"])))
    except SmartForkError as error:  # such as of an agent of whose sessions nothing is left out
        log.info("not all ways to fork it can be compared: %s", error.message)
    return _offered(session, found, match, at)


def _is_forgotten(session: Session, match: ForkPoint | None) -> bool:
    return match is not None and match.index < session.compacted()


def _offered(session: Session, found: Sequence[Way], match: ForkPoint | None, at: ForkPoint | None) -> tuple[Way, ...]:
    """Return the ways `found`. If a compaction dropped the best answer, `carries` says which of them include it.

    `match` is the fork point (the last turn to copy) after that answer.
    """
    if match is None or not _is_forgotten(session, match):
        return tuple(replace(one, carries=None) for one in found)
    there = at is not None and session.compacted(at.index) <= match.index <= at.index
    known = {"": False, "--at match": True, f"--at {at.index if at else ''}": there}
    return tuple(replace(one, carries=known.get(one.option, one.carries)) for one in found)


def _up_to(
    session: Session, priced: Callable[[ForkPoint | None], ForkPrice], point: ForkPoint | None, option: str
) -> Way:
    used = session.turns[point.index].timestamp if point is not None else session.last_activity
    return _way(option, priced(point), used)


def _way(option: str, price: ForkPrice, used: str = "") -> Way:
    return Way(
        option, price.tokens, price.cached, used, cached_until=price.cached_until, cached_tokens=price.cached_tokens
    )


def _counted(session: Session) -> Costs | None:
    try:
        return costs(session)
    except (SmartForkError, OSError):  # such as of an agent whose sessions have no records
        return None


def _in_parts(session: Session, whole: Way, counted: Costs | None) -> Way:
    """Return the way `whole` with the tokens of its conversation alone, if estimates (`counted`) are known."""
    if counted is None:
        return whole
    end = len(session.turns) - 1
    return replace(whole, conversation=whole.tokens - fixed_tokens(session, sum(counted.turns), end))


def _end_of(session: Session, exchange: int) -> ForkPoint | None:
    """Return the fork point (the last turn to copy) after the exchange with this index; `None` after the last."""
    starts = [one.start for one in session.exchanges()]
    if not 0 <= exchange < len(starts):
        return None
    end = session.ends()[starts[exchange]]
    return None if end is None else ForkPoint.after(session, end)


def price_of(
    session: Session, point: ForkPoint | None, within: int | None = None, loads: Sequence[int] | None = None,
    *, new_from: int | None = None, elsewhere: bool = False,
) -> ForkPrice:  # fmt: skip
    """Return the price of a fork that ends at `point`, or that loads `within` tokens of a budget or handover.

    The model's cache may hold the whole fork; with `within`, at most the turns before `new_from`, the first changed
    one. If the fork works `elsewhere` (in another directory), it mostly holds none. `loads` is the result of
    `loads_of`, if known.
    """
    loads = loads_of(session) if loads is None else loads
    whole = loads[-1] if loads else 0
    if within is None:
        end = point.index if point is not None else None
        until = shared_until(session, end, elsewhere=elsewhere)
        return ForkPrice(whole if end is None else loads[end], whole, is_cached(until), until)
    until = shared_until(session, new_from - 1, elsewhere=elsewhere) if new_from else ""
    if not new_from or not is_cached(until):
        return ForkPrice(within, whole)
    return ForkPrice(within, whole, cached_until=until, cached_tokens=min(within, loads[new_from - 1]))


def loads_of(session: Session) -> Sequence[int]:
    """Return for each turn the tokens that a fork up to it loads: the agent's own counts, or estimates."""
    if not any(turn.loaded for turn in session.turns):
        with suppress(SmartForkError):  # such as of an agent whose sessions have no records
            return list(accumulate(costs(session).turns))
    return session.loads()


def loaded_within(session: Session, kept: Selection, end: int) -> int:
    """Return the tokens that a fork up to turn `end` loads with only the exchanges in `kept`.

    A budget counts only the conversation; this adds the agent's instructions and tools.
    """
    return kept.tokens + fixed_tokens(session, kept.whole_tokens, end)


def fixed_tokens(session: Session, conversation: int, end: int) -> int:
    """Return the tokens of instructions and tools that a fork up to turn `end` loads besides its `conversation`.

    After a compaction, this is the agent's first count in the session.
    """
    first, loaded = session.instructions, session.loads()[end]
    if not first or loaded <= conversation or session.compacted(end):
        return first
    return loaded - conversation


def same_command(references: Sequence[str], request: ForkRequest, point: ForkPoint | None = None) -> str:
    """Return the ``smart-fork fork`` command line that makes the same fork. Several `references` mean a merge.

    `point` is the last turn of the session to copy, if any.
    """
    options = request.options
    given: list[tuple[str, object]] = [("--merge", len(references) > 1), ("--at", point and point.index)]
    given += _within(request.budget, request) if request.budget else ()
    given += [("--as", request.as_agent), ("--cwd", request.cwd), ("--in", options.place), ("--name", options.name)]
    named = isinstance(options.worktree, str)
    given += [
        ("--worktree-name" if named else "--worktree", options.worktree),
        ("--with-changes", options.with_changes),
    ]
    given += [("--no-brief", not options.brief), ("--unmasked", options.unmasked)]
    return shlex.join(("smart-fork", "fork", *references, *_words(given), *_prompt(options.prompt)))


def _within(wanted: Budget, request: ForkRequest) -> Iterator[tuple[str, object]]:
    yield "--budget", wanted.budget
    for option, numbers in (("--keep", wanted.keep), ("--drop", wanted.drop)):
        yield option, ",".join(map(str, sorted(numbers))) or None
    intent, prompt = request.looked_for, request.options.prompt or ""
    yield "--intent", None if intent.strip() == prompt.strip() else intent
    for one in request.also:
        yield "--also", one


def _words(given: Iterable[tuple[str, object]]) -> Iterator[str]:
    for option, value in given:
        if value is not None and value is not False:
            yield from (option,) if value is True else (option, str(value))


def _prompt(prompt: str | None) -> tuple[str, ...]:
    """Return the prompt as command-line arguments, after ``--`` if it could be taken for an option or a session."""
    if not prompt:
        return ()
    return ("--", prompt) if prompt.startswith("-") or Reference.parsed(prompt).names_session else (prompt,)
