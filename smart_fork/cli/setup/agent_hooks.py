"""Installs smart-fork's hooks in an agent's settings, or in a file of smart-fork's own in the agent's folder.

A handler is a command that the agent runs at an event. In settings, smart-fork's handlers come after those of other
programs, and all other bytes stay. Settings with an unknown form are not changed.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from indexer.safe_files import private_dir, replace_file, state_home
from indexer.transcripts.model import AgentName
from smart_fork import json_edit
from smart_fork.agents import AGENTS
from smart_fork.agents.hooks import Hooks
from smart_fork.cli.setup.foreign_file import ForeignFile
from smart_fork.cli.setup.ledger import Ledger, LedgerLine
from smart_fork.cli.setup.setup_output import HooksChanged
from smart_fork.cli.setup.step import Step
from smart_fork.errors import SmartForkError
from smart_fork.hooks import hint_switch
from smart_fork.system.processes import Processes

#: What the agents run, and what tells our handlers from those of others.
MODULE = "smart_fork.hooks"
#: For each event the group that is to be there, with one handler.
Groups = Mapping[str, Mapping[str, Any]]


def install_handlers(path: Path, wanted: Groups) -> tuple[bool, str]:
    """Put the `wanted` handlers of smart-fork, by event, into the settings at `path`, in place of earlier ones.

    Return (True if the settings changed, their new text).

    Raises:
        SmartForkError: the settings have an unknown form, or cannot be written; they are unchanged.
    """
    before = _read(path)
    text = before if before is not None else "{}\n"
    spaces = _EmptyContainers(path)
    if not any(list(_ours(text, event)) for event in _events(text)):
        spaces.forget()
    for event, group in wanted.items():
        text = _with_ours(text, event, group, spaces)
    for event in [one for one in _events(text) if one not in wanted]:
        text = _without_ours(text, event, spaces)
    if text != before:
        spaces.save(created=before is None)
        ForeignFile(path).write(before, text)
    return text != before, text


def remove_handlers(path: Path) -> bool:
    """Remove smart-fork's handlers, and the JSON containers made for them, from the settings at `path`.

    Return True if there were any.

    Raises:
        SmartForkError: the settings have an unknown form, or cannot be written; they are unchanged.
    """
    before = _read(path)
    if before is None:
        return False
    text, spaces = before, _EmptyContainers(path)
    for event in _events(text):
        text = _without_ours(text, event, spaces)
    if text != before:
        made_by_us = spaces.created and not json_edit.items(text, json_edit.root(text))
        ForeignFile(path).write(before, None if made_by_us else text)
    spaces.forget()
    return text != before


def has_handlers(path: Path) -> bool:
    """Return True if the settings at `path` have a handler of smart-fork, even from an older version."""
    text = _read(path) or ""
    return any(list(_ours(text, event)) for event in _events(text)) if text else False


def has_exactly(path: Path, wanted: Groups) -> bool:
    """Return True if smart-fork's handlers in the settings at `path` are exactly those in `wanted`."""
    text = _read(path)
    if text is None:
        return False
    return all(
        group["hooks"] == [_value(text, one.handler) for one in _ours(text, event)] for event, group in wanted.items()
    )


def _with_ours(text: str, event: str, wanted: Mapping[str, Any], spaces: _EmptyContainers) -> str:
    while len(found := list(_ours(text, event))) > 1:
        text = _without(text, event, found[-1], spaces)
    if not found:
        spaces.empty |= json_edit.empty_on(text, ("hooks", event))
        return json_edit.insert(text, ("hooks", event), wanted)
    handler, (new,) = found[0].handler, wanted["hooks"]
    return text if _value(text, handler) == new else json_edit.replace(text, handler, new)


def _without_ours(text: str, event: str, spaces: _EmptyContainers) -> str:
    while found := list(_ours(text, event)):
        text = _without(text, event, found[-1], spaces)
    return text


def _without(text: str, event: str, one: _Handler, spaces: _EmptyContainers) -> str:
    """Return the settings `text` without the handler `one`, and without groups and containers that become empty.

    Containers that were empty before smart-fork changed the settings stay (see `_EmptyContainers`).
    """
    if len(json_edit.items(text, one.handlers)) > 1:
        return json_edit.remove(text, one.handlers, one.handler)
    return json_edit.withdraw(text, ("hooks", event), one.group, spaces.empty)


class _Handler(NamedTuple):
    """The positions in settings of a handler, of its group (a JSON object), and of the list of handlers in it."""

    group: json_edit.JsonItem
    handlers: int
    handler: json_edit.JsonItem


