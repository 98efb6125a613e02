"""Content of a fork: where it ends, which exchanges (a prompt and its answer) a token budget keeps, how sessions are
merged, and the text for a handover to another agent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from indexer.lazy_compilation import dataclass
from indexer.safe_files import index_db
from indexer.transcripts.model import AgentName, Session
from smart_fork.agents import AGENTS
from smart_fork.agents.copier import Excerpt
from smart_fork.errors import ForkRefused, IndexUnavailable, NotFound, Usage, advice
from smart_fork.finding import session_lookup
from smart_fork.finding.ranking import ExchangeEvidence
from smart_fork.finding.results import resumed_part
from smart_fork.forking.budget_choice import Chooser, Selected, within
from smart_fork.forking.budget_parts import costs
from smart_fork.forking.copies import MergedPart, beginning_with
from smart_fork.forking.fork_points import ForkPoint, last_branch_point, point_at
from smart_fork.forking.handover import Handover, beyond, handover, joined
from smart_fork.forking.handover_text import description_line
from smart_fork.forking.request import Budget, ForkRequest

if TYPE_CHECKING:
    from smart_fork.finding.session_library import Library, Opening


def merged(
    request: ForkRequest, read: Sequence[Session], wanted: Budget, agent: AgentName, answers: IntentEvidence | None
) -> ForkContent:
    """Return the content of a fork of the sessions `read`: from each, the exchanges that answer the intent.

    The intent is what the user looks for; `answers` has the evidence for it. The sessions share the token budget
    `wanted`. A beginning that several sessions share is included once. Sessions of other agents than `agent` are handed
    over as text.
    """
    if len({session.session_id for session in read}) < len(read):
        raise Usage("A session cannot be merged with itself", "Name each session once.")
    if any(session.agent != agent for session in read):
        AGENTS.handover_writer_of(agent)  # raises for an agent that cannot receive sessions
    found = _selected(read, wanted, answers)
    unmasked = request.options.unmasked
    first, *others = [
        MergedPart(session, _excerpt(session, one), unmasked) for session, one in zip(read, found, strict=True)
    ]
    told = [
        replace(part, excerpt=beginning_with(f"What follows is from {description_line(part.session)}.", part.excerpt))
        for part in (first, *others)
    ]
    parts = [told[0], *(_without_shared(part, read[: n + 1]) for n, part in enumerate(told[1:]))]
    unheaded = [_without_shared(part, read[:n]) for n, part in enumerate((first, *others))]
    each = [
        handover(one.session, one.excerpt.end, agent, one.excerpt, unmasked=unmasked)
        for one in unheaded
        if one.excerpt.kept and not agent == read[0].agent == one.session.agent
    ]
    handed = joined(each) if agent != read[0].agent else None
    said = [note for one in found for note in one.selection.notes]
    said += beyond(handed.handed, wanted) if handed else [note for one in each for note in one.handed.notes(agent)]
    excerpt = parts[0].excerpt
    return ForkContent(
        point=ForkPoint.after(read[0], max(excerpt.kept)),
        excerpt=excerpt,
        others=tuple(part for part in parts[1:] if part.excerpt.kept),
        handover=handed,
        selected=tuple(found),
        notes=tuple(said),
    )


def _selected(read: Sequence[Session], all_: Budget, answers: IntentEvidence | None) -> list[Selected]:
    """Return the exchanges (prompts with answers) to keep in each of the sessions `read`, within one shared budget.

    Smaller sessions are chosen from first, so that the larger ones get the tokens that these leave.
    """
    found: dict[int, Selected] = {}
    left = all_.budget
    order = sorted(range(len(read)), key=lambda place: sum(turn.token_est for turn in read[place].turns))
    for done, place in enumerate(order):
        share = left if left == Budget.MATCH else max(1, int(left) // (len(read) - done))
        one = chosen(read[place], last_branch_point(read[place]), replace(all_, budget=share), answers)
        found[place] = one
        if left != Budget.MATCH:
            left = max(0, int(left) - one.selection.tokens)
    return [found[place] for place in range(len(read))]


def _excerpt(session: Session, one: Selected) -> Excerpt:
    """Return the chosen turns of a session as an excerpt; all finished turns if the whole session was chosen."""
    if one.excerpt is not None:
        return one.excerpt
    end = last_branch_point(session)
    return Excerpt(frozenset(range(end + 1)), end, {}, costs(session).turns)


def _without_shared(part: MergedPart, others: Sequence[Session]) -> MergedPart:
    """Return `part` without the turns at its beginning that one of `others` has too: a merge has them once."""
    shared = max((_shared_turns(part.session, other) for other in others), default=0)
    kept = frozenset(turn for turn in part.excerpt.kept if turn >= shared)
    told = {turn: text for turn, text in part.excerpt.told.items() if turn >= shared}
    return replace(part, excerpt=replace(part.excerpt, kept=kept, told=told))


def _shared_turns(one: Session, other: Session) -> int:
    """Return the number of equal turns at the beginning of two sessions; 0 if their agents or families differ."""
    if one.agent != other.agent or one.root_id != other.root_id:
        return 0
    count = 0
    for mine, theirs in zip(one.turns, other.turns, strict=False):
        if (mine.id, mine.role, mine.text, mine.timestamp) != (theirs.id, theirs.role, theirs.text, theirs.timestamp):
            break
        count += 1
    return count


class IntentEvidence(NamedTuple):
    """The evidence that exchanges of a session answer an intent (what the user looks for), found with the index."""

    intent: str
    also: Sequence[str]
    library: Library

    def of(self, session: Session) -> ExchangeEvidence:
        """Return the evidence that exchanges (prompts with answers) of `session` answer the intent."""
        return self.library.evidence(session, self.intent, self.also)

    def if_any(self, session: Session) -> ExchangeEvidence:
        """Return the evidence that `session` answers the intent; if the index cannot be searched, the reason."""
        try:
            return self.of(session)
        except IndexUnavailable as error:
            return ExchangeEvidence(why_not=error.message)


@contextmanager
def gathered(
    intent: str, also: Sequence[str], library: Opening | None, *, chooses: bool, compares: bool = False
) -> Iterator[IntentEvidence | None]:
    """Yield the evidence that exchanges answer an intent (what the user looks for); `None` if nothing needs it.

    It is needed if the caller `chooses` a fork's content by the intent, or `compares` ways to fork and an index exists.
    `also` are other phrasings of the intent, `library` opens the index. A thread embeds the intent. The block ends only
    when the thread has ended, because afterwards an agent may replace this process.
    """
    if not intent.strip() or not (chooses or (compares and index_db().exists())):
        yield None
        return
    from smart_fork.finding.session_library import library as of_commands

    with (library or of_commands)() as known:
        known.expect(intent, also)
        try:
            yield IntentEvidence(intent, also, known)
        finally:
            known.settle()


def answering(session: Session, answers: IntentEvidence | None, found: str | None = None) -> str:
    """Return the id of a message in the exchange (a prompt and its answer) that completes what the user looks for.

    A fork at the best match ends there. Without evidence for one, return `found`, the message that a search has found.

    Raises:
        Usage: there is no intent, and so no `answers`.
        IndexUnavailable: the index cannot be searched, and there is no `found`.
        NotFound: nothing in the session answers, or the session is not indexed; and there is no `found`.
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
    if evidence.low_score:
        raise _none_answers(session.session_id, evidence.low_score)
    return message


