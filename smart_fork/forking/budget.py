"""What answers in the sessions that are forked: where a fork leaves for it, and what of them a budget keeps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from indexer.paths import index_db
from indexer.transcripts.model import Session
from smart_fork.budget.wanted import MATCH, Wanted
from smart_fork.budget.within import Selected, selected
from smart_fork.errors import IndexUnavailable, NotFound, Usage, advice
from smart_fork.forking.floor import NAMED_FLOOR, fits, in_words, none_answers
from smart_fork.retrieval.fork_point import ExchangeEvidence

if TYPE_CHECKING:
    from smart_fork.retrieval.library import Library, Opening


class Answers(NamedTuple):
    """What speaks for each exchange of sessions as an answer to an intent. It is gathered once for each session."""

    intent: str
    also: Sequence[str]
    library: Library

    def of(self, session: Session) -> ExchangeEvidence:
        """Return the evidence in a session.

        Raises:
            Usage: `also` is not valid.
            IndexUnavailable: nothing can be searched.
        """
        return self.library.evidence(session, self.intent, self.also)

    def if_any(self, session: Session) -> ExchangeEvidence:
        """Return the same; if nothing can be searched, only why.

        Raises:
            Usage: `also` is not valid.
        """
        try:
            return self.of(session)
        except IndexUnavailable as error:
            return ExchangeEvidence(why_not=error.message)


@contextmanager
def gathered(
    intent: str, also: Sequence[str], library: Opening | None, *, chooses: bool, compares: bool = False
) -> Iterator[Answers | None]:
    """Give what answers an intent, if that `chooses` what goes into a fork, or only `compares` ways to fork.

    What is only compared makes no index. The vectors are made while the logs are read; at the end nothing is being
    made: this process may become an agent.
    """
    if not intent.strip() or not (chooses or (compares and index_db().exists())):
        yield None
        return
    from smart_fork.retrieval.background import library as of_commands

    with (library or of_commands)() as known:
        known.expect(intent, also)
        try:
            yield Answers(intent, also, known)
        finally:
            known.settle()


def answering(session: Session, answers: Answers | None, found: str | None = None) -> str:
    """Return the id of a message of the exchange at whose end a fork knows all that was asked.

    If that is not known, the message `found` that a search has found, if any.

    Raises:
        Usage: there is no intent, or `also` is not valid.
        IndexUnavailable: nothing can be searched.
        NotFound: nothing in the session answers, or it is not in the index.
    """
    if answers is None:
        give = advice('Give an intent: --intent "…", or a prompt.', tool="Give an intent: prompt.")
        raise Usage("--at match needs an intent", give)
    try:
        return _message_of(session, answers.of(session))
    except (NotFound, IndexUnavailable):
        if found is None:
            raise
        return found


def _message_of(session: Session, evidence: ExchangeEvidence) -> str:
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


def chosen(session: Session, end: int, wanted: Wanted, answers: Answers | None) -> Selected:
    """Return what a budget keeps of a session up to turn `end`. Without `answers` the last words are worth most.

    Raises:
        Usage: the budget is `match`, and there is no intent; or see `selected`.
        NotFound: the budget is `match`, and nothing in the session answers.
        ForkRefused: nothing is left out of sessions of that agent.
    """
    if wanted.budget == MATCH and answers is None:
        raise Usage(
            "A budget of match needs an intent",
            advice('Give an intent: --intent "…", or a prompt.', tool="Give an intent: prompt."),
        )
    evidence = answers.if_any(session) if answers is not None else None
    if evidence is not None and evidence.score is not None and not fits(evidence):
        if wanted.budget == MATCH and not wanted.changed():
            raise none_answers(session.session_id, evidence.score)
        why = f"nothing fits: the best score is {in_words(evidence.score)}, below {NAMED_FLOOR:.2f}"
        evidence = ExchangeEvidence(why_not=why)
    return selected(session, end, wanted, evidence)
