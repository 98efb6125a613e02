"""``--at match``: which exchange of one session answers an intent, and a fork at its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from indexer.transcripts.model import Session
from smart_fork import sessions
from smart_fork.advice import advice
from smart_fork.errors import IndexUnavailable, NotFound
from smart_fork.forking.floor import NAMED_FLOOR, none_answers
from smart_fork.forking.request import ForkRequest
from smart_fork.forking.started import Forked
from smart_fork.retrieval.answer import Unsearched
from smart_fork.retrieval.finder import find
from smart_fork.retrieval.request import FindRequest
from smart_fork.retrieval.upkeep import Engine
from smart_fork.whereabouts import is_there

#: Stands for a message's number: the end of the exchange that answers the intent.
MATCH = "match"


def fork_at_match(request: ForkRequest, intent: str, engine: Engine, also: Sequence[str] = ()) -> Forked:
    """Fork a session at the end of the exchange that answers `intent`; see `fork_session`.

    `also` says the intent in other words.

    Raises:
        SmartForkError: nothing was started, and nothing is left of the attempt.
    """
    from smart_fork.forking.launch import fork_session

    located = sessions.locate(request.session)
    through = message_for(sessions.look_into(located), intent, engine, also)
    return fork_session(replace(request, session=located.reference, through=through))


def message_for(session: Session, intent: str, engine: Engine, also: Sequence[str] | None = None) -> str:
    """The id of the message of `session` that answers `intent` best, as all its phrasings together say it.

    Raises:
        Usage: the intent is blank, or `also` is not what it may be.
        IndexUnavailable: nothing can be searched.
        NotFound: nothing in the session answers it, or the session has not been indexed.
    """
    there = is_there(session.cwd)
    request = FindRequest(
        intent,
        agent_type=session.agent,
        session_id=session.session_id,
        project_path=session.cwd if there else None,
        all_projects=not there,
        include_automated=True,
        include_snippets=False,
        also=also,
    )
    answer = find(request, engine)
    if isinstance(answer, Unsearched):
        raise IndexUnavailable(answer.message, answer.next_steps[0])
    hits = [hit for hit in answer.results if hit.match.message_id]
    if not hits:
        why = answer.search_error or answer.index.problem
        raise NotFound(
            f"No passage of {session.session_id} answers that" + (f": {why}" if why else ""),
            advice(
                "Add other phrasings (--also), run `smart-fork index run`, or use a number from `smart-fork show`.",
                tool="Add other phrasings (also), or set at to a number from read_session.",
            ),
        )
    best = hits[0]
    if best.score < NAMED_FLOOR or best.match.message_id is None:
        raise none_answers(session.session_id, best.score)
    return best.match.message_id