def _none_answers(session_id: str, low_score: str) -> NotFound:
    return NotFound(
        f"No passage of {session_id} answers that: its score is {low_score}",
        advice(
            'Give other words: --intent "…", --also "…". Or fork all of it without `match`, or use a number from '
            "`smart-fork show`.",
            tool="Give other phrasings (also). Or fork all of it without 'match', or use a number from read_session.",
        ),
    )


def chosen(session: Session, end: int, wanted: Budget, answers: IntentEvidence | None) -> Selected:
    """Return the exchanges (prompts with answers) that the budget `wanted` keeps of a session up to turn `end`.

    With the evidence `answers`, those that answer the intent (what the user looks for) are kept first; else the last
    ones.

    Raises:
        Usage: the budget is `match`, and there is no intent; or the exchanges to keep or drop are invalid.
        NotFound: the budget is `match`, and nothing in the session answers.
    """
    if wanted.budget == Budget.MATCH and answers is None:
        raise Usage(
            "A budget of match needs an intent",
            advice('Give an intent: --intent "…", or a prompt.', tool="Give an intent: prompt."),
        )
    evidence = answers.if_any(session) if answers is not None else None
    if evidence is not None and evidence.low_score:
        if wanted.budget == Budget.MATCH and not wanted.changed():
            raise _none_answers(session.session_id, evidence.low_score)
        evidence = ExchangeEvidence(why_not=f"nothing fits: the best score is {evidence.low_score}")
    return within(Chooser(session, costs(session), end, evidence or ExchangeEvidence()), wanted)


