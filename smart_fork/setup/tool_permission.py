"""That an agent runs our reading tools without asking each time: as a step. Only if it is wanted."""

from __future__ import annotations

import json
from functools import partial
from importlib.resources import files
from pathlib import Path

from smart_fork.agents.registration import Registration
from smart_fork.agents.registration.base import Allowing
from smart_fork.agents.registration.permissions import Added, missing, put, restore
from smart_fork.setup.ledger import Edit, Ledger, LedgerLine, Step, take_away, understood
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
    with understood(allowing.path, _step(allowing.path)):
        open_rules = missing(_read(allowing.path), allowing.rules)
    if not open_rules:
        return step(str(allowing.path), "there")
    foreign_files.check_writable(allowing.path)
    return step(str(allowing.path), "new", act=partial(_written, way, allowing))


def _written(way: Registration, allowing: Allowing, ledger: Ledger) -> list[str]:
    path = allowing.path
    earlier = ledger.of("reading", way.agent, path)
    text = _read(path)
    with understood(path, _step(path)):
        original = _undone(text, earlier) if earlier and text is not None else text
        made, added = put(original, allowing.rules)
    line = LedgerLine(what="reading", agent=way.agent, path=path, edit=Edit.of(original, made))
    ledger.begin(line.model_copy(update={"value": added._asdict()}))
    foreign_files.write(path, text, made)
    return []


def undo(line: LedgerLine) -> list[str]:
    """Take the rules out that were put in.

    Raises:
        SmartForkError: the settings are not understood; they are as they were.
    """
    text, notes = _read(line.path), []
    if text is not None and line.edit is not None and not line.edit.never_came(text):
        with understood(line.path, _step(line.path)):
            rest = _undone(text, line)
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
    with understood(line.path, _step(line.path)):
        gone = missing(_read(line.path), _added(line).rules)
    return f"rules for read-only tools are missing in {line.path}" if gone else ""


def _undone(text: str, line: LedgerLine) -> str | None:
    return line.undone(text, lambda changed: restore(changed, _added(line)))


def _added(line: LedgerLine) -> Added:
    value = line.value or {}
    empty = tuple((tuple(map(str, way)), str(text)) for way, text in value.get("empty", ()))
    return Added(tuple(value.get("rules", ())), empty)


def _read(path: Path) -> str | None:
    return foreign_files.read(path, _step(path))


def _step(path: Path) -> str:
    return f"Correct {path}, or drop --allow-reading."
