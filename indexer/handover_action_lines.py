"""The actions in the text of a handed-over session (one agent's session, given to another as text).

Each action is one line, with its result below, in a message of the agent that received the session. This module writes
and parses them. They are indexed like actions, and count for a session's outcome like calls with results.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import starmap
from typing import NamedTuple

from indexer.masking import NOTHING, mask
from indexer.masking.alternate_readings import BRACKETS, INVISIBLE, QUOTES
from indexer.transcripts.actions import error_note, read_by
from indexer.transcripts.model import Proof, ToolCall, ToolResult, Turn

#: The line before the handed-over actions.
DONE = "Done then, by another agent:"
#: The action line of a question to smart-fork. Neither its output nor smart-fork's answer is handed over.
ASKED_US = "ask smart-fork"
#: The text in place of a missing answer.
UNANSWERED = "(This was not answered: the session ends here.)"
_ACTION, _OUTPUT = "- ", "    "
#: The text before names of code that an action has to do with, of which nothing else is handed over.
_NAMES = "… with "
#: Words behind an action line for its result: it failed, it has no result, or nothing special; below, what it proves.
_FAILED, _NO_RESULT, _PLAIN = "failed", "not answered", "done"
_PROOFS = {Proof.COMMITTED: "committed", Proof.TESTS_PASSED: "tests passed", Proof.FAILED: "did not pass"}
_PROVED = {words: proof for proof, words in _PROOFS.items()}
_WORDS = "|".join((_FAILED, _NO_RESULT, _PLAIN, *_PROVED))
_HOW = re.compile(rf" \(((?:{_WORDS})(?:, (?:{_WORDS}))?)\)$")
#: What a reader may take for a tag, and the replacement of its bracket. Words stay whole, because cut text is searched
#: for by them.
_TAG, _BRACKET = re.compile(r"<(?=[\w/!?])"), "[<]"
_ALIKE = str.maketrans(BRACKETS[2:], "[]" * (len(BRACKETS) // 2 - 1))
#: A line end in a quoted output.
_BREAK = " ⏎ "
_QUOTED = {**_ALIKE, **dict.fromkeys(map(ord, QUOTES), "'"), ord('"'): '\\"', ord("\\"): "\\\\", ord("\n"): _BREAK}
_ESCAPED = re.compile(rf"\\(.)|{_BREAK}")
_EDIT, _READ, _RUN, _CUT = "edit ", "read ", "run ", "…"


class HandedOverAction(NamedTuple):
    """An action in a handed-over session (one agent's session, given to another as text): its action line and result.

    `names` are names of code that occur in the action.
    """

    line: str
    outcome: str = ""
    failed: bool = False
    answered: bool = True
    proof: Proof = Proof.NOTHING
    names: tuple[str, ...] = ()

    @property
    def noted(self) -> str:
        """Return the action line as it is indexed: with the beginning of the output if the action failed."""
        return f"{self.line} -> {error_note(self.outcome)}" if self.failed else self.line

    def rendered(self) -> Iterator[str]:
        """Yield the lines for the action. Its output is quoted on one line, so that it cannot look like an action."""
        line = _safe(" ".join(self.line.split())).translate(_ALIKE)
        how = [_FAILED] * self.failed + [_NO_RESULT] * (not self.answered)
        how += [_PROOFS[self.proof]] if self.proof else []
        if not how and _HOW.search(line):  # that is its own, and says nothing of how it went
            how = [_PLAIN]
        yield f"{_ACTION}{line} ({', '.join(how)})" if how else f"{_ACTION}{line}"
        if self.outcome:
            lines = "\n".join(self.outcome.splitlines())
            yield f'{_OUTPUT}"{_safe(lines).translate(_QUOTED)}"'
        if self.names:
            yield f"{_OUTPUT}{_NAMES}{' '.join(self.names)}"


class HandoverText(NamedTuple):
    """The message (`said`) and actions (`done`) in a text of a handed-over session (one agent's, given to another)."""

    said: str
    done: tuple[HandedOverAction, ...] = ()


def render_handover(said: str, done: Iterable[HandedOverAction]) -> str:
    """Return the text `said`, then a line for each action with its result below."""
    lines = [line for action in done for line in action.rendered()]
    return "\n".join([*([said] if said else []), *([""] if said and lines else []), *([DONE] if lines else []), *lines])


def parse_handover(text: str) -> HandoverText:
    """Split an agent's text into its message and the actions of another agent at its end. Most texts have none."""
    said, begins, block = text.rpartition(f"{DONE}\n")
    lines = block.splitlines()
    if not begins or (said and not said.endswith("\n\n")) or not all(map(_is_told, lines)):
        return HandoverText(text)
    done: list[tuple[str, list[str]]] = []
    for line in lines:
        if line.startswith(_ACTION):
            done.append((line.removeprefix(_ACTION), []))
        elif done:
            done[-1][1].append(line.removeprefix(_OUTPUT))
    return HandoverText(said.strip(), tuple(starmap(_action, done))) if done else HandoverText(text)


def is_broken_off(turn: Turn) -> bool:
    """Return True if a turn of a handed-over session says that the agent before had not finished its work."""
    if turn.role != "assistant":
        return False
    return turn.text == UNANSWERED or (DONE in turn.text and bool(parse_handover(turn.text).done))


def calls_of(turn: Turn) -> tuple[ToolCall, ...]:
    """Return the tool calls of a turn, including calls of another agent in the text of a handed-over session."""
    return (*turn.tool_calls, *(call for call, _ in _told(turn))) if DONE in turn.text else turn.tool_calls


def results_of(turn: Turn) -> tuple[ToolResult, ...]:
    """Return the tool results of a turn, including those of another agent in the text of a handed-over session."""
    return (*turn.tool_results, *(one for _, one in _told(turn) if one)) if DONE in turn.text else turn.tool_results


def _told(turn: Turn) -> Iterator[tuple[ToolCall, ToolResult | None]]:
    """Yield (call, result or `None`) for the actions of another agent in a turn's text. The calls get made-up ids."""
    if turn.role != "assistant":
        return
    for number, one in enumerate(parse_handover(turn.text).done):
        identity, ours = f"told {turn.id} {number}", one.line == ASKED_US
        call = ToolCall(identity, "", NOTHING if ours else mask(one.line), ours, _edited(one.line), _shown(one.line))
        note = mask(error_note(one.outcome)) if one.failed else NOTHING
        yield call, ToolResult(identity, one.failed, note, one.proof) if one.answered else None


def _edited(line: str) -> tuple[str, ...]:
    """Return the file that an action line edits, as a tuple; empty for other actions, and for a truncated line."""
    return (line.removeprefix(_EDIT),) if line.startswith(_EDIT) and not line.endswith(_CUT) else ()


def _shown(line: str) -> tuple[str, ...]:
    if line.endswith(_CUT):
        return ()
    if line.startswith(_READ):
        return (line.removeprefix(_READ),)
    return read_by("Bash", {"command": line.removeprefix(_RUN)}) if line.startswith(_RUN) else ()


def _is_told(line: str) -> bool:
    return line.startswith((_ACTION, _OUTPUT)) or not line.strip()


def _action(line: str, output: list[str]) -> HandedOverAction:
    found = _HOW.search(line)
    how = found[1].split(", ") if found else []
    proof = next((_PROVED[word] for word in how if word in _PROVED), Proof.NOTHING)
    line = (line[: found.start()] if found else line).replace(_BRACKET, "<")
    names = tuple(output.pop().removeprefix(_NAMES).split()) if output and output[-1].startswith(_NAMES) else ()
    return HandedOverAction(line, _unquoted("\n".join(output)), _FAILED in how, _NO_RESULT not in how, proof, names)


def _safe(text: str) -> str:
    return _TAG.sub(_BRACKET, INVISIBLE.sub("", text))


def _unquoted(output: str) -> str:
    """Return an output without the quotes around it. Earlier versions wrote it without quotes, on several lines."""
    if len(output) < 2 or "\n" in output or output[0] + output[-1] != '""':
        return output
    return _ESCAPED.sub(lambda one: one[1] or "\n", output[1:-1]).replace(_BRACKET, "<")
