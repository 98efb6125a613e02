"""Which sessions are of one family, and whose fork each is: from the first records of logs, and the ids they share.

Codex and the branches that are written say whose copies they are. Claude Code's own forks say nothing, but copy the
records of their parent with their ids: the parent is the session that shares the longest beginning and began first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from smart_fork.agents.ancestry import Copied, Kin


def parents(family: Sequence[Kin], forks: Mapping[str, str]) -> dict[str, str]:
    """Find each session's parent; the first ones of all are not in it. There are no circles in it."""
    found: dict[str, str] = {}
    guess = _Shared(family)
    children: dict[str, list[str]] = defaultdict(list)
    for child, parent in forks.items():
        children[parent].append(child)
    for kin in sorted(family, key=lambda kin: (kin.begun, kin.session_id)):
        likely = forks.get(kin.session_id) or guess.parent(kin, _below(kin.session_id, children))
        above: str | None = likely
        while above and above != kin.session_id:
            above = found.get(above)
        if likely and above is None:
            found[kin.session_id] = likely
    return found


def _below(session_id: str, children: Mapping[str, Sequence[str]]) -> set[str]:
    """The known forks of a session, and theirs: none of them is its parent, however early its log seems to begin."""
    found: set[str] = set()
    waiting = [session_id]
    while waiting:
        new = set(children.get(waiting.pop(), ())) - found
        found |= new
        waiting += new
    return found - {session_id}


class _Shared:
    """Which messages the logs have in common; sets of logs are bits of a number, since there may be hundreds."""

    def __init__(self, family: Sequence[Kin]) -> None:
        self._family = sorted(family, key=lambda kin: (kin.begun, kin.session_id))
        self._has: dict[str, int] = defaultdict(int)
        for place, kin in enumerate(self._family):
            for message in kin.messages:
                self._has[message.id] |= 1 << place

    def parent(self, kin: Kin, below: Collection[str]) -> str:
        """The one that began earlier and shares most, and is not `below` it; of several the one that is recorded, or
        records the same.
        """
        earlier = (1 << self._family.index(kin)) - 1
        later = sum(1 << place for place, one in enumerate(self._family) if below and one.session_id in below)
        alive, shared = self._alive(kin, earlier & ~later)
        said = sum(1 for _ in _while_copied(kin.messages, kin.recorded)) if kin.recorded else 0
        candidates = [one for place, one in enumerate(self._family) if shared and alive >> place & 1]
        if kin.native and kin.recorded:
            candidates = [one for one in candidates if one.recorded == kin.recorded] or candidates
        elif shared <= said:  # also where that one is gone
            return kin.recorded
        best = max(
            candidates, key=lambda one: (one.session_id == kin.recorded, one.recorded == kin.recorded), default=None
        )
        return best.session_id if best else kin.recorded

    def _alive(self, kin: Kin, alive: int) -> tuple[int, int]:
        """Those of `alive` that share the longest beginning with `kin`, and how long it is."""
        shared = 0
        for message in kin.messages:
            left = alive & (self._has.get(message.id, 0) | self._has.get(message.message_id, 0))
            if not left:
                break
            alive, shared = left, shared + 1
        return alive, shared


def _while_copied(messages: Iterable[Copied], session_id: str) -> Iterator[Copied]:
    for message in messages:
        if message.session_id != session_id:
            return
        yield message