def _ours(text: str, event: str) -> Iterator[_Handler]:
    """Yield the position of each handler of smart-fork that the settings `text` has for `event`."""
    hooks = json_edit.member(text, json_edit.root(text), "hooks")
    groups = json_edit.member(text, hooks.value, event) if hooks else None
    if groups is None or text[groups.value] != "[":
        return
    for group in json_edit.items(text, groups.value):
        handlers = json_edit.member(text, group.value, "hooks")
        if handlers is None or text[handlers.value] != "[":
            continue
        for handler in json_edit.items(text, handlers.value):
            if _is_our_handler(_value(text, handler)):
                yield _Handler(group, handlers.value, handler)


def _is_our_handler(handler: object) -> bool:
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


def _value(text: str, item: json_edit.JsonItem) -> Any:
    return json.loads(text[item.value : item.end])


def _events(text: str) -> list[str]:
    hooks = json_edit.member(text, json_edit.root(text), "hooks")
    return [item.key for item in json_edit.items(text, hooks.value)] if hooks and text[hooks.value] == "{" else []


class _EmptyContainers:
    """The JSON containers in settings that were empty before hooks were added: they stay when these are removed.

    They are stored in a file, with their white space.
    """

    def __init__(self, path: Path) -> None:
        self._file = state_home() / "hooks" / f"{sha256(os.fsencode(path)).hexdigest()[:16]}.json"
        self.empty: dict[json_edit.Way, str] = {}
        self.created = False
        with suppress(OSError, ValueError, KeyError, TypeError):
            kept = json.loads(self._file.read_bytes())
            self.empty = {tuple(way): white for way, white in kept["empty"]}
            self.created = bool(kept["created"])

    def save(self, *, created: bool) -> None:
        """Write this record to its file. With `created`, note that smart-fork has created the settings file."""
        self.created = self.created or created
        private_dir(self._file.parent)
        replace_file(self._file, [json.dumps({"created": self.created, "empty": [*self.empty.items()]}).encode()])

    def forget(self) -> None:
        """Delete the file of this record, because the settings have no hooks of smart-fork now."""
        self.empty, self.created = {}, False
        self._file.unlink(missing_ok=True)


def _read(path: Path) -> str | None:
    step = f"Correct {path}, or add by hand what `smart-fork setup hooks --print` prints."
    text = ForeignFile(path, step).read()
    if text is None:
        return None
    try:
        hooks = json_edit.read_object(text).get("hooks", {})
    except (ValueError, RecursionError) as error:
        raise SmartForkError(f"{path} is not plain JSON, and was not changed: {error}", step) from error
    if not isinstance(hooks, dict) or not all(isinstance(groups, list) for groups in hooks.values()):
        raise SmartForkError(f'"hooks" in {path} has an unknown form, and was not changed', step)
    return text


_IN_SILENCE = "2>/dev/null || :"


def settings_file(agent: AgentName) -> Path:
    """Return the path of the file from which the agent reads its hooks."""
    return AGENTS.hooks_of(agent).path()


def command(agent: AgentName) -> str:
    """Return the shell command that the agent runs as a hook.

    If smart-fork is uninstalled, the command prints nothing and exits with 0, so that the agent reports no error.
    """
    return f"{shlex.join(Processes.python(MODULE, agent))} {_IN_SILENCE}"


def wanted(agent: AgentName) -> dict[str, Any]:
    """Return the hooks to install for the agent, with the `path` of their file.

    They are ``hooks`` for the agent's settings, or the ``content`` of a file of smart-fork's own.
    """
    hooks = AGENTS.hooks_of(agent)
    content = _content(hooks)
    groups = {event: [group] for event, group in _groups(hooks).items()}
    return {"path": str(hooks.path()), **({"hooks": groups} if content is None else {"content": content})}


def install(agent: AgentName) -> HooksChanged:
    """Install the agent's hooks, in place of those of an older version. Return the changes.

    Raises:
        SmartForkError: the file has an unknown form, belongs to others, or cannot be written; it is unchanged.
    """
    hooks = AGENTS.hooks_of(agent)
    path, content = hooks.path(), _content(hooks)
    if content is not None:
        changed, text = _written(path, content), content
    else:
        changed, text = install_handlers(path, _groups(hooks))
    return HooksChanged(agent=agent, path=str(path), changed=changed, installed=True, notes=tuple(hooks.notes(text)))


