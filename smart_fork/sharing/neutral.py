"""A session as any agent can be told of it: who said what, and a line for each action with how it went.

It stands in no agent's own form, so much is lost of it; what, is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import orjson

from indexer.masking import mask
from indexer.transcripts.boilerplate import strip_reminders
from indexer.transcripts.model import Session, ToolCall, ToolResult, Turn
from indexer.transcripts.retold import ASKED_US, Action, rendered
from smart_fork.agents import AGENTS, READERS
from smart_fork.agents.forms import Record, Told

#: Of what a call gave back, so much is told.
OUTPUT_CHARACTERS = 2_000
_CUT = "…"
#: An edit of more files is told in one line.
MOST_LINES = 50
#: What can be lost, as a person is told of it.
OUTPUT, THINKING, IMAGES, AGENTS_AT_WORK, SYSTEM = "tool output", "thinking", "images", "sub-agents", "system text"


@dataclass(frozen=True, slots=True)
class Message:
    """What somebody said, and what the agent did then. `turn` is its number, as ``show`` says it."""

    role: Literal["user", "assistant"]
    turn: int
    text: str
    actions: tuple[Action, ...] = ()

    def rendered(self) -> str:
        """What was said, and then a line for each thing that was done, with how it went below."""
        return rendered(self.text, self.actions)


@dataclass(frozen=True, slots=True)
class Neutral:
    """A session in the words of nobody's form, and how much of what is missing. Secrets are as they were."""

    messages: tuple[Message, ...]
    lost: Mapping[str, int]


def read(session: Session, end: int | None = None, kept: Collection[int] | None = None) -> Neutral:
    """A session up to turn `end`, or of that those turns that are `kept`.

    What is lost is counted of all up to there.

    Raises:
        NotFound: a session that this one was forked from is gone.
        ForkRefused: the log was rewritten meanwhile.
    """
    told = list(_beside(session, end))
    numbers = sorted(kept) if kept is not None else range(len(session.turns) if end is None else end + 1)
    found = neutral([session.turns[number] for number in numbers], told)
    return Neutral(tuple(replace(one, turn=numbers[one.turn]) for one in found.messages), found.lost)


def _beside(session: Session, end: int | None) -> Iterator[Told]:
    """What of the records of a session is neither text nor call."""
    agent = AGENTS[session.agent]
    if agent.forms:
        yield from map(agent.forms.told, agent.forms.records_of(session, end))
    elif agent.work:
        known = {turn.id for turn in session.turns[: None if end is None else end + 1]}
        whole = READERS[session.agent].read(session.source_path, keep_raw=True).session
        raw = (turn.raw for turn in (whole.turns if whole else ()) if turn.id in known)
        yield from (agent.work.told(record) for one in raw if (record := _record(one)))


def _record(raw: bytes) -> Record:
    try:
        record = orjson.loads(raw) if raw else {}
    except orjson.JSONDecodeError:
        return {}
    return record if isinstance(record, dict) else {}


def neutral(turns: Iterable[Turn], told: Iterable[Told] = ()) -> Neutral:
    """These turns, and what their records said beside them."""
    turns, lost, outputs = list(turns), Counter[str](), dict[str, str]()
    for record in told:
        outputs |= {call: strip_reminders(output) for call, output in record.outputs}
        lost += Counter({THINKING: record.thoughts, IMAGES: record.images, AGENTS_AT_WORK: record.agents})
    lost[SYSTEM] = sum(turn.role == "system" for turn in turns)
    outcomes = _Outcomes(turns, outputs)
    messages: list[Message] = []
    for number, turn in enumerate(turns):
        actions = tuple(one for call in turn.tool_calls for one in outcomes.actions(call))
        if turn.role in ("user", "assistant") and turn.text:
            messages.append(Message("user" if turn.role == "user" else "assistant", number, turn.text, actions))
        elif actions and messages and messages[-1].role == "assistant":
            last = messages.pop()
            messages.append(Message("assistant", last.turn, last.text, (*last.actions, *actions)))
        elif actions:
            messages.append(Message("assistant", number, "", actions))
    lost[OUTPUT] = outcomes.cut
    return Neutral(tuple(messages), {what: number for what, number in sorted(lost.items()) if number})


class _Outcomes:
    """How the calls went; `cut` counts those of which not all is told."""

    def __init__(self, turns: Iterable[Turn], outputs: Mapping[str, str]) -> None:
        self._results = {result.tool_use_id: result for turn in turns for result in turn.tool_results}
        self._outputs = outputs
        self.cut = 0

    def actions(self, call: ToolCall) -> Iterator[Action]:
        """What is told of a call: a line, or one for each file, where it edits several."""
        result = self._results.get(call.id)
        if call.ours:
            yield Action(ASKED_US, failed=result is not None and result.is_error, answered=result is not None)
            return
        many = 1 < len(call.edits) <= MOST_LINES
        *lines, last = [mask(f"edit {path}") for path in call.edits] if many else [call.action or call.name]
        if result is None:
            yield from (Action(line, answered=False) for line in (*lines, last))
            return
        yield from (Action(line, failed=result.is_error) for line in lines)
        yield Action(last, self._outcome(call, result), result.is_error, proof=result.proof)

    def _outcome(self, call: ToolCall, result: ToolResult) -> str:
        output = self._outputs.get(call.id)
        whole = output is not None and len(output) <= OUTPUT_CHARACTERS
        self.cut += not whole
        if output is None:
            return result.note
        return output if whole else output[:OUTPUT_CHARACTERS] + _CUT
