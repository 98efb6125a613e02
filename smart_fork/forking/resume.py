"""Starts an agent in a new session, or in an existing one that no other process has open."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from indexer.lazy_compilation import dataclass
from indexer.project import project_of
from indexer.repositories import recorded
from indexer.transcripts.lines import bounded
from indexer.transcripts.model import AgentName, Session
from smart_fork.agents import AGENTS
from smart_fork.agents.log_readers import OWN, READERS
from smart_fork.agents.references import Reference
from smart_fork.agents.request_fields import Options
from smart_fork.errors import Ambiguous, NotFound, SmartForkError, Usage, advice
from smart_fork.finding import session_lookup
from smart_fork.finding.recent import recent_sessions
from smart_fork.forking.session_use import AlreadyRuns, SessionUse
from smart_fork.forking.source_sessions import refuse_borrowed
from smart_fork.forking.worker_preconditions import directory
from smart_fork.forking.worker_spec import WorkerSpec
from smart_fork.system.processes import Machine
from smart_fork.workers.liveness import is_alive
from smart_fork.workers.registry import Registry, WorkerRecord
from smart_fork.workers.registry_path import has_registry
from smart_fork.workers.terminals import choose_place

if TYPE_CHECKING:
    from smart_fork.workers.registry import WorkerKind


@dataclass(frozen=True, slots=True)
class AgentStart:
    """A request to start an agent in a new session or in an existing one, for the commands new, resume and continue.

    `cwd` replaces the directory of an existing session. With `force`, a session that seems to be open in another
    process is resumed too. `caller` is the id of the session that runs the command.
    """

    options: Options = field(default_factory=Options)
    cwd: Path | None = None
    force: bool = False
    caller: str | None = None

    def new(self, agent: AgentName) -> WorkerSpec:
        """Return the worker that begins a new session."""
        return WorkerSpec("new", agent, options=self.options, cwd=self.cwd, caller_session_id=self.caller)

    def resumed(self, reference: str, agent: AgentName | None = None) -> WorkerSpec:
        """Return the worker that resumes the session that `reference` names (see `session_to_resume`)."""
        return self._going_on("resume", session_to_resume(reference, agent=agent, cwd=self.cwd, force=self.force))

    def newest(self, agent: AgentName, project: Path) -> WorkerSpec:
        """Return the worker that resumes the newest session of an agent in the directory `project`."""
        headless = choose_place(self.options.place, Machine()).headless
        source = newest_session(directory(project), agent, automated=headless, apart_from=self.caller)
        check_free(source, force=self.force)
        return self._going_on("continue", source)

    def of_log(self, path: Path, agent: AgentName) -> WorkerSpec:
        """Return the worker that resumes the session of a log that was just written.

        Raises:
            NotFound: the log has no conversation.
        """
        session = READERS[agent].read(path).session
        if session is None:
            raise NotFound(f"No conversation in {path}")
        return self._going_on("resume", session)

    def _going_on(self, kind: WorkerKind, source: Session) -> WorkerSpec:
        return WorkerSpec(kind, source.agent, source, self.options, cwd=self.cwd, caller_session_id=self.caller)


#: How many of a project's newest sessions are searched for the newest session of a directory.
MAX_RECENT_SESSIONS = 100


@bounded()
def session_to_resume(
    reference: str, *, agent: AgentName | None = None, cwd: Path | None = None, force: bool = False,
    machine: Machine | None = None,
) -> Session:  # fmt: skip
    """Return the session that `reference` names (see `session_lookup.locate`), to be resumed.

    With an `agent`, the session is not looked up: that agent receives the id unchanged, in `cwd`. With `force`, a
    session that seems to be open in another process is allowed.
    """
    if agent is not None:
        given = Session(agent, AGENTS.check_given(reference), Path(), (), str(directory(cwd or Path.cwd())))
        check_free(given, force=force, machine=machine)
        return given
    if worker := _running_worker(reference, machine):
        _check_alone(reference)
        raise AlreadyRuns(worker, reference)
    located = session_lookup.locate(reference)
    refuse_borrowed(located)
    session = session_lookup.read(located)
    check_free(session, force=force, machine=machine)
    return session


@bounded()
def newest_session(
    target: Path, agent: AgentName, *, automated: bool = False, apart_from: str | None = None
) -> Session:
    """Return the newest session of an agent in the directory `target`, except the caller's own, `apart_from`.

    Sessions begun by scripts count only with `automated`. The agents' own commands for this are not used: some versions
    consider other directories, and none tells the id before the start.

    Raises:
        NotFound: the directory has no session of this agent.
    """
    found = recent_sessions([OWN[agent]], project_of(target), MAX_RECENT_SESSIONS, automated=automated).sessions
    here = (one for one in found if one.session_id != apart_from and recorded(one.cwd) == target)
    session = next(here, None)
    if session is None:
        raise NotFound(
            f"No {agent} session to continue in {target}",
            advice(
                "`smart-fork list` shows all sessions of the project.",
                tool="list_sessions shows all sessions of the project.",
            ),
        )
    return session_lookup.read(session_lookup.Located(session.agent, session.session_id, session.source_path))


def check_free(session: Session, *, force: bool = False, machine: Machine | None = None) -> None:
    """Refuse a session that a worker or, unless `force`, another process has open; see `SessionUse.check_free`."""
    log = session.source_path if session.turns else READERS.original_of(session.agent, session.session_id)
    SessionUse(session.agent, session.session_id, log, machine).check_free(force=force)


def _check_alone(reference: str) -> None:
    """Raise `Ambiguous` for a session id that sessions of two agents share."""
    try:
        session_lookup.locate(reference)
    except Ambiguous:
        raise
    except (NotFound, Usage):
        return


def _running_worker(reference: str, machine: Machine | None) -> WorkerRecord | None:
    """Return the running worker that `reference` names, if any. Its session need not be known yet."""
    if not has_registry():
        return None
    agent, name = Reference.parsed(reference)
    try:
        with Registry() as registry:
            worker = registry.get(name)
    except SmartForkError:
        return None
    if agent not in (None, worker.agent):
        return None
    return worker if is_alive(worker, machine or Machine()) else None
