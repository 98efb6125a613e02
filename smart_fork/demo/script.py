"""What the demo's sessions are made of: who said and did what, whichever agent's log it is written into."""

from __future__ import annotations

from indexer.shapes import dataclass
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


@dataclass(frozen=True, slots=True)
class Delegate:
    """The agent has a sub-agent do what the session's `subagent` says, which then gives back `answer`."""

    description: str
    answer: str


Step = Say | Read | FileEdit | CommandRun | Delegate


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the person asked and what the agent did about it. A `rewound` one was taken back for the next."""

    prompt: str
    steps: tuple[Step, ...]
    rewound: bool = False


@dataclass(frozen=True, slots=True)
class Scripted:
    """One session. A fork (`fork_of` names another) has only its own part. `subagent` is work that it gave away."""

    name: str
    agent: AgentName
    repository: str
    title: str
    days_ago: float
    asked: tuple[Prompt, ...]
    branch: str = "main"
    fork_of: str = ""
    automated: bool = False
    subagent: tuple[Prompt, ...] = ()


def asked(prompt: str, *steps: Step) -> Prompt:
    """An exchange that stayed."""
    return Prompt(prompt, steps)


def rewound(prompt: str, *steps: Step) -> Prompt:
    """An exchange that the person took back, to ask the next one instead."""
    return Prompt(prompt, steps, rewound=True)
