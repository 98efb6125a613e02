"""The exchanges of a session as what may be kept or left out, and the steps in them: calls stay with their results."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from pathlib import PurePosixPath

from indexer.masking import Masked, mask, shorten
from indexer.masking.invisible import BRACKETS
from indexer.patterns import late
from indexer.shapes import dataclass
from indexer.transcripts.model import Session, Turn
from indexer.transcripts.twice import EVENT, ITEM
from smart_fork.forking.costs import Costs
from smart_fork.snippets import printable

#: What is asked in so few characters says nothing without what was said before it.
SHORT_CHARACTERS = 16
#: Words that come with calls whose answers take more than this are not kept for themselves.
AT_MOST = 1_500
#: Of an answer, how much of its end is looked at for a question, and what one ends with, in any script.
_END, _ASKS = 300, "?\uff1f\u061f"


@dataclass(frozen=True, slots=True)
class Step:
    """Turns that go together: one message of the agent's, with the results of its calls; or what the person said.

    `tokens` is what it takes, `short` what with its results shortened.
    `edits` and `reads` are the files that it changes and looks at, as it names them; of most commands it is not known
    which of their words are files. `asks` says that a person answers or refuses a call in it: that is what was
    decided; `broken` that a result is missing, so that it cannot be kept.
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
        """Whether it looks at this file."""
        return any(_same(path, one) for one in self.reads)

    def names(self, path: str) -> bool:
        """Whether it runs a command that names this file: it may look at it, or do something else with it."""
        name = PurePosixPath(path).name
        return bool(name) and any(
            action.startswith("run ") and re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", action)
            for action in self.actions
            if name in action
        )

    @property
    def runs(self) -> bool:
        """Whether it runs a command."""
        return any(action.startswith("run ") for action in self.actions)

    def changes(self, path: str) -> bool:
        """Whether it edits this file, or makes it."""
        return any(_same(path, one) for one in self.edits)


@dataclass(frozen=True)
class Unit:
    """One exchange. `number` is that of the exchange, from 1; `steps` are in order, the person's words first."""

    number: int
    start: int
    steps: tuple[Step, ...]

    @property
    def prompt(self) -> str:
        """What the person asked."""
        return next((step.text for step in self.steps if step.prompt), "")

    @cached_property
    def whole(self) -> frozenset[int]:
        """All turns of it that can be kept."""
        return _turns(step for step in self.steps if not step.broken)

    @cached_property
    def words(self) -> frozenset[int]:
        """What was asked, and the last that was said to it."""
        said = [step for step in self.steps if step.text and not step.prompt and not step.broken]
        last = next((step for step in reversed(said) if not step.calls), said[-1] if said else None)
        if last and last.calls and last.short > AT_MOST:
            last = None
        return _turns([*(step for step in self.steps if step.prompt), *([last] if last else [])])

    @property
    def answer(self) -> str:
        """The last that was said to it."""
        return next((step.text for step in reversed(self.steps) if step.text and not step.prompt), "")

    @property
    def asks_back(self) -> bool:
        """Whether it ends with a question to the person."""
        return any(mark in self.answer[-_END:] for mark in _ASKS)

    @property
    def is_short(self) -> bool:
        """Whether what was asked says little by itself."""
        return len(self.prompt.strip()) <= SHORT_CHARACTERS


def units(session: Session, costs: Costs, end: int) -> tuple[Unit, ...]:
    """The exchanges of a session up to turn `end`. What crosses from one into the next makes them one."""
    made: list[Unit] = []
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
            made[-1] = Unit(made[-1].number, made[-1].start, tuple(_steps(session, costs, both, answered)))
        else:
            made.append(Unit(exchange.index + 1, exchange.start, tuple(steps)))
    if len(made) > 1 and not made[0].prompt:  # what came before the first question is part of it
        made[:2] = [Unit(made[1].number, made[0].start, (*made[0].steps, *made[1].steps))]
    return tuple(made)


def _crosses(session: Session, start: int, border: int, numbers: Sequence[int], of_calls: dict[str, int]) -> bool:
    """Whether a result after the border is that of a call before it, or a message goes on there."""
    groups = {_group(turn) for turn in session.turns[start:border]} - {""}
    return any(
        _group(session.turns[i]) in groups
        or any(of_calls.get(result.tool_use_id, border) < border for result in session.turns[i].tool_results)
        for i in numbers
    )


def _steps(session: Session, costs: Costs, numbers: Sequence[int], answered: set[str]) -> list[Step]:
    groups: list[list[int]] = []
    waiting: set[str] = set()
    before: Turn | None = None
    for i in numbers:
        turn = session.turns[i]
        own = _group(turn)
        goes_on = groups and (
            waiting or (before is not None and own and own == _group(before)) or bool(turn.tool_results)
        )
        if goes_on:
            groups[-1].append(i)
        else:
            groups.append([i])
        waiting |= {call.id for call in turn.tool_calls if call.id in answered}
        waiting -= {result.tool_use_id for result in turn.tool_results}
        before = turn
    return [_step(session, costs, group, answered) for group in groups]


def _step(session: Session, costs: Costs, numbers: Sequence[int], answered: set[str]) -> Step:
    turns = [session.turns[i] for i in numbers]
    calls = [call for turn in turns for call in turn.tool_calls]
    known = {call.id for call in calls}
    actions = tuple(str(call.action) for call in calls if call.action)
    said = [one.text for turn in turns for one in turn.spoken]
    return Step(
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


def _group(turn: Turn) -> str:
    """Whose message a record is part of; where an agent uses the field for something else, nobody's."""
    return "" if turn.group in (ITEM, EVENT) else turn.group


def _same(one: str, other: str) -> bool:
    """Whether two names can be of one file: the same, or one below a directory that the other leaves out."""
    one, other = one.removeprefix("./"), other.removeprefix("./")
    return one == other or one.endswith(f"/{other}") or other.endswith(f"/{one}")


def _turns(steps: object) -> frozenset[int]:
    return frozenset(i for step in steps for i in step.turns)  # type: ignore[attr-defined]


#: Of an exchange's title, by which people choose.
TITLE_CHARACTERS = 70
#: Marks that could end the marker's element, or pass for something else in it.
_MARKS = str.maketrans(f"{BRACKETS};`\\", f"{'[]' * (len(BRACKETS) // 2)},'/")
_SPACES = late(r"\s+")
_LEADING = late(r"^[\W_]+")


def marker(session: Masked, first: int, *, exchanges: int = 0, steps: int = 0) -> str:
    """The text in the place of so many exchanges and steps of a `session`, from turn `first` on.

    It says how much that is and how to read it, and quotes nothing: a cut in the original has nothing to follow here.
    """
    counted = [
        f"{number} {what}{'s' * (number != 1)}" for number, what in ((steps, "step"), (exchanges, "exchange")) if number
    ]
    return (
        f"… {' and '.join(counted)} dropped here.\n"
        f"They are in session {session}, from message {first}: smart-fork shows them."
    )


def title(unit: Unit) -> Masked:
    """The title of an exchange: its prompt, and where that says little, its answer as well."""
    asked = plain(unit.prompt)
    if unit.is_short and (answer := plain(unit.answer)):
        return shorten(mask(f"{asked or '(nothing asked)'}: {answer}"), TITLE_CHARACTERS)
    return shorten(asked or mask("(nothing asked)"), TITLE_CHARACTERS)


def plain(text: str) -> Masked:
    """A text on one line, without marks, secrets and invisible characters."""
    flat = _SPACES.sub(" ", printable(mask(text[:2000]))).translate(_MARKS)
    return mask(_LEADING.sub("", flat).strip())
