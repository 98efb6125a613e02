"""Having a session forgotten: everything of ours that holds what was said in it goes, and does not come back.

The agent's own log is never touched, and what the register of workers says stays: that there was such a worker.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from indexer.changes import Forgotten, add, forgotten, strike
from indexer.lazy import dataclass
from indexer.locks import IndexBusyError, only_writer
from indexer.lost_logs import erase_owed, sweep, sweep_files
from indexer.transcripts.model import AgentName
from indexer.values import Value, rare
from smart_fork.agents.cuts.model import Transcript
from smart_fork.agents.readers import READERS
from smart_fork.agents.references import Reference
from smart_fork.errors import NotFound, SmartForkError, Usage, advice
from smart_fork.excise.answer import NotFollowed
from smart_fork.excise.erasure import note_forgetting, run_pending
from smart_fork.excise.transcript import derived_from, own_files
from smart_fork.finding.index_access import opened
from smart_fork.finding.sessions import MIN_PREFIX, Located, locate, only_one
from smart_fork.snippets import quoted
from smart_fork.system import call_context

#: How long to wait for another process that is indexing.
PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class Removal(Value):
    """A session that is forgotten, or no longer. `jsonl_path` is the agent's own log, which is as it was.

    `erased` says whether nothing of it is left in files of ours; `None` where it was not to be erased. `left` are logs
    of what came of it, and where such a log is gone, our files of it: these still have its text.
    """

    session_id: str
    agent_type: AgentName
    forgotten: bool
    jsonl_path: str | None
    erased: bool | None = rare()
    left: tuple[NotFollowed, ...] | None = rare()


def forget(reference: str) -> Removal:
    """Forget the session that `reference` means (see `sessions.locate`): export, copy, snapshots, passages, vectors.

    It is on a list first, so whatever interrupts this, the next indexing completes it.

    Raises:
        SmartForkError: there is no such session, or another process is indexing for too long.
    """
    located = locate(reference)
    try:
        with _writing():
            note_forgetting(located.agent, located.session_id)
            add(located.agent, located.session_id, _now())
            sweep_files()
            with opened() as store:
                sweep(store)
                erased = erase_owed(store)
    finally:
        settled = run_pending()
    done = _answer(located.agent, located.session_id, forgotten=True, erased=erased and settled)
    return replace(done, left=tuple(_left(located)) or None)


def undo(reference: str) -> Removal:
    """Take a session off the list: it is indexed again, if the agent still has its log.

    Raises:
        Usage: too short, or it means several sessions.
        NotFound: no such session was forgotten.
    """
    with _writing():
        agent, session_id = _meant(reference, forgotten())
        with opened() as store:
            store.read_forgotten()
        strike(agent, session_id)
    return _answer(agent, session_id, forgotten=False)


def _left(one: Located) -> Iterator[NotFollowed]:
    descent = derived_from(Transcript(one.agent, one.path or Path(), one.session_id, ()))
    logs = [(other.agent, other.session_id, other.path) for other in descent.logs]
    lost = () if call_context.limited() else descent.without_log
    logs += [(*other, path) for other in lost for path in own_files(*other)]
    for agent, session_id, path in logs:
        if (agent, session_id) not in forgotten() and session_id != one.session_id:
            again = advice(f"smart-fork forget {session_id}", tool=f"the user can forget session {session_id}")
            yield NotFollowed(str(path), f"It came of this session, and has its text: {again}.")


def _answer(agent: AgentName, session_id: str, *, forgotten: bool, erased: bool | None = None) -> Removal:
    log = READERS.original_of(agent, session_id)
    return Removal(session_id, agent, forgotten, str(log) if log else None, erased)


def _meant(reference: str, gone: Forgotten) -> tuple[AgentName, str]:
    (whose, name), shown = Reference.parsed(reference), quoted(reference)
    if len(name) < MIN_PREFIX:
        raise Usage(f"Session id too short: {shown}", f"Give at least {MIN_PREFIX} characters of it.")
    found = [
        Located(agent, session_id, None)
        for agent, session_id in gone
        if whose in (None, agent) and session_id.lower().startswith(name.lower())
    ]
    if not found:
        raise NotFound(f"No forgotten session has this id: {shown}")
    one = only_one(found, name, shown=shown)
    return one.agent, one.session_id


@contextmanager
def _writing() -> Iterator[None]:
    try:
        with only_writer(PATIENCE):
            yield
    except IndexBusyError as error:
        raise SmartForkError("Another process is indexing", "Try again when it ends.") from error


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
