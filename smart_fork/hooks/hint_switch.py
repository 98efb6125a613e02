"""Switches hints (lines about fitting past sessions) on and off for each agent, and counts how hints were used."""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from indexer.safe_files import private_dir, remove, replace_file, state_home
from smart_fork.agents import AGENTS
from smart_fork.hooks import ASKED, EDITS, ERRORS, LATE, NO_PROMPTS, RECALL

if TYPE_CHECKING:
    from indexer.transcripts.model import AgentName

#: The folders with a file for each session that hints were asked for, and the first byte of a line about a hint that
#: was followed.
NOTED, FOLLOWED = (ASKED, EDITS, ERRORS), b"+"
#: The seconds after which the file about a session's hints is deleted.
KEPT_SECONDS = 30 * 24 * 3600.0


class PromptHintCounts(NamedTuple):
    """Counts of hints (lines about past sessions) at recent first prompts.

    The service was asked in `sessions` sessions, gave `told` hints, and in `late` sessions exceeded the hook's time.
    """

    sessions: int
    told: int
    late: int


class HintCounts(NamedTuple):
    """Counts of recent hints (lines about past sessions) at edits or failures.

    `told` hints were given to the model, `late` ones were not ready in the hook's time. A session has `followed` a hint
    if it later passed the hinted session's id to a tool or a command.
    """

    told: int
    late: int
    followed: int


def file_of(agent: AgentName) -> Path:
    """Return the file that exists while hints (lines about past sessions) are on for an agent."""
    return state_home() / RECALL / agent


def is_on(agent: AgentName) -> bool:
    """Return True if hints (lines about fitting past sessions) are on for an agent."""
    return file_of(agent).is_file()


def turn_on(agent: AgentName) -> None:
    """Switch hints (lines about past sessions) on for an agent, by creating a file that the hook reads.

    The file has the texts in a log by which the hook sees that the session already had a prompt.

    Raises:
        OSError: the folder cannot be written.
    """
    for folder in NOTED:
        private_dir(state_home() / RECALL / folder)
    hooks = AGENTS.hooks_of(agent)
    replace_file(file_of(agent), ["\n".join(hooks.begun).encode() if hooks.recalls else NO_PROMPTS])


def turn_off(agent: AgentName) -> None:
    """Switch hints (lines about past sessions) off for an agent. Delete all counts if no other agent has hints on.

    Raises:
        OSError: the folder cannot be written.
    """
    remove(file_of(agent))
    if not any(is_on(one.name) for one in AGENTS):
        shutil.rmtree(state_home() / RECALL, ignore_errors=True)


def prompt_hint_counts() -> PromptHintCounts:
    """Return the counts of hints (lines about past sessions) at recent first prompts."""
    notes = list(map(_content, _notes(ASKED)))
    return PromptHintCounts(len(notes), sum(len(note) > len(LATE) for note in notes), notes.count(LATE))


def hint_counts(folder: str) -> HintCounts:
    """Return the counts of hints (lines about past sessions) in `folder`: `EDITS` for edits, `ERRORS` for failures."""
    lines = [line for path in _notes(folder) for line in _content(path).splitlines()]
    late, followed = lines.count(LATE), sum(line.startswith(FOLLOWED) for line in lines)
    return HintCounts(len(lines) - late - followed, late, followed)


def follow(session_id: str | None, given: str) -> None:
    """Record the hints (lines about past sessions) that a session follows: those whose session's id is in `given`.

    `given` is the input of a tool or a command.
    """
    for path in (one for folder in NOTED for one in _notes(folder) if one.name == session_id):
        lines = _content(path).splitlines()
        told = {line.partition(b":")[0] for line in lines if line[:1] not in (LATE, FOLLOWED)}
        new = [one for one in told if one.decode() in given and FOLLOWED + one not in lines]
        with suppress(OSError), path.open("ab") as file:
            file.write(b"".join(FOLLOWED + one + b"\n" for one in new))


def forget() -> None:
    """Delete the records of hints (lines about past sessions) in sessions where the last one is over 30 days old."""
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
