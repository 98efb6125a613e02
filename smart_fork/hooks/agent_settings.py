"""Our hooks in the agents' own files: what is put in for each agent, and whether it is there."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from indexer.shapes import dataclass
from indexer.transcripts.model import AgentName
from smart_fork.agents.facets import hooks_of
from smart_fork.agents.hooks import Hooks
from smart_fork.errors import SmartForkError
from smart_fork.hooks import MODULE, entries, switch
from smart_fork.hooks.recall import BEFORE_A_TOOL
from smart_fork.system import foreign_files

_IN_SILENCE = "2>/dev/null || :"


@dataclass(frozen=True, slots=True)
class Change:
    """What was done to an agent's settings. `notes` is what a person should know about it."""

    agent: AgentName
    path: Path
    changed: bool
    installed: bool
    notes: tuple[str, ...] = ()


def settings_file(agent: AgentName) -> Path:
    """Where the agent reads its hooks from."""
    return hooks_of(agent).path()


def command(agent: AgentName) -> str:
    """What the agent runs, for a shell.

    Where smart-fork has been uninstalled it says nothing and ends with 0: no agent complains of a hook that is left.
    """
    return f"{shlex.join(_words(agent))} {_IN_SILENCE}"


def wanted(agent: AgentName) -> dict[str, Any]:
    """All that we install: ``hooks`` as the settings have them, or the ``content`` of a file of ours."""
    hooks = hooks_of(agent)
    content = _content(hooks)
    said = (
        {"content": content}
        if content is not None
        else {"hooks": {event: [group] for event, group in _groups(hooks).items()}}
    )
    return {"path": str(hooks.path()), **said}


def install(agent: AgentName) -> Change:
    """Have the agent tell us what its sessions do. Twice is once; what older versions have put in is replaced.

    Raises:
        SmartForkError: the file is not understood, not ours, or cannot be written; it is as it was.
    """
    hooks = hooks_of(agent)
    path, content = hooks.path(), _content(hooks)
    if content is not None:
        changed, text = _written(path, content), content
    else:
        changed, text = entries.install(path, _groups(hooks))
    return Change(agent, path, changed, installed=True, notes=tuple(hooks.notes(text)))


def follow_recall(agent: AgentName) -> Sequence[str]:
    """Put in what recall needs or take it out, if our hooks are there; return what a person should know about it.

    Raises:
        SmartForkError: as `install`.
    """
    hooks = hooks_of(agent)
    speaks = hooks.edits or all(hooks.failures)
    return install(agent).notes if speaks and entries.any_in(hooks.path()) else ()


def remove(agent: AgentName) -> Change:
    """Take out what is ours.

    Raises:
        SmartForkError: the file is not understood, or cannot be written; it is as it was.
    """
    hooks = hooks_of(agent)
    path, content = hooks.path(), _content(hooks)
    changed = _deleted(path, content) if content is not None else entries.remove(path)
    return Change(agent, path, changed, installed=False)


def is_installed(agent: AgentName) -> bool:
    """Whether our hooks are there as we would install them.

    Raises:
        SmartForkError: the file is not understood, or not ours.
    """
    hooks = hooks_of(agent)
    path, content = hooks.path(), _content(hooks)
    return _own_file(path, content) == content if content is not None else entries.are_in(path, _groups(hooks))


def _words(agent: AgentName) -> list[str]:
    """The command. ``-P``: nothing is imported from the directory that the agent works in."""
    return [sys.executable, "-P", "-m", MODULE, agent]


def _content(hooks: Hooks) -> str | None:
    return hooks.content(_words(hooks.agent))


def _groups(hooks: Hooks) -> entries.Groups:
    ours = [hooks.handler(command(hooks.agent))]
    groups: dict[str, dict[str, Any]] = {event: {"hooks": ours} for event in hooks.events}
    for event, matcher in ((BEFORE_A_TOOL, hooks.edits), hooks.failures):
        if matcher and switch.is_on(hooks.agent):  # each such call waits for it
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
