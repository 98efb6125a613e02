"""Copies that are being written: whoever is killed meanwhile leaves one that nothing names, and the next command takes
it away.

A copy is written down before there is any of it, and struck out once it is tracked or told. Who writes holds a lock,
shared with others who write; who clears up has it alone, so that he finds only what the dead have left.
"""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from indexer import state
from indexer.locks import held
from indexer.transcripts.model import AgentName
from smart_fork import foreign_sessions
from smart_fork.agents import AGENTS
from smart_fork.agents.readers import READERS
from smart_fork.errors import SmartForkError
from smart_fork.sharing import tracking
from smart_fork.sharing.pulled import find
from smart_fork.sharing.tracking import ProjectFolder, Tracking

_READ = "arrived-"
#: So much of an id stands in the name of what is to become the copy.
_OF_AN_ID = 20


@contextmanager
def copy(agent: AgentName, session_id: str, place: ProjectFolder) -> Iterator[None]:
    """The time in which a copy of that id is written and tracked; after an error whoever writes it takes it away."""
    with held(tracking.folder(), fcntl.LOCK_SH):
        intent = (session_id, agent, str(place.root), place.key)
        state.change("INSERT OR REPLACE INTO unfinished_copies VALUES (?, ?, ?, ?)", *intent)
        try:
            yield
        finally:
            _strike(session_id)


@contextmanager
def folder() -> Iterator[Path]:
    """A private folder for records that are only read, gone afterwards."""
    with (
        held(tracking.folder(), fcntl.LOCK_SH),
        tempfile.TemporaryDirectory(prefix=_READ, dir=tracking.folder()) as made,
    ):
        yield Path(made)


def clear() -> None:
    """Take away what was left, unless somebody writes just now."""
    read = sorted(tracking.folder().glob(f"{_READ}*"))
    if not (read or state.rows("SELECT 1 FROM unfinished_copies LIMIT 1")):
        return
    with suppress(BlockingIOError), held(tracking.folder(), fcntl.LOCK_EX | fcntl.LOCK_NB):
        for intent in state.rows("SELECT * FROM unfinished_copies"):  # some may be finished by now
            _take_away(*intent)
        for left in read:
            shutil.rmtree(left, ignore_errors=True)


def _take_away(session_id: str, agent: AgentName, root: str, project: str) -> None:
    """Take a copy away with all that is kept of it, unless it is tracked: then it is whole."""
    reader = READERS[agent]
    try:
        tracked = {one.file for one in Tracking(ProjectFolder(Path(root), project)).ours().aliases.values()}
    except SmartForkError:
        return  # where it is not known what is tracked nothing is taken away
    for where in (tracking.folder(), AGENTS[reader.name].home.folder()):
        for staged in where.rglob(f".*{session_id[:_OF_AN_ID]}*.tmp"):
            staged.unlink(missing_ok=True)
    for path in reader.locate(session_id):
        if path in tracked:
            break
        if (known := find(path, reader.name)) is not None:
            known.forget()
        try:
            AGENTS.files_of(reader.name).remove(path)
        except SmartForkError:
            return  # its agent has it open
    else:
        foreign_sessions.forget(session_id)
    _strike(session_id)


def _strike(session_id: str) -> None:
    state.change("DELETE FROM unfinished_copies WHERE session_id = ?", session_id)
