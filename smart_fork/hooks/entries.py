"""Our handlers in an agent's JSON settings: put in and taken out, with all that is others' left byte for byte.

A file that is not understood is never written. Ours are the handlers whose command is ours. They stand behind those of
others.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from indexer.files import replace_file
from indexer.paths import private_dir, state_home
from smart_fork.errors import SmartForkError
from smart_fork.hooks import MODULE
from smart_fork.system import foreign_files
from smart_fork.text import json_text

#: For each event the group that is to be there, with one handler.
Groups = Mapping[str, Mapping[str, Any]]


def install(path: Path, wanted: Groups) -> tuple[bool, str]:
    """Put them in; twice is once, and older ones of ours are replaced. Whether that changed anything, and the text now.

    Raises:
        SmartForkError: the settings are not understood, or cannot be written; they are as they were.
    """
    before = _read(path)
    text = before if before is not None else "{}\n"
    spaces = _Spaces(path)
    if not any(list(_ours(text, event)) for event in _events(text)):
        spaces.forget()
    for event, group in wanted.items():
        text = _with_ours(text, event, group, spaces)
    for event in [one for one in _events(text) if one not in wanted]:
        text = _without_ours(text, event, spaces)
    if text != before:
        spaces.save(created=before is None)
        foreign_files.write(path, before, text)
    return text != before, text


def remove(path: Path) -> bool:
    """Take out what is ours, and the objects and arrays that were made for it. Whether there was anything.

    Raises:
        SmartForkError: the settings are not understood, or cannot be written; they are as they were.
    """
    before = _read(path)
    if before is None:
        return False
    text, spaces = before, _Spaces(path)
    for event in _events(text):
        text = _without_ours(text, event, spaces)
    if text != before:
        made_by_us = spaces.created and not json_text.items(text, json_text.root(text))
        foreign_files.write(path, before, None if made_by_us else text)
    spaces.forget()
    return text != before


def any_in(path: Path) -> bool:
    """Whether there is any of ours, also an older one.

    Raises:
        SmartForkError: the settings are not understood.
    """
    text = _read(path) or ""
    return any(list(_ours(text, event)) for event in _events(text)) if text else False


def are_in(path: Path, wanted: Groups) -> bool:
    """Whether they are in the settings as we would install them.

    Raises:
        SmartForkError: the settings are not understood.
    """
    text = _read(path)
    if text is None:
        return False
    return all(
        group["hooks"] == [_value(text, one.handler) for one in _ours(text, event)] for event, group in wanted.items()
    )


def _with_ours(text: str, event: str, wanted: Mapping[str, Any], spaces: _Spaces) -> str:
    while len(found := list(_ours(text, event))) > 1:
        text = _without(text, event, found[-1], spaces)
    if not found:
        spaces.empty |= json_text.empty_on(text, ("hooks", event))
        return json_text.insert(text, ("hooks", event), wanted)
    handler, (new,) = found[0].handler, wanted["hooks"]
    return text if _value(text, handler) == new else json_text.replace(text, handler, new)


def _without_ours(text: str, event: str, spaces: _Spaces) -> str:
    while found := list(_ours(text, event)):
        text = _without(text, event, found[-1], spaces)
    return text


def _without(text: str, event: str, one: _Handler, spaces: _Spaces) -> str:
    """Return `text` without a handler of ours, and without its group and what becomes empty then."""
    if len(json_text.items(text, one.handlers)) > 1:
        return json_text.remove(text, one.handlers, one.handler)
    return json_text.withdraw(text, ("hooks", event), one.group, spaces.empty)


class _Handler(NamedTuple):
    """A handler of ours, the group that it is in, and the place of the group's handlers."""

    group: json_text.Item
    handlers: int
    handler: json_text.Item


def _ours(text: str, event: str) -> Iterator[_Handler]:
    """Return our handlers of an event."""
    hooks = json_text.member(text, json_text.root(text), "hooks")
    groups = json_text.member(text, hooks.value, event) if hooks else None
    if groups is None or text[groups.value] != "[":
        return
    for group in json_text.items(text, groups.value):
        handlers = json_text.member(text, group.value, "hooks")
        if handlers is None or text[handlers.value] != "[":
            continue
        for handler in json_text.items(text, handlers.value):
            if _is_ours(_value(text, handler)):
                yield _Handler(group, handlers.value, handler)


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
    """The objects and arrays that were empty before us, with their white space: they stay, and look so again."""

    def __init__(self, path: Path) -> None:
        self._file = state_home() / "hooks" / f"{sha256(os.fsencode(path)).hexdigest()[:16]}.json"
        self.empty: dict[json_text.Way, str] = {}
        self.created = False
        with suppress(OSError, ValueError, KeyError, TypeError):
            kept = json.loads(self._file.read_bytes())
            self.empty = {tuple(way): white for way, white in kept["empty"]}
            self.created = bool(kept["created"])

    def save(self, *, created: bool) -> None:
        """Keep it until our hooks are taken out."""
        self.created = self.created or created
        private_dir(self._file.parent)
        replace_file(self._file, [json.dumps({"created": self.created, "empty": [*self.empty.items()]}).encode()])

    def forget(self) -> None:
        """None of ours are in it: whatever is empty from now on was made so by others."""
        self.empty, self.created = {}, False
        self._file.unlink(missing_ok=True)


def _read(path: Path) -> str | None:
    text = foreign_files.read(path, _by_hand(path))
    if text is None:
        return None
    try:
        hooks = json_text.read_object(text).get("hooks", {})
    except (ValueError, RecursionError) as error:
        raise SmartForkError(f"{path} is not plain JSON, and was not changed: {error}", _by_hand(path)) from error
    if not isinstance(hooks, dict) or not all(isinstance(groups, list) for groups in hooks.values()):
        raise SmartForkError(f'"hooks" in {path} has an unknown form, and was not changed', _by_hand(path))
    return text


def _by_hand(path: Path) -> str:
    return f"Correct {path}, or add by hand what `smart-fork setup hooks --print` prints."
