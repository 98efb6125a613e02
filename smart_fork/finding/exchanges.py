"""The exchanges of one session that answer an intent, such as what the session that asks knew before a compaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from indexer.failures import is_damage
from indexer.project import project_of
from indexer.store.base import Scope, SessionRow, Store
from indexer.transcripts.model import Session
from smart_fork.errors import NotFound, advice
from smart_fork.finding.answer import Exchanges, KnownExchange
from smart_fork.finding.by_code import beginning_of
from smart_fork.finding.evidence import QueryWords, gather, gather_more
from smart_fork.finding.fork_point import WORTH, ExchangeEvidence, PointParts
from smart_fork.finding.found import Query
from smart_fork.finding.meaning import Embed
from smart_fork.finding.ranking import scores
from smart_fork.finding.request import DEFAULT_LIMIT, FindRequest, check
from smart_fork.finding.results import UNTRUSTED, title
from smart_fork.text.snippets import shown
from smart_fork.whereabouts import is_there


def asked_of(session: Session | SessionRow, intent: str, also: Sequence[str] | None) -> FindRequest:
    """The question, of one session alone.

    Raises:
        Usage: the intent is blank, or `also` is not what it may be.
    """
    return check(FindRequest(intent, session.agent, limit=1, include_automated=True, also=also))


def query_of(store: Store, session: Session | SessionRow, asked: FindRequest) -> Query:
    """What is asked of one session, whoever asks; its scope is empty where the index does not have the session."""
    there = is_there(session.cwd)
    row = store.session(session.agent, session.session_id)
    project = project_of(session.cwd) if there else None
    scope = Scope((row.part,), session=row.row, project=project) if row else Scope()
    return asked.query(scope, everywhere=not there)


def exchange_evidence(
    store: Store, query: Query, vectors: Embed, weighed: Sequence[Mapping[str, float]] = ()
) -> ExchangeEvidence:
    """Return the evidence for each exchange of a session: by its words and meaning; where that fails, by either.

    The terms are those that are `weighed`, if the session was found by them.
    """
    why = ""
    for by_meaning, by_words in ((True, True), (True, False), (False, True)):
        try:
            made = vectors(query.meanings) if by_meaning else None
            if by_words and weighed:
                found = gather_more(store, query, made, QueryWords(store, query, weighed))
            else:
                found = gather(store, query, made, words=by_words)
        except Exception as failure:  # whatever else one way of searching dies of, the next one may live
            if is_damage(failure):
                raise
            why = why or str(failure) or type(failure).__name__
            continue
        chances = scores(found.phrasings, found.families, words=by_words)
        score = max((one.chance for one in chances.values()), default=0.0)
        nothing = "" if found.exchanges else why or "nothing fits"
        return ExchangeEvidence(found.exchanges, found.point, nothing, score=score)
    return ExchangeEvidence(why_not=why)


def best_exchanges(store: Store, row: SessionRow, evidence: ExchangeEvidence, asked: FindRequest) -> Exchanges:
    """The exchanges of a session that answer best, first."""
    speaking = {number: _worth(parts) for number, parts in evidence.parts.items() if _worth(parts) > 0}
    best = sorted(speaking, key=lambda number: (-speaking[number], -number))[: int(asked.limit or DEFAULT_LIMIT)]
    told = tuple(_told(store, row, number) for number in best)
    return Exchanges(
        title(asked.intent), row.session_id, row.agent, UNTRUSTED, len(evidence.parts), told, evidence.why_not
    )


def only_one(rows: Sequence[SessionRow], wanted: str) -> SessionRow:
    """The session of the index that a person means.

    Raises:
        NotFound: there is none, or there are several.
    """
    if len(rows) == 1:
        return rows[0]
    raise NotFound(
        f"{len(rows)} sessions of the index begin with {shown(wanted)}" if rows else
        f"The index has no session {shown(wanted)}",
        advice("`smart-fork list` lists sessions.", tool="list_sessions lists sessions."),
    )  # fmt: skip


def _worth(parts: PointParts) -> float:
    """How well an exchange answers by itself; where the talk about it ends does not count."""
    return WORTH.nearest * parts.nearest + WORTH.words * parts.words


def _told(store: Store, row: SessionRow, number: int) -> KnownExchange:
    place, _, asked = beginning_of(store, row, number)
    return KnownExchange(number + 1, place.turn if place else None, asked)
