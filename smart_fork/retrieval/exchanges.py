"""What speaks for each exchange of one session, by the evidence that a search has: its words, and its meaning."""

from __future__ import annotations

from collections.abc import Sequence

from indexer.failures import is_damage
from indexer.model_notice import telling
from indexer.project import project_of
from indexer.transcripts.model import Session
from smart_fork.errors import IndexUnavailable
from smart_fork.retrieval.evidence import gather
from smart_fork.retrieval.exchange_evidence import ExchangeEvidence
from smart_fork.retrieval.found import Query
from smart_fork.retrieval.index_access import opened
from smart_fork.retrieval.meaning import Meaning, meanings_of, once
from smart_fork.retrieval.phrasings import further
from smart_fork.retrieval.query import plain
from smart_fork.retrieval.ranking import scores
from smart_fork.retrieval.request import FindRequest, check
from smart_fork.retrieval.upkeep import CheckedRequest, Engine, refresh, scope_of
from smart_fork.whereabouts import is_there


def exchange_evidence(
    session: Session, intent: str, engine: Engine, also: Sequence[str] = (), meaning: Meaning | None = None
) -> ExchangeEvidence:
    """What speaks for each exchange of `session` as an answer to `intent`, which `also` says in other words.

    `meaning` is what makes their vectors, where that has begun.

    Raises:
        Usage: the intent is blank, or `also` is not what it may be.
    """
    there = is_there(session.cwd)
    request = FindRequest(
        intent, session.agent, session_id=session.session_id, all_projects=not there, include_automated=True, also=also
    )
    agents = check(request)
    project = project_of(session.cwd) if there else None
    asked = CheckedRequest(request, plain(intent), further(plain(intent), also), agents, project, 1)
    try:
        with telling(engine.progress), opened() as store:
            state = refresh(store, asked, engine)
            scope = scope_of(store, asked)
            if not scope.parts:
                return ExchangeEvidence(why_not=state.problem or "the session is not in the index")
            query = Query(asked.intent, scope, 1, everywhere=not there, also=asked.also)
            made = meaning or Meaning(engine.embedder, query.meanings)
            embed = once(lambda texts: meanings_of(store, made, state.absent, texts))
            why = ""
            for vectors in (True, False):
                try:
                    found = gather(store, query, embed(query.meanings) if vectors else None, words=True)
                except Exception as failure:
                    if is_damage(failure) or not vectors:
                        raise
                    why = str(failure) or type(failure).__name__
                    continue
                why = "" if found.exchanges else why or "nothing fits"
                chances = scores(found.phrasings, {row: one.session_id for row, one in found.sessions.items()})
                score = max((one.chance for one in chances.values()), default=0.0)
                return ExchangeEvidence(found.exchanges, found.point, why, compared=vectors, score=score)
    except IndexUnavailable as error:
        return ExchangeEvidence(why_not=error.message)
    return ExchangeEvidence(why_not="nothing could be searched")
