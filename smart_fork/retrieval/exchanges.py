"""The exchanges of one session that answer an intent, such as what the session that asks knew before a compaction."""

from __future__ import annotations

from collections.abc import Sequence

from indexer.failures import is_damage
from indexer.model_notice import telling
from indexer.project import project_of
from indexer.store.base import SessionRow, Store
from indexer.transcripts.model import Session
from smart_fork.errors import IndexUnavailable, NotFound, Usage
from smart_fork.retrieval.answer import Exchanges, KnownExchange
from smart_fork.retrieval.by_code import beginning_of
from smart_fork.retrieval.evidence import gather
from smart_fork.retrieval.fork_point import WORTH, ExchangeEvidence, PointParts
from smart_fork.retrieval.found import Query
from smart_fork.retrieval.index_access import opened
from smart_fork.retrieval.meaning import Meaning, meanings_of
from smart_fork.retrieval.phrasings import further
from smart_fork.retrieval.query import plain
from smart_fork.retrieval.ranking import scores
from smart_fork.retrieval.request import DEFAULT_LIMIT, FindRequest, check, current_project
from smart_fork.retrieval.results import UNTRUSTED, title
from smart_fork.retrieval.upkeep import CheckedRequest, Engine, refresh, scope_of
from smart_fork.text.advice import advice
from smart_fork.text.snippets import shown
from smart_fork.whereabouts import is_there, permits


def exchange_evidence(
    session: Session | SessionRow, intent: str, engine: Engine, also: Sequence[str] | None = (),
    meaning: Meaning | None = None,
) -> ExchangeEvidence:  # fmt: skip
    """Return the evidence for each exchange of `session` as an answer to `intent`, which `also` gives in other words.

    `meaning` makes the vectors, where that has begun.

    Raises:
        Usage: the intent is blank, or `also` is not what it may be.
        IndexUnavailable: nothing can be searched.
    """
    there = is_there(session.cwd)
    request = FindRequest(intent, session.agent, all_projects=not there, include_automated=True, also=also)
    agents = check(request)
    project = project_of(session.cwd) if there else None
    words = plain(intent)
    asked = CheckedRequest(request, words, further(words, also), agents, project, 1, session_id=session.session_id)
    with telling(engine.progress), opened() as store:
        state = refresh(store, asked, engine)
        if state.problem and not store.counts().sessions:
            raise IndexUnavailable(
                state.problem,
                advice(
                    "Run `smart-fork index run` and read its messages. `smart-fork doctor` explains failures.",
                    tool="Tell the user that smart-fork cannot search, and why.",
                ),
            )
        scope = scope_of(store, asked)
        if not scope.parts:
            return ExchangeEvidence(why_not=state.problem or "the session is not in the index")
        query = Query(asked.intent, scope, 1, everywhere=not there, also=asked.also)
        made = meaning or Meaning(engine.embedder, query.meanings)
        why = ""
        for by_meaning, by_words in ((True, True), (True, False), (False, True)):
            try:
                vectors = meanings_of(store, made, state.absent, query.meanings) if by_meaning else None
                found = gather(store, query, vectors, words=by_words)
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
