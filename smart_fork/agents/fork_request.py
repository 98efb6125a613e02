"""The request for an agent's command, before it is a command line. Pure."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path
from typing import Literal

from indexer.shapes import dataclass
from indexer.transcripts.model import AgentName
from smart_fork.agents.options import Options

#: The agent's command: fork a session, start a new one, or resume one.
Form = Literal["fork", "new", "resume"]


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """A worker to start. `at` is the id of the last message to keep.

    `session_id` is the session to fork or resume, empty for a new one. `source_agent` is its agent, for a hand-over.
    The new session may use `new_session_id`. `options`, the prompt and the name are as the caller gave them. With
    `of_others` the session contains another person's text, which may be hostile: its agent asks before it acts.
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
        """`True` if the agent never asks before it acts."""
        return self.options.skip_permissions
