"""Switches the hints at first prompts on and off for each agent, and counts their results."""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from indexer.files import private_dir, remove, replace_file, state_home
from indexer.transcripts.model import AgentName
from smart_fork.agents import AGENTS
from smart_fork.hooks import ASKED, EDITS, ERRORS, LATE, NO_PROMPTS, RECALL

#: The folders with a note for each session, one a point of action; and how a line begins of what was followed.
NOTED, FOLLOWED = (ASKED, EDITS, ERRORS), b"+"
#: So long it is known of a session that it was asked about.
KEPT_SECONDS = 30 * 24 * 3600.0


class PromptHintCounts(NamedTuple):
    """Recent first prompts: how many sessions were asked about, and how many got an answer, or a late one."""

    sessions: int
    told: int
    late: int


class HintCounts(NamedTuple):
    """Recent hints: how many exchanges were named, how many answers were late, and how many sessions were followed.

    A session is followed if the one that was told of it asks a tool or a command for it afterwards.
    """

    told: int
    late: int
    followed: int


def file_of(agent: AgentName) -> Path:
    """The file that is there where it is on."""
    return state_home() / RECALL / agent


def is_on(agent: AgentName) -> bool:
    """Return True if it is on."""
    return file_of(agent).is_file()


def turn_on(agent: AgentName) -> None:
    """Switch it on. The hook reads what is in the file: it has no time to ask the agent.

    Raises:
        OSError: the folder cannot be written.
    """
    for folder in NOTED:
        private_dir(state_home() / RECALL / folder)
    hooks = AGENTS.hooks_of(agent)
    replace_file(file_of(agent), ["\n".join(hooks.begun).encode() if hooks.recalls else NO_PROMPTS])


def turn_off(agent: AgentName) -> None:
    """Switch it off. Where it is on for no agent, nothing is kept of it.

    Raises:
        OSError: the folder cannot be written.
    """
    remove(file_of(agent))
    if not any(is_on(one.name) for one in AGENTS):
        shutil.rmtree(state_home() / RECALL, ignore_errors=True)


def asked() -> PromptHintCounts:
    """Return the recent results at first prompts."""
    notes = list(map(_content, _notes(ASKED)))
    return PromptHintCounts(len(notes), sum(len(note) > len(LATE) for note in notes), notes.count(LATE))


def said(folder: str) -> HintCounts:
    """Return the recent hints at the point of action that keeps its notes in this folder."""
    lines = [line for path in _notes(folder) for line in _content(path).splitlines()]
    late, followed = lines.count(LATE), sum(line.startswith(FOLLOWED) for line in lines)
    return HintCounts(len(lines) - late - followed, late, followed)


def follow(session_id: str | None, given: str) -> None:
    """Note which of the sessions that a session was told of it names in what it gives to a tool or a command."""
    for path in (one for folder in NOTED for one in _notes(folder) if one.name == session_id):
        lines = _content(path).splitlines()
        told = {line.partition(b":")[0] for line in lines if line[:1] not in (LATE, FOLLOWED)}
        new = [one for one in told if one.decode() in given and FOLLOWED + one not in lines]
        with suppress(OSError), path.open("ab") as file:
            file.write(b"".join(FOLLOWED + one + b"\n" for one in new))


def forget() -> None:
    """Delete what is known of sessions that began long ago."""
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
