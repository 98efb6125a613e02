"""The rollouts of a session's history: those of its thread before a rewind, and those that it was forked from."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from indexer.transcripts.lines import first_lines
from indexer.unchecked import text_in
from smart_fork.agents.codec import Record
from smart_fork.agents.codex.codec import base_of, payload_of
from smart_fork.agents.codex.log import CodexAdapter, id_in, rollout_in
from smart_fork.agents.depth import MAX_FORK_DEPTH
from smart_fork.errors import NotFound


class Part(NamedTuple):
    """A rollout, and the number of its first record that the session does not have; `None` where it has all."""

    path: Path
    end: int | None = None


def first_header(path: Path) -> Record:
    """What the first record of a rollout says; empty where there is none.

    Raises:
        OSError: it cannot be read.
    """
    return next((payload_of(line.record)[1] for line in first_lines(path)), {})


def history(path: Path) -> tuple[list[Part], str]:
    """The parts of a session's history, the oldest first; and the id of the rollout before these that is missing, or
    that comes after itself; empty where none is.

    Raises:
        OSError: one of them cannot be read.
    """
    parts = [Part(path)]
    while base := base_of(first_header(parts[0].path)):
        above, below = CodexAdapter().rollout(base.rollout_id), parts[0].end
        if above is None or above in [part.path for part in parts] or len(parts) > MAX_FORK_DEPTH:
            return parts, base.rollout_id
        parts.insert(0, Part(above, min(base.end or 0, base.end or 0 if below is None else below)))
    return parts, ""


def whole(path: Path) -> list[Part]:
    """The parts of a session's history, the oldest first.

    Raises:
        NotFound: one of them is gone.
        OSError: one of them cannot be read.
    """
    parts, missing = history(path)
    if not missing:
        return parts
    first = parts[0].path
    parent, own = text_in(first_header(first).get("forked_from_id")), id_in(first)
    if missing == own or (not parent and rollout_in(first) != own):
        raise NotFound(f"An earlier log of its own is gone: {own}")
    raise NotFound(f"The log of its parent session is gone: {parent or missing}")
