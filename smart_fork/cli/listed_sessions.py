"""References to sessions by number, title or worker name: ``show 1`` shows the first session of the last answer.

For each terminal, smart-fork keeps the session ids of the last answer with its time and project, but no text.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING

from pydantic import BaseModel, ValidationError

from indexer import state_db
from indexer.project import project_of
from indexer.safe_files import index_db
from smart_fork.agents.references import Reference
from smart_fork.cli.quick_answers import titled
from smart_fork.display_text import in_words, quoted
from smart_fork.errors import Ambiguous, NotFound, SmartForkError, Usage
from smart_fork.finding.session_lookup import is_session
from smart_fork.finding.team_sessions import is_shared
from smart_fork.workers.registry import Registry
from smart_fork.workers.registry_path import has_registry

if TYPE_CHECKING:
    from smart_fork.finding.hit import Hit


#: The greatest age of an answer: later, another terminal may have the same device name.
MAX_SECONDS = 12 * 3600
_FACT = "last answer"
_ASK = 'Ask first: smart-fork find "…". An id works as well.'


class _Answer(BaseModel):
    """The sessions that a command last listed at a terminal: a reference for each number."""

    project: str
    at: float
    sessions: dict[str, str]


def remember(hits: Sequence[Hit]) -> None:
    """Keep `hits` as the last answer at this terminal, so that commands accept their numbers."""
    if place := _terminal():
        shown = {str(hit.rank): str(Reference(hit.agent_type, hit.session_id)) for hit in hits}
        with suppress(OSError):  # nowhere to write, or no directory any more
            answer = _Answer(project=project_of(os.getcwd()).key, at=time.time(), sessions=shown)  # noqa: PTH109
            state_db.keep(f"{_FACT} {place}", answer.model_dump())


def reference_of(word: str) -> str:
    """Return a reference to the session with the number, title or worker name `word`. Return other words as given.

    Raises:
        Usage: the last answer at this terminal has no result of this number.
        NotFound: the session of that result is gone.
    """
    if Reference.parsed(word).is_number:
        return _result(word)
    return word if Reference.parsed(word).looks_like_one else _named(word) or word


def _result(number: str) -> str:
    try:
        answer = _Answer.model_validate(state_db.fact(f"{_FACT} {_terminal()}"))
    except (ValidationError, OSError):
        raise Usage(f"There is no answer in this terminal of which {number} could be a result", _ASK) from None
    age = time.time() - answer.at
    if not 0 <= age <= MAX_SECONDS:
        raise Usage(f"The last answer in this terminal is {in_words(abs(age))} old: {number} is no longer known", _ASK)
    if answer.project != project_of(os.getcwd()).key:  # noqa: PTH109
        raise Usage(f"The last answer in this terminal is of another project: {number} is not known here", _ASK)
    if (session := answer.sessions.get(number)) is None:
        raise Usage(f"The last answer has no result {number}", f"It has {', '.join(answer.sessions) or 'none'}.")
    if not (is_session(session) or is_shared(Reference.parsed(session).name)):
        raise NotFound(f"Result {number} of the last answer is gone: {quoted(session)}", _ASK)
    return session


def _named(name: str) -> str:
    """Return a reference to this project's session titled `name`, or to the session of the worker `name`.

    Return an empty text if there is neither.

    Raises:
        Ambiguous: several sessions have the title.
    """
    found = titled(index_db(), project_of(os.getcwd()).key, name)  # noqa: PTH109
    if len(found) > 1:
        ids = " or ".join(one.session_id for one in found)
        raise Ambiguous(f"{quoted(name)} is the title of several sessions", f"Say which: {ids}")
    if found:
        return str(Reference(found[0].agent, found[0].session_id))
    with suppress(SmartForkError), Registry() if has_registry() else nullcontext() as registry:
        if registry is not None and (worker := registry.get(name)).session_id:
            return str(Reference(worker.agent, worker.session_id))
    return ""


def _terminal() -> str:
    """Return the device path of the terminal at stdout, stderr or stdin; empty if there is none."""
    for stream in (sys.stdout, sys.stderr, sys.stdin):
        with suppress(OSError, ValueError):  # no terminal, or closed
            return os.ttyname(stream.fileno())
    return ""
