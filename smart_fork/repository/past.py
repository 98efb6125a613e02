"""Where a repository was at a time: by its own record of what was checked out, or by its history.

What is not certain is not said: a record that does not go back so far, or whose clock went back, knows nothing.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from indexer.lazy import dataclass, late
from indexer.project import Unproven, checkout, top_of

#: How much is read of the end of a record, and how much where that is not enough.
_LOG_BYTES = (1 << 16, 1 << 22)
_LINE = late(r"([0-9a-f]{40,64}) ([0-9a-f]{40,64}) [^\n]*> (\d{1,15}) [+-]\d{4}(?:\t([^\n]*))?")
_MOVED = late(r"checkout: moving from (\S+) to (\S+)")
_NAME = late(r"[0-9a-f]{40,64}")
_REF = "ref: refs/heads/"
#: A branch whose name is also that of a file and of nothing else that git understands.
_PLAIN = late(r"(?!.*\.\.)(?!.*//)[\w][\w./+=-]{0,199}")


@dataclass(frozen=True, slots=True)
class Move:
    """A line of the record: which commit was checked out before and after, when, and why."""

    before: str
    after: str
    time: int
    why: str


@dataclass(frozen=True, slots=True)
class CheckedOut:
    """What was checked out at a time. `branch` is empty where none was, `None` where that is not known."""

    commit: str
    branch: str | None


def moves(own: Path, since: float, branch: str = "") -> tuple[Move, ...]:
    """What was checked out in the checkout of which git keeps `own`, or what that branch was, the oldest first: from
    the last time on that was not after `since`.
    """
    if branch and not is_plain(branch):
        return ()
    file = own.joinpath("logs", *(("refs", "heads", branch) if branch else ("HEAD",)))
    found: list[Move] = []
    for most in _LOG_BYTES:
        found = list(_since(_end_of(file, most), since))
        if found and found[-1].time <= since:
            break
    return tuple(reversed(found))


def _since(text: str, since: float) -> Iterator[Move]:
    """The newest first, to the first that was not after `since`."""
    for line in reversed(text.split("\n")):
        if one := _LINE.fullmatch(line):
            yield Move(one[1], one[2], int(one[3]), one[4] or "")
            if int(one[3]) <= since:
                return


def checked_out(record: Sequence[Move], moment: float, branch_now: str | None) -> CheckedOut | None:
    """What was checked out at `moment`. What was done in the same second counts as done before."""
    later = next((place for place, move in enumerate(record) if move.time > moment), len(record))
    if not later or any(move.time <= moment for move in record[later:]):
        return None
    commit = record[later - 1].after
    if not commit.strip("0"):
        return None
    return CheckedOut(commit, _branch_before(record[later:], branch_now))


def branch_of(own: Path) -> str | None:
    """The branch that is checked out in the checkout of which git keeps `own`; empty where none is."""
    said = _end_of(own / "HEAD").strip()
    if said.startswith(_REF):
        return None if said.startswith(f"{_REF}.") else said.removeprefix(_REF)
    return "" if _NAME.fullmatch(said) else None


def branch_at(directory: Path) -> str:
    """The branch that is checked out at or above a directory; empty where there is none, or it is not known."""
    try:
        top = top_of(directory)
        return (branch_of(checkout(top).own) or "") if top is not None else ""
    except (OSError, ValueError, Unproven):
        return ""


def is_plain(branch: str) -> bool:
    """Whether a name that a log gives can be a branch's, and means nothing else to git."""
    return bool(_PLAIN.fullmatch(branch)) and not branch.endswith((".lock", "/", "."))


def is_commit(name: str) -> bool:
    """Whether a name that a log gives can be a commit's."""
    return bool(_NAME.fullmatch(name))


def _branch_before(later: Sequence[Move], branch_now: str | None) -> str | None:
    """The branch that was left first afterwards; where none was, the one that is checked out now."""
    for move in later:
        if found := _MOVED.match(move.why):
            return "" if _NAME.fullmatch(found[1]) else found[1]
        if move.why.startswith(("Branch: renamed", "rebase")):
            return None
    return branch_now


def _end_of(file: Path, most: int = 1 << 12) -> str:
    """The last lines of an ordinary file; nothing of anything else."""
    try:
        opened = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return ""
    with os.fdopen(opened, "rb") as stream:
        info = os.fstat(opened)
        if not stat.S_ISREG(info.st_mode):
            return ""
        stream.seek(max(0, info.st_size - most))
        return os.fsdecode(stream.read(most))


def dated(said: bytes) -> Iterator[tuple[str, int]]:
    """Commits as ``rev-list --timestamp`` lists them: the name, and when it was made."""
    for line in said.decode("ascii", "replace").splitlines():
        made, _, name = line.partition(" ")
        yield name, int(made)
