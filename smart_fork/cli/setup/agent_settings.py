"""The hooks that smart-fork installs for an agent: handlers in its settings, beside others, or a file of our own.

What is others' in settings is left byte for byte, and a file that is not understood is never written. Ours are the
handlers whose command is ours. They stand behind those of others.
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
from smart_fork import json_text
from smart_fork.agents import AGENTS
from smart_fork.agents.hooks import Hooks
from smart_fork.cli.setup import foreign_files
from smart_fork.cli.setup.ledger import Ledger, LedgerLine, Step, take_away
from smart_fork.cli.setup.setup_answer import HooksChanged
from smart_fork.errors import SmartForkError
from smart_fork.hooks import recall_switch
from smart_fork.hooks.recall import BEFORE_A_TOOL
from smart_fork.system.processes import Processes

#: What the agents run, and what tells our handlers from those of others.
MODULE = "smart_fork.hooks"
#: For each event the group that is to be there, with one handler.
Groups = Mapping[str, Mapping[str, Any]]


def install_handlers(path: Path, wanted: Groups) -> tuple[bool, str]:
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


def remove_handlers(path: Path) -> bool:
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
    """Return True if the file has any of our hooks, including older ones.

    Raises:
        SmartForkError: the settings are not understood.
    """
    text = _read(path) or ""
    return any(list(_ours(text, event)) for event in _events(text)) if text else False


def are_in(path: Path, wanted: Groups) -> bool:
    """Return True if our hooks are in the settings as we would install them.

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

    group: json_text.JsonItem
    handlers: int
    handler: json_text.JsonItem


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


def _value(text: str, item: json_text.JsonItem) -> Any:
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
        """Note that the file has no hooks of ours: what becomes empty from now on is others' work."""
        self.empty, self.created = {}, False
        self._file.unlink(missing_ok=True)


def _read(path: Path) -> str | None:
    text = foreign_files.read(path, _correction(path))
    if text is None:
        return None
    try:
        hooks = json_text.read_object(text).get("hooks", {})
    except (ValueError, RecursionError) as error:
        raise SmartForkError(f"{path} is not plain JSON, and was not changed: {error}", _correction(path)) from error
    if not isinstance(hooks, dict) or not all(isinstance(groups, list) for groups in hooks.values()):
        raise SmartForkError(f'"hooks" in {path} has an unknown form, and was not changed', _correction(path))
    return text


def _correction(path: Path) -> str:
    return f"Correct {path}, or add by hand what `smart-fork setup hooks --print` prints."


_IN_SILENCE = "2>/dev/null || :"


def settings_file(agent: AgentName) -> Path:
    """Return the file that the agent reads its hooks from."""
    return AGENTS.hooks_of(agent).path()


def command(agent: AgentName) -> str:
    """Return the shell command that the agent runs.

    Where smart-fork has been uninstalled it says nothing and ends with 0: no agent complains of a hook that is left.
    """
    return f"{shlex.join(Processes.python(MODULE, agent))} {_IN_SILENCE}"


def wanted(agent: AgentName) -> dict[str, Any]:
    """Return our complete hooks: ``hooks`` as the settings have them, or the ``content`` of a file of ours."""
    hooks = AGENTS.hooks_of(agent)
    content = _content(hooks)
    groups = {event: [group] for event, group in _groups(hooks).items()}
    return {"path": str(hooks.path()), **({"hooks": groups} if content is None else {"content": content})}


def install(agent: AgentName) -> HooksChanged:
    """Have the agent tell us what its sessions do. Twice is once; what older versions have put in is replaced.

    Raises:
        SmartForkError: the file is not understood, not ours, or cannot be written; it is as it was.
    """
    hooks = AGENTS.hooks_of(agent)
    path, content = hooks.path(), _content(hooks)
    if content is not None:
        changed, text = _written(path, content), content
    else:
        changed, text = install_handlers(path, _groups(hooks))
    return HooksChanged(agent=agent, path=str(path), changed=changed, installed=True, notes=tuple(hooks.notes(text)))


def follow_recall(agent: AgentName) -> Sequence[str]:
    """Put in what recall needs or take it out, if our hooks are there; return what a person should know about it.

    Raises:
        SmartForkError: as `install`.
    """
    hooks = AGENTS.hooks_of(agent)
    speaks = hooks.edits or all(hooks.failures)
    return install(agent).notes if speaks and any_in(hooks.path()) else ()


