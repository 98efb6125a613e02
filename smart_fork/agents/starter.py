"""Makes an agent's command for a request. Pure."""

from __future__ import annotations

import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple

from indexer.lazy import dataclass
from indexer.transcripts.model import AgentName
from smart_fork.agents.options import Options

#: The agent's command: fork a session, start a new one, or resume one.
Form = Literal["fork", "new", "resume"]


@dataclass(frozen=True, slots=True)
class Launch:
    """A worker to start. `at` is the id of the last message to keep.

    `session_id` is the session to fork or resume, empty for a new one. `source_agent` is its agent, `None` if nobody
    has read it, and the id goes to the agent as it is.
    The new session may use `new_session_id`. `options`, the prompt and the name are as the caller gave them. With
    `of_others` the session contains another person's text, which may be hostile: its agent asks before it acts. With
    `has_tools` the agent starts our server too: its first request should wait for that. In the `background` it is one
    of the agent's own sessions (see `Background`).
    """

    agent: AgentName
    session_id: str
    target_cwd: Path
    program: str
    new_session_id: str | None = None
    prompt: str | None = None
    headless: bool = False
    background: bool = False
    name: str | None = None
    at: str | None = None
    source_agent: AgentName | None = None
    depth: int = 0
    worker_id: str = ""
    form: Form = "fork"
    of_others: bool = False
    has_tools: bool = False
    options: Options = field(default_factory=Options)

    @property
    def skip_permissions(self) -> bool:
        """`True` if the agent never asks before it acts."""
        return self.options.skip_permissions


#: The files that the command needs: none; the transcript in the target's folder; a copy under the new id, written by
#: the agent's copier; or the log under a second name that remains when the agent resumes the session (see
#: `Storage.resumed`).
Staging = Literal["nothing", "transcript", "branch", "name"]
#: How the agent gets the prompt: as an argument, on standard input, or typed when its input line appears.
Delivery = Literal["argument", "input", "typed"]


def ordinary(prompt: str, commands: tuple[str, ...]) -> str:
    """Return a prompt that the agent does not take for a command, also if it begins like one of `commands`."""
    return f"Prompt: {prompt}" if prompt.lstrip().startswith(commands) else prompt


class CommandLine(NamedTuple):
    """The command of one worker. `argv` has the prompt if it is an argument.

    `session_id` is the worker's session, `None` if `Births` finds it. `writes` means that the log exists before the
    first prompt. `env` has variables that nobody has set otherwise.
    """

    argv: tuple[str, ...]
    session_id: str | None = None
    staging: Staging = "nothing"
    delivery: Delivery = "argument"
    writes: bool = False
    named: bool = False
    env: Mapping[str, str] = MappingProxyType({})


class Starter(ABC):
    """Makes the commands of one agent."""

    #: The form of its session ids, and of their beginnings.
    ids: re.Pattern[str] = re.compile(r"(?=.*[^-])[0-9a-fA-F-]{32,36}")
    beginnings: re.Pattern[str] = re.compile(r"[0-9a-fA-F-]{8,36}")
    #: The words with which a person forks the session ``ID``: its own, unless these lose or lack something.
    forks: tuple[str, ...] = ("smart-fork", "fork", "ID")
    #: `True` if the agent starts a new session for a fork without a session.
    forks_nothing: bool = False
    #: The options with which it asks before it acts, whatever its settings and the session's records allow. None if
    #: records cannot allow anything, and only the settings of the person do.
    asking: tuple[str, ...] = ()
    #: `True` if `Launch.has_tools` changes the command.
    waits: bool = False

    @abstractmethod
    def line(self, request: Launch) -> CommandLine:
        """Return the command for `request`. Its ids are checked; its prompt and name are plain, and may be empty."""

    def fork_words(self, session_id: str) -> tuple[str, ...]:
        """Return the words of the command with which a person forks that session; for display."""
        return tuple(session_id if word == "ID" else word for word in self.forks)

    def new_id(self) -> str:
        """Return an id for a new session."""
        return str(uuid.uuid4())


class OptionStarter(Starter):
    """Makes the commands of agents that take ids and prompts behind options, and whose forks are copies of ours."""

    #: The options with which it never asks, and the one with the prompt of a worker with a screen.
    unasked: tuple[str, ...]
    interactive: str = "--prompt-interactive"
    #: The beginnings of prompts that are commands of its own, and whether they are commands without a screen too.
    commands: tuple[str, ...] = ("/", "?")
    always: bool = True
    #: `True` if it takes a session's id only behind ``=``.
    joined: bool = False
    resumed: Staging = "nothing"

    def line(self, request: Launch) -> CommandLine:
        session_id = request.session_id if request.form == "resume" else request.new_session_id
        option = "--session-id" if request.form == "new" else "--resume"
        session = (f"{option}={session_id}",) if self.joined else (option, session_id or "")
        unasked = self.unasked if request.skip_permissions else ()
        asking = self.asking if request.of_others else ()
        argv = (request.program, *(session if session_id else ()), *unasked, *asking, *self._asked(request))
        staging: Staging = "branch" if request.form == "fork" else "nothing" if request.form == "new" else self.resumed
        return CommandLine(argv, session_id, staging)

    def _asked(self, request: Launch) -> tuple[str, ...]:
        prompt = request.prompt or ""
        said = ordinary(prompt, self.commands) if self.always or not request.headless else prompt
        if request.headless:
            return ("--output-format", "json", f"--prompt={said}")
        return (f"{self.interactive}={said}",) if said else ()
