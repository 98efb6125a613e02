"""One worker that is to be started: what it works on, and how. Whoever starts one fills this value."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from indexer.shapes import dataclass
from indexer.transcripts.model import AgentName, Session
from smart_fork.agents.copier import Excerpt
from smart_fork.agents.options import Options
from smart_fork.agents.starter import Form
from smart_fork.copies.session_copy import Branch, Point
from smart_fork.workers.registry import Kind

if TYPE_CHECKING:
    from smart_fork.copies.told import Part
    from smart_fork.forking.handover import Handover
    from smart_fork.forking.within import Selected


@dataclass(frozen=True, slots=True)
class Content:
    """What goes into a fork: of its session all up to `point` or the `excerpt`, and of `others` what they keep.

    `asked` is the point that was asked for, `leaves` the one before anything was left out. `handover` is what another
    agent is told of all that. `selected` is what a budget keeps of each session.
    """

    asked: Point | None = None
    leaves: Point | None = None
    point: Point | None = None
    excerpt: Excerpt | None = None
    others: tuple[Part, ...] = ()
    handover: Handover | None = None
    selected: tuple[Selected, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """A worker that is to be started; `source` is the session that it forks or goes on with, `None` for a new one.

    Only the `content` of it goes into a fork. With `or_without` the worker starts also where no worktree can be made.
    `written` is a copy of the source that is there already.
    """

    kind: Kind
    agent: AgentName
    source: Session | None = None
    options: Options = field(default_factory=Options)
    content: Content = Content()
    cwd: Path | None = None
    or_without: bool = False
    caller_session_id: str | None = None
    written: Branch | None = None

    @property
    def form(self) -> Form:
        """Which of the agent's commands that is."""
        match self.kind:
            case "continue":
                return "resume"
            case "branch":
                return "fork"
            case kind:
                return kind


def unread(agent: AgentName, session_id: str, cwd: str) -> Session:
    """Return a session of which only its agent knows more than its id."""
    return Session(agent, session_id, Path(), (), cwd)
