"""Another agent's session written as one of its own: what a fork and a branch of it begin with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from indexer.transcripts.base import AgentAdapter
from indexer.transcripts.model import Session
from smart_fork import foreign_sessions
from smart_fork.agents.copier import NewSession
from smart_fork.agents.forms import HomePlace
from smart_fork.copies.session_copy import Branch, write_branch
from smart_fork.copies.told import as_session
from smart_fork.forking.handover import Handover
from smart_fork.forking.others import is_others
from smart_fork.system.processes import Machine


def write_told(
    adapter: AgentAdapter, handover: Handover, source: Session | None, becomes: NewSession, machine: Machine
) -> Branch:
    """Write what the agent of `adapter` is told as a session of its own; `source` is what was read of the other one.

    Where that is somebody else's, this one is, too: taking it away again forgets that.

    Raises:
        ForkRefused: the agent would not load it.
        ProgramFailed: its own program does not take it.
        OSError: it cannot be written.
    """
    handed, cwd = handover.handed, becomes.cwd or Path.cwd()
    place = HomePlace(str(cwd), str(Path.home()))
    with as_session(adapter.name, handover.said, place, source_id=handed.session_id) as session:
        written = write_branch(
            adapter,
            session.source_path,
            replace(becomes, cwd=cwd, title=becomes.title or handover.title),
            session=session,
            at=None,
            machine=machine,
        )
    if not is_others(handed.session_id, source):
        return written
    written = replace(written, forget=partial(_forget, becomes.id, written.forget))
    try:
        said = [turn.id for turn in session.turns if not turn.id.isdigit()]  # a number is any session's
        foreign_sessions.remember(becomes.id, said)
    except BaseException:
        written.undo()
        raise
    return written


def _forget(session_id: str, also: Callable[[], object] | None) -> None:
    foreign_sessions.forget(session_id)
    if also:
        also()
