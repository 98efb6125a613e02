"""An agent's steps (tool calls and thoughts) as the page shows them: a masked line for each, and the diffs of edits.

Only the agent's `Codec` knows the format of the records.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from indexer.json_values import json_in, list_in
from indexer.lazy_compilation import dataclass
from indexer.masking import Masked, beginning, mask, mask_parts
from indexer.transcripts.actions import status_and_body
from indexer.transcripts.commands import command_of, patch_of
from indexer.transcripts.model import GivenBack, Session, ToolCall, UsedTool
from smart_fork.agents.decoders import Codec
from smart_fork.display_text import printable

LineKind = Literal["same", "added", "removed", "gap"]
#: The limits of a shown edit: lines, characters of a line, and characters beyond which only the lines are counted.
MAX_LINES, MAX_COLUMNS, MAX_CHARACTERS = 400, 400, 200_000
#: The equal lines shown around a change, and the number of lines that are compared one by one.
_AROUND, _MAX_COMPARED = 3, 2_000
_BEGIN = "*** Begin Patch"
_FILE = re.compile(r"^\*\*\* (Add|Update|Delete) File: (.+)$")
_MOVED = re.compile(r"^\*\*\* Move to: (.+)$")
_HUNK = re.compile(r"^@@ -(\d{1,9})(?:,\d{1,9})? \+(\d{1,9})(?:,\d{1,9})? @@")
_HOW = {"Add": "added", "Update": "edited", "Delete": "deleted"}
#: The parts of a git patch: where a file begins, how it changed, whether it is binary, and its name.
_NEXT = re.compile(r"^(?=diff --git )", re.MULTILINE)
_TOLD = {"new file mode": "added", "deleted file mode": "deleted", "rename from ": "moved"}
_BINARIES = ("\nBinary files ", "\nGIT binary patch")
_NAMES = re.compile(r'^(?:\+\+\+|---|rename to) ("?)(?:[ab]/)?(.+?)\1\t?$')
_NOWHERE, _BINARY = "/dev/null", "a binary file"
#: The number of lines shown of each file in a git patch.
MAX_PATCH_LINES = 4_000
#: The arguments of tools with the replaced text and its replacement, with the text of a whole file, and with a path.
_PAIRS = (("old_string", "new_string"), ("old_str", "new_str"), ("oldString", "newString"))
_WHOLE = ("content", "file_text", "new_source")
_PATH = ("file_path", "notebook_path", "path", "filePath")


def shorten_paths(text: str, directory: str) -> str:
    """Shorten the paths in `text`: relative to `directory`, or with ``~`` for the home directory."""
    for start, instead in ((directory, ""), (str(Path.home()), "~/")):
        if start.strip("/"):
            text = text.replace(f"{start.rstrip('/')}/", instead)
    return text


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line of a diff. A line of kind "gap" replaces hidden lines; its text says where the file continues."""

    kind: LineKind
    text: str


@dataclass(frozen=True, slots=True)
class FileDiff:
    """The changes of one file. `how` says what happened to it, such as "edited" or "added".

    `note` is the reason if no lines are shown, for example a binary file. `hidden` counts the lines beyond the limit.
    """

    path: str
    how: str
    lines: tuple[DiffLine, ...] = ()
    added: int = 0
    removed: int = 0
    hidden: int = 0
    note: str = ""


def diffs_of(given: Mapping[str, Any] | str, patch: str = "") -> tuple[FileDiff, ...]:
    """Return the changes of files by an editing tool call, from its arguments `given`.

    `patch` is the diff in the call's result, which takes precedence if there is one.
    """
    own = _own_patch(given)
    if own or isinstance(given, str):
        return tuple(_of_patch(own))
    path = next((given[name] for name in _PATH if isinstance(given.get(name), str)), "")
    if patch and (lines := tuple(_of_unified(patch))):
        return (_file_diff(path, "edited", lines),)
    pairs = list(_pairs(given))
    if pairs:
        return (compared(path, pairs),)
    whole = next((given[name] for name in _WHOLE if isinstance(given.get(name), str)), None)
    return () if whole is None else (compared(path, [("", whole)], "written"),)


def diffs_in(patch: str) -> tuple[FileDiff, ...]:
    """Split a patch in git's format into the changes of each file."""
    return tuple(_of_git(part) for part in _NEXT.split(patch) if part.strip())


