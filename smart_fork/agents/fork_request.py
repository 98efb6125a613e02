"""What is to be started, as an agent's folder is asked for the command. Pure."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path
from typing import Literal

from indexer.shapes import dataclass
from indexer.transcripts.model import AgentName
from smart_fork.agents.options import Options

#: Which of an agent's own commands: a session of its own, one that goes on, or a fork of one.
Form = Literal["fork", "new", "resume"]


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """What is to be started, and how. `at` is the id of the last message to keep.

    `session_id` is that of the session to fork or to go on with, empty for a new one; `source_agent` is whose it is,
    where the agent is told of another one's. `new_session_id` is one that the new session may have. `options` are all
    that was said of the worker, the prompt and the name as they were said. `of_others` says that the session goes on
    from somebody else's, who could have put words there: its agent asks.
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
    source_agent: AgentName | None = None
    depth: int = 0
    worker_id: str = ""
    form: Form = "fork"
    of_others: bool = False
    options: Options = field(default_factory=Options)

    @property
    def skip_permissions(self) -> bool:
        """Whether it never asks before it acts."""
        return self.options.skip_permissions
