"""That an agent runs our reading tools without asking each time: as a step. Only if it is wanted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.resources import files
from pathlib import Path

from smart_fork.agents.registration import Registration, UnsuitableError
from smart_fork.agents.registration.base import Allowing
from smart_fork.agents.registration.permissions import Added, missing, put, restore
from smart_fork.errors import SmartForkError
from smart_fork.setup.ledger import Edit, Ledger, LedgerLine
from smart_fork.setup.step import Step, missing_folders, take_away
from smart_fork.system import foreign_files

NAME = "reading without asking"


def tools() -> tuple[str, ...]:
    """Those of the tools that an agent is given by default that say of themselves that they only read."""
    catalogue = json.loads(files("smart_fork.front").joinpath("mcp.json").read_text(encoding="utf-8"))
    reading = {tool["name"] for tool in catalogue["tools"] if tool.get("annotations", {}).get("readOnlyHint") is True}
    return tuple(name for name in catalogue["few"] if name in reading)


def planned(way: Registration) -> Step:
    """The step that allows them.

    Raises:
        SmartForkError: the agent's settings are not understood, or must not be written.
    """
    allowing = way.allowing(tools())
    step = partial(Step, "reading", NAME, agent=way.agent)
    if allowing is None:
        return step(str(way.path()), "there", why=f"{way.title} does not ask before read-only tools")
    with _understood(allowing.path):
        open_rules = missing(_read(allowing.path), allowing.rules)
    if not open_rules:
        return step(str(allowing.path), "there")
    foreign_files.check_writable(allowing.path)
    return step(str(allowing.path), "new", act=partial(_written, way, allowing))


def _written(way: Registration, allowing: Allowing, ledger: Ledger) -> list[str]:
    path = allowing.path
    earlier = ledger.of("reading", way.agent, path)
    folders = [*(earlier.folders if earlier else ()), *missing_folders(path)]
    text = _read(path)
    with _understood(path):
        original = _without(text, earlier) if earlier and text is not None else text
        made, added = put(original, allowing.rules)
    line = LedgerLine(what="reading", agent=way.agent, path=path, edit=Edit.of(original, made), folders=folders)
    ledger.write(line.model_copy(update={"value": added._asdict()}))
    foreign_files.write(path, text, made)
    return []


def undo(line: LedgerLine) -> list[str]:
    """Take the rules out that were put in.

    Raises:
        SmartForkError: the settings are not understood; they are as they were.
    """
    text, notes = _read(line.path), []
    if text is not None and line.edit is not None and not line.edit.never_came(text):
        with _understood(line.path):
            rest = _without(text, line)
        if not line.edit.is_in(text):
            notes = [f"{line.path} has changed since: only smart-fork's rules were removed"]
            if not line.edit.before and rest is not None and rest.strip() in ("", "{}"):
                rest = None
        foreign_files.write(line.path, text, rest)
    take_away(line.path, line.folders)
    return notes


def standing(line: LedgerLine) -> str:
    """What is no longer as it was left; empty where all is.

    Raises:
        SmartForkError: the settings are not understood.
    """
    with _understood(line.path):
        gone = missing(_read(line.path), _added(line).rules)
    return f"rules for read-only tools are missing in {line.path}" if gone else ""


def _without(text: str, line: LedgerLine) -> str | None:
    """The settings without what a line says was put in."""
    if line.edit is not None and line.edit.is_in(text):
        return line.edit.undone(text)
    if line.edit is not None and line.edit.never_came(text):
        return text
    return restore(text, _added(line))


def _added(line: LedgerLine) -> Added:
    value = line.value or {}
    empty = tuple((tuple(map(str, way)), str(text)) for way, text in value.get("empty", ()))
    return Added(tuple(value.get("rules", ())), empty)


@contextmanager
def _understood(path: Path) -> Iterator[None]:
    """What is not understood is left, and said."""
    try:
        yield
    except UnsuitableError as error:
        raise SmartForkError(f"{path} was not changed: {error}", _step(path)) from error


def _read(path: Path) -> str | None:
    return foreign_files.read(path, _step(path))


def _step(path: Path) -> str:
    return f"Correct {path}, or drop --allow-reading."
