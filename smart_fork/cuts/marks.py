"""What a record without an id of its own, or a title, is known by where cuts are noted: a digest with this home's key.

Whoever has the notes alone cannot try words that were cut.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from indexer.files import write_new
from indexer.paths import private_dir, state_home

_BYTES = 32
#: The key of a process that has noted nothing.
_PASSING = secrets.token_bytes(_BYTES)
_KNOWN: dict[Path, bytes] = {}


def mark(data: bytes) -> str:
    """Return what stands for these bytes in notes."""
    return blake2b(data, key=_key(), digest_size=16).hexdigest()


def keep() -> None:
    """Keep the key, so that what is read from now on can be noted.

    Raises:
        OSError: it cannot be kept.
    """
    with suppress(FileExistsError):
        write_new(private_dir(state_home()) / _file().name, [secrets.token_bytes(_BYTES)])


def _key() -> bytes:
    file = _file()
    if file not in _KNOWN:
        try:
            _KNOWN[file] = file.read_bytes()[: blake2b.MAX_KEY_SIZE]
        except OSError:
            return _PASSING
    return _KNOWN[file]


def _file() -> Path:
    return state_home() / "marks.key"
