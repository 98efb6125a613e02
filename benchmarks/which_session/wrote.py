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


class Fork(NamedTuple):
    """Whether a fork has the exchange's edits that wrote the lines, and about how many tokens of conversation it loads.

    Without tokens it is refused: nothing in the session seems to answer.
    """

    knows: bool
    tokens: int | None


class Place(NamedTuple):
    """What each kind of fork knows of the edits: a plain one, as the agent itself loads the session; one at the match;
    one within a budget. `exact` is whether the match is the exchange of the edits, `whole` what all of it takes.
    """

    plain: Fork
    match: Fork
    budget: Fork
    exact: bool
    whole: int


def place_of(question: Question, session_id: str, embedder: Any) -> Place | None:
    """Look at a session that answers. Nothing if no edit that has the lines is in its conversation."""
    from smart_fork.agents.log_readers import READERS
    from smart_fork.errors import NotFound
    from smart_fork.finding.index_refresh import Engine
    from smart_fork.finding.session_library import Library
    from smart_fork.forking.fork_content import IntentEvidence, answering, chosen
    from smart_fork.forking.request import Budget

    found = ((reader, log) for reader in READERS for log in reader.locate(session_id))
    reader, log = next(found, (None, None))
    session = reader.read(log, keep_raw=True).session if reader else None
    if session is None or (wrote := wrote_of(session, question, session_id)) is None:
        return None
    last = len(session.turns) - 1
    loaded = {*range(session.resumed.start, last + 1), *session.resumed.kept}
    plain = Fork(wrote.turns <= loaded, session.token_estimate - session.instructions)
    with Library.open(None, Engine(embedder)) as library:
        answers = IntentEvidence(question.text, (), library)
        kept = chosen(session, last, Budget(BUDGET), answers)
        try:
            message = answering(session, answers)
        except NotFound:
            match, exact = Fork(knows=False, tokens=None), False
        else:
            turn = next(number for number, one in enumerate(session.turns) if one.id == message)
            end = session.ends()[turn]
            match = plain if end is None else _until(session, wrote, end)
            exact = turn in {
                number for one in session.exchanges() if one.index == wrote.exchange
                for number in range(one.start, one.start + len(one.turns))
            }  # fmt: skip
    knows = kept.excerpt is None or wrote.turns <= set(kept.excerpt.kept)
    return Place(plain, match, Fork(knows, kept.selection.tokens), exact, kept.selection.whole_tokens)


def _until(session: Any, wrote: Wrote, end: int) -> Fork:
    """Return a fork of a session up to a turn: a copy, which loads what follows the last compaction before."""
    known = set(range(session.compacted(end), end + 1))
    return Fork(wrote.turns <= known, session.loads()[end] - session.instructions)


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
