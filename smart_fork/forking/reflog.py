"""Reads the reflog (git's record of checkouts): the commit and branch that were checked out at a time.

A reflog is not used if it begins too late, or if its times show that the clock was set back.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from indexer import repositories
from indexer.json_values import seconds_in
from indexer.lazy_compilation import dataclass, late
from indexer.repositories import recorded
from indexer.transcripts.model import Session
from smart_fork.finding.git import Repository

#: The bytes that are read from a reflog's end, and the bytes if those are not enough.
_LOG_BYTES = (1 << 16, 1 << 22)
_LINE = late(r"([0-9a-f]{40,64}) ([0-9a-f]{40,64}) [^\n]*> (\d{1,15}) [+-]\d{4}(?:\t([^\n]*))?")
_MOVED = late(r"checkout: moving from (\S+) to (\S+)")


@dataclass(frozen=True, slots=True)
class Move:
    """A reflog entry: HEAD or a branch moved from commit `before` to `after`, at a time, for a reason (`why`)."""

    before: str
    after: str
    time: int
    why: str


@dataclass(frozen=True, slots=True)
class CheckedOut:
    """The commit and branch that were checked out at a time. `branch` is empty if there was none, `None` if unknown."""

    commit: str
    branch: str | None


def moves(own: Path, since: float, branch: str = "") -> tuple[Move, ...]:
    """Return the entries of a reflog, oldest first: of HEAD in a checkout, or of `branch` if given.

    They begin with the last entry at or before `since`, if known. `own` is the checkout's git folder.
    """
    if branch and not Repository.is_branch_name(branch):
        return ()
    file = own.joinpath("logs", *(("refs", "heads", branch) if branch else ("HEAD",)))
    found: list[Move] = []
    for most in _LOG_BYTES:
        found = list(_since(os.fsdecode(repositories.end_of(file, most)), since))
        if found and found[-1].time <= since:
            break
    return tuple(reversed(found))


def _since(text: str, since: float) -> Iterator[Move]:
    """Yield the entries in a reflog's text, newest first, up to the first one at or before `since`."""
    for line in reversed(text.split("\n")):
        if one := _LINE.fullmatch(line):
            yield Move(one[1], one[2], int(one[3]), one[4] or "")
            if int(one[3]) <= since:
                return


def checked_out(record: Sequence[Move], moment: float, branch_now: str | None) -> CheckedOut | None:
    """Return the commit and branch that were checked out at `moment`, from the reflog entries `record`.

    Return `None` if they are uncertain. Entries in the second of `moment` count as before it. `branch_now` is the
    present branch.
    """
    later = next((place for place, move in enumerate(record) if move.time > moment), len(record))
    if not later or any(move.time <= moment for move in record[later:]):
        return None
    commit = record[later - 1].after
    if not commit.strip("0"):
        return None
    return CheckedOut(commit, _branch_before(record[later:], branch_now))


def _branch_before(later: Sequence[Move], branch_now: str | None) -> str | None:
    """Return the branch that was checked out before the reflog entries `later`; `None` if it is uncertain."""
    for move in later:
        if found := _MOVED.match(move.why):
            return "" if Repository.is_commit_hash(found[1]) else found[1]
        if move.why.startswith(("Branch: renamed", "rebase")):
            return None
    return branch_now


def was_checked_out(session: Session, until: str) -> CheckedOut | None:
    """Return the commit and branch that a session had checked out at the time `until`, from its directory's reflog.

    Return `None` if the reflog does not tell, or if another clone is in that directory now.
    """
    moment, begun = seconds_in(until), seconds_in(session.started)
    place = Repository.checkout_at(recorded(session.cwd))
    if moment is None or place is None:
        return None
    record = moves(place.own, min(moment, moment if begun is None else begun))
    first = checked_out(record, begun, None) if begun is not None else None
    if session.begun_at and (first is None or first.commit != session.begun_at):  # of another clone
        return None
    return checked_out(record, moment, Repository.branch_of(place.own))