def _of_git(part: str) -> FileDiff:
    """Parse a `part` of a git patch as one file's changes. Text in another format becomes lines of a nameless file."""
    head, _, rest = part.partition("\n@@ ")
    if not head.startswith("diff --git "):
        return _file_diff("", "edited", [_line(line) for line in part.splitlines()], MAX_PATCH_LINES)
    how = next((said for told, said in _TOLD.items() if f"\n{told}" in head), "edited")
    names = [found[2] for line in head.splitlines() if (found := _NAMES.match(line)) and found[2] != _NOWHERE]
    path = names[-1] if names else _name_in_header(head.partition("\n")[0].removeprefix("diff --git "))
    diff = _file_diff(path, how, tuple(_of_unified(f"@@ {rest}")) if rest else (), MAX_PATCH_LINES)
    return replace(diff, note=_BINARY) if any(told in head for told in _BINARIES) else diff


def _name_in_header(header: str) -> str:
    """Return the file's name from a header ``a/name b/name``; if the two names differ, the whole header."""
    before, after = header[: len(header) // 2], header[len(header) // 2 + 1 :]
    return after.removeprefix("b/") if before.removeprefix("a/") == after.removeprefix("b/") else header


def _own_patch(given: Mapping[str, Any] | str) -> str:
    """Return the argument of a tool call that has a patch with the mark ``*** Begin Patch``; "" without one."""
    values = [given] if isinstance(given, str) else [patch_of(given), given.get("command"), given.get("cmd")]
    texts = (text for value in values for text in (value if isinstance(value, list) else [value]))
    return next((text for text in texts if isinstance(text, str) and _BEGIN in text), "")


def _pairs(given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each replaced text with its replacement, from the arguments of an editing tool call."""
    for one in (given, *list_in(given.get("edits"))):
        for old, new in _PAIRS if isinstance(one, Mapping) else ():
            if isinstance(one.get(old), str) or isinstance(one.get(new), str):
                yield str(one.get(old) or ""), str(one.get(new) or "")


def compared(path: str, pairs: Sequence[tuple[str, str]], how: str = "edited") -> FileDiff:
    """Return the changes of a file by replacing the first text of each pair with the second."""
    if note := _unreadable(text for pair in pairs for text in pair):
        gone, came = (sum(len(pair[side].splitlines()) for pair in pairs) for side in (0, 1))
        return FileDiff(_name(path), how, added=came, removed=gone, note=note)
    lines: list[DiffLine] = []
    for before, after in pairs:
        if lines:
            lines.append(DiffLine("gap", ""))
        lines += _differing(printable(mask(before)).splitlines(), printable(mask(after)).splitlines())
    return _cut(path, how, lines)


def _differing(before: Sequence[str], after: Sequence[str]) -> Iterator[DiffLine]:
    """Yield the removed and added lines of two texts, with some equal lines around them."""
    groups: Iterable[list[tuple[str, int, int, int, int]]] = [[("replace", 0, len(before), 0, len(after))]]
    if len(before) + len(after) <= _MAX_COMPARED:
        groups = SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(_AROUND)
    for number, group in enumerate(groups):
        if number:
            yield DiffLine("gap", "")
        for tag, old, old_end, new, new_end in group:
            if tag == "equal":
                yield from (DiffLine("same", line) for line in before[old:old_end])
                continue
            yield from (DiffLine("removed", line) for line in before[old:old_end])
            yield from (DiffLine("added", line) for line in after[new:new_end])


def _of_patch(text: str) -> Iterator[FileDiff]:
    """Yield the changes of each file in a patch between ``*** Begin Patch`` and ``*** End Patch``."""
    path, how, lines = "", "", list[DiffLine]()
    for line in text.partition(_BEGIN)[2].partition("\n*** End Patch")[0].splitlines():
        if opening := _FILE.match(line):
            if path:
                yield _file_diff(path, how, lines)
            path, how, lines = opening[2].strip(), _HOW[opening[1]], []
        elif moved := _MOVED.match(line):
            how = f"moved to {printable(mask(moved[1].strip()))}, and edited"
        elif line.startswith("@@"):
            if lines or line[2:].strip():
                lines.append(DiffLine("gap", line[2:].strip()))
        elif path:
            lines.append(_line(line))
    if path:
        yield _file_diff(path, how, lines)


def _of_unified(text: str) -> Iterator[DiffLine]:
    """Yield the lines of the hunks of a unified diff, without the headers."""
    inside = False
    for line in text.splitlines():
        if hunk := _HUNK.match(line):
            inside = True
            yield DiffLine("gap", f"line {hunk[2]}")
        elif line.startswith(("diff --git ", "Index: ")):
            inside = False
        elif inside and line[:1] in ("+", "-", " ", ""):
            yield _line(line)


_LINE_KINDS: Mapping[str, LineKind] = {"+": "added", "-": "removed"}


def _line(line: str) -> DiffLine:
    return DiffLine(_LINE_KINDS.get(line[:1], "same"), line[1:])


def _file_diff(path: str, how: str, lines: Sequence[DiffLine], most: int = MAX_LINES) -> FileDiff:
    """Build a file's changes from a diff's lines. Old and new text are masked separately: a secret may span lines."""
    added, removed = _count(lines, "added"), _count(lines, "removed")
    if note := _unreadable(line.text for line in lines):
        return FileDiff(_name(path), how, added=added, removed=removed, note=note)
    texts = [line.text for line in lines]
    for side in ("added", "removed"):
        numbers = [i for i, line in enumerate(lines) if line.kind != side]
        for number, text in zip(numbers, mask_parts([texts[i] for i in numbers]), strict=True):
            texts[number] = text
    shown = [DiffLine(line.kind, printable(text)) for line, text in zip(lines, texts, strict=True)]
    return _cut(path, how, shown, most)


def _cut(path: str, how: str, lines: Sequence[DiffLine], most: int = MAX_LINES) -> FileDiff:
    lines = lines[1:] if lines and lines[0] == DiffLine("gap", "line 1") else lines
    shown = tuple(DiffLine(line.kind, _short(line.text, MAX_COLUMNS)) for line in lines[:most])
    hidden = sum(line.kind != "gap" for line in lines[most:])
    return FileDiff(_name(path), how, shown, _count(lines, "added"), _count(lines, "removed"), hidden)


def _count(lines: Iterable[DiffLine], kind: LineKind) -> int:
    return sum(line.kind == kind for line in lines)


def _unreadable(texts: Iterable[str]) -> str:
    """Return the reason why an edit's texts are not shown: they are binary or too large; else ""."""
    known = list(texts)
    if any("\0" in text for text in known):
        return _BINARY
    return "too large to be shown" if sum(map(len, known)) > MAX_CHARACTERS else ""


def _name(path: str) -> str:
    return printable(mask(path))


StepKind = Literal["read", "run", "edit", "search", "plan", "question", "agent", "thought", "other"]
#: The last lines of a command's output: their number, the characters in which they are searched, and their length.
LAST_LINES, _END_CHARACTERS, _COLUMNS = 3, 8_000, 240
#: The limits of a shown command, of the parts of a plan or question, and of an answer.
_COMMAND_CHARACTERS, _MAX_PARTS, _ANSWER_CHARACTERS = 4_000, 50, 2_000
#: The characters shown of one thought of the model.
_THOUGHT_CHARACTERS = 8_000
#: The characters shown of a step's output on its own page.
OUTPUT_CHARACTERS = 400_000
#: The kind of a step by the first word of its action.
_KINDS: Mapping[str, StepKind] = {"read": "read", "run": "run", "edit": "edit", "search": "search"}
#: The fields that may have the text of an item of a plan or a question.
_WORDS = ("content", "step", "question", "text")
_IN_PARTS, _ANSWERED = ("plan", "question"), ("question", "agent")
_AGENTS = ("Task", "Agent", "task", "agent", "spawn_agent")


@dataclass(frozen=True, slots=True)
class StepPart:
    """A part of a plan or of a question to the user: an item with its state, a question, or an answer to choose."""

    text: str
    state: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageStep:
    """One step of the agent, in turn `number`: a tool call or a thought.

    `call` is the index of the tool call in its turn; -1 for a thought. `line` describes the step, and `whole` is a
    command that is too long for a line. `note` says what failed. `last` has the end of the output; for a question or a
    sub-agent, the start of the answer. `lines` counts the lines of the output, or is 0 if `last` has all of them.
    `agent` names the sub-agent that the step started, if its conversation can be read.
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
    parts: tuple[StepPart, ...] = ()
    lines: int = 0
    agent: str = ""

    @property
    def added(self) -> int:
        return sum(diff.added for diff in self.diffs)

    @property
    def removed(self) -> int:
        return sum(diff.removed for diff in self.diffs)


class Steps:
    """The steps (tool calls and thoughts) of a session that was read with its raw records, each built on request."""

    def __init__(
        self, session: Session, codec: Codec | None, begun: Mapping[str, str] | None = None, *, thoughts: bool = False
    ) -> None:
        """Prepare the steps of `session`. `codec` decodes the agent's records. With `thoughts`, thoughts are steps too.

        `begun` maps ids of tool calls to the names of the sub-agents that they started.
        """
        self._session, self._codec, self._begun, self._thoughts = session, codec, begun or {}, thoughts
        self._results = {one.tool_use_id: one for turn in session.turns for one in turn.tool_results}
        self._answered = {one.tool_use_id: i for i, turn in enumerate(session.turns) for one in turn.tool_results}

    def of(self, number: int) -> Iterator[PageStep]:
        """Yield the steps of turn `number`: first a thought, if any, then the tool calls."""
        turn = self._session.turns[number]
        if self._thoughts and (thought := self._thought(number)):
            yield thought
        used = self._used(turn.raw) if turn.tool_calls else {}
        for place, call in enumerate(turn.tool_calls):
            if not call.ours and (step := self._step(number, place, used.get(call.id))):
                yield step

    def output(self, step: PageStep) -> Masked:
        """Return a tool call's whole output, without the header (such as the exit status) of a shell tool."""
        back = self._output_of(self._session.turns[step.number].tool_calls[step.call].id)
        _, body = status_and_body(back.output) if back else (None, "")
        return printable(beginning(mask(body.strip("\n")), OUTPUT_CHARACTERS))

    def _thought(self, number: int) -> PageStep | None:
        turn, codec = self._session.turns[number], self._codec
        if codec is None:
            return None
        record = _record(turn.raw) if turn.role == "assistant" else None
        said = codec.thought(record, self._thoughts_before.get(number))
        if not (text := printable(beginning(mask(said), _THOUGHT_CHARACTERS)).strip()):
            return None
        return PageStep(number=number, call=-1, kind="thought", line=_short(text.partition("\n")[0]), last=(text,))

    @cached_property
    def _thoughts_before(self) -> Mapping[int, str]:
        """Return the thoughts that have records of their own, by the number of the turn that follows."""
        return self._codec.thoughts_between(self._session) if self._codec else {}

    def _step(self, number: int, place: int, told: UsedTool | None) -> PageStep | None:
        call = self._session.turns[number].tool_calls[place]
        cwd, result, back = self._session.cwd, self._results.get(call.id), self._output_of(call.id)
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
            number=number, call=place, kind=kind, line=_shown(line.removeprefix(f"{kind} "), cwd),
            whole=_command(given) if kind == "run" else "", failed=failed,
            note=_shown(note, cwd) or ("failed" if failed else ""), status=status, last=last,
            diffs=tuple(replace(diff, path=shorten_paths(diff.path, cwd)) for diff in diffs), parts=parts,
            lines=0 if diffs and not failed else _lines(body, last), agent=self._begun.get(call.id, ""),
        )  # fmt: skip

    def _used(self, raw: bytes) -> dict[str, UsedTool]:
        record = _record(raw)
        return {one.id: one for one in self._codec.used(record)} if self._codec and record else {}

    def _output_of(self, call: str) -> GivenBack | None:
        """Return the output of the tool call with the id `call`; `None` if the log has no record of its result."""
        place = self._answered.get(call)
        record = _record(self._session.turns[place].raw) if place is not None and self._codec else None
        if record is None or self._codec is None:
            return None
        return next((one for one in self._codec.gave(record) if one.id == call), None)


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


def _parts(given: Mapping[str, Any]) -> Iterator[StepPart]:
    for name in ("todos", "plan", "questions"):
        for one in list_in(given.get(name))[:_MAX_PARTS]:
            if not isinstance(one, Mapping):
                continue
            said = next((one[key] for key in _WORDS if isinstance(one.get(key), str)), "")
            yield StepPart(_said(said), _said(str(one.get("status") or "")).replace("_", " "))
            for option in list_in(one.get("options"))[:_MAX_PARTS]:
                label = option.get("label") if isinstance(option, Mapping) else option
                if isinstance(label, str):
                    yield StepPart(_said(label), "to choose")


def _command(given: Mapping[str, Any] | str) -> str:
    """Return the command in a tool call's arguments, if it is too long for one line; else ""."""
    line = given if isinstance(given, str) else command_of(given)
    whole = printable(beginning(mask(line), _COMMAND_CHARACTERS)).strip()
    return whole if "\n" in whole or len(whole) > _COLUMNS else ""


def _last(body: str) -> tuple[str, ...]:
    """Return the last `LAST_LINES` lines of a command's output. A line of which only the end was read is left out."""
    end = body.rstrip()
    if len(end) > _END_CHARACTERS:
        end = end[-_END_CHARACTERS:].partition("\n")[2]
    lines = [line for line in printable(mask(end)).splitlines() if line.strip()]
    return tuple(_short(line) for line in lines[-LAST_LINES:])


def _lines(body: str, shown: Sequence[str]) -> int:
    """Return the number of lines of the output `body`, or 0 if `shown` has all of them."""
    whole = body.strip()
    if len(whole) <= _END_CHARACTERS and "".join(whole.split()) == "".join("".join(shown).split()):
        return 0
    return whole.count("\n") + 1


def _answer(body: str) -> tuple[str, ...]:
    text = printable(beginning(mask(body), _ANSWER_CHARACTERS)).strip()
    return (text,) if text else ()


def _short(line: str, columns: int = _COLUMNS) -> str:
    return line if len(line) <= columns else f"{line[:columns]}…"


def _said(text: str) -> str:
    return _short(" ".join(printable(mask(text)).split()))


def _shown(line: str, cwd: str) -> str:
    return printable(mask(shorten_paths(line, cwd)))
