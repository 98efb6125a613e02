"""Merges what Codex writes twice, as the model's input and as an event for the screen, in either order."""

from __future__ import annotations

from bisect import bisect
from collections import defaultdict
from collections.abc import Iterator

from indexer.transcripts.model import Turn


def told_once(turns: list[Turn]) -> tuple[Turn, ...]:
    """The turns without the second copies of what was said, whichever of the two was written first.

    The person's words are taken from the events, since these are free of injected text, and from the items after the
    last event (newer versions write none); the agent's from the items, which are what the model remembers, where
    there are any.
    """
    items = any(turn.role == "assistant" and turn.group == Turn.ITEM for turn in turns)
    second = _second_copies(turns)
    return tuple(
        turn
        for i, turn in enumerate(turns)
        if not turn.group or (i not in second if turn.prompt else turn.group == Turn.ITEM or not items)
    )


def _second_copies(turns: list[Turn]) -> set[int]:
    """The places of prompts that stand elsewhere too. Who said the same twice has two items and two events."""
    items: defaultdict[str, list[int]] = defaultdict(list)
    events: defaultdict[str, list[int]] = defaultdict(list)
    for i, turn in enumerate(turns):
        if turn.prompt:
            (events if turn.group == Turn.EVENT else items)[turn.text].append(i)
    second: set[int] = set()
    alone_items, alone_events = [], set()
    for text in {**items, **events}:
        one = items[text]
        for event in events[text]:
            if not one:
                alone_events.add(event)
                continue
            item = one.pop(_nearest(one, event))
            late = any(not turn.prompt for turn in turns[item:event])
            second.add(event if late else item)
        alone_items += one
    with_event = [i for some in events.values() for i in some]
    first, last = min(with_event, default=0), max(with_event, default=-1)
    while first > 0 and turns[first - 1].prompt:
        first -= 1
    for item in sorted(alone_items):
        # With injected text around it an item is not its event word for word. From the first prompt with an event to
        # the last one each has one; what stands before is of another version, or of a session merged with this one.
        beside = next((event for event in _beside(turns, item) if event in alone_events), None)
        if first <= item < last or beside is not None:
            second.add(item)
            alone_events.discard(-1 if beside is None else beside)
    return second


def _nearest(places: list[int], place: int) -> int:
    """The index of the one of these places, in order, that is nearest."""
    after = bisect(places, place)
    near = range(max(after - 1, 0), min(after + 1, len(places)))
    return min(near, key=lambda at: abs(places[at] - place))


def _beside(turns: list[Turn], place: int) -> Iterator[int]:
    """The places of the prompts around the one in `place`, as far as nothing else was said or done between."""
    for step in (-1, 1):
        i = place + step
        while 0 <= i < len(turns) and turns[i].prompt:
            yield i
            i += step


def roll_back(turns: list[Turn], prompts: int) -> int:
    """Forget the last so many `prompts` and all that followed them; returns how many there were too few."""
    asked = {id(turn) for turn in told_once(turns) if turn.prompt}
    while prompts and asked:
        turn = turns.pop()
        if id(turn) in asked:
            asked.remove(id(turn))
            prompts -= 1
            # Its other copy goes too, but not what was said twice.
            while turns and turns[-1].prompt and turns[-1].text == turn.text and id(turns[-1]) not in asked:
                turns.pop()
    return prompts
