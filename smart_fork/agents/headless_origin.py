"""Finds sessions that a worker without a terminal began, for agents whose logs do not tell."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from indexer.transcripts.model import Origin
from smart_fork.errors import RegistryUnavailable
from smart_fork.workers.registry import Registry
from smart_fork.workers.registry_file import has_registry, registry_file

#: The registry's name of the place without a terminal.
_PLACE = "process"


def origin_of(session_id: str, *, named: bool = False) -> Origin:
    """Return "automated" if such a worker began the session, or forked one that was. A `named` one is a person's."""
    if named or not has_registry():
        return "person"
    path = registry_file()
    begun = _begun(path, (_stamp(path), _stamp(path.with_name(f"{path.name}-wal"))))
    return "automated" if session_id in begun else "person"


@lru_cache(maxsize=1)
def _begun(path: Path, stamp: tuple[tuple[int, int], ...]) -> frozenset[str]:
    """Return the sessions in the registry at that `stamp`."""
    del stamp
    try:
        with Registry(path) as registry:
            workers = registry.workers()
    except RegistryUnavailable:
        return frozenset()
    begun: set[str] = set()
    for worker in reversed(workers):  # parents before their forks
        source = worker.source_session_id
        began = worker.kind == "new" or (worker.kind == "fork" and source in begun)
        if began and worker.place == _PLACE and worker.session_id:
            begun.add(worker.session_id)
    return frozenset(begun)


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size
