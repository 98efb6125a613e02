"""The service's log: a private, rotated file with one JSON object on each line, and with masked secrets."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import IO, Any

import orjson

from indexer.masking import Masked, beginning, ending, mask
from indexer.safe_files import private_dir, state_home

MAX_BYTES, KEPT_FILES = 5_000_000, 3
MAX_MESSAGE = 4_000
LOOK_SECONDS = 0.5
#: The bytes of the log that are kept in memory until they can be written.
WAITING_BYTES = 1 << 20
#: Attributes of every log record. All others were given with ``extra``.
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """A formatter that turns a log record, with its extra values, into a line of JSON with masked secrets."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _said(beginning(mask(record.getMessage()), MAX_MESSAGE)),
        }
        given = {name: str(value) for name, value in vars(record).items() if name not in _OWN}
        line |= {name: _said(beginning(mask(value), MAX_MESSAGE)) for name, value in given.items()}
        if record.exc_info:
            line["exception"] = _said(ending(mask(self.formatException(record.exc_info)), MAX_MESSAGE))
        return orjson.dumps(line).decode()


def _said(text: Masked) -> str:
    """Escape lone surrogates in `text`, which names of files may contain."""
    return text.encode("utf-8", "backslashreplace").decode()


class _Private(RotatingFileHandler):
    """The logging handler of the service's log, a private file.

    While the disk is full, it keeps the oldest `WAITING_BYTES` of records in memory, and writes them later.
    """

    def _open(self) -> TextIOWrapper:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        file = open(os.open(self.baseFilename, flags, 0o600), "ab", WAITING_BYTES)  # noqa: PTH123, SIM115
        return TextIOWrapper(file, encoding="utf-8", errors="replace")

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - what logging calls it
        """Ignore an error of writing the log: printing it could block on a pipe without a reader."""

    def shouldRollover(self, record: logging.LogRecord) -> bool:  # noqa: N802 - what logging calls it
        """Return True if the log file is full; False while earlier records wait for free space on the disk."""
        try:
            return bool(super().shouldRollover(record))
        except OSError:
            return False


def log_file() -> Path:
    """Return the path of the service's log file, in a folder that exists."""
    return private_dir(state_home() / "logs") / "service.log"


def log_to_file() -> None:
    """Write the log records of this process only to the service's log file from now on."""
    handler = _Private(log_file(), maxBytes=MAX_BYTES, backupCount=KEPT_FILES, encoding="utf-8")
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    for name in ("indexer", "smart_fork"):
        logger = logging.getLogger(name)
        logger.handlers = []
        logger.setLevel(logging.INFO)


def last_lines(number: int) -> list[dict[str, Any]]:
    """Return the newest `number` records of the service's log, oldest first, also from the file before rotation."""
    now = log_file()
    lines: list[bytes] = []
    for path in (now, now.with_name(f"{now.name}.1")):
        if len(lines) < number:
            lines = [*_last_of(path, number - len(lines)), *lines]
    return list(_decoded(lines))


def _last_of(path: Path, number: int) -> list[bytes]:
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - number * MAX_MESSAGE))
            return file.read().splitlines()[-number:]
    except FileNotFoundError:
        return []


def follow(wait: Callable[[], None] = lambda: time.sleep(LOOK_SECONDS)) -> Iterator[dict[str, Any]]:
    """Yield each new record of the service's log, forever, also after rotation. Call `wait` before each new look."""
    file, rest = _opened(), b""
    if file is not None:
        file.seek(0, os.SEEK_END)
    try:
        while True:
            if file is None:
                file = _opened()
            elif piece := file.read():
                *lines, rest = (rest + piece).split(b"\n")
                yield from _decoded(lines)
                continue
            elif _rotated(file):
                file.close()
                file, rest = _opened(), b""
                continue
            wait()
    finally:
        if file is not None:
            file.close()


def _opened() -> IO[bytes] | None:
    try:
        return log_file().open("rb")
    except FileNotFoundError:
        return None


def _rotated(file: IO[bytes]) -> bool:
    try:
        return log_file().stat().st_ino != os.fstat(file.fileno()).st_ino
    except FileNotFoundError:
        return False


def _decoded(lines: list[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            record = orjson.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            yield record
