"""Words for people on the page: times, places, commands, probabilities, addresses. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, urlencode

from indexer.masking import mask, shorten
from smart_fork.forking.worker import name_of
from smart_fork.snippets import printable, time_of

#: Each word for a score, and the lowest one that it describes.
_WORDS = ((0.75, "very likely"), (0.5, "likely"), (0.3, "possible"), (0.0, "unlikely"))
#: How a list of sessions is divided: the most days of each period.
_PERIODS, _EARLIER = ((0, "Today"), (1, "Yesterday"), (7, "Last 7 days"), (30, "Last 30 days")), 31
#: How much of a prompt names its worker.
NAME_CHARACTERS = 100


def period(moment: str | None, now: datetime | None = None) -> str:
    """The part of a list that `moment` belongs to: "Today", "Yesterday", "Last 7 days", "Last 30 days", "Earlier"."""
    then = time_of(moment)
    days = ((now or datetime.now(UTC)).astimezone().date() - then.date()).days if then else _EARLIER
    return next((name for most, name in _PERIODS if days <= most), "Earlier")


def exact(moment: str | None) -> str:
    """`moment` to the minute, in this machine's time: "Thu 3 Dec 2026, 14:05"."""
    then = time_of(moment)
    return f"{then:%a} {then.day} {then:%b %Y, %H:%M}" if then else ""


def day(moment: str | None) -> str:
    """`moment` as a day: "3 Dec 2026"."""
    then = time_of(moment)
    return f"{then.day} {then:%b %Y}" if then else ""


def clock(moment: str | None) -> str:
    """`moment` inside a conversation: "3 Dec, 14:05"."""
    then = time_of(moment)
    return f"{then.day} {then:%b, %H:%M}" if then else ""


def chance(score: float) -> str:
    """Return the word for a score from 0 to 1."""
    return next(word for least, word in _WORDS if score >= least)


def inside(text: str, directory: str) -> str:
    """`text` with paths as they are seen from `directory`, and from the home."""
    for start, instead in ((directory, ""), (str(Path.home()), "~/")):
        if start.strip("/"):
            text = text.replace(f"{start.rstrip('/')}/", instead)
    return text


def place(path: str | None, home: str | None = None) -> str:
    """A directory as people write it, with ``~``."""
    text, start = " ".join(printable(path or "").splitlines()), home or str(Path.home())
    return f"~{text[len(start) :]}" if text == start or text.startswith(f"{start}/") else text


def homely(command: str, home: str | None = None) -> str:
    """A command that begins in a directory below the home, with ``~``; not where a shell needs the directory quoted."""
    start = f"cd {home or Path.home()}/"
    return f"cd ~/{command[len(start) :]}" if command.startswith(start) else command


def link(path: str, **query: Any) -> str:
    """An address on this page; what is empty is left out, a list is given one by one."""
    given = {name: value for name, value in query.items() if value not in (None, "", [])}
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


class Named(Protocol):
    """A worker. Its name is its id where nobody gave it another."""

    @property
    def worker_id(self) -> str | None:
        """Its id."""

    @property
    def name(self) -> str:
        """Its name."""


def is_named(one: Named) -> bool:
    """Return True if somebody named the worker. Otherwise a fork is called by the first words of its prompt."""
    return one.name not in ("", one.worker_id, name_of(getattr(one, "prompt", "")))


def called(one: Named) -> str:
    """The name of a worker that was given one, else what it was asked, else its id."""
    asked = "" if is_named(one) else shorten(mask(getattr(one, "prompt", "")), NAME_CHARACTERS)
    return printable(asked or one.name or one.worker_id or "")


class Addressed(Protocol):
    """A value that identifies its session."""

    @property
    def agent_type(self) -> str:
        """The agent of the session."""

    @property
    def session_id(self) -> str:
        """The agent's own id of it."""


def session_link(one: Addressed, at: int | None = None, kind: str = "session", **query: Any) -> str:
    """The address of a session, or of its family, and in it of message `at`."""
    path = "/".join(quote(part, safe="") for part in (one.agent_type, one.session_id))
    return link(f"/{kind}/{path}", at=at, **query) + (f"#message-{at}" if at is not None else "")


def subagent_link(one: Addressed, name: str, **query: Any) -> str:
    """The address of what a sub-agent of that session has said and done."""
    return link(f"{session_link(one)}/agents/{quote(name, safe='')}", **query)
