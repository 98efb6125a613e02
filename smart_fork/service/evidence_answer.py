"""What the service tells a command of ours about one session: what the command would find out itself, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from smart_fork import sessions
from smart_fork.errors import IndexUnavailable, Usage
from smart_fork.retrieval.exchanges import exchange_evidence
from smart_fork.retrieval.phrasings import MAX_CHARACTERS, MOST
from smart_fork.retrieval.upkeep import Engine


class EvidenceAsked(BaseModel):
    """A session, as a command was told of it, and what is to be known of it."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    session: Annotated[str, Field(min_length=1, max_length=200)]
    intent: Annotated[str, Field(min_length=1)]
    also: Annotated[list[Annotated[str, Field(max_length=MAX_CHARACTERS)]], Field(max_length=MOST)]


def asked_of(given: object) -> EvidenceAsked:
    """What is asked.

    Raises:
        Usage: it is nothing that a program of ours asks.
    """
    try:
        return EvidenceAsked.model_validate(given)
    except ValidationError as error:
        raise Usage("session, intent and also") from error


def evidence_answer(asked: EvidenceAsked, engine: Callable[[], Engine]) -> dict[str, object]:
    """The evidence, and `of` which session as it was read.

    Raises:
        SmartForkError: there is none that is complete. Whoever asks looks for it in its own way.
    """
    session = sessions.read(sessions.locate(asked.session))
    found = exchange_evidence(session, asked.intent.strip(), engine(), asked.also)
    if not found.parts or not found.compared:
        raise IndexUnavailable(found.why_not or "its meaning cannot be compared now")
    return {"of": [session.agent, session.session_id, session.cwd, len(session.turns)], **found.as_json()}
