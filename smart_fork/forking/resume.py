"""Which session is gone on with: one by its id, or the newest of a directory; and never one that is open elsewhere."""

from __future__ import annotations

from pathlib import Path

from indexer.project import project_of, recorded
from indexer.transcripts.lines import bounded
from indexer.transcripts.model import AgentName, Session
from smart_fork.agents.logs import original_of
from smart_fork.agents.plan import check_given
from smart_fork.agents.readers import OWN, READERS
from smart_fork.agents.references import parsed
from smart_fork.errors import Ambiguous, NotFound, SmartForkError, Usage, advice
from smart_fork.finding import sessions
from smart_fork.finding.recent import recent_sessions
from smart_fork.forking.bringing_back import refuse_borrowed
from smart_fork.forking.occupation import AlreadyRuns, Occupation
from smart_fork.forking.spec import unread
from smart_fork.forking.start import directory
from smart_fork.system.processes import Machine
from smart_fork.workers.liveness import lives
from smart_fork.workers.registry import Registry, WorkerRecord
from smart_fork.workers.registry_file import has_registry

#: Sessions of the project among which the directory's newest is looked for.
LOOKED_AT = 100


@bounded()
def session_to_resume(
    reference: str,
    *,
    agent: AgentName | None = None,
    cwd: Path | None = None,
    force: bool = False,
    machine: Machine | None = None,
) -> Session:
    """The session that `reference` means (see `sessions.locate`), to go on with in its own directory.

    With an `agent` it is not looked for: that agent is given the id as it is, in `cwd`. `force` takes it even
    if it seems to be open somewhere.

    Raises:
        AlreadyRuns: one of our workers is in it.
        ForkRefused: it seems to be open somewhere else.
        SmartForkError: there is no such session.
    """
    if agent is not None:
        given = unread(agent, check_given(reference), str(directory(cwd or Path.cwd())))
        check_free(given, force=force, machine=machine)
        return given
    if worker := _running_worker(reference, machine):
        _check_alone(reference)
        raise AlreadyRuns(worker, reference)
    located = sessions.locate(reference)
    refuse_borrowed(located)
    session = sessions.read(located)
    check_free(session, force=force, machine=machine)
    return session


@bounded()
def newest_session(
    target: Path,
    agent: AgentName,
    *,
    automated: bool = False,
    apart_from: str | None = None,
) -> Session:
    """The newest session that an agent had in a directory, not that of the caller, `apart_from`.

    The agents' own ways to say so know other directories' sessions in some versions, and do not tell the id
    beforehand. Like theirs, this knows those that scripts began only with `automated`: for a worker without a terminal.

    Raises:
        NotFound: there is none.
    """
    found = recent_sessions([OWN[agent]], project_of(target), LOOKED_AT, automated=automated).sessions
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
    return sessions.read(sessions.Located(session.agent, session.session_id, session.source_path))


def check_free(session: Session, *, force: bool = False, machine: Machine | None = None) -> None:
    """Whether nobody is in that session.

    Raises:
        AlreadyRuns: one of our workers is.
        ForkRefused: somebody else seems to be, and `force` does not say that it does not matter.
    """
    log = session.source_path if session.turns else original_of(READERS[session.agent], session.session_id)
    Occupation(session.agent, session.session_id, log, machine).check_free(force=force)


def _check_alone(reference: str) -> None:
    """Refuse an id that another agent's session has as well, where a worker is in one of them."""
    try:
        sessions.locate(reference)
    except Ambiguous:
        raise
    except (NotFound, Usage):
        return


def _running_worker(reference: str, machine: Machine | None) -> WorkerRecord | None:
    """The living worker that is meant; its session need not be known yet."""
    if not has_registry():
        return None
    agent, name = parsed(reference)
    try:
        with Registry() as registry:
            worker = registry.get(name)
    except SmartForkError:
        return None
    if agent not in (None, worker.agent):
        return None
    machine = machine or Machine()
    return worker if lives(worker, machine.processes, machine.env, machine.clock.now()) else None
