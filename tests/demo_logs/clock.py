"""Times and ids that look like the agents' own and are the same whenever the same `now` is given."""

from __future__ import annotations

import hashlib
import uuid
from datetime import UTC, datetime, timedelta


class DemoClock:
    """The time in a session. Each record is a few seconds after the last."""

    def __init__(self, start: datetime) -> None:
        self.now = start
        self._ticks = 0

    def tick(self) -> datetime:
        """Go on by 3 to 19 seconds."""
        self._ticks += 1
        self.now += timedelta(seconds=3 + self._ticks * 7 % 17, milliseconds=self._ticks * 131 % 1000)
        return self.now

    def pause(self) -> None:
        """Go on by some minutes: the person reads and thinks."""
        self._ticks += 1
        self.now += timedelta(minutes=2 + self._ticks * 5 % 9)


def stamp(moment: datetime) -> str:
    """ISO 8601 in UTC with milliseconds and ``Z``, as both agents write it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def random_id(*names: object) -> str:
    """A version 4 UUID that depends on `names` alone."""
    return str(uuid.UUID(bytes=_digest(names)[:16], version=4))


def ordered_id(moment: datetime, *names: object) -> str:
    """A version 7 UUID of `moment`: such ids sort by time."""
    milliseconds = int(moment.timestamp() * 1000)
    number = milliseconds << 80 | int.from_bytes(_digest(names)[:10], "big")
    number = number & ~(0xF << 76) & ~(0x3 << 62) | 0x7 << 76 | 0x2 << 62
    return str(uuid.UUID(int=number))


def short_id(prefix: str, *names: object) -> str:
    """`prefix` and 24 hexadecimal digits that depend on `names` alone: message and call ids."""
    return prefix + _digest(names).hex()[:24]


def _digest(names: tuple[object, ...]) -> bytes:
    return hashlib.sha256("\0".join(map(str, names)).encode()).digest()
