"""How an agent is started: what it is asked for, and the command that it is asked with. Pure."""

from __future__ import annotations

import re
import uuid
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from indexer.transcripts.model import AgentName
from smart_fork.agents.options import Options

#: What must be on disk before the command works: nothing, the transcript in the target's folder, or a copy under the
#: new id, which the agent's copier writes (of all of the session, or up to a message).
Staging = Literal["nothing", "transcript", "branch"]
#: Which of an agent's own commands: a session of its own, one that goes on, or a fork of one.
Form = Literal["fork", "new", "resume"]
#: How the prompt gets to the agent: among its arguments, on its standard input, or typed once its screen hears.
Delivery = Literal["argument", "input", "typed"]


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """What is to be started, and how. `at` is the id of the last message to keep; `with_agent` what to run it with.

    `session_id` is that of the session to fork or to go on with, empty for a new one. `new_session_id` is one that the
    new session may have. `options` are all that was said of the worker, the prompt and the name as they were said.
    """

    agent: AgentName
    session_id: str
    source_path: Path | None
    source_cwd: str
    target_cwd: Path
    program: str
    new_session_id: str | None = None
    prompt: str | None = None
    headless: bool = False
    name: str | None = None
    at: str | None = None
    with_agent: AgentName | None = None
    depth: int = 0
    worker_id: str = ""
    form: Form = "fork"
    options: Options = field(default_factory=Options)

    @property
    def skip_permissions(self) -> bool:
        """Whether it never asks before it acts."""
        return self.options.skip_permissions


@dataclass(frozen=True, slots=True)
class CommandLine:
    """The command of one worker. A prompt that is delivered as an argument is among `argv`.

    `session_id` is that of the worker's session, `None` where it is found by its birth (see `Births`). `writes` says
    that there will be a log of it before somebody has asked something.
    """

    argv: tuple[str, ...]
    session_id: str | None = None
    staging: Staging = "nothing"
    delivery: Delivery = "argument"
    writes: bool = False


class Starter(ABC):
    """How one agent is started."""

    name: AgentName
    #: The form of its sessions' ids, and of as much of one as a person may name it by.
    ids: re.Pattern[str] = re.compile(r"(?=.*[^-])[0-9a-fA-F-]{32,36}")
    beginnings: re.Pattern[str] = re.compile(r"[0-9a-fA-F-]{8,36}")
    #: Whether a fork of no session that is named is taken for a new session.
    forks_nothing: bool = False

    @abstractmethod
    def line(self, request: ForkRequest) -> CommandLine:
        """The command for `request`, whose ids are checked, and whose prompt and name are plain; both may be empty."""

    @abstractmethod
    def fork_words(self, session_id: str) -> tuple[str, ...]:
        """What a person would type by hand to fork that session; for display."""

    def new_id(self) -> str:
        """An id that a new session may have."""
        return str(uuid.uuid4())
