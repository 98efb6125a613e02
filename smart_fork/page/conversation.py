"""A session as pages to read: what was said, what the agent did meanwhile, and where a fork may leave."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence

from indexer.masking import shorten
from indexer.shapes import dataclass
from indexer.transcripts.model import Session, Turn
from smart_fork import sessions
from smart_fork.errors import NotFound
from smart_fork.page.blocks import Block, blocks
from smart_fork.page.phrases import inside
from smart_fork.retrieval.results import title

#: A page has so much text and so many messages, unless one message alone is longer.
PAGE_CHARACTERS, PAGE_MESSAGES = 40_000, 50
#: How much of a question names the place where a fork may leave.
PLACE_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that the agent did. `note` says what went wrong."""

    number: int
    text: str
    note: str


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """One message, and the actions behind it. `asked`: it, or one of these, is what a link led to."""

    number: int
    role: str
    timestamp: str
    blocks: list[Block]
    actions: list[Action]
    asked: bool
    fork: bool

    @property
    def failures(self) -> int:
        """How many of the actions failed."""
        return sum(bool(action.note) for action in self.actions)


@dataclass(frozen=True, slots=True)
class LeavingPlace:
    """Where a fork may leave: after message `number`, which answered `question`; it loads `tokens`."""

    number: int
    question: str
    tokens: int


@dataclass(frozen=True, slots=True)
class ConversationPage:
    """One page of a conversation. `page` counts from 1; `previous` and `next_at` are messages of other pages."""

    messages: list[ShownMessage]
    places: list[LeavingPlace]
    page: int
    pages: int
    count: int
    previous: int | None
    next_at: int | None


def reading(session: Session, at: int | None = None) -> ConversationPage:
    """The page that has message or action number `at`; without it, the first.

    Raises:
        NotFound: the conversation has no such number.
    """
    said = list(session.messages)
    numbers = [number for number, _ in said]
    if at is not None and not 0 <= at < len(session.turns):
        last = numbers[-1] if numbers else 0
        raise NotFound(f"No message {at} in {session.session_id}", f"The last one is {last}.")
    starts = _starts(said)
    page = max(0, bisect_right(starts, bisect_right(numbers, at) - 1) - 1) if at is not None else 0
    first, end = starts[page], (*starts[1:], len(said))[page]
    points = set(session.branch_points())
    shown = list(_messages(session, said, range(first, end), at, points))
    return ConversationPage(
        shown,
        _places(session, numbers[first:end], points),
        page + 1,
        len(starts),
        len(said),
        numbers[starts[page - 1]] if page else None,
        numbers[end] if end < len(numbers) else None,
    )


def _starts(said: Sequence[tuple[int, Turn]]) -> list[int]:
    """With which messages pages begin; there is one page at least."""
    starts, used, count = [0], 0, 0
    for position, (_, turn) in enumerate(said):
        size = min(len(turn.text), PAGE_CHARACTERS)
        if count and (used + size > PAGE_CHARACTERS or count == PAGE_MESSAGES):
            starts.append(position)
            used = count = 0
        used, count = used + size, count + 1
    return starts


def _messages(
    session: Session, said: Sequence[tuple[int, Turn]], chosen: range, at: int | None, points: set[int]
) -> Iterator[ShownMessage]:
    notes = {result.tool_use_id: result.note for turn in session.turns for result in turn.tool_results if result.note}
    for position in chosen:
        number, turn = said[position]
        behind = range(
            number if position else 0, said[position + 1][0] if position + 1 < len(said) else len(session.turns)
        )
        one = sessions.message(number, turn, PAGE_CHARACTERS)
        yield ShownMessage(
            number,
            one.role,
            one.timestamp,
            blocks(one.text),
            [action for index in behind for action in _actions(session, index, notes)],
            at is not None and at in behind,
            number in points,
        )


def _actions(session: Session, index: int, notes: Mapping[str, str]) -> Iterator[Action]:
    for call in session.turns[index].tool_calls:
        if call.action:
            yield Action(index, title(inside(call.action, session.cwd)), title(notes.get(call.id, "")))


def _places(session: Session, numbers: Sequence[int], points: set[int]) -> list[LeavingPlace]:
    prompts = [(i, turn.text) for i, turn in enumerate(session.turns) if turn.prompt]
    found, loads = [], session.loads()
    for number in numbers:
        question = bisect_right(prompts, number, key=lambda prompt: prompt[0]) - 1
        if number in points and question >= 0:
            asked = shorten(title(prompts[question][1]), PLACE_CHARACTERS)
            found.append(LeavingPlace(number, asked, loads[number]))
    return found
