"""Ends a loop of crashes. systemd gives up by itself; launchd starts a failing program forever."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import orjson

from indexer.safe_files import private_dir, replace_file

#: So many starts within so many seconds, none of them ended properly, are a loop.
LIMIT, WINDOW = 5, 600.0
#: What is left of a log of crashes that has grown beyond ten times as much.
KEPT_BYTES = 100_000
_NAME = "service-starts.json"

log = logging.getLogger(__name__)


def begin(state: Path, now: Callable[[], float] = time.time) -> bool:
    """Note in `state` that the service starts. Return False after too many crashes: it must end now, with 0."""
    time_now = now()
    # A clock that was set back leaves starts in the future: they are not counted.
    starts = [start for start in _starts(state) if 0 <= time_now - start < WINDOW]
    if len(starts) >= LIMIT:
        log.error("%d crashes within %d minutes: the service gives up", len(starts), WINDOW // 60)
        return False
    replace_file(private_dir(state) / _NAME, [orjson.dumps([*starts, time_now])])
    return True


def end(state: Path) -> None:
    """Forget the starts: the service has ended on request, restarts as a newer version, or was installed."""
    (state / _NAME).unlink(missing_ok=True)


def shorten(crash_log: Path) -> None:
    """Keep only the end of a log, in the same file: launchd or systemd holds it open."""
    with suppress(FileNotFoundError), crash_log.open("r+b") as file:
        if file.seek(0, 2) > 10 * KEPT_BYTES:
            file.seek(-KEPT_BYTES, 2)
            kept = file.read().partition(b"\n")[2]
            file.seek(0)
            file.truncate()
            file.write(kept)


def _starts(state: Path) -> list[float]:
    try:
        starts = orjson.loads((state / _NAME).read_bytes())
        return [float(start) for start in starts]
    except (OSError, ValueError, TypeError):
        return []
