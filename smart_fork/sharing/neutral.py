"""A session as any agent can be told of it: who said what, and a line for each action with how it went.

It stands in no agent's own form, so much is lost of it; what, is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import orjson

from indexer.masking import mask, shorten
from indexer.transcripts.actions import status_and_body
from indexer.transcripts.boilerplate import strip_reminders
from indexer.transcripts.commands import command_of, patch_of
from indexer.transcripts.model import Session, ToolCall, ToolResult, Turn
from indexer.transcripts.retold import ASKED_US, Action, rendered
from indexer.transcripts.symbols import Symbols, forget_shown
from smart_fork.agents import AGENTS, READERS
from smart_fork.agents.codec import Record, Told

#: Of what a call gave back, so much is told.
OUTPUT_CHARACTERS = 2_000
#: Of what an edit has changed, and of what was given to a call that says nothing of it on its line.
EDIT_CHARACTERS, GIVEN_CHARACTERS = 600, 400
#: Of the names in what is not told of a call, so much is.
NAMES_CHARACTERS = 2_000
_CUT = "…"
#: What a call was given that is shorter than this is not worth a line.
_WORTH_A_LINE = 60
#: An edit of more files is told in one line.
MOST_LINES = 50
#: How the agents' tools that edit call what they take away, and what they put there.
_TAKEN = ("old_string", "old_str", "oldString")
_PUT = ("new_string", "new_str", "newString", "content", "file_text")
Given = Mapping[str, Any] | str
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


class Made(NamedTuple):
    """What calls were given, and what edits have changed as unified diffs, by the ids of the calls."""

    given: Mapping[str, Given]
    patches: Mapping[str, str]


NOTHING_MADE = Made({}, {})


def read(session: Session, end: int | None = None, kept: Collection[int] | None = None) -> Neutral:
    """A session up to turn `end`, or of that those turns that are `kept`.

    What is lost is counted of all up to there.

    Raises:
        NotFound: a session that this one was forked from is gone.
        ForkRefused: the log was rewritten meanwhile.
    """
    beside = list(_beside(session, end))
    work = AGENTS[session.agent].codec
    used = [one for _, record in beside for one in work.used(record)] if work else []
    gave = [one for _, record in beside for one in work.gave(record)] if work else []
    made = Made({one.id: one.given for one in used}, {one.id: one.patch for one in gave if one.patch})
    numbers = sorted(kept) if kept is not None else range(len(session.turns) if end is None else end + 1)
    found = neutral([session.turns[number] for number in numbers], [told for told, _ in beside], made)
    return Neutral(tuple(replace(one, turn=numbers[one.turn]) for one in found.messages), found.lost)


def _beside(session: Session, end: int | None) -> Iterator[tuple[Told, Record]]:
    """The records of a session, each with what of it is neither text nor call."""
    agent = AGENTS[session.agent]
    if agent.forms:
        yield from ((agent.forms.told(record), record) for record in agent.forms.records_of(session, end))
    elif agent.codec:
        known = {turn.id for turn in session.turns[: None if end is None else end + 1]}
        whole = READERS[session.agent].read(session.source_path, keep_raw=True).session
        raw = (turn.raw for turn in (whole.turns if whole else ()) if turn.id in known)
        yield from ((agent.codec.told(record), record) for one in raw if (record := _record(one)))


def _record(raw: bytes) -> Record:
    try:
        record = orjson.loads(raw) if raw else {}
    except orjson.JSONDecodeError:
        return {}
    return record if isinstance(record, dict) else {}


def neutral(turns: Iterable[Turn], told: Iterable[Told] = (), made: Made = NOTHING_MADE) -> Neutral:
    """These turns, and what their records said beside them."""
    turns, lost, outputs = list(turns), Counter[str](), dict[str, str]()
    for record in told:
        outputs |= {call: strip_reminders(output) for call, output in record.outputs}
        lost += Counter({THINKING: record.thoughts, IMAGES: record.images, AGENTS_AT_WORK: record.agents})
    lost[SYSTEM] = sum(turn.role == "system" for turn in turns)
    outcomes = _Outcomes(turns, outputs, made)
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
    forget_shown()
    lost[OUTPUT] = outcomes.cut
    return Neutral(tuple(messages), {what: number for what, number in sorted(lost.items()) if number})


class _Outcomes:
    """How the calls went; `cut` counts those of which not all is told.

    Names of code that stand only in what is not told are named, each once: a session is found by what it has seen.
    """

    def __init__(self, turns: Iterable[Turn], outputs: Mapping[str, str], made: Made) -> None:
        self._results = {result.tool_use_id: result for turn in turns for result in turn.tool_results}
        self._outputs, self._made = outputs, made
        self._named = set[str]()
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
        outcome = self._outcome(call, result)
        names = self._only_seen(call, (*lines, last, outcome))
        yield Action(last, outcome, result.is_error, proof=result.proof, names=names)

    def _only_seen(self, call: ToolCall, told: Iterable[str]) -> tuple[str, ...]:
        """The names in what a call was given and gave back that are neither `told` of it nor were before."""
        said, seen = Symbols(), Symbols()
        for text in told:
            said.add(text)
        seen.add_all(self._made.given.get(call.id))
        seen.add(_without_header(self._outputs.get(call.id, "")))
        self._named.update(said)
        left, new = NAMES_CHARACTERS, list[str]()
        for name in seen:
            if name not in self._named and (left := left - len(name) - 1) >= 0:
                new.append(name)
        self._named.update(new)
        return tuple(new)

    def _outcome(self, call: ToolCall, result: ToolResult) -> str:
        given = self._made.given.get(call.id, {})
        if call.edits and not result.is_error and (lines := changed(given, self._made.patches.get(call.id, ""))):
            return self._begun("\n".join(lines), EDIT_CHARACTERS)
        asked = "" if call.action else _in_short(given)
        output = self._outputs.get(call.id)
        if output is None:
            self.cut += 1
            return "\n".join(filter(None, (asked, result.note)))
        return "\n".join(filter(None, (asked, self._begun(_without_header(output), OUTPUT_CHARACTERS))))

    def _begun(self, text: str, most: int) -> str:
        self.cut += len(text) > most
        return text if len(text) <= most else text[:most] + _CUT


def changed(given: Given, patch: str) -> list[str]:
    """The lines that an edit has taken away and put there, by its diff, else by what it was given."""
    if patch:
        return [line for line in patch.splitlines() if line.startswith(("+", "-")) and line[:3] not in ("+++", "---")]
    if isinstance(given, str):
        lines = [line for line in given.splitlines() if line.startswith(("+", "-", "*** "))]
        return [line for line in lines if not line.startswith(("*** Begin Patch", "*** End Patch"))]
    if "*** Begin" in (text := patch_of(given) or command_of(given)):
        return changed(text, "")
    edits = given.get("edits")
    parts = [one for one in edits if isinstance(one, dict)] if isinstance(edits, list) else [given]
    return [line for part in parts for line in _replaced(part)]


def _replaced(part: Mapping[str, Any]) -> Iterator[str]:
    for sign, names in (("-", _TAKEN), ("+", _PUT)):
        text = next((part[name] for name in names if isinstance(part.get(name), str)), "")
        yield from (f"{sign}{line}" for line in text.splitlines())


def _in_short(given: Given) -> str:
    """What a call was given that nothing else says: a plan, a question, a list of what is to be done."""
    text = given if isinstance(given, str) else orjson.dumps(given, default=str).decode()
    return f"given {shorten(mask(text), GIVEN_CHARACTERS)}" if len(text) >= _WORTH_A_LINE else ""


def _without_header(output: str) -> str:
    """What came back without what a shell says above it, but for an exit status that is no success."""
    status, body = status_and_body(output)
    if status is None:
        return output
    return "\n".join(filter(None, (f"Exit code: {status}" if status else "", body.strip("\n"))))
