"""What has become of a session since a page has shown it: the same, more of it, or another one.

What a page was shown of is told by a mark, which stands in its links and forms: so numbers of messages that were seen
there are never taken for those of a session that has been cut, or gone on from an earlier message, meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Literal, NamedTuple

from indexer.shapes import dataclass
from indexer.transcripts.base import LogFile
from indexer.transcripts.model import Session, Turn
from smart_fork.agents.logs import original_of
from smart_fork.agents.readers import READERS
from smart_fork.errors import ForkRefused, Usage
from smart_fork.page.renderer import PageValues

Became = Literal["same", "more", "another", "gone"]
_MARK = re.compile(r"([0-9]{1,9})-([0-9a-f]{16})-([0-9a-f]{16})")


class Mark(NamedTuple):
    """How many turns a session has, and digests of those before the last, which may still be written, and of all."""

    turns: int
    before: str
    whole: str

    def __str__(self) -> str:
        return f"{self.turns}-{self.before}-{self.whole}"


@dataclass(frozen=True, slots=True)
class Since(PageValues):
    """What has become of a session. Where it is more, so many `messages`, the new ones from turn number `first` on."""

    became: Became
    first: int | None = None
    messages: int = 0


def mark_of(session: Session, turns: int | None = None) -> Mark:
    """The mark of a session, or of its first `turns`."""
    shown, digest = session.turns[:turns], blake2b(digest_size=8)
    for turn in shown[:-1]:
        digest.update(_said(turn))
    before = digest.hexdigest()
    for turn in shown[-1:]:
        digest.update(_said(turn))
    return Mark(len(shown), before, digest.hexdigest())


def mark_in(text: str) -> Mark:
    """The mark that an address or a form has.

    Raises:
        Usage: it is none.
    """
    found = _MARK.fullmatch(text)
    if found is None:
        raise Usage("Not a valid state of a session", "Open the session again.")
    return Mark(int(found[1]), found[2], found[3])


def since(mark: Mark, session: Session) -> Since:
    """What has become of what was shown. What is written last may be written on."""
    now = mark_of(session, mark.turns)
    if now == mark and len(session.turns) == mark.turns:
        return Since("same")
    if not mark.turns or (now.turns, now.before) != (mark.turns, mark.before):
        return Since("another")
    first = mark.turns if now == mark else mark.turns - 1
    return Since("more", first, sum(number >= mark.turns for number, _ in session.messages))


def check_still(mark: str, session: Session) -> None:
    """Refuse what is asked of a page that has shown another state of a session; without a mark nothing is known.

    Raises:
        Usage: the mark is none.
        ForkRefused: it is another one.
    """
    if mark and since(mark_in(mark), session).became == "another":
        raise ForkRefused(
            "The session has changed: part of it was cut, or it was resumed from an earlier message",
            "Open the session again, and choose there.",
        )


def looked_at(place: Mapping[str, str], mark: Mark) -> Since:
    """What has become of the session of an address. While its log is as it was, nothing of it is read again.

    Raises:
        OSError: that cannot be told now.
    """
    agent, session_id = place["agent"], place["session_id"]
    log = original_of(READERS[agent], session_id) if agent in READERS.names else None
    there = READERS[agent].log_at(str(log)) if log is not None else None
    return Since("gone") if there is None else _looked(there, mark)


@lru_cache(maxsize=64)
def _looked(log: LogFile, mark: Mark) -> Since:
    session = READERS[log.agent].read(Path(log.location)).session
    return Since("another") if session is None else since(mark, session)


def _said(turn: Turn) -> bytes:
    """All of a turn that a page shows of it without its record."""
    did = [*(call.action for call in turn.tool_calls), *(result.note for result in turn.tool_results)]
    return "\0".join((turn.id, turn.role, str(len(turn.text)), turn.text, *did)).encode("utf-8", "surrogatepass")
