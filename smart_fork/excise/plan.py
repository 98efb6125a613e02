"""What a cut would do, before anything is written."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field

from indexer.shapes import dataclass
from smart_fork.agents.facets import cutter
from smart_fork.cuts.model import CutWarning, Transcript, TranscriptTurn
from smart_fork.errors import SmartForkError
from smart_fork.excise.closure import closure, excise, repeats, unanswered, verify
from smart_fork.text.advice import advice


class Refused(SmartForkError):
    """It could be cut and must not be, unless it is insisted on."""

    code = "refused"


@dataclass(frozen=True, slots=True)
class Plan:
    """A cut. `seeds` were named, `dependents` go with them, `repeated` are lines that only say again what goes.

    `relinked` are the turns that name another parent than before; `edits` all lines that are rewritten, by position.
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
        return bool(self.gone or self.edits)

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
    agent = cutter(session.tool)
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
    own = [turn for turn in _told(session) if not turn.inherited]
    left = [turn for turn in own if turn.id not in gone]
    inherits = len(session.own) < len(session.turns)
    if not any(turn.role in ("user", "assistant") for turn in left):
        found.append("that would cut everything")
    elif not inherits and not any(turn.prompt for turn in left) and any(turn.prompt for turn in own):
        found.append("no prompt of a person would remain")
    return found


def _told(session: Transcript) -> Sequence[TranscriptTurn]:
    """The turns of the conversation: what was rewound is none of it."""
    numbered = [turn for turn, number in zip(session.turns, session.numbers, strict=False) if number is not None]
    return numbered or session.turns
