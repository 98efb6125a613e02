"""The entry of our MCP server in an agent's settings: planned, written, and taken out again."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial

from smart_fork.agents import AGENTS
from smart_fork.agents.registration import Registration
from smart_fork.cli.setup import foreign_files
from smart_fork.cli.setup.ledger import Edit, Ledger, LedgerLine, Step, take_away, understood

NAME = "MCP server"


def planned(way: Registration, words: Sequence[str]) -> Step:
    """The step that makes the command `words` known to an agent.

    Raises:
        SmartForkError: its settings are not understood, or must not be written.
    """
    path = way.path()
    text = _read(way)
    with understood(path, _step(way)):
        before = way.value(text)
        if before is not None and not Registration.is_ours(way.argv(before)):
            why = "another server has this name; rename it, or keep it"
            return Step("server", NAME, str(path), "left", way.agent, why)
        entry = way.wanted(words, os.environ, before)
        if entry == before:
            return Step("server", NAME, str(path), "there", way.agent)
        way.put(text, entry)
    foreign_files.check_writable(path)
    act = partial(_written, way, words)
    return Step("server", NAME, str(path), "changed" if before else "new", way.agent, act=act)


def _written(way: Registration, words: Sequence[str], ledger: Ledger) -> list[str]:
    path = way.path()
    earlier = ledger.of("server", way.agent, path)
    text = _read(way)
    counts = text is not None and earlier and earlier.edit and not earlier.edit.never_came(text)
    line = earlier if counts else None
    with understood(path, _step(way)):
        original = _undone(way, text, line) if line and text is not None else text
        entry = way.wanted(words, os.environ, way.value(text))
        made = way.put(text, entry)
        former, had_servers = (line.former, line.had_servers) if line else (way.raw(text), way.has_servers(text))
    ledger.begin(
        LedgerLine(
            what="server", agent=way.agent, path=path, edit=Edit.of(original, made), value=entry, former=former,
            had_servers=had_servers, made=_is_made(text, earlier),
        )
    )  # fmt: skip
    with way.lock():
        foreign_files.write(path, text, made)  # refused where the agent has written meanwhile
    return []


def _is_made(text: str | None, earlier: LedgerLine | None) -> bool:
    """Return True if setup created the file: it is deleted when nothing is left in it."""
    return text is None or bool(earlier and (earlier.made or (earlier.edit and not earlier.edit.before)))


def _undone(way: Registration, text: str, line: LedgerLine) -> str | None:
    """The settings without what an earlier set-up has done to them."""
    return line.undone(text, lambda changed: way.restore(changed, line.former, had_servers=line.had_servers))


def undo(line: LedgerLine) -> list[str]:
    """Take out the entry; gives what a person should know.

    Raises:
        SmartForkError: it cannot be taken out safely.
    """
    way = AGENTS.registration_of(line.agent)
    path = line.path
    with way.lock():
        text = foreign_files.read(path, f"Make {path} readable.")
        if text is None or line.edit is None or line.edit.never_came(text):
            notes: list[str] = []
        elif line.edit.is_in(text):
            foreign_files.write(path, text, line.edit.undone(text))
            notes = []
        else:
            notes = _taken_out(way, line, text)
    take_away(path, line.folders)
    return notes


def _taken_out(way: Registration, line: LedgerLine, text: str) -> list[str]:
    """The entry out of settings that others have changed since."""
    step = f"Correct {line.path}, then remove again. Or remove by hand the entry named {Registration.NAME}."
    with understood(line.path, step):
        value = way.value(text)
        if value is None:
            return [f"{line.path}: the entry was already removed"]
        if not Registration.is_ours(way.argv(value)):
            return [f"{line.path}: the entry now starts another program, and stays"]
        rest = way.restore(text, line.former, had_servers=line.had_servers)
    empty = (line.made or not (line.edit and line.edit.before)) and rest.strip() in ("", "{}")
    foreign_files.write(line.path, text, None if empty else rest)
    changed = "" if value == line.value else ", with its changes"
    return [f"{line.path} has changed since: only smart-fork's entry was removed{changed}"]


def standing(line: LedgerLine) -> str:
    """Describe the differences from what setup left; empty if none.

    Raises:
        SmartForkError: the settings are not understood.
    """
    way = AGENTS.registration_of(line.agent)
    text = foreign_files.read(line.path, f"Make {line.path} readable.")
    with understood(way.path(), _step(way)):
        value = way.value(text)
    if value is None:
        return f"the entry of the MCP server is gone from {line.path}"
    starts = way.argv(value)[:1]
    if line.value is not None and starts != way.argv(line.value)[:1]:
        return f"the MCP server in {line.path} starts {''.join(starts) or 'no program'}"
    return ""


def _read(way: Registration) -> str | None:
    return foreign_files.read(way.path(), _step(way))


def _step(way: Registration) -> str:
    return f"Correct {way.path()}, or set up the other agent alone with --agent."
