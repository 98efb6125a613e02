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
from smart_fork.registry.workers import Kind

if TYPE_CHECKING:
    from smart_fork.copies.told import Part
    from smart_fork.forking.handover import Handover


@dataclass(frozen=True, slots=True)
class ForkSource:
    """The session to fork or to go on with. `cwd` is where it worked; without a path only the agent can find it.

    `session` is what was read of it, where it was read.
    """

    agent: AgentName
    session_id: str
    source_path: Path | None
    cwd: str
    session: Session | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """A worker that is to be started; `source` is `None` for a new session, `point` the last turn of it to keep.

    Of an `excerpt` only what that keeps goes into a fork, and then what is kept of `others`. With `or_without` the
    worker starts also where no worktree can be made. `written` is a copy of the source that is there already. A
    `handover` is what the agent is told of the source, where that is another one's.
    """

    kind: Kind
    agent: AgentName
    source: ForkSource | None = None
    options: Options = field(default_factory=Options)
    point: Point | None = None
    cwd: Path | None = None
    or_without: bool = False
    caller_session_id: str | None = None
    written: Branch | None = None
    excerpt: Excerpt | None = None
    others: tuple[Part, ...] = ()
    handover: Handover | None = None

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


def source_of(session: Session) -> ForkSource:
    """A session as what is forked or gone on with."""
    return ForkSource(session.agent, session.session_id, session.source_path, session.cwd, session)
