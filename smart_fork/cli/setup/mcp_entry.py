"""The part of the setup that registers smart-fork's MCP server: it writes the server's entry in an agent's settings."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial

from smart_fork.agents import AGENTS
from smart_fork.agents.mcp_registration import Registration
from smart_fork.cli.setup.foreign_file import Edit, ForeignFile
from smart_fork.cli.setup.ledger import Ledger, LedgerLine
from smart_fork.cli.setup.step import Step

NAME = "MCP server"


def planned(way: Registration, words: Sequence[str]) -> Step:
    """Return the step that registers the MCP server with the agent of `way`, which starts it by the command `words`.

    Raises:
        SmartForkError: the agent's settings have an unknown form, or are read-only.
    """
    file = _settings(way)
    step = partial(Step, "server", NAME, str(file.path), agent=way.agent)
    text = file.read()
    with file.understood():
        before = way.value(text)
        if before is not None and not Registration.is_ours(way.argv(before)):
            return step("left", why="another server has this name; rename it, or keep it")
        entry = way.wanted(words, os.environ, before)
        if entry == before:
            return step("there")
        way.put(text, entry)
    file.check_writable()
    return step("changed" if before else "new", act=partial(_written, way, words))


def _written(way: Registration, words: Sequence[str], ledger: Ledger) -> list[str]:
    file = _settings(way)
    earlier = ledger.of("server", way.agent, file.path)
    text = file.read()
    counts = text is not None and earlier and earlier.edit and not earlier.edit.never_came(text)
    line = earlier if counts else None
    with file.understood():
        entry = way.wanted(words, os.environ, way.value(text))
        made = way.put(text, entry)
        original, former, had_servers = text, way.raw(text), way.has_servers(text)
        if line and text is not None:
            former, had_servers = line.former, line.had_servers
            original = line.undone(text, lambda changed: way.restore(changed, former, had_servers=had_servers))
    ledger.begin(
        LedgerLine(
            what="server", agent=way.agent, path=file.path, edit=Edit.of(original, made), value=entry, former=former,
            had_servers=had_servers, made=_is_made(text, earlier),
        )
    )  # fmt: skip
    with way.lock():
        file.write(text, made)  # refused where the agent has written meanwhile
    return []


def _is_made(text: str | None, earlier: LedgerLine | None) -> bool:
    """Return True if setup creates the settings file, now or earlier. Such a file is deleted when it is empty again."""
    return text is None or bool(earlier and (earlier.made or (earlier.edit and not earlier.edit.before)))


def undo(line: LedgerLine) -> list[str]:
    """Remove the server's entry that setup recorded in `line` from an agent's settings. Return notes for the person.

    Raises:
        SmartForkError: the entry cannot be removed safely.
    """
    way, file = AGENTS.registration_of(line.agent), ForeignFile(line.path, f"Make {line.path} readable.")
    with way.lock():
        text = file.read()
        if text is None or line.edit is None or line.edit.never_came(text):
            return []
        if not line.edit.is_in(text):
            return _remove_from_changed(way, line, text)
        file.write(text, line.edit.undone(text))
        return []


def _remove_from_changed(way: Registration, line: LedgerLine, text: str) -> list[str]:
    """Remove the entry of `line` from settings that were changed since setup. Return notes for the person.

    An entry that now starts another program stays.
    """
    step = f"Correct {line.path}, then remove again. Or remove by hand the entry named {Registration.NAME}."
    file = ForeignFile(line.path, step)
    with file.understood():
        value = way.value(text)
        if value is None:
            return [f"{line.path}: the entry was already removed"]
        if not Registration.is_ours(way.argv(value)):
            return [f"{line.path}: the entry now starts another program, and stays"]
        rest = way.restore(text, line.former, had_servers=line.had_servers)
    empty = (line.made or not (line.edit and line.edit.before)) and rest.strip() in ("", "{}")
    file.write(text, None if empty else rest)
    changed = "" if value == line.value else ", with its changes"
    return [f"{line.path} has changed since: only smart-fork's entry was removed{changed}"]


def difference(line: LedgerLine) -> str:
    """Return a complaint if the entry that setup recorded in `line` is gone, or starts another program; else ""."""
    way = AGENTS.registration_of(line.agent)
    text = ForeignFile(line.path, f"Make {line.path} readable.").read()
    with _settings(way).understood():
        value = way.value(text)
    if value is None:
        return f"the entry of the MCP server is gone from {line.path}"
    starts = way.argv(value)[:1]
    if line.value is not None and starts != way.argv(line.value)[:1]:
        return f"the MCP server in {line.path} starts {''.join(starts) or 'no program'}"
    return ""


def _settings(way: Registration) -> ForeignFile:
    return ForeignFile(way.path(), f"Correct {way.path()}, or set up the other agent alone with --agent.")
