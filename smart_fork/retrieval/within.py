"""The exchanges of one session that answer an intent, such as what the session that asks knew before a compaction."""

from __future__ import annotations

from indexer.store.base import SessionRow, Store
from smart_fork.errors import NotFound, Usage
from smart_fork.retrieval.answer import Exchanges, KnownExchange
from smart_fork.retrieval.by_code import beginning_of
from smart_fork.retrieval.exchanges import exchange_evidence
from smart_fork.retrieval.fork_point import WORTH, PointParts
from smart_fork.retrieval.index_access import opened
from smart_fork.retrieval.request import DEFAULT_LIMIT, FindRequest, check, current_project
from smart_fork.retrieval.results import UNTRUSTED, title
from smart_fork.retrieval.upkeep import CheckedRequest, Engine, refresh
from smart_fork.text.advice import advice
from smart_fork.text.snippets import shown
from smart_fork.whereabouts import permits

#: How the session that asks names itself.
SELF = "self"


def within(request: FindRequest, engine: Engine) -> Exchanges:
    """The exchanges of the session that the request names, those that answer best first.

    Raises:
        Usage: the request is not acceptable, or nobody knows which session asks.
        NotFound: there is no such session.
        IndexUnavailable: nothing can be searched.
    """
    row = _row_of(request, engine)
    evidence = exchange_evidence(row, request.intent, engine, request.also)
    speaking = {number: _worth(parts) for number, parts in evidence.parts.items() if _worth(parts) > 0}
    best = sorted(speaking, key=lambda number: (-speaking[number], -number))[: int(request.limit or DEFAULT_LIMIT)]
    with opened() as store:
        told = tuple(_told(store, row, number) for number in best)
    return Exchanges(
        title(request.intent), row.session_id, row.agent, UNTRUSTED, len(evidence.parts), told, evidence.why_not
    )


def _row_of(request: FindRequest, engine: Engine) -> SessionRow:
    agents = check(request)
    if request.session == SELF and not request.caller_session_id:
        raise Usage("it is not known which session asks", "Give the session's id.")
    wanted = request.caller_session_id if request.session == SELF else request.session
    project = current_project(request.project_path)
    with opened() as store:
        rows = [row for row in store.find_sessions(str(wanted)) if permits(row)]
        if not rows:  # one that is there is brought up to date when its exchanges are looked for
            refresh(store, CheckedRequest(request, "", (), agents, project, 1), engine)
            rows = [row for row in store.find_sessions(str(wanted)) if permits(row)]
    if len(rows) != 1:
        raise NotFound(
            f"{len(rows)} sessions of the index begin with {shown(wanted)}" if rows else
            f"The index has no session {shown(wanted)}",
            advice("`smart-fork list` lists sessions.", tool="list_sessions lists sessions."),
        )  # fmt: skip
    return rows[0]


def _worth(parts: PointParts) -> float:
    """How well an exchange answers by itself; where the talk about it ends does not count."""
    return WORTH.nearest * parts.nearest + WORTH.words * parts.words


def _told(store: Store, row: SessionRow, number: int) -> KnownExchange:
    place, _, asked = beginning_of(store, row, number)
    return KnownExchange(number + 1, place.turn if place else None, asked)
