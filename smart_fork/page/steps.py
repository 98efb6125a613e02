"""What an agent did, step by step, as a person reads it: a line each, an edit as what it has changed. Pure.

What is said here is masked. Whose records they are is known to `Work` alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal

from indexer.masking import Masked, beginning, mask
from indexer.shapes import dataclass
from indexer.transcripts.actions import status_and_body
from indexer.transcripts.commands import command_of
from indexer.transcripts.items import GivenBack, UsedTool
from indexer.transcripts.model import Session, ToolCall
from indexer.unchecked import json_in, list_in
from smart_fork.agents.codec import Codec, in_paragraphs
from smart_fork.page.diffs import FileDiff, diffs_of
from smart_fork.page.phrases import inside
from smart_fork.text.snippets import printable

StepKind = Literal["read", "run", "edit", "search", "plan", "question", "agent", "thought", "other"]
#: Of what a command printed, its last lines; they are looked for in so many characters at its end, and are so long.
LAST_LINES, _END_CHARACTERS, _COLUMNS = 3, 8_000, 240
#: More is not shown of a command, and not more parts of a plan, a question or its answer.
_COMMAND_CHARACTERS, _MOST_PARTS, _ANSWER_CHARACTERS = 4_000, 50, 2_000
#: So much is shown of what the model thought at a time.
_THOUGHT_CHARACTERS = 8_000
#: Of all that came back from a step, so much is shown where it alone is looked at.
OUTPUT_CHARACTERS = 400_000
#: By the words that lines of actions begin with.
_KINDS: Mapping[str, StepKind] = {"read": "read", "run": "run", "edit": "edit", "search": "search"}
#: What the words of a part are called.
_WORDS = ("content", "step", "question", "text")
_IN_PARTS, _ANSWERED = ("plan", "question"), ("question", "agent")
_AGENTS = ("Task", "Agent", "task", "agent", "spawn_agent")


@dataclass(frozen=True, slots=True)
class PlanPart:
    """A part of a plan with how far it is, or one of the answers to choose from."""

    text: str
    state: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageStep:
    """One thing that the agent did, in turn `number`.

    `line` says it in a line, `whole` is a command of several. `note` is what went wrong, `last` what a command printed
    last or what was answered, `diffs` what an edit has changed, `parts` those of a plan or a question. It is number
    `call` of its turn's calls, and so many `lines` came back from it, 0 where `last` is all of them. `agent` is what
    the sub-agent is called that it has set to work, where its conversation can be read. A thought is a step as well.
    """

    number: int
    call: int
    kind: StepKind
    line: str
    whole: str = ""
    failed: bool = False
    note: str = ""
    status: int | None = None
    last: tuple[str, ...] = ()
    diffs: tuple[FileDiff, ...] = ()
    parts: tuple[PlanPart, ...] = ()
    lines: int = 0
    agent: str = ""

    @property
    def added(self) -> int:
        """How many lines an edit has added."""
        return sum(diff.added for diff in self.diffs)

    @property
    def removed(self) -> int:
        """How many lines an edit has removed."""
        return sum(diff.removed for diff in self.diffs)


class Steps:
    """The steps of a session whose turns have their records. Each is made where it is asked for."""

    def __init__(
        self, session: Session, work: Codec | None, begun: Mapping[str, str] | None = None, *, thoughts: bool = False
    ) -> None:
        """`begun` are the sub-agents that can be read, by the calls that have begun them."""
        self._session, self._work, self._begun, self._thoughts = session, work, begun or {}, thoughts
        self._results = {one.tool_use_id: one for turn in session.turns for one in turn.tool_results}
        self._answered = {one.tool_use_id: i for i, turn in enumerate(session.turns) for one in turn.tool_results}

    def of(self, number: int) -> Iterator[PageStep]:
        """The steps of turn `number`, what was thought first."""
        turn = self._session.turns[number]
        if self._thoughts and (thought := self._thought(number)):
            yield thought
        used = self._used(turn.raw) if turn.tool_calls else {}
        for place, call in enumerate(turn.tool_calls):
            if not call.ours and (step := self._step(number, place, used.get(call.id))):
                yield step

    def output(self, step: PageStep) -> Masked:
        """All that came back from a step, without the header that a shell puts above it."""
        back = self._back(self._session.turns[step.number].tool_calls[step.call].id)
        _, body = status_and_body(back.output) if back else (None, "")
        return printable(beginning(mask(body.strip("\n")), OUTPUT_CHARACTERS))

    def _thought(self, number: int) -> PageStep | None:
        turn, work = self._session.turns[number], self._work
        if work is None:
            return None
        record = _record(turn.raw) if turn.role == "assistant" else None
        said = in_paragraphs((self._between.get(number), work.thought(record) if record else ""))
        if not (text := printable(beginning(mask(said), _THOUGHT_CHARACTERS)).strip()):
            return None
        return PageStep(number=number, call=-1, kind="thought", line=_short(text.partition("\n")[0]), last=(text,))

    @cached_property
    def _between(self) -> Mapping[int, str]:
        """The thoughts that stand in records of their own, by the turns that they stand before."""
        return self._work.thoughts_between(self._session) if self._work else {}

    def _step(self, number: int, place: int, told: UsedTool | None) -> PageStep | None:
        call = self._session.turns[number].tool_calls[place]
        cwd, result, back = self._session.cwd, self._results.get(call.id), self._back(call.id)
        given: Mapping[str, Any] | str = told.given if told else {}
        kind = _kind(call, given)
        parts = () if isinstance(given, str) or kind not in _IN_PARTS else tuple(_parts(given))
        line = str(call.action) or (kind if parts or kind == "agent" else "")
        if not line:
            return None
        failed = result is not None and (result.is_error or bool(result.note))
        note = str(result.note) if result else ""
        status, body = status_and_body(back.output) if back else (None, "")
        diffs = diffs_of(given, back.patch if back else "") if kind == "edit" else ()
        last = _answer(body) if kind in _ANSWERED else _last(body) if kind == "run" or failed else ()
        return PageStep(
            number=number,
            call=place,
            kind=kind,
            line=_shown(line.removeprefix(f"{kind} "), cwd),
            whole=_command(given) if kind == "run" else "",
            failed=failed,
            note=_shown(note, cwd) or ("failed" if failed else ""),
            status=status,
            last=last,
            diffs=tuple(replace(diff, path=inside(diff.path, cwd)) for diff in diffs),
            parts=parts,
            lines=0 if diffs and not failed else _lines(body, last),
            agent=self._begun.get(call.id, ""),
        )

    def _used(self, raw: bytes) -> dict[str, UsedTool]:
        record = _record(raw)
        return {one.id: one for one in self._work.used(record)} if self._work and record else {}

    def _back(self, call: str) -> GivenBack | None:
        """What came back from a call, as the record says it in which its result stands."""
        place = self._answered.get(call)
        record = _record(self._session.turns[place].raw) if place is not None and self._work else None
        if record is None or self._work is None:
            return None
        return next((one for one in self._work.gave(record) if one.id == call), None)


def _record(raw: bytes) -> dict[str, Any] | None:
    return record if isinstance(record := json_in(raw), dict) else None


def _kind(call: ToolCall, given: Mapping[str, Any] | str) -> StepKind:
    if not isinstance(given, str):
        if isinstance(given.get("questions"), list):
            return "question"
        if isinstance(given.get("todos"), list) or isinstance(given.get("plan"), list):
            return "plan"
    if call.edits:
        return "edit"
    if call.name in _AGENTS:
        return "agent"
    return _KINDS.get(call.action.partition(" ")[0], "other")


def _parts(given: Mapping[str, Any]) -> Iterator[PlanPart]:
    for name in ("todos", "plan", "questions"):
        for one in list_in(given.get(name))[:_MOST_PARTS]:
            if not isinstance(one, Mapping):
                continue
            said = next(
                (one[key] for key in ("content", "step", "question", "text") if isinstance(one.get(key), str)), ""
            )
            yield PlanPart(_said(said), _said(str(one.get("status") or "")).replace("_", " "))
            for option in list_in(one.get("options"))[:_MOST_PARTS]:
                label = option.get("label") if isinstance(option, Mapping) else option
                if isinstance(label, str):
                    yield PlanPart(_said(label), "to choose")


def _command(given: Mapping[str, Any] | str) -> str:
    """A command of several lines, or one that a line does not hold."""
    line = given if isinstance(given, str) else command_of(given)
    whole = printable(beginning(mask(line), _COMMAND_CHARACTERS)).strip()
    return whole if "\n" in whole or len(whole) > _COLUMNS else ""


def _last(body: str) -> tuple[str, ...]:
    """The last lines of an output. What is cut off before them is no part of a line of theirs."""
    end = body.rstrip()
    if len(end) > _END_CHARACTERS:
        end = end[-_END_CHARACTERS:].partition("\n")[2]
    lines = [line for line in printable(mask(end)).splitlines() if line.strip()]
    return tuple(_short(line) for line in lines[-LAST_LINES:])


def _lines(body: str, shown: Sequence[str]) -> int:
    """How many lines came back; 0 where all of them are shown."""
    whole = body.strip()
    if len(whole) <= _END_CHARACTERS and "".join(whole.split()) == "".join("".join(shown).split()):
        return 0
    return whole.count("\n") + 1


def _answer(body: str) -> tuple[str, ...]:
    text = printable(beginning(mask(body), _ANSWER_CHARACTERS)).strip()
    return (text,) if text else ()


def _short(line: str) -> str:
    return line if len(line) <= _COLUMNS else f"{line[:_COLUMNS]}…"


def _said(text: str) -> str:
    return _short(" ".join(printable(mask(text)).split()))


def _shown(line: str, cwd: str) -> str:
    return printable(mask(inside(line, cwd)))
