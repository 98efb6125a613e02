"""Searches of tests. Each opens a library of its own."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from indexer.transcripts.model import Session
from smart_fork.finding.answer import Answer
from smart_fork.finding.index_refresh import Engine
from smart_fork.finding.request import FindRequest
from smart_fork.finding.session_library import Library
from smart_fork.forking.fork_content import IntentEvidence, answering
from smart_fork.forking.request import ForkRequest, SessionChoice


def find(request: FindRequest, engine: Engine, path: Path | str | None = None, **where: Any) -> Answer:
    """Return the sessions that the library of a project finds, by default of all projects."""
    with opened(engine, path, **where) as library:
        return library.find(request)


def find_and_fork(
    request: FindRequest,
    engine: Engine,
    asked: tuple[SessionChoice, ForkRequest],
    path: Path | str | None = None,
    **where: Any,
) -> Answer:
    """Search as `find` does, and return the answer with the fork that `choosing` selects."""
    from smart_fork.forking.search_and_fork import find_and_fork as found_and_forked

    with opened(engine, path, **where) as library:
        return found_and_forked(request, library, *asked)


def message_for(session: Session, intent: str, engine: Engine) -> str:
    """Return the message of the exchange that answers best."""
    with opened(engine) as library:
        return answering(session, IntentEvidence(intent, (), library))


def opened(engine: Engine, path: Path | str | None = None, **where: Any) -> AbstractContextManager[Library]:
    """Open the library of a project, by default of all projects."""
    return Library.open(None if path is None else str(path), engine, **{"everywhere": path is None} | where)
