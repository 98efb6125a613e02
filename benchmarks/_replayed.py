"""The edits of agents' logs, played on the files that they changed: which exchange wrote each line."""

from __future__ import annotations

import difflib
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .which_session.transcripts import Transcript

_HEREDOC = re.compile(r"\*\*\* Begin Patch\n.*?\*\*\* End Patch", re.DOTALL)


class Owner(NamedTuple):
    """An exchange: the session, and what a person asked in it."""

    session: str
    asked: str


class Done(NamedTuple):
    """An edit in a log: of each file the texts that it replaces, and the file before it where the log has that."""

    at: float
    by: Owner
    agent: str
    tool: str
    given: Mapping[str, Any]
    files: Mapping[str, Sequence[tuple[str, str]]]
    before: str | None


def edits_of(one: Transcript, moved: bytes) -> Iterator[Done]:
    """Yield the edits of a log, in order, with the prompt before each."""
    prompts = [(prompt.time, prompt.text) for prompt in one.prompts]
    calls: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for line, raw in zip(one.lines, moved.split(b"\n"), strict=False):
        record = json.loads(raw)
        asked = next((text for at, text in reversed(prompts) if at <= line.time), "")
        by = Owner(one.session, asked)
        if one.agent == "codex":
            payload = record.get("payload") or {}
            name, given = payload.get("name"), payload.get("input") or payload.get("arguments")
            for patch in _HEREDOC.findall(_decoded(given)) if name and isinstance(given, str) else ():
                yield Done(line.time, by, "codex", "apply_patch", {"input": patch}, replaced(patch), None)
            continue
        if record.get("isSidechain"):
            continue
        content = (record.get("message") or {}).get("content")
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict) and block.get("type") == "tool_use":
                calls[block["id"]] = (block["name"], block["input"])
            elif isinstance(block, dict) and block.get("type") == "tool_result" and not block.get("is_error"):
                name, given = calls.pop(str(block.get("tool_use_id")), ("", {}))
                told = record.get("toolUseResult")
                file = given.get("file_path")
                if name in ("Edit", "MultiEdit", "Write") and isinstance(file, str):
                    before = told.get("originalFile") if isinstance(told, dict) else None
                    several = given.get("edits") or [given]
                    pairs = [(edit.get("old_string"), edit.get("new_string")) for edit in several]
                    pairs = [("", str(given.get("content")))] if name == "Write" else pairs
                    yield Done(line.time, by, "claude", name, given, {file: pairs}, before or None)


def _decoded(given: str) -> str:
    try:
        told = json.loads(given)
    except ValueError:
        return given
    words = told.get("command", told.get("cmd", told.get("input", ""))) if isinstance(told, dict) else ""
    return "\n".join(map(str, words)) if isinstance(words, list) else str(words)


def replaced(patch: str) -> dict[str, list[tuple[str, str]]]:
    """The texts that a patch replaces in each file."""
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for head, name, body in re.findall(r"\*\*\* (Add|Update) File: (.+)\n((?:(?!\*\*\* ).*\n?)*)", patch):
        for hunk in re.split(r"^@@.*\n", body, flags=re.MULTILINE):
            if lines := hunk.splitlines():
                old = "".join(f"{line[1:]}\n" for line in lines if line[:1] in ("-", " ", ""))
                new = "".join(f"{line[1:]}\n" for line in lines if line[:1] in ("+", " ", ""))
                found[name.strip()].append(("" if head == "Add" else old, new))
    return found


class Files:
    """The files of a repository as the logs' edits leave them, with who wrote each line."""

    def __init__(self) -> None:
        self.of: dict[str, list[tuple[str, frozenset[Owner]]]] = {}
        self._ever: defaultdict[tuple[str, str], set[Owner]] = defaultdict(set)

    def text(self, file: str) -> str | None:
        """Return a file's text; `None` if no log has it."""
        return None if file not in self.of else "".join(f"{line}\n" for line, _ in self.of[file])

    def found(self, file: str, text: str) -> None:
        """Note what an edit found: lines that are new were not written by it."""
        self._become(file, text, None)

    def edited(self, file: str, text: str, by: Owner) -> None:
        """Note what an edit left."""
        self._become(file, text, by)

    def _become(self, file: str, text: str, by: Owner | None) -> None:
        had, lines = self.of.get(file, []), text.splitlines()
        alike = difflib.SequenceMatcher(
            None, [bare_line(one) for one, _ in had], list(map(bare_line, lines)), autojunk=False
        )
        now: list[tuple[str, frozenset[Owner]]] = []
        for tag, first, last, begin, end in alike.get_opcodes():
            if tag == "equal":
                now += [(line, who) for line, (_, who) in zip(lines[begin:end], had[first:last], strict=True)]
            elif by is None:  # a checkout brings back what was there before
                now += [(line, frozenset(self._ever[file, bare_line(line)])) for line in lines[begin:end]]
            else:
                for line in lines[begin:end]:
                    if len(bare_line(line)) >= 8:
                        self._ever[file, bare_line(line)].add(by)
                now += [(line, frozenset({by})) for line in lines[begin:end]]
        self.of[file] = now

    def replaced(self, file: str, old: str, new: str) -> list[tuple[str, frozenset[Owner]]]:
        """The lines that a text in its place replaces; if it replaces none, those that it is put beside."""
        whole = self.text(file) or ""
        at = whole.count("\n", 0, whole.index(old))
        several = self.of[file][at : at + old.rstrip("\n").count("\n") + 1]
        alike = difflib.SequenceMatcher(
            None, old.rstrip("\n").split("\n"), new.rstrip("\n").split("\n"), autojunk=False
        )
        gone = [
            one for tag, first, last, *_ in alike.get_opcodes() if tag in ("replace", "delete")
            for one in several[first:last]
        ]  # fmt: skip
        return [one for one in gone if one[0].strip()] or [one for one in several if one[0].strip()]


def bare_line(line: str) -> str:
    """Return a line as formatters leave it alone."""
    return re.sub(r"\s", "", line).rstrip(",;").replace("'", '"')
