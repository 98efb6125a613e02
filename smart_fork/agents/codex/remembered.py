"""Which records of a rollout are part of what Codex remembers, and of which turn each is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from indexer.transcripts.model import Session
from smart_fork.agents.codex.cut import CodexCutter
from smart_fork.agents.codex.loader import CodexLoader
from smart_fork.agents.copier import Entry, Record
from smart_fork.cuts.model import TranscriptTurn

#: What begins with a turn of the agent's; it goes with what follows.
_BEGINS = ("task_started", "turn_context", "world_state")
#: What speaks of the whole session, and would be wrong of a part of it.
_OF_THE_WHOLE = ("token_count", "thread_rolled_back", "thread_name_updated", "context_compacted", "session_meta")


def remembered(session: Session, records: Iterable[tuple[str, Entry]]) -> Iterator[tuple[int, Entry]]:
    """Those of these records, each with its id, that are remembered, with the number of the turn that each goes with.

    Not among them is what was rolled back. A thought goes with what came of it, what is said twice with its message,
    and what the program told the model with what follows.
    """
    lines = {line.id: line for line in CodexLoader.load(session.source_path).turns}
    places = {turn.id: number for number, turn in enumerate(session.turns)}
    numbers = CodexCutter().numbered(tuple(lines.values()), [places.get(one) for one in lines])
    found = {one: number for one, number in zip(lines, numbers, strict=True) if number is not None}
    waiting: list[tuple[int | None, Entry]] = []
    last, alive = 0, True
    for key, entry in records:
        if (number := found.get(key)) is not None:
            yield from ((number if own is None else own, one) for own, one in waiting)
            waiting.clear()
            yield number, entry
            last, alive = number, True
            continue
        line, kind = lines.get(key), _kind(entry[1])
        if kind == "reasoning":
            if line is not None and (thought := _of(line, found)) is not None:
                waiting.append((thought, entry))
        elif line is not None and line.prompt:  # it was taken back, with all that follows
            alive = False
            waiting.clear()
        elif alive and kind not in _OF_THE_WHOLE:
            told = kind == "message" and entry[1]["payload"].get("role") != "assistant"
            waiting.append((None if kind in _BEGINS or told else last, entry))
    yield from ((last if own is None else own, one) for own, one in waiting)


def _of(line: TranscriptTurn, found: dict[str, int]) -> int | None:
    """The turn that a thought led to."""
    named = (found.get(one.removeprefix("turn:")) for one in line.repeats if one.startswith("turn:"))
    return next((number for number in named if number is not None), None)


def _kind(record: Record) -> str:
    """What a record is: an item's own type or the event's, else the record's."""
    kind = record["type"]
    return str(record["payload"].get("type") or kind) if kind in ("response_item", "event_msg") else kind
