"""Changing the token: from then on nothing opens the service that opened it before."""

from __future__ import annotations

from pathlib import Path

from indexer.values import Value, record
from smart_fork.agents.facets import registrations
from smart_fork.errors import ProgramFailed
from smart_fork.service.client import find_service
from smart_fork.service.lock import holder
from smart_fork.service.token import change

#: Larger than any file of settings.
MAX_SETTINGS = 64 * 1024 * 1024


@record
class Rotated(Value):
    """`service` is where the one that runs has taken the new one, `holders` are settings that have the old one."""

    rotated: bool = True
    service: str | None
    holders: tuple[str, ...]


def rotate() -> Rotated:
    """Change it.

    Raises:
        OSError: it cannot be written; then it is the one that it was.
        ProgramFailed: it is another one, and the service that runs has not taken it.
    """
    before = change()
    return Rotated(service=_taken(), holders=tuple(str(one) for one in _holders(before)))


def _taken() -> str | None:
    """Return where a service has the token of now: it looks at each request."""
    if (service := find_service()) is not None:
        return service.address.url
    if (process := holder()) is not None:
        what = f"The token was changed, but the running service (process {process}) did not accept it"
        raise ProgramFailed(what, "End it: smart-fork service stop")
    return None


def _holders(token: str | None) -> list[Path]:
    """Files of agents' settings that have `token`: those who ask over HTTP send what stands there."""
    files = [file for way in registrations() for file in way.holders()]
    return [file for file in dict.fromkeys(one.absolute() for one in files) if token and _has(file, token.encode())]


def _has(file: Path, text: bytes) -> bool:
    try:
        return file.is_file() and file.stat().st_size <= MAX_SETTINGS and text in file.read_bytes()
    except OSError:
        return False
