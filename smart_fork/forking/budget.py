"""Decides a fork's content: the matching exchange, the fork point, the budget's choice, and the handover text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from indexer.files import index_db
from indexer.transcripts.model import AgentName, Session
from smart_fork.agents import AGENTS
from smart_fork.agents.copier import Excerpt
from smart_fork.errors import ForkRefused, IndexUnavailable, NotFound, Usage, advice
from smart_fork.finding import sessions
from smart_fork.finding.ranking import MIN_NAMED_SCORE, ExchangeEvidence
from smart_fork.finding.session_view import resumed_part, score_in_words
from smart_fork.forking import session_copy
from smart_fork.forking.budget_choice import Selected, selected
from smart_fork.forking.exchange_parts import costs
from smart_fork.forking.request import MATCH, ForkRequest, Wanted
from smart_fork.forking.worker import Content

if TYPE_CHECKING:
    from smart_fork.finding.session_library import Library, Opening
    from smart_fork.forking.handover import Handover


def merged(
    request: ForkRequest, read: Sequence[Session], wanted: Wanted, agent: AgentName, answers: Answers | None
) -> Content:
    """Return what answers in a session, and then in each of those that are merged.

    They share the budget `wanted`: what one does not need the others may. What several have from the same beginning is
    there once. Of another agent's session what was said and done is told; `agent`, if it is another one than the first
    session's, is told of all of them.

    Raises:
        SmartForkError: they cannot be merged.
    """
    from smart_fork.forking.handover import beyond, handover, joined, notes
    from smart_fork.forking.handover_log import whence  # no other fork needs these

    _check(read, agent)
    found = _selected(read, wanted, answers)
    unmasked = request.options.unmasked
    first, *others = [
        session_copy.MergedPart(session, _excerpt(session, one), unmasked)
        for session, one in zip(read, found, strict=True)
    ]
    told = [
        replace(
            part, excerpt=session_copy.beginning_with(f"What follows is from {whence(part.session)}.", part.excerpt)
        )
        for part in (first, *others)
    ]
    parts = [told[0], *(session_copy.without_shared(part, read[: n + 1]) for n, part in enumerate(told[1:]))]
    unheaded = [session_copy.without_shared(part, read[:n]) for n, part in enumerate((first, *others))]
    each = [
        handover(one.session, one.excerpt.end, agent, one.excerpt, unmasked=unmasked)
        for one in unheaded
        if one.excerpt.kept and not agent == read[0].agent == one.session.agent
    ]
    handed = joined(each) if agent != read[0].agent else None
    said = [note for one in found for note in one.selection.notes]
    said += beyond(handed.handed, wanted) if handed else [note for one in each for note in notes(one.handed, agent)]
    excerpt = parts[0].excerpt
    return Content(
        point=point_of(read[0], max(excerpt.kept)),
        excerpt=excerpt,
        others=tuple(part for part in parts[1:] if part.excerpt.kept),
        handover=handed,
        selected=tuple(found),
        notes=tuple(said),
    )


def _check(read: Sequence[Session], agent: AgentName) -> None:
    ids = [session.session_id for session in read]
    if len(set(ids)) < len(ids):
        raise Usage("A session cannot be merged with itself", "Name each session once.")
    if any(session.agent != agent for session in read):
        AGENTS.teller_of(agent)


def _selected(read: Sequence[Session], all_: Wanted, answers: Answers | None) -> list[Selected]:
    """Choose each session's exchanges, smallest session first. Unused budget goes to the others."""
    found: dict[int, Selected] = {}
    left = all_.budget
    order = sorted(range(len(read)), key=lambda place: sum(turn.token_est for turn in read[place].turns))
    for done, place in enumerate(order):
        share = left if left == MATCH else max(1, int(left) // (len(read) - done))
        one = chosen(read[place], session_copy.last_branch_point(read[place]), replace(all_, budget=share), answers)
        found[place] = one
        if left != MATCH:
            left = max(0, int(left) - one.selection.tokens)
    return [found[place] for place in range(len(read))]


def _excerpt(session: Session, one: Selected) -> Excerpt:
    """Return the excerpt of a session, even if it is complete."""
    if one.excerpt is not None:
        return one.excerpt
    end = session_copy.last_branch_point(session)
    return Excerpt(frozenset(range(end + 1)), end, {}, costs(session).turns)


class Answers(NamedTuple):
    """Evidence for each exchange as an answer to an intent. Gathered once for each session."""

    intent: str
    also: Sequence[str]
    library: Library

    def of(self, session: Session) -> ExchangeEvidence:
        """Return the evidence in a session.

        Raises:
            Usage: `also` is not valid.
            IndexUnavailable: nothing can be searched.
        """
        return self.library.evidence(session, self.intent, self.also)

    def if_any(self, session: Session) -> ExchangeEvidence:
        """Return the same; if nothing can be searched, only why.

        Raises:
            Usage: `also` is not valid.
        """
        try:
            return self.of(session)
        except IndexUnavailable as error:
            return ExchangeEvidence(why_not=error.message)


@contextmanager
def gathered(
    intent: str, also: Sequence[str], library: Opening | None, *, chooses: bool, compares: bool = False
) -> Iterator[Answers | None]:
    """Give what answers an intent, if that `chooses` what goes into a fork, or only `compares` ways to fork.

    What is only compared makes no index. The vectors are made while the logs are read; at the end nothing is being
    made: this process may become an agent.
    """
    if not intent.strip() or not (chooses or (compares and index_db().exists())):
        yield None
        return
    from smart_fork.finding.session_library import library as of_commands

    with (library or of_commands)() as known:
        known.expect(intent, also)
        try:
            yield Answers(intent, also, known)
        finally:
            known.settle()


def answering(session: Session, answers: Answers | None, found: str | None = None) -> str:
    """Return the id of a message of the exchange at whose end a fork knows all that was asked.

    If that is not known, the message `found` that a search has found, if any.

    Raises:
        Usage: there is no intent, or `also` is not valid.
        IndexUnavailable: nothing can be searched.
        NotFound: nothing in the session answers, or it is not in the index.
    """
    if answers is None:
        give = advice('Give an intent: --intent "…", or a prompt.', tool="Give an intent: prompt.")
        raise Usage("--at match needs an intent", give)
    try:
        return _message_of(session, answers.of(session))
    except (NotFound, IndexUnavailable):
        if found is None:
            raise
        return found


def _message_of(session: Session, evidence: ExchangeEvidence) -> str:
    turns = (turn for one in session.exchanges() if one.index == evidence.point for turn in one.turns)
    message = next((turn.id for turn in turns if turn.id), None)
    if message is None:
        why = evidence.why_not
        raise NotFound(
            f"No passage of {session.session_id} answers that" + (f": {why}" if why else ""),
            advice(
                "Add other phrasings (--also), run `smart-fork index run`, or use a number from `smart-fork show`.",
                tool="Add other phrasings (also), or set at to a number from read_session.",
            ),
        )
    if evidence.score is not None and not evidence.fits:
        raise _none_answers(session.session_id, evidence.score)
    return message


def _none_answers(session_id: str, score: float) -> NotFound:
    """The error where nothing in a session answers an intent."""
    return NotFound(
        f"No passage of {session_id} answers that: its score is {score_in_words(score)}, below {MIN_NAMED_SCORE:.2f}",
        advice(
            'Give other words: --intent "…", --also "…". Or fork all of it without `match`, or use a number from '
            "`smart-fork show`.",
            tool="Give other phrasings (also). Or fork all of it without 'match', or use a number from read_session.",
        ),
    )


def chosen(session: Session, end: int, wanted: Wanted, answers: Answers | None) -> Selected:
    """Return what a budget keeps of a session up to turn `end`. Without `answers` the last words are worth most.

    Raises:
        Usage: the budget is `match`, and there is no intent; or see `selected`.
        NotFound: the budget is `match`, and nothing in the session answers.
        ForkRefused: nothing is left out of sessions of that agent.
    """
    if wanted.budget == MATCH and answers is None:
        raise Usage(
            "A budget of match needs an intent",
            advice('Give an intent: --intent "…", or a prompt.', tool="Give an intent: prompt."),
        )
    evidence = answers.if_any(session) if answers is not None else None
    if evidence is not None and evidence.score is not None and not evidence.fits:
        if wanted.budget == MATCH and not wanted.changed():
            raise _none_answers(session.session_id, evidence.score)
        why = f"nothing fits: the best score is {score_in_words(evidence.score)}, below {MIN_NAMED_SCORE:.2f}"
        evidence = ExchangeEvidence(why_not=why)
    return selected(session, end, wanted, evidence)


def content_of(
    request: ForkRequest, session: Session, agent: AgentName, answers: Answers | None, *, borrowed: bool
) -> Content:
    """Return what goes into a fork of one session; a `borrowed` one is copied.

    Raises:
        SmartForkError: it cannot be forked so.
    """
    asked, moved = _point(request, session, answers)
    leaves, alone = (asked, "") if asked is not None else end_of_whole(session, borrowed=borrowed)
    notes = [*filter(None, (moved, sessions.left_out(session)))]
    point, excerpt, kept = leaves, None, None
    if request.budget is not None:
        end = leaves.index if leaves else session_copy.last_branch_point(session)
        kept = chosen(session, end, request.budget, answers)
        excerpt = kept.excerpt
        notes += kept.selection.notes
        point = point_of(session, max(excerpt.kept)) if excerpt is not None else leaves
    point, handover = handed_to(agent, session, point, excerpt, unmasked=request.options.unmasked)
    notes += [alone] if alone and not (excerpt or handover) else []
    if request.budget is not None and handover is not None:
        from smart_fork.forking.handover import beyond

        notes += beyond(handover.handed, request.budget)
    selected = () if kept is None else (kept,)
    return Content(asked, leaves, point, excerpt, handover=handover, selected=selected, notes=tuple(notes))


def handed_to(
    agent: AgentName, session: Session, point: session_copy.Point | None, excerpt: Excerpt | None, *, unmasked: bool
) -> tuple[session_copy.Point | None, Handover | None]:
    """Return where a fork with `agent` ends, and what that is told of another agent's session.

    Raises:
        Usage: that agent cannot receive sessions of other agents.
        ForkRefused: the log was rewritten meanwhile.
        NotFound: a session that it was forked from is gone.
    """
    if agent == session.agent:
        return point, None
    from smart_fork.forking.handover import handover

    point = point or point_of(session, len(session.turns) - 1)
    return point, handover(session, point.index, agent, excerpt, unmasked=unmasked)


def _point(request: ForkRequest, session: Session, answers: Answers | None) -> tuple[session_copy.Point | None, str]:
    """Return the fork point, `None` for the session's end, and a remark about it."""
    if request.at_match:
        return _end_of(session, answering(session, answers, request.found))
    if (message := request.message) is None:
        return None, ""
    point = session_copy.point_at(session, message)
    return point, point.moved_from(message) if point.index != message else ""


def end_of_whole(session: Session, *, borrowed: bool) -> tuple[session_copy.Point | None, str]:
    """Return where a fork of all of a session ends that is a copy, as it is of one with a gap; and what to say of that.

    Without a point its agent forks it.
    """
    part = resumed_part(session.resumed, session.compacted(), len(session.turns))
    if part is None or part.reason == "compaction":
        return session_copy.last_point(session) if borrowed else None, ""
    alone = f"Its agent alone {part.sentence}"
    if session.unread:
        return None, alone
    return point_of(session, len(session.turns) - 1), f"{alone}. The fork is a copy with everything before that"


def _end_of(session: Session, message_id: str) -> tuple[session_copy.Point | None, str]:
    """Return the end of a message's exchange, `None` for the session's end, and its description."""
    turn = next((i for i, turn in enumerate(session.turns) if turn.id == message_id), None)
    if turn is None:
        hint = "The session was rewound after the search. Search again."
        raise ForkRefused(f"Invalid or inactive branch point: {message_id}", hint)
    end = session.ends()[turn]
    starts = [exchange.start for exchange in session.exchanges()]
    exchange = sum(start <= turn for start in starts)
    where = "at the session's end" if end is None else f"after message {end}"
    note = f"Forked {where}: exchange {exchange} of {len(starts)} answers best"
    return None if end is None else point_of(session, end), note


def point_of(session: Session, turn: int) -> session_copy.Point:
    """Return the point behind a turn."""
    return session_copy.Point(turn, session.turns[turn].id)
