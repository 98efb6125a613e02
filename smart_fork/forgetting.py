"""Having a session forgotten: everything of ours that holds what was said in it goes, and does not come back.

The agent's own log is never touched, and what the register of workers says stays: that there was such a worker.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from indexer.forgotten import Forgotten, forgotten, replace
from indexer.freshness import IndexBusyError, only_writer
from indexer.paths import state_home
from indexer.project import is_within, resolve
from indexer.remembering import sweep, sweep_files
from indexer.transcripts.agents import adapter
from indexer.transcripts.model import Agent
from smart_fork.errors import NotFound, SmartForkError, Usage
from smart_fork.excise import snapshots
from smart_fork.registry import Registry
from smart_fork.retrieval.opening import opened
from smart_fork.sessions import MIN_PREFIX, Located, locate
from smart_fork.snippets import printable

#: How long to wait for another process that is indexing.
PATIENCE = 60.0


def forget(reference: str) -> dict[str, Any]:
    """Forget the session that `reference` means (see `sessions.locate`): export, copy, snapshots, passages, vectors.

    It is on a list first, so whatever interrupts this, the next indexing completes it.

    Raises:
        SmartForkError: there is no such session, or another process is indexing for too long.
    """
    located = locate(reference)
    with _writing():
        replace(forgotten() | {(located.agent, located.session_id): _now()})
        sweep_files()
        snapshots.forget(located.session_id)
        _remove_output(located)
        with opened() as store:
            sweep(store)
    return _answer(located.agent, located.session_id, forgotten=True)


def undo(reference: str) -> dict[str, Any]:
    """Take a session off the list: it is indexed again, if the agent still has its log.

    Raises:
        Usage: too short, or it means several sessions.
        NotFound: no such session was forgotten.
    """
    with _writing():
        gone = forgotten()
        agent, session_id = _meant(reference, gone)
        with opened() as store:
            store.read_forgotten()
        del gone[agent, session_id]
        replace(gone)
    return _answer(agent, session_id, forgotten=False)


def _answer(agent: Agent, session_id: str, *, forgotten: bool) -> dict[str, Any]:
    log = next(iter(adapter(agent).locate(session_id)), None)
    return {
        "session_id": session_id, "agent_type": agent, "forgotten": forgotten, "jsonl_path": str(log) if log else None
    }  # fmt: skip


def _meant(reference: str, gone: Forgotten) -> tuple[Agent, str]:
    wanted, shown = reference.strip().lower(), printable(reference).strip()[:80]
    if len(wanted) < MIN_PREFIX:
        raise Usage(f"Session id too short: {shown}", f"Give at least {MIN_PREFIX} characters of it.")
    found = [one for one in gone if one[1].lower().startswith(wanted)]
    exact = [one for one in found if one[1].lower() == wanted]
    if not found:
        raise NotFound(f"No such session was forgotten: {shown}")
    if len(found) > 1 and len(exact) != 1:
        raise Usage(f"{shown} is ambiguous", "It means: " + ", ".join(session_id for _, session_id in found[:5]))
    return (exact or found)[0]


def _remove_output(located: Located) -> None:
    """What a worker whose session it is has printed."""
    if not (state_home() / "workers.db").exists():
        return
    with Registry() as registry, suppress(NotFound, Usage):
        worker = registry.get(located.session_id)
        if worker.session_id == located.session_id and worker.log_path:
            path = Path(worker.log_path)
            if is_within(resolve(path), resolve(state_home())):
                path.unlink(missing_ok=True)


@contextmanager
def _writing() -> Iterator[None]:
    try:
        with only_writer(PATIENCE):
            yield
    except IndexBusyError as error:
        raise SmartForkError("Another process is indexing", "Try again when it has ended.") from error


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
