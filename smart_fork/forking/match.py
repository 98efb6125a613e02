"""``--at match``: which exchange of one session answers an intent, and a fork at its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from indexer.transcripts.lines import bounded
from indexer.transcripts.model import Session
from smart_fork import sessions
from smart_fork.errors import NotFound, advice
from smart_fork.forking.floor import fits, none_answers
from smart_fork.forking.request import ForkRequest
from smart_fork.forking.started import Forked
from smart_fork.retrieval.fork_point import ExchangeEvidence
from smart_fork.retrieval.library import Library

#: Stands for a message's number: the end of the exchange that answers the intent.
MATCH = "match"


@bounded()
def fork_at_match(request: ForkRequest, intent: str, library: Library, also: Sequence[str] = ()) -> Forked:
    """Fork a session at the end of the exchange that answers `intent`; see `fork_session`.

    `also` says the intent in other words.

    Raises:
        SmartForkError: nothing was started, and nothing is left of the attempt.
    """
    from smart_fork.forking.launch import fork_session

    located = sessions.locate(request.session)
    session = sessions.look_into(located)
    evidence = library.evidence(session, intent, also)
    asked = replace(request, session=located.reference, through=message_of(session, evidence))
    budget, preview = (replace(one, known=evidence) if one else None for one in (request.budget, request.preview))
    return fork_session(replace(asked, budget=budget, preview=preview))


def message_for(session: Session, intent: str, library: Library, also: Sequence[str] | None = None) -> str:
    """Return the id of a message of the exchange that answers `intent` best, as all its phrasings together say it.

    Raises:
        Usage: the intent is blank, or `also` is not what it may be.
        IndexUnavailable: nothing can be searched.
        NotFound: nothing in the session answers it, or the session has not been indexed.
    """
    return message_of(session, library.evidence(session, intent, also))


def message_of(session: Session, evidence: ExchangeEvidence) -> str:
    """Return the id of a message of the exchange at whose end a fork knows all that was asked.

    Raises:
        NotFound: no exchange answers.
    """
    turns = (turn for one in session.exchanges() if one.index == evidence.point for turn in one.turns)
    message = next((turn.id for turn in turns if turn.id), None)
    if message is None:
        why = evidence.why_not
        raise NotFound(
            f"No passage of {session.session_id} answers that" + (f": {why}" if why else ""),
            advice(
                "Add other phrasings (--also), run `smart-fork index run`, or use a number from `smart-fork show`.",
                tool="Add other phrasings (also), or set at to a number from read_session.",
            ),
        )
    if evidence.score is not None and not fits(evidence):
        raise none_answers(session.session_id, evidence.score)
    return message