def content_of(
    request: ForkRequest, session: Session, agent: AgentName, answers: IntentEvidence | None, *, borrowed: bool
) -> ForkContent:
    """Return the content of a fork of one session, for `agent`.

    A whole session needs no copy by smart-fork if its own agent can fork all of it. A `borrowed` session (stored in a
    repository) needs one, because its agent has no log of it.
    """
    asked, moved = _point(request, session, answers)
    leaves, alone = (asked, "") if asked is not None else end_of_whole(session, borrowed=borrowed)
    said = [*filter(None, (moved, session_lookup.left_out(session)))]
    point, excerpt, kept = leaves, None, None
    if request.budget is not None:
        end = leaves.index if leaves else last_branch_point(session)
        kept = chosen(session, end, request.budget, answers)
        excerpt = kept.excerpt
        said += kept.selection.notes
        point = ForkPoint.after(session, max(excerpt.kept)) if excerpt is not None else leaves
    point, told = hand_over_to(agent, session, point, excerpt, unmasked=request.options.unmasked)
    said += [alone] if alone and not (excerpt or told) else []
    if request.budget is not None and told is not None:
        said += beyond(told.handed, request.budget)
    selected = () if kept is None else (kept,)
    return ForkContent(asked, leaves, point, excerpt, handover=told, selected=selected, notes=tuple(said))


def hand_over_to(
    agent: AgentName, session: Session, point: ForkPoint | None, excerpt: Excerpt | None, *, unmasked: bool
) -> tuple[ForkPoint | None, Handover | None]:
    """Return the fork point (the last turn to copy) and, if `agent` is not the session's own, the session's text.

    `point` is the requested fork point, `excerpt` the kept turns. Secrets are masked unless `unmasked`.
    """
    if agent == session.agent:
        return point, None
    point = point or ForkPoint.after(session, len(session.turns) - 1)
    return point, handover(session, point.index, agent, excerpt, unmasked=unmasked)


def _point(request: ForkRequest, session: Session, answers: IntentEvidence | None) -> tuple[ForkPoint | None, str]:
    """Return the requested fork point, `None` for the whole session; and a note for the user, which may be empty."""
    if request.at_match:
        return _end_of(session, answering(session, answers, request.found))
    if (message := request.message) is None:
        return None, ""
    point = point_at(session, message)
    moved = f"Forked after message {point.index}, where the agent had finished what message {message} is part of"
    return point, moved if point.index != message else ""


def end_of_whole(session: Session, *, borrowed: bool) -> tuple[ForkPoint | None, str]:
    """Return the fork point (the last turn to copy) for a fork of a whole session, and a note for the user.

    The fork point is `None` if the session's own agent can fork it. smart-fork copies it if that agent would load only
    a part of it, or if it is `borrowed` (stored in a repository).
    """
    part = resumed_part(session.resumed, session.compacted(), len(session.turns))
    if part is None or part.reason == "compaction":
        return ForkPoint.after(session, last_branch_point(session)) if borrowed else None, ""
    alone = f"Its agent alone {part.sentence}"
    if session.unread:
        return None, alone
    return ForkPoint.after(session, len(session.turns) - 1), f"{alone}. The fork is a copy with everything before that"


def _end_of(session: Session, message_id: str) -> tuple[ForkPoint | None, str]:
    """Return the fork point after the exchange of a message, `None` for the last exchange; and a note for the user."""
    turn = next((i for i, turn in enumerate(session.turns) if turn.id == message_id), None)
    if turn is None:
        hint = "The session was rewound after the search. Search again."
        raise ForkRefused(f"Invalid or inactive branch point: {message_id}", hint)
    end = session.ends()[turn]
    starts = [exchange.start for exchange in session.exchanges()]
    exchange = sum(start <= turn for start in starts)
    where = "at the session's end" if end is None else f"after message {end}"
    note = f"Forked {where}: exchange {exchange} of {len(starts)} answers best"
    return None if end is None else ForkPoint.after(session, end), note


@dataclass(frozen=True, slots=True)
class ForkContent:
    """The content of a fork: turns up to `point` or those of `excerpt`, and kept turns of merged sessions (`others`).

    `asked` is the fork point that the user requested, `leaves` the fork point without the budget. `handover` is the
    text for another agent, if one continues the session. `selected` has the budget's choice for each session.
    """

    asked: ForkPoint | None = None
    leaves: ForkPoint | None = None
    point: ForkPoint | None = None
    excerpt: Excerpt | None = None
    others: tuple[MergedPart, ...] = ()
    handover: Handover | None = None
    selected: tuple[Selected, ...] = ()
    notes: tuple[str, ...] = ()
