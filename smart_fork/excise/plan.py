"""What a cut would do, before anything is written."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field

from indexer.shapes import dataclass
from smart_fork.agents import AGENTS
from smart_fork.agents.cuts.model import ANY_TURN, CutWarning, Transcript, TranscriptTurn
from smart_fork.errors import SmartForkError, advice
from smart_fork.forking.family import reached


def excise(turns: Sequence[TranscriptTurn], to_cut: Collection[str]) -> list[TranscriptTurn]:
    """A new list without the turns of these ids; order and turns stay as they are. Unknown ids are ignored."""
    gone = set(to_cut)
    return [turn for turn in turns if turn.id not in gone]


def closure(turns: Sequence[TranscriptTurn], to_cut: Collection[str]) -> set[str]:
    """`to_cut` and what must go with it: other lines of these records, the results of calls that go, and so on."""
    dependents = same_records(turns)
    for turn, _, owner in _pairs(turns):
        dependents[owner.id].append(turn.id)
    return reached({turn.id for turn in turns}.intersection(to_cut), dependents)


def same_records(turns: Sequence[TranscriptTurn]) -> defaultdict[str, list[str]]:
    """By turn id, the other lines of the same record: a merged session may have one twice.

    Who says the same at two times has two records.
    """
    lines: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for turn in turns:
        if turn.key and not turn.inherited:
            lines[turn.key, turn.timestamp].append(turn.id)
    return defaultdict(list, {one: list(ids) for ids in lines.values() if len(ids) > 1 for one in ids})


def verify(turns: Sequence[TranscriptTurn], to_cut: Collection[str]) -> list[CutWarning]:
    """The results that would go while their call stays, by turn id."""
    gone = set(to_cut)
    return sorted({
        CutWarning(turn.id, f"holds the result of {call}, but its call stays in turn {owner.id}")
        for turn, call, owner in _pairs(turns)
        if turn.id in gone and owner.id not in gone
    })  # fmt: skip


def repeats(turns: Sequence[TranscriptTurn], gone: Collection[str]) -> set[str]:
    """The lines of bookkeeping that only repeat what goes, and nothing that stays."""
    cut, staying = set[str](), set[str]()
    for turn in turns:
        (cut if turn.id in gone else staying).update(turn.says)
    cut -= staying
    if gone:
        cut.add(ANY_TURN)
    return {turn.id for turn in turns if turn.id not in gone and not cut.isdisjoint(turn.repeats)}


def dangling(turns: Sequence[TranscriptTurn]) -> list[CutWarning]:
    """The results without a call before them, and the calls without a result that are not at the end."""
    asked = {""}
    found: set[CutWarning] = set()
    for turn in turns:
        asked.update(call.id for call in turn.tool_calls)
        unasked = {one.tool_use_id for one in turn.tool_results} - asked
        found |= {CutWarning(turn.id, f"holds the result of {one}, which no earlier turn calls") for one in unasked}
    return sorted(found)


def unanswered(turns: Sequence[TranscriptTurn]) -> set[str]:
    """The calls without a result."""
    answered = {result.tool_use_id for turn in turns for result in turn.tool_results}
    return {call.id for turn in turns for call in turn.tool_calls if call.id} - answered


def _pairs(turns: Sequence[TranscriptTurn]) -> Iterator[tuple[TranscriptTurn, str, TranscriptTurn]]:
    """Each result's turn, the call's id and the turn of its call: the last before it, or else the first after it.

    An id may be used twice. Empty ids join nothing.
    """
    first: dict[str, TranscriptTurn] = {}
    for turn in reversed(turns):
        first.update((call.id, turn) for call in turn.tool_calls)
    latest: dict[str, TranscriptTurn] = {}
    for turn in turns:
        latest.update((call.id, turn) for call in turn.tool_calls)
        for result in turn.tool_results:
            owner = latest.get(result.tool_use_id) or first.get(result.tool_use_id)
            if result.tool_use_id and owner is not None:
                yield turn, result.tool_use_id, owner


class Refused(SmartForkError):
    """It could be cut and must not be, unless it is insisted on."""

    code = "refused"


@dataclass(frozen=True, slots=True)
class Plan:
    """A cut. `seeds` were named, `dependents` go with them, `repeated` are lines that only say again what goes.

    `relinked` are the turns that name another parent than before; `edits` all lines that are rewritten, by position;
    `apart` are the keys of lines in the session's other files that are rewritten.
    """

    session: Transcript
    seeds: frozenset[str]
    gone: frozenset[str]
    repeated: frozenset[str] = frozenset()
    warnings: tuple[CutWarning, ...] = ()
    problems: tuple[str, ...] = ()
    edits: Mapping[int, bytes] = field(default_factory=dict)
    relinked: tuple[str, ...] = ()
    masked: Mapping[str, int] = field(default_factory=dict)
    apart: frozenset[str] = frozenset()

    @property
    def dependents(self) -> frozenset[str]:
        """What goes with what was named."""
        return self.gone - self.seeds - self.repeated

    @property
    def orphaned(self) -> frozenset[str]:
        """The calls that stay while what came back from them goes."""
        results = {result.tool_use_id for turn in self.removed for result in turn.tool_results}
        return frozenset(unanswered(self.survivors) & results)

    @property
    def survivors(self) -> tuple[TranscriptTurn, ...]:
        """What stays."""
        return tuple(excise(self.session.turns, self.gone))

    @property
    def removed(self) -> tuple[TranscriptTurn, ...]:
        """What goes, in order."""
        return tuple(turn for turn in self.session.turns if turn.id in self.gone)

    @property
    def changes(self) -> bool:
        """Whether anything is written at all."""
        return bool(self.gone or self.edits or self.apart)

    @property
    def tokens_after(self) -> int:
        """About how many tokens stay."""
        return sum(turn.token_est for turn in self.survivors)


def plan(session: Transcript, to_cut: Collection[str], *, relink: bool = True) -> Plan:
    """What cutting these turns does to the session, and what speaks against it."""
    turns = session.turns
    seeds = frozenset(to_cut) & {turn.id for turn in turns}
    paired = closure(turns, seeds)
    repeated = repeats(turns, paired)
    gone = frozenset(paired | repeated)
    agent = AGENTS.cutter_of(session.tool)
    linked = agent.relinked(turns, gone) if relink else {}
    return Plan(
        session,
        seeds,
        gone,
        frozenset(repeated),
        tuple(verify(turns, gone)),
        tuple(_problems(session, gone)),
        {**agent.without_repetitions(session, gone), **linked},
        tuple(turns[position].id for position in linked),
    )


def refuse(plan: Plan) -> None:
    """What has to be insisted on.

    Raises:
        Refused: there are warnings or problems; nothing was written.
    """
    if plan.problems:
        raise Refused(
            "; ".join(plan.problems),
            advice("--force cuts them all.", tool="force does it, if the user wants that."),
        )
    if plan.warnings:
        found = "\n".join(f"  {warning.turn_id}: {warning.reason}" for warning in plan.warnings)
        insist = advice("re-run with --force to override", tool="force overrides them, if the user wants that")
        raise Refused(
            f"dependency warnings ({insist})\n{found}\naborted by dependency-aware check",
            "Add the turns of the matching calls or results.",
        )


def _problems(session: Transcript, gone: Collection[str]) -> list[str]:
    if not gone:
        return []
    found = [
        f"without turn {turn.id}, its header, {turn.meta['needed']} can no longer load the session"
        for turn in session.own
        if turn.id in gone and "needed" in turn.meta
    ]
    own = [turn for turn in _told(session) if not turn.is_parents]
    left = [turn for turn in own if turn.id not in gone]
    inherits = any(turn.is_parents for turn in session.turns)
    if not any(turn.role in ("user", "assistant") for turn in left):
        found.append("that would cut everything")
    elif not inherits and not any(turn.prompt for turn in left) and any(turn.prompt for turn in own):
        found.append("no prompt of a person would remain")
    return found


def _told(session: Transcript) -> Sequence[TranscriptTurn]:
    """The turns of the conversation: what was rewound is none of it."""
    numbered = [turn for turn, number in zip(session.turns, session.numbers, strict=False) if number is not None]
    return numbered or session.turns
