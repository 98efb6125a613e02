"""Which turns go together: pure functions over turns, for every agent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence

from smart_fork.cuts.model import ANY_TURN, CutWarning, TranscriptTurn


def excise(turns: Sequence[TranscriptTurn], to_cut: Collection[str]) -> list[TranscriptTurn]:
    """A new list without the turns of these ids; order and turns stay as they are. Unknown ids are ignored."""
    gone = set(to_cut)
    return [turn for turn in turns if turn.id not in gone]


def closure(turns: Sequence[TranscriptTurn], to_cut: Collection[str]) -> set[str]:
    """`to_cut` and what must go with it: other lines of these records, the results of calls that go, and so on."""
    dependents = same_records(turns)
    for turn, _, owner in _pairs(turns):
        dependents[owner.id].append(turn.id)
    known = {turn.id for turn in turns}
    waiting = [one for one in to_cut if one in known]
    gone = set(waiting)
    while waiting:
        for dependent in dependents[waiting.pop()]:
            if dependent not in gone:
                gone.add(dependent)
                waiting.append(dependent)
    return gone


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
    found = []
    asked: set[str] = set()
    for turn in turns:
        asked.update(call.id for call in turn.tool_calls)
        unasked = [one.tool_use_id for one in turn.tool_results if one.tool_use_id and one.tool_use_id not in asked]
        found += [CutWarning(turn.id, f"holds the result of {one}, which no earlier turn calls") for one in unasked]
    return sorted(set(found))


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
