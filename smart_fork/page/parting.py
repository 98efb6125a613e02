"""Two sessions of a family: where they part, and what differs in what was asked, answered and edited since. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from indexer.outcome import Outcome, outcome_of
from indexer.shapes import dataclass
from indexer.transcripts.model import Exchange, Session
from smart_fork.agents.codec import Codec
from smart_fork.page.diffs import FileDiff, compared
from smart_fork.page.phrases import inside
from smart_fork.page.reading import SPEAK, asked_in_short
from smart_fork.page.steps import Steps

#: How many questions tell what a session is about; and how many files are compared.
MOST_QUESTIONS, MOST_FILES = 20, 30


@dataclass(frozen=True, slots=True)
class OwnPart:
    """What a session has for itself: what was asked there, in which files it edited how much, and what became of it."""

    session_id: str
    agent_type: str
    questions: tuple[str, ...]
    more: int
    files: tuple[str, ...]
    outcome: Outcome
    tokens: int


@dataclass(frozen=True, slots=True)
class PartedFile:
    """A file that one of the two has edited since, or both have."""

    path: str
    first: tuple[FileDiff, ...]
    second: tuple[FileDiff, ...]


@dataclass(frozen=True, slots=True)
class Parting:
    """How two sessions differ: `shared` exchanges are the same; `answer` compares the last answer."""

    shared: int
    first: OwnPart
    second: OwnPart
    answer: FileDiff
    files: tuple[PartedFile, ...]
    more_files: int


@dataclass(frozen=True, slots=True)
class OwnBeginning:
    """Where what a session has for itself begins: the exchange at turn `asked`, and what is done at turn `done`."""

    asked: int
    done: int


def own_beginning(session: Session, other: Session) -> OwnBeginning:
    """Where something is said in `session` for the first time that `other` has not.

    What was left out of a fork, `other` has besides. A question that is asked there only later is the same one where
    its answer is.
    """
    there, place = [[said for _, said in _spoken(exchange)] for exchange in other.exchanges()], 0
    for exchange in session.exchanges():
        spoken = _spoken(exchange)
        said = [words for _, words in spoken]
        same = next((at for at in range(place, len(there)) if _is_within(said, there[at])), None)
        if not said:
            continue
        if same is None or (same > place and len(said) == 1):
            beside = there[place] if place < len(there) else []
            shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(said, beside, strict=False)))
            return OwnBeginning(exchange.start, spoken[shared - 1][0] + 1 if shared else exchange.start)
        place = same + 1
    return OwnBeginning(len(session.turns), len(session.turns))


def parting(first: Session, second: Session, works: tuple[Codec | None, Codec | None]) -> Parting:
    """How `second` differs from `first`."""
    begun = (own_beginning(first, second), own_beginning(second, first))
    own = [range(one.done, len(session.turns)) for one, session in zip(begun, (first, second), strict=True)]
    edits = [_edits(session, turns, work) for session, turns, work in zip((first, second), own, works, strict=True)]
    paths = sorted({*edits[0], *edits[1]}, key=lambda path: (not (path in edits[0] and path in edits[1]), path))
    files = tuple(
        PartedFile(path, tuple(edits[0].get(path, ())), tuple(edits[1].get(path, ()))) for path in paths[:MOST_FILES]
    )
    answers = [_answer(session, turns) for session, turns in zip((first, second), own, strict=True)]
    return Parting(
        shared=max(_asked(one, session) for one, session in zip(begun, (first, second), strict=True)),
        first=_part(first, own[0], edits[0]),
        second=_part(second, own[1], edits[1]),
        answer=compared("the last answer", *answers),
        files=files,
        more_files=len(paths) - len(files),
    )


def _spoken(exchange: Exchange) -> list[tuple[int, tuple[str, str]]]:
    """What was said in an exchange and by whom, each with the number of its turn."""
    turns = enumerate(exchange.turns, exchange.start)
    return [(number, (turn.role, turn.text)) for number, turn in turns if turn.text and turn.role in SPEAK]


def _is_within(said: Iterable[tuple[str, str]], there: Iterable[tuple[str, str]]) -> bool:
    """Whether all that was said stands there in this order."""
    rest = iter(there)
    return all(one in rest for one in said)


def _asked(begun: OwnBeginning, session: Session) -> int:
    """How many exchanges stand before what a session has for itself."""
    return sum(turn.prompt for turn in session.turns[: begun.asked])


def _answer(session: Session, turns: range) -> str:
    said = (session.turns[number] for number in reversed(turns))
    return next((turn.text for turn in said if turn.role == "assistant" and turn.text), "")


def _edits(session: Session, turns: range, work: Codec | None) -> dict[str, list[FileDiff]]:
    """What was done to each file, as its name is seen from the session's directory."""
    steps, found = Steps(session, work), dict[str, list[FileDiff]]()
    for number in turns:
        for step in steps.of(number):
            if step.kind != "edit" or step.failed:
                continue
            for diff in step.diffs or (FileDiff(inside(step.line, session.cwd), "edited"),):
                found.setdefault(diff.path, []).append(diff)
    return found


def _part(session: Session, turns: range, files: Iterable[str]) -> OwnPart:
    asked = [session.turns[number].text for number in turns if session.turns[number].prompt]
    return OwnPart(
        session.session_id,
        session.agent,
        tuple(asked_in_short(text) for text in asked[:MOST_QUESTIONS]),
        max(0, len(asked) - MOST_QUESTIONS),
        tuple(files),
        outcome_of(session),
        session.token_estimate,
    )
