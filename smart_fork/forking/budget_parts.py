"""Parts of a session that a token budget keeps or drops: exchanges (a prompt and its answer), and the steps in them.

A tool call and its result are never separated. Tokens are estimated from characters, by the ratio of the agent's own
counts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from math import ceil
from pathlib import PurePosixPath

from indexer.lazy_compilation import dataclass, late
from indexer.masking import Masked, mask, shorten
from indexer.masking.alternate_readings import BRACKETS
from indexer.transcripts.model import Session, Turn
from smart_fork.agents import AGENTS
from smart_fork.display_text import printable

#: Characters per token: assumed if the agent counts no tokens, and the least and most of any model.
USUAL, LEAST, MOST = 4.0, 1.5, 5.0
#: A context that shrinks below this share was compacted; dropped thoughts alone shrink it less.
FORGOTTEN = 0.6
#: The fewest counted tokens from which the characters per token are computed.
COUNTED = 2_000


@dataclass(frozen=True, slots=True)
class Costs:
    """The estimated tokens of each turn of a session: in full (`turns`), and with shortened tool results (`short`).

    `summaries` has a pair for each compaction: the turn before which it happened, and the tokens of its summary. `rate`
    is characters per token.
    """

    turns: tuple[int, ...]
    short: tuple[int, ...]
    summaries: tuple[tuple[int, int], ...]
    rate: float

    def of(self, turn: int, *, full: bool) -> int:
        """Return the tokens of turn number `turn`, in full or with shortened tool results."""
        return (self.turns if full else self.short)[turn]

    def of_text(self, text: str) -> int:
        """Return the estimated tokens of a text, at this session's characters per token."""
        return ceil(len(text) / self.rate)

    def summary(self, end: int) -> int:
        """Return the tokens of the summary by the newest compaction up to turn `end`; 0 if there was no compaction."""
        return next((tokens for number, tokens in reversed(self.summaries) if number <= end), 0)


def costs(session: Session) -> Costs:
    """Estimate the tokens of each turn of a session."""
    sizes, short, sums = [0] * len(session.turns), [0] * len(session.turns), list[tuple[int, int]]()
    for number, size in session.sizes or AGENTS.copier_of(session.agent).sizes(session):
        if size.sums_up:
            sums.append((number, size.characters))
            continue
        sizes[number] += size.characters
        short[number] += size.short
    rate = _rate(session, sizes)
    turns, shorter = (tuple(ceil(size / rate) for size in some) for some in (sizes, short))
    return Costs(turns, shorter, tuple((number, ceil(size / rate)) for number, size in sums), rate)


def _rate(session: Session, sizes: Sequence[int]) -> float:
    """Return the session's characters per token, from the growth of the agent's token counts between compactions.

    `sizes` has the characters of each turn. If the agent counted too few tokens, return a usual value.
    """
    grown = came = 0
    begun = last = within = pending = 0
    for turn, size in zip(session.turns, sizes, strict=True):
        pending += size
        if not turn.loaded:
            continue
        if last and turn.loaded >= FORGOTTEN * last:
            within += pending
        else:
            grown, came = grown + max(0, last - begun), came + within
            begun, within = turn.loaded, 0
        last, pending = turn.loaded, 0
    grown, came = grown + max(0, last - begun), came + within
    return min(MOST, max(LEAST, came / grown)) if grown >= COUNTED else USUAL


#: A prompt of at most this length says little without the exchange before it.
SHORT_CHARACTERS = 16
#: An answer beside tool calls is not kept as words if its step, results shortened, exceeds this many tokens.
MAX_WORDS_TOKENS = 1_500
#: Characters at an answer's end that are searched for a question mark, and question marks of several scripts.
_END, _ASKS = 300, "?\uff1f\u061f"


@dataclass(frozen=True, slots=True)
class ToolStep:
    """A step of an exchange (prompt and answer): an agent's message with its tool results, or a person's message.

    `short` is its size in tokens with shortened results. `edits` and `reads` are the paths of files that it changes and
    reads, mostly unknown for shell commands. `asks` is true if a person answered or refused a tool call. `broken` is
    true if a tool call lacks its result, so that the step cannot be kept.
    """

    turns: tuple[int, ...]
    tokens: int
    short: int = 0
    text: str = ""
    prompt: bool = False
    asks: bool = False
    broken: bool = False
    calls: int = 0
    edits: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()

    def shows(self, path: str) -> bool:
        return any(_same(path, one) for one in self.reads)

    def mentions(self, path: str) -> bool:
        """Return True if the step runs a shell command with the file name of `path` in it."""
        name = PurePosixPath(path).name
        return bool(name) and any(
            action.startswith("run ") and re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", action)
            for action in self.actions
            if name in action
        )

    @property
    def runs(self) -> bool:
        """Return True if the step runs a shell command."""
        return any(action.startswith("run ") for action in self.actions)

    def changes(self, path: str) -> bool:
        return any(_same(path, one) for one in self.edits)


