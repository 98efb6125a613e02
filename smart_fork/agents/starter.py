"""How an agent is started: the command for what is asked for. Pure."""

from __future__ import annotations

import re
import uuid
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal, NamedTuple

from indexer.transcripts.model import AgentName

if TYPE_CHECKING:
    from smart_fork.agents.fork_request import ForkRequest

#: What must be on disk before the command works: nothing, the transcript in the target's folder, a copy under the new
#: id, which the agent's copier writes (of all of the session, or up to a message), or the log under another name as
#: well, under which it outlives that it is gone on with (see `Storage.lasting`).
Staging = Literal["nothing", "transcript", "branch", "name"]
#: How the prompt gets to the agent: among its arguments, on its standard input, or typed once its screen hears.
Delivery = Literal["argument", "input", "typed"]


def ordinary(prompt: str, commands: tuple[str, ...]) -> str:
    """A prompt as one that the agent takes for no command of its own, also where it begins like one of `commands`."""
    return f"Prompt: {prompt}" if prompt.lstrip().startswith(commands) else prompt


class CommandLine(NamedTuple):
    """The command of one worker. A prompt that is delivered as an argument is among `argv`.

    `session_id` is that of the worker's session, `None` where it is found by its birth (see `Births`). `writes` says
    that there will be a log of it before somebody has asked something.
    """

    argv: tuple[str, ...]
    session_id: str | None = None
    staging: Staging = "nothing"
    delivery: Delivery = "argument"
    writes: bool = False
    named: bool = False


class Starter(ABC):
    """How one agent is started."""

    name: AgentName
    #: The form of its sessions' ids, and of as much of one as a person may name it by.
    ids: re.Pattern[str] = re.compile(r"(?=.*[^-])[0-9a-fA-F-]{32,36}")
    beginnings: re.Pattern[str] = re.compile(r"[0-9a-fA-F-]{8,36}")
    #: Whether a fork of no session that is named is taken for a new session.
    forks_nothing: bool = False
    #: The options with which it asks before it acts, whatever its settings and the session's records say; none where
    #: the session's records count for nothing, and only the settings of whoever runs it do.
    asking: tuple[str, ...] = ()

    @abstractmethod
    def line(self, request: ForkRequest) -> CommandLine:
        """The command for `request`, whose ids are checked, and whose prompt and name are plain; both may be empty."""

    @abstractmethod
    def fork_words(self, session_id: str) -> tuple[str, ...]:
        """What a person would type by hand to fork that session; for display."""

    def new_id(self) -> str:
        """An id that a new session may have."""
        return str(uuid.uuid4())
