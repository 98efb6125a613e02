"""Our hooks in the agents' own settings: put in, replaced and taken out, with all that is others' left byte for byte.

A file that is not understood is never written. Ours are the handlers whose command is ours. They stand behind those of
others: Codex knows by the place in the file which hooks a person has trusted.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from indexer.files import replace_file
from indexer.paths import claude_home, codex_home, private_dir, state_home
from indexer.transcripts.model import Agent
from smart_fork import foreign_files, json_text
from smart_fork.errors import SmartForkError

#: No others: Claude Code stops at its start to ask about an event that it does not know.
EVENTS: Mapping[Agent, tuple[str, ...]] = {
    "claude": ("SessionStart", "UserPromptSubmit", "Notification", "Stop", "SessionEnd"),
    "codex": ("SessionStart", "UserPromptSubmit", "PermissionRequest", "Stop", "Interrupt", "SessionEnd"),
}
MODULE = "smart_fork.hooks"
#: Seconds after which the agent goes on without us. Codex gives a session's end three at most.
TIMEOUT = 3
_IN_SILENCE = "2>/dev/null || :"


@dataclass(frozen=True, slots=True)
class Change:
    """What was done to an agent's settings. `notes` is what a person should know about it."""

    agent: Agent
    path: Path
    changed: bool
    installed: bool
    notes: tuple[str, ...] = ()


def settings_file(agent: Agent) -> Path:
    """Where the agent reads its hooks from."""
    return claude_home() / "settings.json" if agent == "claude" else codex_home() / "hooks.json"


def command(agent: Agent) -> str:
    """What the agent runs, for a shell. ``-P``: nothing is imported from the directory that the agent works in.

    Where smart-fork has been uninstalled it says nothing and ends with 0: no agent complains of a hook that is left.
    """
    return f"{shlex.join([sys.executable, '-P', '-m', MODULE, agent])} {_IN_SILENCE}"


def entries(agent: Agent) -> dict[str, Any]:
    """All that we install, as the settings have it."""
    return {event: [_group(agent)] for event in EVENTS[agent]}


def install(agent: Agent) -> Change:
    """Have the agent tell us what its sessions do. Twice is once; older entries of ours are replaced.

    Raises:
        SmartForkError: the settings are not understood, or cannot be written; they are as they were.
    """
    path = settings_file(agent)
    before = _read(path)
    text = before if before is not None else "{}\n"
    spaces = _Spaces(path)
    if not any(list(_ours(text, event)) for event in _events(text)):
        spaces.forget()
    for event in EVENTS[agent]:
        text = _with_ours(text, agent, event, spaces)
    for event in [one for one in _events(text) if one not in EVENTS[agent]]:
        text = _without_ours(text, event, spaces)
    if text != before:
        spaces.save(created=before is None)
        foreign_files.write(path, before, text)
    return Change(agent, path, text != before, installed=True, notes=tuple(_notes(agent, text)))


def remove(agent: Agent) -> Change:
    """Take out what is ours, and the objects and arrays that were made for it.

    Raises:
        SmartForkError: the settings are not understood, or cannot be written; they are as they were.
    """
    path = settings_file(agent)
    before = _read(path)
    if before is None:
        return Change(agent, path, changed=False, installed=False)
    text, spaces = before, _Spaces(path)
    for event in _events(text):
        text = _without_ours(text, event, spaces)
    if text != before:
        made_by_us = spaces.created and not json_text.items(text, json_text.root(text))
        foreign_files.write(path, before, None if made_by_us else text)
    spaces.forget()
    return Change(agent, path, text != before, installed=False)


def is_installed(agent: Agent) -> bool:
    """Whether our hooks are in its settings as we would install them.

    Raises:
        SmartForkError: the settings are not understood.
    """
    text = _read(settings_file(agent))
    if text is None:
        return False
    return all([_handler(agent)] == [_value(text, item) for *_, item in _ours(text, event)] for event in EVENTS[agent])


def _notes(agent: Agent, text: str) -> Iterator[str]:
    """What keeps the agent from running them. Nothing of it is ours to change: a person decides what is trusted."""
    if agent == "claude":
        if json.loads(text).get("disableAllHooks") is True:
            yield "Claude Code runs no hooks at all: its settings say disableAllHooks"
        return
    yield "Codex runs new hooks only when they are trusted: start `codex` once in a terminal, which asks"
    config = codex_home() / "config.toml"
    try:
        features = tomllib.loads(config.read_text(encoding="utf-8")).get("features", {})
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        yield f"{config} cannot be read: {error}"
        return
    if isinstance(features, dict) and False in (features.get("hooks"), features.get("codex_hooks")):
        yield f"Codex runs no hooks at all: set `hooks = true` below [features] in {config}"


def _handler(agent: Agent) -> dict[str, Any]:
    return {"type": "command", "command": command(agent), "timeout": TIMEOUT}


def _group(agent: Agent) -> dict[str, Any]:
    return {"hooks": [_handler(agent)]}


