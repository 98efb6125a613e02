"""Keyed digests that name titles, and records without ids, in the notes of cuts.

The key stays in this home, so that nobody can test guessed words against the notes alone.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from indexer.files import write_new
from indexer.paths import private_dir, state_home

_BYTES = 32
#: The key of a process that has not noted anything.
_PASSING = secrets.token_bytes(_BYTES)
_KNOWN: dict[tuple[str | None, ...], bytes] = {}


def mark(data: bytes) -> str:
    """Return the digest of these bytes."""
    return blake2b(data, key=_key(), digest_size=16).hexdigest()


def keep() -> None:
    """Save the key, so that marks made from now on can be compared later.

    Raises:
        OSError: The key cannot be written.
    """
    with suppress(FileExistsError):
        write_new(private_dir(state_home()) / _file().name, [secrets.token_bytes(_BYTES)])


def _key() -> bytes:
    home = tuple(map(os.environ.get, ("SMART_FORK_HOME", "HOME")))  # asked for each record: no `Path` is made for that
    if home not in _KNOWN:
        try:
            _KNOWN[home] = _file().read_bytes()[: blake2b.MAX_KEY_SIZE]
        except OSError:
            return _PASSING
    return _KNOWN[home]


def _file() -> Path:
    return state_home() / "marks.key"