def remove(agent: AgentName) -> HooksChanged:
    """Take out what is ours.

    Raises:
        SmartForkError: the file is not understood, or cannot be written; it is as it was.
    """
    hooks = AGENTS.hooks_of(agent)
    path, content = hooks.path(), _content(hooks)
    if content is not None:
        return HooksChanged(agent=agent, path=str(path), changed=_deleted(path, content))
    told = HooksChanged(agent=agent, path=str(path), changed=remove_handlers(path))
    try:
        if found := hooks.distrusting(_read(path) or "{}"):
            foreign_files.write(*found)
    except (OSError, ValueError, LookupError) as error:
        return replace(told, notes=(f"{hooks.title} still notes which hooks you trust: {error}",))
    return told


def is_installed(agent: AgentName) -> bool:
    """Return True if our hooks are installed as we would install them.

    Raises:
        SmartForkError: the file is not understood, or not ours.
    """
    hooks = AGENTS.hooks_of(agent)
    path, content = hooks.path(), _content(hooks)
    return _own_file(path, content) == content if content is not None else are_in(path, _groups(hooks))


def _content(hooks: Hooks) -> str | None:
    return hooks.content(Processes.python(MODULE, hooks.agent))


def _groups(hooks: Hooks) -> Groups:
    ours = [hooks.handler(command(hooks.agent))]
    groups: dict[str, dict[str, Any]] = {event: {"hooks": ours} for event in hooks.events}
    for event, matcher in ((BEFORE_A_TOOL, hooks.edits), hooks.failures):
        if matcher and recall_switch.is_on(hooks.agent):  # each such call waits for it
            groups[event] = {"matcher": matcher, "hooks": ours}
    return groups


# A file that is ours alone in an agent's folder is known by its first line.


def _written(path: Path, content: str) -> bool:
    """Write our file, in the place of an older one. Whether that changed anything."""
    before = _own_file(path, content)
    if before != content:
        foreign_files.write(path, before, content)
    return before != content


def _deleted(path: Path, content: str) -> bool:
    """Delete our file. Whether it was there; what is there instead and not ours stays."""
    before = foreign_files.read(path, _by_hand(path))
    if before is None or not _is_ours(before, content):
        return False
    foreign_files.write(path, before, None)
    return True


def _own_file(path: Path, content: str) -> str | None:
    text = foreign_files.read(path, _by_hand(path))
    if text is None or _is_ours(text, content):
        return text
    raise SmartForkError(f"{path} is not smart-fork's, and was not changed", _by_hand(path))


def _is_ours(text: str, content: str) -> bool:
    return text.splitlines()[:1] == content.splitlines()[:1]


def _by_hand(path: Path) -> str:
    return f"Move {path} away, or add by hand what `smart-fork setup hooks --print` prints."


# As a step of the setup.

NAME = "hooks"


def planned(agent: AgentName) -> Step:
    """The step that has an agent tell what its sessions do.

    Raises:
        SmartForkError: its settings are not understood, or must not be written.
    """
    path = settings_file(agent)
    step = partial(Step, "hooks", NAME, str(path), agent=agent)
    if is_installed(agent):
        return step(state="there")
    foreign_files.check_writable(path)
    return step(state="new", act=partial(_set, agent))


def _set(agent: AgentName, ledger: Ledger) -> list[str]:
    ledger.begin(LedgerLine(what="hooks", agent=agent, path=settings_file(agent)))
    return list(install(agent).notes)


def undo(line: LedgerLine) -> list[str]:
    """Take them out.

    Raises:
        SmartForkError: the settings are not understood; they are as they were.
    """
    agent = AGENTS.registration_of(line.agent).agent
    notes = remove(agent).notes if settings_file(agent) == line.path else ()
    take_away(line.path, line.folders)
    return list(notes)


def standing(line: LedgerLine) -> str:
    """Describe the differences from what setup left; empty if none.

    Raises:
        SmartForkError: the settings are not understood.
    """
    agent = AGENTS.registration_of(line.agent).agent
    return "" if is_installed(agent) else f"the hooks in {line.path} are missing or outdated"
