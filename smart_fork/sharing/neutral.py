"""A session as any agent can be told of it: who said what, and a line for each action with how it went.

It stands in no agent's own form, so much is lost of it; what, is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from indexer.transcripts.boilerplate import strip_reminders
from indexer.transcripts.model import Session, ToolCall, Turn
from indexer.transcripts.retold import DONE
from smart_fork.agents import AGENTS
from smart_fork.agents.forms import Told

#: Of what a call gave back, so much is told.
OUTPUT_CHARACTERS = 2_000
_CUT = "…"
#: What can be lost, as a person is told of it.
OUTPUT, THINKING, IMAGES, AGENTS_AT_WORK, SYSTEM = "tool output", "thinking", "images", "sub-agents", "system text"


@dataclass(frozen=True, slots=True)
class Action:
    """Something that the agent did, on one line, and how it went, as far as that is told."""

    line: str
    outcome: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    """What somebody said, and what the agent did then. `turn` is its number, as ``show`` says it."""

    role: Literal["user", "assistant"]
    turn: int
    text: str
    actions: tuple[Action, ...] = ()

    def rendered(self) -> str:
        """What was said, and then a line for each thing that was done, with how it went below."""
        lines = [self.text] if self.text else []
        if self.actions:
            lines += ["", DONE] if lines else [DONE]
        for action in self.actions:
            lines.append(f"- {' '.join(action.line.split())}{' (failed)' if action.failed else ''}")
            lines += (f"    {line}" for line in action.outcome.splitlines())
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Neutral:
    """A session in the words of nobody's form, and how much of what is missing. Secrets are as they were."""

    messages: tuple[Message, ...]
    lost: Mapping[str, int]


def read(session: Session, end: int | None = None, kept: Collection[int] | None = None) -> Neutral:
    """A session up to turn `end`, or of that those turns that are `kept`.

    What calls gave back is told only of agents whose records are known; what is lost is counted of all up to there.

    Raises:
        NotFound: a session that this one was forked from is gone.
        ForkRefused: the log was rewritten meanwhile.
    """
    forms = AGENTS[session.agent].forms
    told = [forms.told(record) for record in forms.records_of(session, end)] if forms else []
    numbers = sorted(kept) if kept is not None else range(len(session.turns) if end is None else end + 1)
    found = neutral([session.turns[number] for number in numbers], told)
    return Neutral(tuple(replace(one, turn=numbers[one.turn]) for one in found.messages), found.lost)


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
        actions = tuple(outcomes.action(call) for call in turn.tool_calls if not call.ours)
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

    def action(self, call: ToolCall) -> Action:
        line, result = call.action or call.name, self._results.get(call.id)
        if result is None:
            return Action(line)
        output = self._outputs.get(call.id)
        whole = output is not None and len(output) <= OUTPUT_CHARACTERS
        self.cut += not whole
        said = result.note if output is None else output
        return Action(line, said if whole or output is None else said[:OUTPUT_CHARACTERS] + _CUT, result.is_error)