def _with_ours(text: str, agent: Agent, event: str, spaces: _Spaces) -> str:
    found = list(_ours(text, event))
    if found:
        for *_, item in reversed(found[1:]):
            text = _without(text, event, item.start, spaces)
        handler = found[0][-1]
        return text if _value(text, handler) == _handler(agent) else json_text.replace(text, handler, _handler(agent))
    top = json_text.root(text)
    hooks = json_text.member(text, top, "hooks")
    if hooks is None:
        spaces.note((), text, top)
        return json_text.append(text, top, {event: [_group(agent)]}, "hooks")
    groups = json_text.member(text, hooks.value, event)
    if groups is None:
        spaces.note(("hooks",), text, hooks.value)
        return json_text.append(text, hooks.value, [_group(agent)], event)
    spaces.note(("hooks", event), text, groups.value)
    return json_text.append(text, groups.value, _group(agent))


def _without_ours(text: str, event: str, spaces: _Spaces) -> str:
    while found := list(_ours(text, event)):
        text = _without(text, event, found[-1][-1].start, spaces)
    return text


def _without(text: str, event: str, start: int, spaces: _Spaces) -> str:
    """`text` without the handler of ours that begins at `start`, and without what nothing is left in then."""
    top = json_text.root(text)
    hooks, groups, group, handlers, handler = next(way for way in _ours(text, event) if way[-1].start == start)
    text = json_text.remove(text, handlers.value, handler)
    if json_text.items(text, handlers.value):
        return text
    text = json_text.remove(text, groups.value, _group_now(text, groups, group), spaces.of(("hooks", event)) or "")
    for at, name, way in ((hooks.value, event, ("hooks", event)), (top, "hooks", ("hooks",))):
        inner = json_text.member(text, at, name)
        if inner is None or json_text.items(text, inner.value) or spaces.of(way) is not None:
            return text
        text = json_text.remove(text, at, inner, spaces.of(way[:-1]) or "")
    return text


def _group_now(text: str, groups: json_text.Item, group: json_text.Item) -> json_text.Item:
    """The same group, after something in it has become shorter."""
    return next(item for item in json_text.items(text, groups.value) if item.start == group.start)


_Way = tuple[json_text.Item, json_text.Item, json_text.Item, json_text.Item, json_text.Item]


def _ours(text: str, event: str) -> Iterator[_Way]:
    """The ways to our handlers of an event: hooks, its groups, the group, its handlers, the handler."""
    hooks = json_text.member(text, json_text.root(text), "hooks")
    groups = json_text.member(text, hooks.value, event) if hooks else None
    if hooks is None or groups is None or text[groups.value] != "[":
        return
    for group in json_text.items(text, groups.value):
        handlers = json_text.member(text, group.value, "hooks")
        if handlers is None or text[handlers.value] != "[":
            continue
        for handler in json_text.items(text, handlers.value):
            if _is_ours(_value(text, handler)):
                yield hooks, groups, group, handlers, handler


def _is_ours(handler: object) -> bool:
    told = handler.get("command") if isinstance(handler, dict) else None
    if not isinstance(told, str):
        return False
    try:
        words = shlex.split(told)
    except ValueError:
        return False
    if MODULE in words:
        return words[words.index(MODULE) - 1] == "-m"
    return len(words) >= 2 and Path(words[0]).name == "smart-fork" and words[1] == "hook"


def _value(text: str, item: json_text.Item) -> Any:
    return json.loads(text[item.value : item.end])


def _events(text: str) -> list[str]:
    hooks = json_text.member(text, json_text.root(text), "hooks")
    return [item.key for item in json_text.items(text, hooks.value)] if hooks and text[hooks.value] == "{" else []


class _Spaces:
    """What the objects and arrays looked like that were empty before us: they stay, and look so again (R-028)."""

    def __init__(self, path: Path) -> None:
        self._file = state_home() / "hooks" / f"{sha256(os.fsencode(path)).hexdigest()[:16]}.json"
        self._seen: dict[str, str] = {}
        self.created = False
        with suppress(OSError, ValueError, KeyError, TypeError):
            kept = json.loads(self._file.read_bytes())
            self._seen, self.created = dict(kept["empty"]), bool(kept["created"])

    def note(self, way: tuple[str, ...], text: str, at: int) -> None:
        """Remember it, if it is empty."""
        if not json_text.items(text, at):
            self._seen["/".join(way)] = json_text.interior(text, at)

    def of(self, way: tuple[str, ...]) -> str | None:
        """What was in it; `None` where it was not there, or not empty."""
        return self._seen.get("/".join(way))

    def save(self, *, created: bool) -> None:
        """Keep it until our hooks are taken out."""
        self.created = self.created or created
        private_dir(self._file.parent)
        replace_file(self._file, [json.dumps({"created": self.created, "empty": self._seen}).encode()])

    def forget(self) -> None:
        """None of ours are in it: whatever is empty from now on was made so by others."""
        self._seen, self.created = {}, False
        self._file.unlink(missing_ok=True)


def _read(path: Path) -> str | None:
    text = foreign_files.read(path, _by_hand(path))
    if text is None:
        return None
    try:
        hooks = json_text.read_object(text).get("hooks", {})
    except (ValueError, RecursionError) as error:
        raise SmartForkError(f"{path} is not plain JSON, and was left as it is: {error}", _by_hand(path)) from error
    if not isinstance(hooks, dict) or not all(isinstance(groups, list) for groups in hooks.values()):
        raise SmartForkError(f'"hooks" in {path} is not what it should be; it was left as it is', _by_hand(path))
    return text


def _by_hand(path: Path) -> str:
    return f"Correct {path}, or add by hand what `smart-fork setup hooks --print` prints."
