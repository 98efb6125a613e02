"""Text for people: makes the text of others safe for a terminal, and puts times, numbers and progress into words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import overload

from indexer.lazy_compilation import dataclass
from indexer.masking import Masked, mask, shorten
from indexer.masking.alternate_readings import BRACKETS, INVISIBLE, QUOTES

#: The characters of an invalid value that an error repeats.
QUOTED_CHARACTERS = 80
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
#: The units of a time span: the seconds from which each is used, its length in seconds, and its name.
_UNITS = (
    (730 * _DAY, 365 * _DAY, "year"),
    (60 * _DAY, 30 * _DAY, "month"),
    (_DAY, _DAY, "day"),
    (_HOUR, _HOUR, "hour"),
    (_MINUTE, _MINUTE, "minute"),
    (0, 1, "second"),
)
#: The longest name of a worker or a session.
MAX_NAME_CHARACTERS = 200
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x1f\x7f-\x9f]+")
#: The replacement of characters without a glyph: private, unassigned, and half surrogate pairs.
_UNKNOWN = "\ufffd"
#: Replaces characters that could end a quotation or its element.
_PLAIN_MARKS = str.maketrans(BRACKETS + QUOTES, "[]" * (len(BRACKETS) // 2) + "'" * len(QUOTES))


def time_of(moment: str | None) -> datetime | None:
    """Parse an ISO 8601 time, by default in UTC, into this machine's time zone; `None` if it is invalid."""
    try:
        then = datetime.fromisoformat(moment or "")
        return (then if then.tzinfo else then.replace(tzinfo=UTC)).astimezone()
    except (ValueError, OverflowError, OSError):
        return None


def in_words(seconds: float) -> str:
    """Format a span of time in one unit: "18 days", "1 hour", "40 seconds"."""
    _, length, unit = next((one for one in _UNITS if seconds >= one[0]), _UNITS[-1])
    count = int(seconds // length)
    return f"{count} {unit}{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    """Format a duration in up to two units: "1 min 20 s"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def ago(moment: str | None, now: datetime | None = None) -> str:
    """Return how long ago the ISO 8601 time `moment` is: "3 days ago"; empty if it is unknown."""
    then = time_of(moment)
    seconds = ((now or datetime.now(UTC)) - then).total_seconds() if then else 0
    return f"{in_words(seconds)} ago" if seconds >= _MINUTE else "just now" if then else ""


def minute(moment: str | None) -> str:
    """Format an ISO 8601 time to the minute, in this machine's time zone: ``2026-11-20 21:00``."""
    return f"{then:%Y-%m-%d %H:%M}" if (then := time_of(moment)) else (moment or "")[:16].replace("T", " ")


@overload
def printable(text: Masked) -> Masked: ...


@overload
def printable(text: str) -> str: ...


def printable(text: str) -> str:
    """Remove terminal control characters and invisible characters. Line breaks and tabs stay."""
    seen = INVISIBLE.sub("", text)
    return seen if "".join(seen.split()).isprintable() else "".join(map(_visible, seen))


def quoted(given: str, limit: int = QUOTED_CHARACTERS) -> Masked:
    """Prepare a user's input for an error message: on one line, without secrets, shortened to `limit`."""
    return shorten(printable(mask(given)), limit)


def quotation(text: str, characters: int) -> Masked:
    """Prepare a text to be put between quotation marks or tags: one masked line, without brackets and quotes."""
    line = " ".join(printable(mask(text)).split())
    return shorten(mask(line.translate(_PLAIN_MARKS)), characters)


def storable(given: str) -> str:
    """Return a command-line argument as text that a database accepts: bytes that are not UTF-8 become "?"."""
    return given.encode(errors="replace").decode()


def _visible(character: str) -> str:
    return character if character.isprintable() or character.isspace() else _UNKNOWN


def shown(value: object) -> Masked:
    """Write an invalid value as JSON for an error message, masked and shortened."""
    return quoted(json.dumps(value, ensure_ascii=False, default=str))


def tokens_about(count: int | None) -> str:
    """Format a number of tokens, rounded: "850", "1.4k", "214k"."""
    count = count or 0
    return str(count) if count < 1000 else f"{count / 1000:.{int(count < 10_000)}f}k"


def plain_name(name: str | None) -> Masked:
    """Clean a name of a worker or session: one line of 200 characters, without secrets and control characters."""
    text = _CONTROL.sub(" ", (name or "").encode("utf-8", "replace").decode())
    return shorten(mask(text), MAX_NAME_CHARACTERS)


def one_of(names: Iterable[str], mark: str = "'") -> str:
    """Format names as a choice: ``'a', 'b', or 'c'``."""
    *others, last = (f"{mark}{name}{mark}" for name in names)
    if len(others) < 2:
        return " or ".join((*others, last))
    return f"{', '.join(others)}, or {last}"


#: The title of each stage.
_STAGE_TITLES = {
    "reading": "reading logs",
    "embedding": "embedding passages",
    "loading": "loading the model",
    "copying": "copying logs",
    "recalling": "reading kept copies",
    "masking": "masking again",
    "erasing": "erasing",
}


@dataclass(slots=True)
class Stage:
    """The progress of one stage of long work, such as embedding: `done` of `total` steps.

    `before` of them were done already at the time `began` (in seconds), when the stage started or resumed.
    """

    name: str
    began: float
    before: int
    done: int
    total: int

    @property
    def title(self) -> str:
        """Return the name of the stage for people: "embedding passages"."""
        return _STAGE_TITLES.get(self.name, self.name)

    def share(self, now: float) -> str:
        """Describe the progress: "120 of 350 (34 %), about 12 s left"; for a single step, the elapsed time."""
        if self.total <= 1:
            return duration(now - self.began)
        return f"{self.done:,} of {self.total:,} ({100 * self.done // self.total} %){self._left(now)}"

    def ended(self, now: float) -> str:
        """Describe the finished stage: "350 of 350 in 1 min 20 s"; only the duration for a single step."""
        done = "" if self.total <= 1 else f"{self.done:,} of {self.total:,} in "
        return f"{done}{duration(now - self.began)}"

    def _left(self, now: float) -> str:
        """Return the estimated time left, such as ", about 12 s left"; empty before any progress."""
        if self.before < self.done < self.total and now > self.began:
            return f", about {duration((self.total - self.done) * (now - self.began) / (self.done - self.before))} left"
        return ""
