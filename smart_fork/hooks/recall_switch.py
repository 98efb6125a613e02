"""Switches hints on and off for each agent, and counts the results of hints."""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from indexer.safe_files import private_dir, remove, replace_file, state_home
from indexer.transcripts.model import AgentName
from smart_fork.agents import AGENTS
from smart_fork.hooks import ASKED, EDITS, ERRORS, LATE, NO_PROMPTS, RECALL

#: The folders with a note for each session, and the first byte of a line about a hint that was followed.
NOTED, FOLLOWED = (ASKED, EDITS, ERRORS), b"+"
#: How long notes about a session are kept.
KEPT_SECONDS = 30 * 24 * 3600.0


class PromptHintCounts(NamedTuple):
    """Results of hints at recent first prompts: the sessions asked about, and how many answers came in time or late."""

    sessions: int
    told: int
    late: int


class HintCounts(NamedTuple):
    """Results of recent hints at edits or failures: how many were given, came late, or were followed.

    A hint is followed if the session passes the hinted session's id to a tool or a command later.
    """

    told: int
    late: int
    followed: int


def file_of(agent: AgentName) -> Path:
    """Return the file that exists while hints are on for an agent."""
    return state_home() / RECALL / agent


def is_on(agent: AgentName) -> bool:
    """Return True if hints are on for an agent."""
    return file_of(agent).is_file()


def turn_on(agent: AgentName) -> None:
    """Switch hints on for an agent. The file holds what the hook needs to know: the hook has no time to ask the agent.

    Raises:
        OSError: the folder cannot be written.
    """
    for folder in NOTED:
        private_dir(state_home() / RECALL / folder)
    hooks = AGENTS.hooks_of(agent)
    replace_file(file_of(agent), ["\n".join(hooks.begun).encode() if hooks.recalls else NO_PROMPTS])


def turn_off(agent: AgentName) -> None:
    """Switch hints off for an agent. If hints are then on for no agent, all notes about hints are deleted.

    Raises:
        OSError: the folder cannot be written.
    """
    remove(file_of(agent))
    if not any(is_on(one.name) for one in AGENTS):
        shutil.rmtree(state_home() / RECALL, ignore_errors=True)


def prompt_hint_counts() -> PromptHintCounts:
    """Return the results of hints at recent first prompts."""
    notes = list(map(_content, _notes(ASKED)))
    return PromptHintCounts(len(notes), sum(len(note) > len(LATE) for note in notes), notes.count(LATE))


def hint_counts(folder: str) -> HintCounts:
    """Return the results of recent hints with notes in this folder: `EDITS` or `ERRORS`."""
    lines = [line for path in _notes(folder) for line in _content(path).splitlines()]
    late, followed = lines.count(LATE), sum(line.startswith(FOLLOWED) for line in lines)
    return HintCounts(len(lines) - late - followed, late, followed)


def follow(session_id: str | None, given: str) -> None:
    """Note which hinted sessions a session names in its input to a tool or a command."""
    for path in (one for folder in NOTED for one in _notes(folder) if one.name == session_id):
        lines = _content(path).splitlines()
        told = {line.partition(b":")[0] for line in lines if line[:1] not in (LATE, FOLLOWED)}
        new = [one for one in told if one.decode() in given and FOLLOWED + one not in lines]
        with suppress(OSError), path.open("ab") as file:
            file.write(b"".join(FOLLOWED + one + b"\n" for one in new))


def forget() -> None:
    """Delete the notes about sessions that began long ago."""
    for path in (one for folder in NOTED for one in _notes(folder)):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > KEPT_SECONDS:
                path.unlink()


def _notes(folder: str) -> list[Path]:
    try:
        return list((state_home() / RECALL / folder).iterdir())
    except OSError:
        return []


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
