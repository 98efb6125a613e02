"""Where in a session the lines were written: the fork point that is recommended, and what a budget keeps of it."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, NamedTuple

from .labels import Question

BUDGET = 30_000
#: A shorter line, such as a bracket, tells nothing.
LEAST_CHARACTERS = 8


class Wrote(NamedTuple):
    """Turns with edits that wrote the lines, and the exchange that wrote most of them."""

    turns: frozenset[int]
    exchange: int


class Place(NamedTuple):
    """Whether a fork at the recommended point has the edits, whether it is their exchange, and whether a budget keeps
    them; `whole` is how many tokens the session takes.
    """

    known: bool
    exact: bool
    kept: bool
    whole: int


def place_of(question: Question, hit: Any, embedder: Any) -> Place | None:
    """Look at a right result. Nothing if no edit of it is found that has the lines."""
    from smart_fork.agents.readers import READERS
    from smart_fork.finding.library import Library
    from smart_fork.finding.upkeep import Engine
    from smart_fork.forking.choice import selected
    from smart_fork.forking.request import Wanted

    reader = READERS[hit.agent_type]
    log = next(iter(reader.locate(hit.session_id)), None)
    session = reader.read(log, keep_raw=True).session if log else None
    wrote = wrote_of(session, question, hit.session_id) if session else None
    if session is None or wrote is None:
        return None
    with Library.open(None, Engine(embedder)) as library:
        evidence = library.evidence(session, question.text)
    found = selected(session, len(session.turns) - 1, Wanted(BUDGET), evidence)
    kept = found.excerpt is None or wrote.turns <= set(found.excerpt.kept)
    named = hit.match.exchange
    last = len(session.exchanges()) - 1 if named is None else named
    return Place(wrote.exchange <= last, wrote.exchange == last, kept, found.selection.whole_tokens)


def wrote_of(session: Any, question: Question, session_id: str) -> Wrote | None:
    """Find the edits that wrote the lines which the question's session changed later."""
    lines = {(path, text.strip()) for path, text in question.written.get(session_id, ())}
    wanted = {(path, json.dumps(text)[1:-1].encode()) for path, text in lines if len(text) >= LEAST_CHARACTERS}
    exchanges: Counter[int] = Counter()
    last: dict[tuple[str, bytes], tuple[int, int]] = {}
    for exchange in session.exchanges():
        for number, turn in enumerate(exchange.turns, exchange.start):
            edited = [path for call in turn.tool_calls for path in call.edits]
            for line in wanted:
                if any(path.endswith(line[0]) for path in edited) and line[1] in turn.raw:
                    last[line] = (exchange.index, number)
    exchanges.update(exchange for exchange, _ in last.values())
    if not exchanges:
        return None
    most = max(exchanges, key=lambda one: (exchanges[one], one))
    return Wrote(frozenset(turn for exchange, turn in last.values() if exchange == most), most)
