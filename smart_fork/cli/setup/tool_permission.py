"""An optional part of the setup: rules in an agent's settings that allow smart-fork's read-only tools.

With them the agent does not ask the person before it calls such a tool.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from smart_fork import json_edit
from smart_fork.agents.mcp_registration import Registration, UnsuitableError
from smart_fork.cli.setup.foreign_file import Edit, ForeignFile
from smart_fork.cli.setup.ledger import Ledger, LedgerLine
from smart_fork.cli.setup.step import Step

_WAY = ("permissions", "allow")


class AddedRules(NamedTuple):
    """The rules that setup added to settings, and the white space of JSON containers there that were `empty` before."""

    rules: tuple[str, ...]
    empty: tuple[tuple[tuple[str, ...], str], ...] = ()


def missing(text: str | None, rules: Sequence[str]) -> tuple[str, ...]:
    """Return those of the permission `rules` that the settings `text` lacks.

    Raises:
        UnsuitableError: the settings have an unknown form.
    """
    there = _list(text)
    return tuple(rule for rule in rules if rule not in there)


def add_rules(text: str | None, rules: Sequence[str]) -> tuple[str, AddedRules]:
    """Add missing permission `rules` to the settings `text`. Return the new text, and a record for `remove_rules`."""
    new = missing(text, rules)
    if text is None:
        return json.dumps({_WAY[0]: {_WAY[1]: list(new)}}, indent=2) + "\n", AddedRules(new)
    added = AddedRules(new, tuple(json_edit.empty_on(text, _WAY).items()))
    for rule in new:
        text = json_edit.insert(text, _WAY, rule)
    return text, added


def remove_rules(text: str, added: AddedRules) -> str:
    """Return the settings `text` without the rules in `added`, and without containers that become empty.

    Containers that were empty before the rules were added stay.
    """
    for rule in added.rules:
        if rule in _list(text):
            item = next(one for one in _items(text) if json.loads(text[one.value : one.end]) == rule)
            text = json_edit.withdraw(text, _WAY, item, dict(added.empty))
    return text


def _items(text: str) -> list[json_edit.JsonItem]:
    outer = json_edit.member(text, json_edit.root(text), _WAY[0])
    inner = json_edit.member(text, outer.value, _WAY[1]) if outer else None
    return json_edit.items(text, inner.value) if inner else []


def _list(text: str | None) -> list[object]:
    if text is None:
        return []
    permissions = Registration.settings_in(text).get(_WAY[0], {})
    found = permissions.get(_WAY[1], []) if isinstance(permissions, dict) else None
    if not isinstance(found, list):
        raise UnsuitableError(f'"{".".join(_WAY)}" in it is not a list')
    return found


NAME = "reading without asking"


def tools() -> tuple[str, ...]:
    """Return the names of the read-only MCP tools among those that agents see by default."""
    catalogue = json.loads(files("smart_fork.cli").joinpath("mcp.json").read_text(encoding="utf-8"))
    reading = {tool["name"] for tool in catalogue["tools"] if tool.get("annotations", {}).get("readOnlyHint") is True}
    return tuple(name for name in catalogue["few"] if name in reading)


def planned(way: Registration) -> Step:
    """Return the step that allows the agent of `way` to call read-only tools without asking the person.

    Raises:
        SmartForkError: the agent's settings have an unknown form, or are read-only.
    """
    rules, path = way.permission_rules(tools()), way.permission_file()
    step = partial(Step, "reading", NAME, agent=way.agent)
    if not rules:
        return step(str(way.path()), "there", why=f"{way.title} does not ask before read-only tools")
    file = _file(path)
    with file.understood():
        open_rules = missing(file.read(), rules)
    if not open_rules:
        return step(str(path), "there")
    file.check_writable()
    return step(str(path), "new", act=partial(_written, way, rules))


def _written(way: Registration, rules: Sequence[str], ledger: Ledger) -> list[str]:
    file = _file(way.permission_file())
    earlier = ledger.of("reading", way.agent, file.path)
    text = file.read()
    with file.understood():
        original = _undone(text, earlier) if earlier and text is not None else text
        made, added = add_rules(original, rules)
    line = LedgerLine(what="reading", agent=way.agent, path=file.path, edit=Edit.of(original, made))
    ledger.begin(line.model_copy(update={"value": added._asdict()}))
    file.write(text, made)
    return []


def undo(line: LedgerLine) -> list[str]:
    """Remove the permission rules that setup recorded in `line` from an agent's settings. Return notes."""
    file, notes = _file(line.path), list[str]()
    text = file.read()
    if text is not None and line.edit is not None and not line.edit.never_came(text):
        with file.understood():
            rest = _undone(text, line)
        if not line.edit.is_in(text):
            notes = [f"{line.path} has changed since: only smart-fork's rules were removed"]
            if not line.edit.before and rest is not None and rest.strip() in ("", "{}"):
                rest = None
        file.write(text, rest)
    return notes


def difference(line: LedgerLine) -> str:
    """Return a complaint if the settings lack permission rules that setup recorded in `line`; else an empty text."""
    file = _file(line.path)
    with file.understood():
        gone = missing(file.read(), _added(line).rules)
    return f"rules for read-only tools are missing in {line.path}" if gone else ""


def _undone(text: str, line: LedgerLine) -> str | None:
    return line.undone(text, lambda changed: remove_rules(changed, _added(line)))


def _added(line: LedgerLine) -> AddedRules:
    value = line.value or {}
    empty = tuple((tuple(map(str, way)), str(text)) for way, text in value.get("empty", ()))
    return AddedRules(tuple(value.get("rules", ())), empty)


def _file(path: Path) -> ForeignFile:
    return ForeignFile(path, f"Correct {path}, or drop --allow-reading.")
