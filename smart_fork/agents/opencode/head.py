"""Finds the parents of OpenCode sessions: it records none, but copies messages with their times.

So what is said first, and when, is the same in a whole family and in no other; who is whose parent is told by how many
of their messages are the same, and by what we have noted ourselves: also in copies that leave something out.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from indexer.transcripts.model import Session, Turn
from indexer.transcripts.state import utc
from smart_fork.agents.ancestry import Birth, Births, CopiedMessage, FamilyLog, Heads
from smart_fork.agents.opencode.fold import conversation, left_out, said_in, text_of, written


class OpenCodeHeads(Heads):
    """Reads the beginnings of OpenCode's sessions."""

    def begins(self, kin: FamilyLog) -> bool:
        found = written(kin.path, 1)
        kin.begun = utc(found["info"]["time"]["created"])
        if first := next(iter(found["messages"]), None):
            kin.recorded = str(left_out(first["parts"]).get("sessionID") or "")
            kin.first = CopiedMessage(_sign(first))
        return kin.first is not None

    def messages(self, kin: FamilyLog) -> list[CopiedMessage]:
        return [CopiedMessage(_sign(one)) for one in written(kin.path)["messages"] if not left_out(one["parts"])]

    def shared(self, kin: FamilyLog, parent: FamilyLog, above: Session, fork: Callable[[], Session | None]) -> int:
        read = fork()
        end = 0
        for turn in read.turns if read else ():
            if turn.role == "system" and not turn.loaded:  # such as a line on what is left out
                continue
            same = (i for i, one in enumerate(above.turns[end:], end) if _of(one) == _of(turn))
            if (place := next(same, None)) is None:
                break
            end = place + 1
        return end


def _of(turn: Turn) -> tuple[str, str]:
    return turn.timestamp, turn.text


def _sign(message: dict[str, Any]) -> str:
    """Return the identity of a message and its copies: time and text."""
    return said_in(message["info"], message["parts"])


class OpenCodeBirths(Births):
    """Reads how new sessions of OpenCode began. The ids of forks are chosen."""

    def birth(self, log: Path) -> Birth | None:
        try:
            info = written(log, 1)["info"]
        except OSError:
            return None
        created, cwd = info["time"]["created"], info.get("directory")
        if info.get("parentID") or not created or not isinstance(cwd, str):
            return None
        return Birth(log.name, None, cwd, created / 1000)

    def was_asked(self, log: Path, prompt: str) -> bool:
        found = written(log)
        said = conversation(found["messages"], found["info"].get("revert"))
        return any(info.get("role") == "user" and text_of(parts) == prompt.strip() for info, parts in said)
