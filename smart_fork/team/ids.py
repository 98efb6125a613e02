"""Ids of shared sessions: chosen here, so that to make one again with the same id changes nothing."""

from __future__ import annotations

import re
import secrets
import time
import uuid

#: An id, or the beginning of one that is enough to be looked for.
BEGINNING = re.compile(r"[0-9a-f-]{8,36}")
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def new_id() -> str:
    """An id of version 7, which begins with the time: what is new stands together in the server's indexes."""
    value = (time.time_ns() // 1_000_000 & (1 << 48) - 1) << 80 | secrets.randbits(80)
    value = value & ~(0xF << 76) & ~(0x3 << 62) | 0x7 << 76 | 0x2 << 62
    return str(uuid.UUID(int=value))


def is_id(text: str) -> bool:
    """Whether that is a whole id."""
    return _ID.fullmatch(text) is not None


def last_part(reference: str) -> str:
    """What an address names, however much of it was copied: its last part, without what stands behind it."""
    return re.split(r"[?#]", reference.strip(), maxsplit=1)[0].rstrip("/").rpartition("/")[2]