@dataclass(frozen=True)
class ExchangeUnit:
    """One exchange (a prompt and its answer), or several that a tool call or message connects.

    `number` is the first exchange's, from 1; `start` is its first turn. One of the `steps` is the person's prompt.
    """

    number: int
    start: int
    steps: tuple[ToolStep, ...]

    @property
    def prompt(self) -> str:
        """Return the text of the person's prompt."""
        return next((step.text for step in self.steps if step.prompt), "")

    @cached_property
    def whole(self) -> frozenset[int]:
        """Return the numbers of all turns that can be kept: those of all steps except broken ones."""
        return _turns(step for step in self.steps if not step.broken)

    @cached_property
    def words(self) -> frozenset[int]:
        """Return the numbers of the turns with the prompt and the final answer."""
        said = [step for step in self.steps if step.text and not step.prompt and not step.broken]
        last = next((step for step in reversed(said) if not step.calls), said[-1] if said else None)
        if last and last.calls and last.short > MAX_WORDS_TOKENS:
            last = None
        return _turns([*(step for step in self.steps if step.prompt), *([last] if last else [])])

    @property
    def answer(self) -> str:
        """Return the text of the exchange's last answer."""
        return next((step.text for step in reversed(self.steps) if step.text and not step.prompt), "")

    @property
    def asks_back(self) -> bool:
        """Return True if the exchange's answer ends with a question to the person."""
        return any(mark in self.answer[-_END:] for mark in _ASKS)

    @property
    def is_short(self) -> bool:
        """Return True if the prompt is so short that it says little, such as "yes"."""
        return len(self.prompt.strip()) <= SHORT_CHARACTERS


def units(session: Session, costs: Costs, end: int) -> tuple[ExchangeUnit, ...]:
    """Return the exchanges (prompts with answers) of a session up to turn `end`, joined where a tool call spans two."""
    made: list[ExchangeUnit] = []
    of_calls = {call.id: i for i, turn in enumerate(session.turns[: end + 1]) for call in turn.tool_calls}
    answered = {
        result.tool_use_id for turn in session.turns[: end + 1] for result in turn.tool_results if result.tool_use_id
    }
    for exchange in session.exchanges():
        numbers = [i for i in range(exchange.start, exchange.start + len(exchange.turns)) if i <= end]
        if not numbers:
            break
        steps = _steps(session, costs, numbers, answered)
        if made and _crosses(session, made[-1].start, exchange.start, numbers, of_calls):
            both = sorted({i for step in (*made[-1].steps, *steps) for i in step.turns})
            made[-1] = ExchangeUnit(made[-1].number, made[-1].start, tuple(_steps(session, costs, both, answered)))
        else:
            made.append(ExchangeUnit(exchange.index + 1, exchange.start, tuple(steps)))
    if len(made) > 1 and not made[0].prompt:  # what came before the first question is part of it
        made[:2] = [ExchangeUnit(made[1].number, made[0].start, (*made[0].steps, *made[1].steps))]
    return tuple(made)


def _crosses(session: Session, start: int, border: int, numbers: Sequence[int], of_calls: dict[str, int]) -> bool:
    """Return True if a tool call and its result, or parts of one message, are on different sides of turn `border`.

    One side is the turns from `start` to `border`, the other the turns `numbers`. `of_calls` maps call ids to turns.
    """
    groups = {turn.message for turn in session.turns[start:border]} - {""}
    return any(
        session.turns[i].message in groups
        or any(of_calls.get(result.tool_use_id, border) < border for result in session.turns[i].tool_results)
        for i in numbers
    )


def _steps(session: Session, costs: Costs, numbers: Sequence[int], answered: set[str]) -> list[ToolStep]:
    groups: list[list[int]] = []
    waiting: set[str] = set()
    before: Turn | None = None
    for i in numbers:
        turn = session.turns[i]
        own = turn.message
        goes_on = groups and (
            waiting or (before is not None and own and own == before.message) or bool(turn.tool_results)
        )
        if goes_on:
            groups[-1].append(i)
        else:
            groups.append([i])
        waiting |= {call.id for call in turn.tool_calls if call.id in answered}
        waiting -= {result.tool_use_id for result in turn.tool_results}
        before = turn
    return [_step(session, costs, group, answered) for group in groups]


def _step(session: Session, costs: Costs, numbers: Sequence[int], answered: set[str]) -> ToolStep:
    turns = [session.turns[i] for i in numbers]
    calls = [call for turn in turns for call in turn.tool_calls]
    known = {call.id for call in calls}
    actions = tuple(str(call.action) for call in calls if call.action)
    said = [one.text for turn in turns for one in turn.spoken]
    return ToolStep(
        turns=tuple(numbers),
        tokens=sum(costs.turns[i] for i in numbers),
        short=sum(costs.short[i] for i in numbers),
        text="\n".join(said),
        prompt=any(turn.prompt for turn in turns),
        asks=any(turn.answer for turn in turns),
        broken=any(call.id not in answered for call in calls)
        or any(result.tool_use_id not in known for turn in turns for result in turn.tool_results),
        calls=len(calls),
        edits=tuple(dict.fromkeys(chain.from_iterable(call.edits for call in calls))),
        reads=tuple(dict.fromkeys(chain.from_iterable(call.reads for call in calls))),
        actions=actions,
    )


