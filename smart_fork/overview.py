"""One screen: what is indexed and how fresh, the service and its next run, the workers, what went wrong last."""

from __future__ import annotations

from typing import Any

from indexer.damage import kept
from indexer.paths import index_db, state_home
from smart_fork.agents import READERS
from smart_fork.errors import IndexUnavailable, RegistryUnavailable
from smart_fork.hooks import switch
from smart_fork.retrieval.status import index_status
from smart_fork.service.client import Service, ServiceGoneError, find_service
from smart_fork.workers.roster import list_workers

#: What is shown of the index; where its logs are broken is `index status`'s to say.
_SHOWN = (
    "logs",
    "unread_logs",
    "sessions",
    "chunks",
    "embedded",
    "covered",
    "complete",
    "updated_at",
    "bytes",
    "model",
    "last_run",
    "next_run",
)


def overview() -> dict[str, Any]:
    """The state of all parts as JSON values. Nothing is read or started for it."""
    service = _service(find_service(any_version=True))
    state = {"home": str(state_home()), "index": _index(), "service": service, "recall": _recall()}
    try:
        return state | {"workers": _workers()}
    except RegistryUnavailable as error:
        return state | {"workers": [], "workers_problem": {"error": error.message, "hint": error.hint}}


def _index() -> dict[str, Any]:
    try:
        state = index_status()
    except IndexUnavailable as error:
        return {"error": error.message, "hint": error.hint}
    aside = [str(path) for path in kept(index_db())]
    told = state.as_json()
    shown = {name: told[name] for name in _SHOWN} | {"broken_lines": state.broken_lines}
    return shown | ({"set_aside": aside} if aside else {})


def _service(service: Service | None) -> dict[str, Any]:
    if service is None:
        return {"running": False, "hint": "smart-fork serve, or smart-fork service install"}
    address = service.address
    known = {"running": True, "url": address.url, "pid": address.pid, "started": address.started}
    try:
        return known | service.status() | {"memory_bytes": _memory(address.pid)}
    except ServiceGoneError as error:
        return known | {"error": str(error)}


def _recall() -> dict[str, Any]:
    """For which agents' new sessions it is on, and what came of it."""
    return {"on": [one.name for one in READERS if switch.is_on(one.name)], **switch.asked()._asdict()}


def _memory(pid: int) -> int | None:
    import psutil

    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return None


def _workers() -> list[dict[str, Any]]:
    if not (state_home() / "workers.db").exists():
        return []
    shown = ("worker_id", "name", "agent_type", "kind", "state", "status", "waiting_for", "cwd")
    return [{name: getattr(one, name) for name in shown} for one in list_workers(None) if one.worker_id]