def follow_recall(agent: AgentName) -> Sequence[str]:
    """Install the agent's hooks again after hints from past sessions (recall) were switched on or off. Return notes.

    Do nothing if no hooks are installed, or this agent has none for hints.
    """
    hooks = AGENTS.hooks_of(agent)
    speaks = hooks.edits or all(hooks.failures)
    return install(agent).notes if speaks and has_handlers(hooks.path()) else ()


def remove(agent: AgentName) -> HooksChanged:
    """Remove the hooks from the agent's settings, or delete smart-fork's own file of hooks. Return the changes.

    Raises:
        SmartForkError: the file has an unknown form, or cannot be written; it is unchanged.
    """
    hooks = AGENTS.hooks_of(agent)
    path, content = hooks.path(), _content(hooks)
    if content is not None:
        return HooksChanged(agent=agent, path=str(path), changed=_deleted(path, content))
    told = HooksChanged(agent=agent, path=str(path), changed=remove_handlers(path))
    try:
        if found := hooks.distrusting(_read(path) or "{}"):
            path, before, text = found
            ForeignFile(path).write(before, text)
    except (OSError, ValueError, LookupError) as error:
        return replace(told, notes=(f"{hooks.title} still notes which hooks you trust: {error}",))
    return told


def is_installed(agent: AgentName) -> bool:
    """Return True if the agent's hooks are exactly those that `install` would write.

    Raises:
        SmartForkError: the file has an unknown form, or belongs to others.
    """
    hooks = AGENTS.hooks_of(agent)
    path, content = hooks.path(), _content(hooks)
    return _own_file(path, content) == content if content is not None else has_exactly(path, _groups(hooks))


def _content(hooks: Hooks) -> str | None:
    return hooks.content(Processes.python(MODULE, hooks.agent))


def _groups(hooks: Hooks) -> Groups:
    ours = [hooks.handler(command(hooks.agent))]
    groups: dict[str, dict[str, Any]] = {event: {"hooks": ours} for event in hooks.events}
    for event, matcher in hooks.tool_events if hint_switch.is_on(hooks.agent) else ():  # each such call waits for it
        groups[event] = {"matcher": matcher, "hooks": ours}
    return groups


# A file that is ours alone in an agent's folder is known by its first line.


def _written(path: Path, content: str) -> bool:
    """Write `content` to smart-fork's own file of hooks. Return True if that changed the file."""
    before = _own_file(path, content)
    if before != content:
        ForeignFile(path).write(before, content)
    return before != content


def _deleted(path: Path, content: str) -> bool:
    """Delete smart-fork's own file of hooks, known by the first line of `content`. Return False without such a file."""
    file = _file(path)
    before = file.read()
    if before is None or not _is_ours(before, content):
        return False
    file.write(before, None)
    return True


def _own_file(path: Path, content: str) -> str | None:
    file = _file(path)
    text = file.read()
    if text is None or _is_ours(text, content):
        return text
    raise SmartForkError(f"{path} is not smart-fork's, and was not changed", file.next_step)


def _is_ours(text: str, content: str) -> bool:
    return text.splitlines()[:1] == content.splitlines()[:1]


def _file(path: Path) -> ForeignFile:
    return ForeignFile(path, f"Move {path} away, or add by hand what `smart-fork setup hooks --print` prints.")


# As a step of the setup.

NAME = "hooks"


def planned(agent: AgentName) -> Step:
    """Return the step of the setup's plan that installs the agent's hooks.

    Raises:
        SmartForkError: the agent's settings have an unknown form, or are read-only.
    """
    path = settings_file(agent)
    step = partial(Step, "hooks", NAME, str(path), agent=agent)
    if is_installed(agent):
        return step(state="there")
    ForeignFile(path).check_writable()
    return step(state="new", act=partial(_set, agent))


def _set(agent: AgentName, ledger: Ledger) -> list[str]:
    ledger.begin(LedgerLine(what="hooks", agent=agent, path=settings_file(agent)))
    return list(install(agent).notes)


def undo(line: LedgerLine) -> list[str]:
    """Remove the hooks that setup recorded in `line` of its ledger (list of changes). Return notes for the person."""
    agent = AGENTS.registration_of(line.agent).agent
    notes = remove(agent).notes if settings_file(agent) == line.path else ()
    return list(notes)


def difference(line: LedgerLine) -> str:
    """Return a complaint if the hooks that setup recorded in `line` are missing or outdated; else an empty text."""
    agent = AGENTS.registration_of(line.agent).agent
    return "" if is_installed(agent) else f"the hooks in {line.path} are missing or outdated"
