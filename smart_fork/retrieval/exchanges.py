"""Which exchange of one session answers an intent: the one road to it, for forks, budgets and previews."""

from __future__ import annotations

from collections.abc import Sequence

from indexer.failures import is_damage
from indexer.model_notice import telling
from indexer.project import project_of
from indexer.store.base import SessionRow
from indexer.transcripts.model import Session
from smart_fork.errors import IndexUnavailable
from smart_fork.retrieval.evidence import gather
from smart_fork.retrieval.fork_point import ExchangeEvidence
from smart_fork.retrieval.found import Query
from smart_fork.retrieval.index_access import opened
from smart_fork.retrieval.meaning import Meaning, meanings_of
from smart_fork.retrieval.phrasings import further
from smart_fork.retrieval.query import plain
from smart_fork.retrieval.ranking import scores
from smart_fork.retrieval.request import FindRequest, check
from smart_fork.retrieval.upkeep import CheckedRequest, Engine, refresh, scope_of
from smart_fork.text.advice import advice
from smart_fork.whereabouts import is_there


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
