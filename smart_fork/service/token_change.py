"""Changes the token. The old token and its cookies stop working."""

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
    """`service` is the address of the running service, `holders` are settings files with the old token."""

    rotated: bool = True
    service: str | None
    holders: tuple[str, ...]


def rotate() -> Rotated:
    """Change the token.

    Raises:
        OSError: it cannot be written; the old token stays.
        ProgramFailed: it is changed, but the running service does not answer.
    """
    before = change()
    return Rotated(service=_taken(), holders=tuple(str(one) for one in _holders(before)))


def _taken() -> str | None:
    """Return the address of a service that has the new token: it reads the file at each request."""
    if (service := find_service()) is not None:
        return service.address.url
    if (process := holder()) is not None:
        what = f"The token was changed, but the running service (process {process}) did not accept it"
        raise ProgramFailed(what, "End it: smart-fork service stop")
    return None


def _holders(token: str | None) -> list[Path]:
    """Return the agents' settings files that contain `token`."""
    files = [file for way in registrations() for file in way.holders()]
    return [file for file in dict.fromkeys(one.absolute() for one in files) if token and _has(file, token.encode())]


def _has(file: Path, text: bytes) -> bool:
    try:
        return file.is_file() and file.stat().st_size <= MAX_SETTINGS and text in file.read_bytes()
    except OSError:
        return False
