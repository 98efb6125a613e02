"""Changes of a session since a page showed it: new messages, or a cut.

Links and forms of a page carry a digest of the state that it showed, as `mark` or `seen`. So a message number from an
old page is never taken for a message after a cut.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Literal, NamedTuple

from indexer.lazy_compilation import dataclass
from indexer.transcripts.base import LogFile
from indexer.transcripts.model import Session, Turn
from smart_fork.agents.log_readers import READERS
from smart_fork.errors import ForkRefused, Usage
from smart_fork.page.renderer import PageValues

Became = Literal["same", "more", "another", "gone"]
_MARK = re.compile(r"([0-9]{1,9})-([0-9a-f]{16})-([0-9a-f]{16})")


class ShownState(NamedTuple):
    """A session's state as a page showed it: its number of turns, a digest of all but the last turn, and one of all.

    The last turn may still grow.
    """

    turns: int
    before: str
    whole: str

    def __str__(self) -> str:
        return f"{self.turns}-{self.before}-{self.whole}"

    @classmethod
    def of(cls, session: Session, turns: int | None = None) -> ShownState:
        """Compute the state of a session, or of its first `turns` turns."""
        shown, digest = session.turns[:turns], blake2b(digest_size=8)
        before = digest.hexdigest()
        for turn in shown:
            before = digest.hexdigest()
            digest.update(_content(turn))
        return cls(len(shown), before, digest.hexdigest())

    @classmethod
    def parse(cls, text: str) -> ShownState:
        """Parse the state in an address or a form.

        Raises:
            Usage: `text` is not a state.
        """
        found = _MARK.fullmatch(text)
        if found is None:
            raise Usage("Not a valid state of a session", "Open the session again.")
        return cls(int(found[1]), found[2], found[3])

    def change_to(self, session: Session) -> ChangeSinceShown:
        """Return the change from this state to the present `session`.

        If only the last turn of this state has grown, the change is "more" (new messages), not "another".
        """
        now = self.of(session, self.turns)
        if now == self and len(session.turns) == self.turns:
            return ChangeSinceShown("same")
        if not self.turns or (now.turns, now.before) != (self.turns, self.before):
            return ChangeSinceShown("another")
        first = self.turns if now == self else self.turns - 1
        return ChangeSinceShown("more", first, sum(number >= self.turns for number, _ in session.messages))


@dataclass(frozen=True, slots=True)
class ChangeSinceShown(PageValues):
    """The change of a session since a page showed it.

    `became` is "same", "more" (new messages), "another" (a shown turn has changed) or "gone" (its log was deleted). For
    "more", `messages` counts the new messages, and `first` is the number of the first turn that is new or has grown.
    """

    became: Became
    first: int | None = None
    messages: int = 0


def refuse_changed_session(mark: str, session: Session) -> None:
    """Refuse an action on a page if turns have changed since the page showed them in the state `mark` (empty: unknown).

    Raises:
        ForkRefused: the session was cut, or resumed from an earlier message.
    """
    if mark and ShownState.parse(mark).change_to(session).became == "another":
        raise ForkRefused(
            "The session has changed: part of it was cut, or it was resumed from an earlier message",
            "Open the session again, and choose there.",
        )


def change_at_address(place: Mapping[str, str], shown: ShownState) -> ChangeSinceShown:
    """Return the change from the state `shown` of the session at the address parts `place`.

    The session's log is read only if the file has changed.

    Raises:
        OSError: the log cannot be read now.
    """
    agent, session_id = place["agent"], place["session_id"]
    log = READERS.original_of(agent, session_id) if agent in READERS.names else None
    there = READERS[agent].log_at(str(log)) if log is not None else None
    return ChangeSinceShown("gone") if there is None else _change_of_log(there, shown)


@lru_cache(maxsize=64)
def _change_of_log(log: LogFile, shown: ShownState) -> ChangeSinceShown:
    session = READERS[log.agent].read(Path(log.location)).session
    return ChangeSinceShown("another") if session is None else shown.change_to(session)


def _content(turn: Turn) -> bytes:
    """Encode a turn for a digest: its id, role, text, actions and notes of results."""
    did = [*(call.action for call in turn.tool_calls), *(result.note for result in turn.tool_results)]
    return "\0".join((turn.id, turn.role, str(len(turn.text)), turn.text, *did)).encode("utf-8", "surrogatepass")
