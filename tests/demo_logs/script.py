"""What a session is made of: who said and did what, whichever agent's log it is written into."""

from __future__ import annotations

from dataclasses import dataclass

from indexer.transcripts.model import AgentName


@dataclass(frozen=True, slots=True)
class Say:
    """The agent says something."""

    text: str


@dataclass(frozen=True, slots=True)
class Read:
    """The agent reads a file of the repository."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class FileEdit:
    """The agent changes `old` into `new`; a file that has no `old` is written."""

    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class CommandRun:
    """The agent runs a command, which prints `output` and ends with `status`."""

    command: str
    output: str
    status: int = 0


Step = Say | Read | FileEdit | CommandRun


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the person asked and what the agent did about it."""

    prompt: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Scripted:
    """One session. A fork (`fork_of` names another) has only its own part."""

    name: str
    agent: AgentName
    repository: str
    title: str
    days_ago: float
    asked: tuple[Prompt, ...]
    branch: str = "main"
    fork_of: str = ""


def asked(prompt: str, *steps: Step) -> Prompt:
    """An exchange that stayed."""
    return Prompt(prompt, steps)
