"""What indexing needs, checked by using it; each thing that is missing with what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from indexer.paths import index_root, private_dir, state_home
from indexer.shapes import dataclass
from indexer.transcripts.base import AgentAdapter
from indexer.transcripts.model import AgentName


@dataclass(frozen=True, slots=True)
class Prerequisites:
    """`errors` keep indexing from working at all, `warnings` keep one agent out. `agents` have folders."""

    agents: tuple[AgentName, ...]
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def check(adapters: Iterable[AgentAdapter]) -> Prerequisites:
    """Whether the state folder can be written, and which agents' folders there are: a missing one may still appear."""
    errors = [message for folder in (state_home(), index_root()) if (message := _unwritable(folder))]
    there, warnings = [], []
    for agent in adapters:
        if problem := _unreadable(agent):
            step = f"use {agent.name} once, or point {agent.variable} at its folder"
            warnings.append(f"{agent.name} is not indexed yet: {problem}; {step}")
        else:
            there.append(agent.name)
            if problem := agent.unread():
                warnings.append(f"no session of {agent.name} can be read: {problem}")
    return Prerequisites(tuple(there), tuple(dict.fromkeys(errors)), tuple(warnings))


def _unwritable(folder: Path) -> str:
    probe = folder / ".probe"
    try:
        private_dir(folder)
        probe.write_bytes(b"")
    except OSError as error:
        return f"cannot write to {folder} ({error}): make it writable, or set SMART_FORK_HOME to a writable folder"
    finally:
        with suppress(OSError):
            probe.unlink()
    return ""


def _unreadable(agent: AgentAdapter) -> str:
    """Why none of an agent's folders can be listed."""
    problem = "no folder"
    for folder, _ in agent.folders():
        try:
            next(iter(folder.iterdir()), None)
        except OSError as error:
            problem = problem if problem != "no folder" else f"{folder}: {error.strerror}"
        else:
            return ""
    return problem
