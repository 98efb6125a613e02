"""The active chain of a tree of records: what the agent still remembers, from the leaf back."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from indexer.transcripts.model import Turn
from indexer.unchecked import seconds_in

#: Claude Code 2.1.197 and 2.1.332 bridge a missing record to the newest one that is at most so much older.
CLOSE_SECONDS = 5


class Chain:
    """Records linked by parent ids, in file order. A `Turn` is conversation; a mere link keeps the chain walkable.

    The first record of an id counts. A prompt may be written after its answer. Where a parent is missing,
    what stands before goes on the chain if it is `bridged`; there are agents that forget it.
    """

    def __init__(
        self, turns: Iterable[Turn] = (), links: Mapping[str, Sequence[str]] | None = None, *, bridged: bool = True,
        moments: Mapping[str, str] | None = None, leaf: str = "",
    ) -> None:  # fmt: skip
        self._bridged = bridged
        #: The times of links that come from a record which was not there when they were.
        self.moments: dict[str, str] = dict(moments or {})
        self._turns: dict[str, Turn] = {}
        self._mended: dict[str, str | None] = {}
        #: The first turn after the last gap on the way, where a record was never written; empty without one.
        self.after_gap = ""
        self._links: dict[str, str | None] = {one: end or None for end, many in (links or {}).items() for one in many}
        for turn in turns:
            self.add(turn)
        #: The record that a person went back to, with nothing after it yet; empty without one.
        self.leaf = leaf

    @property
    def turns(self) -> Iterable[Turn]:
        """All turns, abandoned ones too."""
        return self._turns.values()

    @property
    def links(self) -> dict[str, list[str]]:
        """The records that are no conversation, by where they lead to; empty for nowhere."""
        ends: dict[str, list[str]] = {}
        for identity, end in self._links.items():
            ends.setdefault(end or "", []).append(identity)
        return ends

    def link(self, identity: str, parent: str | None, moment: str = "") -> None:
        """A record that is no conversation but stands between two that are. Rows of them lead straight to their end."""
        self.leaf = ""
        end = self._links.get(parent, parent) if parent is not None else None
        if self._links.setdefault(identity, end) and end not in self._turns:
            self.moments[identity] = moment

    def add(self, turn: Turn) -> None:
        """A turn of the conversation."""
        self.leaf = ""
        self._turns.setdefault(turn.id, turn)

    def active(self) -> tuple[Turn, ...]:
        """The turns on the way from the first to the last, in file order, but none before its parent."""
        if not self._turns:
            return ()
        self._mend()
        alive = self._walk()
        self._add_parallel(alive)
        return tuple(self.in_order(alive))

    def in_order(self, alive: Collection[str] | None = None) -> Iterator[Turn]:
        """All turns, or those of `alive`, in file order, but none before its parent."""
        chosen = self._turns if alive is None else alive
        done: set[str] = set()
        for identity in self._turns:
            waiting: dict[str, Turn] = {}
            current: str | None = identity
            while current in chosen and current not in done and current not in waiting and current in self._turns:
                waiting[current] = self._turns[current]
                current = self._parent(waiting[current])
            done.update(waiting)
            yield from reversed(waiting.values())

    def beginning(self) -> Turn | None:
        """The first of all turns; `None` as long as the record before it is not known."""
        first = next(self.in_order(), None)
        return first if first and self._parent(first) is None else None

    @property
    def circular(self) -> bool:
        """Whether turns named each other as parents, so that only the file tells their order."""
        return bool(self._mended)

    def _mend(self) -> None:
        """Put the turns of each circle one after the other, as they stand in the file."""
        self._mended = {}
        done: set[str] = set()
        for identity in self._turns:
            way: dict[str, None] = {}
            current: str | None = identity
            while current in self._turns and current not in done and current not in way:
                way[current] = None
                current = self._parent(self._turns[current])
            if current in way:
                steps = list(way)
                circle = set(steps[steps.index(current) :])
                in_file = [name for name in self._turns if name in circle]
                self._mended |= dict(zip(in_file, [None, *in_file], strict=False))
            done.update(way)

    def _parent(self, turn: Turn) -> str | None:
        """The record before `turn`, past one link."""
        if turn.id in self._mended:
            return self._mended[turn.id]
        return self._links.get(turn.parent_id, turn.parent_id) if turn.parent_id else None

    def _leaf(self) -> str:
        """The last turn of the file; where it was written after its answer, that answer."""
        if (back := self._links.get(self.leaf, self.leaf)) in self._turns:
            return str(back)
        leaf = next(reversed(self._turns))
        seen: set[str] = set()
        answers = {parent: name for name, turn in self._turns.items() if (parent := self._parent(turn))}
        while leaf not in seen and leaf in answers:
            seen.add(leaf)
            leaf = answers[leaf]
        return leaf

    def _walk(self) -> set[str]:
        """Ids from the last turn back to the start. Cycles end; a gap is bridged to what stands before it."""
        names = list(self._turns)
        order = {identity: position for position, identity in enumerate(names)}
        linked = any(self._links.values()) or any(turn.parent_id for turn in self._turns.values())
        alive: set[str] = set()
        current: str | None = self._leaf()
        earliest, nearest = len(names), ""
        self.after_gap = ""
        while current is not None and current not in alive:
            alive.add(current)
            earliest = min(earliest, order.get(current, earliest))
            turn = self._turns.get(current)
            nearest = turn.id if turn else nearest
            parent = self._links.get(current) if turn is None else self._mended.get(current, turn.parent_id)
            if parent is not None and (parent in self._turns or parent in self._links):
                current = parent
                continue
            before = names[earliest - 1] if earliest > 0 else None
            rewound = parent is None and linked and (turn.prompt if turn else self._leads(before, current))
            if rewound or not self._bridged:
                break  # the person rewound to before the first message
            # The parent is not in this file, or a link record without one: go on with what stands before.
            if before and not (parent and self._is_close(before, current)):
                self.after_gap = self.after_gap or nearest
            current = before
        return alive

    def _is_close(self, before: str, current: str) -> bool:
        """Whether an agent that does not find a record's parent goes on with what stands before, as of that moment."""
        moment = self._turns[current].timestamp if current in self._turns else self.moments.get(current, "")
        then, now = seconds_in(self._turns[before].timestamp), seconds_in(moment)
        return then is not None and now is not None and 0 <= now - then <= CLOSE_SECONDS

    def _leads(self, identity: str | None, beginning: str) -> bool:
        """Whether a turn goes back to that link, which has nothing before it."""
        seen: set[str] = set()
        while identity in self._turns and identity not in seen:
            seen.add(identity)
            if self._turns[identity].parent_id == beginning:
                return True
            identity = self._parent(self._turns[identity])
        return False

    def _add_parallel(self, alive: set[str]) -> None:
        """Parallel calls branch the tree within the conversation: blocks of one message, results of live calls."""
        groups = {turn.group for identity, turn in self._turns.items() if identity in alive and turn.group}
        calls: set[str] = set()
        for identity, turn in self._turns.items():
            if turn.group and turn.group in groups:
                alive.add(identity)
            if identity in alive:
                calls.update(call.id for call in turn.tool_calls if call.id)
        for identity, turn in self._turns.items():
            if identity not in alive and any(result.tool_use_id in calls for result in turn.tool_results):
                alive.add(identity)