def _same(one: str, other: str) -> bool:
    """Return True if two paths can mean one file: they are equal, or one is a suffix of the other."""
    one, other = one.removeprefix("./"), other.removeprefix("./")
    return one == other or one.endswith(f"/{other}") or other.endswith(f"/{one}")


def _turns(steps: object) -> frozenset[int]:
    return frozenset(i for step in steps for i in step.turns)  # type: ignore[attr-defined]


#: A longer reply to a question is understood without the question.
SAYS_IT = 240


class Dependencies:
    """Finds the earlier turns that a kept exchange (a prompt and its answer) needs, such as readings of edited files.

    Methods take the exchange's index (`place`) and return the numbers of turns to keep.
    """

    def __init__(self, units: Sequence[ExchangeUnit]) -> None:
        self._units = units
        self._steps = [step for unit in units for step in unit.steps]
        self._place = {turn: place for place, step in enumerate(self._steps) for turn in step.turns}
        self._readings: dict[tuple[int, str], int | None] = {}

    def said(self, place: int) -> frozenset[int]:
        """Return the turns with the exchange's prompt, its final answer, and the question that the prompt answers."""
        return self._units[place].words | self.question(place)

    def done(self, place: int, last: int | None = None) -> frozenset[int]:
        """Return the turns with the exchange's prompt, answer, edits and decisions, and earlier turns that these need.

        Decisions are a person's answers to tool calls. With `last`, only so many of the last edits and decisions count.
        """
        edits = self.edits(place)
        some = edits[max(0, len(edits) - last) :] if last is not None else edits
        return self.said(place) | self.closed(self._units[place].words | {turn for step in some for turn in step.turns})

    def edits(self, place: int) -> list[ToolStep]:
        """Return the steps of an exchange that change files, or in which a person answers or refuses a tool call."""
        return [step for step in self._units[place].steps if (step.edits or step.asks) and not step.broken]

    def whole(self, place: int) -> frozenset[int]:
        """Return all turns of the exchange at `place`, and the earlier turns that they need."""
        return self.closed(self._units[place].whole) | self.question(place)

    def question(self, place: int) -> frozenset[int]:
        """Return the earlier turns that explain a short prompt, such as "yes"; empty if the prompt needs none."""
        found = frozenset[int]()
        while place > 0:
            unit, before = self._units[place], self._units[place - 1]
            if not (unit.is_short or (before.asks_back and len(unit.prompt) <= SAYS_IT)):
                break
            place -= 1
            found |= before.words
        return found

    def closed(self, turns: frozenset[int]) -> frozenset[int]:
        """Return `turns` and, for each file that they edit, the turns that last read it, or else first wrote it."""
        places = {self._place[turn] for turn in turns if turn in self._place}
        found = set(turns)
        for place in places:
            for path in self._steps[place].edits:
                reading = self._reading(place, path)
                if reading is not None and reading not in places:
                    found.update(self._steps[reading].turns)
        return frozenset(found)

    def _reading(self, place: int, path: str) -> int | None:
        key = (place, path)
        if key not in self._readings:
            earlier = [(at, step) for at, step in enumerate(self._steps[:place]) if not step.broken]
            looked = next((at for at, step in reversed(earlier) if step.shows(path)), None)
            if looked is None:
                looked = next((at for at, step in reversed(earlier) if step.mentions(path)), None)
            made = next((at for at, step in earlier if step.changes(path)), None)
            self._readings[key] = made if looked is None else looked
        return self._readings[key]


#: The longest title of an exchange.
TITLE_CHARACTERS = 70
#: Characters that could end the marker's element, or be mistaken in it, with their replacements.
_MARKS = str.maketrans(f"{BRACKETS};`\\", f"{'[]' * (len(BRACKETS) // 2)},'/")
_SPACES = late(r"\s+")
_LEADING = late(r"^[\W_]+")


def marker(session: Masked, first: int, *, exchanges: int = 0, steps: int = 0) -> str:
    """Return the text that replaces dropped exchanges and steps of `session`, from turn `first` on.

    It says how many were dropped and where to read them. It quotes nothing, so that text which is later removed from
    the session is not in it.
    """
    counted = [
        f"{number} {what}{'s' * (number != 1)}" for number, what in ((steps, "step"), (exchanges, "exchange")) if number
    ]
    return (
        f"… {' and '.join(counted)} dropped here.\n"
        f"They are in session {session}, from message {first}: smart-fork shows them."
    )


def title(unit: ExchangeUnit) -> Masked:
    """Return the masked title of an exchange: its prompt, and for a short prompt also its answer."""
    asked = plain(unit.prompt)
    if unit.is_short and (answer := plain(unit.answer)):
        return shorten(mask(f"{asked or '(nothing asked)'}: {answer}"), TITLE_CHARACTERS)
    return shorten(asked or mask("(nothing asked)"), TITLE_CHARACTERS)


def plain(text: str) -> Masked:
    """Return a text on one line, without brackets and control characters, with its secrets masked."""
    flat = _SPACES.sub(" ", printable(mask(text[:2000]))).translate(_MARKS)
    return mask(_LEADING.sub("", flat).strip())
