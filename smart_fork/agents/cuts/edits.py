"""Minimal edits of kept lines: everything else stays verbatim."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from indexer.transcripts.lines import decode_line
from smart_fork.agents.cuts.model import TranscriptTurn
from smart_fork.json_edits import respelled


def relinked(turns: Sequence[TranscriptTurn], gone: Collection[str], links: Sequence[str]) -> dict[int, bytes]:
    """Return new lines for records that link to a removed one in the fields `links`.

    Without that, an agent's walk from the leaf ends there, and loses everything before.
    """
    tree = _Tree(turns, gone)
    edits = {}
    for position, turn in enumerate(turns):
        if turn.id not in gone and any(name in tree.cut for name in turn.links):
            edits[position] = rewritten(turn.raw, partial(_link, tree=tree, position=position, links=links))
    return edits


class _Tree:
    """The parents of all turns, and the parts of each answer: its calls and their results.

    Parallel calls branch the tree, and the agent's walk passes one result only. If a cut removes that branch, the walk
    is led to the kept part of the answer on another branch, which would be lost otherwise.
    """

    def __init__(self, turns: Sequence[TranscriptTurn], gone: Collection[str]) -> None:
        self.turns = turns
        self.parents = {name: turn.parent_id for turn in turns for name in (turn.id, *turn.aliases)}
        self.cut = {name for turn in turns if turn.id in gone for name in (turn.id, *turn.aliases)}
        self._answers: dict[str, str] = {}
        self._left: defaultdict[str, list[int]] = defaultdict(list)
        if self.cut:
            self._find_answers(gone)

    def _find_answers(self, gone: Collection[str]) -> None:
        parts = {turn.id: key for turn in self.turns for key in turn.says if key.startswith("part:")}
        of_call = {call.id: parts[turn.id] for turn in self.turns if turn.id in parts for call in turn.tool_calls}
        for position, turn in enumerate(self.turns):
            named = (of_call.get(result.tool_use_id) for result in turn.tool_results)
            answer = parts.get(turn.id) or next(filter(None, named), None)
            if answer is None:
                continue
            if turn.id in gone:
                self._answers[turn.id] = answer
            else:
                self._left[answer].append(position)

    def nearest(self, name: str, position: int) -> str | None:
        """Return the kept record nearest before `name`, for the turn at `position`; `None` in a cycle."""
        seen: set[str] = set()
        current: str | None = name
        while current is not None and current in self.cut and current not in seen:
            seen.add(current)
            for mate in reversed(self._left.get(self._answers.get(current, ""), ())):
                if mate < position and not self._leads(mate, position):
                    return self.turns[mate].id
            current = self.parents[current]
        return None if current in seen else current

    def _leads(self, start: int, end: int) -> bool:
        """Return whether the walk from one turn reaches another."""
        current: str | None = self.turns[start].id
        seen: set[str] = set()
        while current is not None and current not in seen:
            if current == self.turns[end].id:
                return True
            seen.add(current)
            current = self.parents.get(current)
        return False


def _link(record: dict[str, Any], *, tree: _Tree, position: int, links: Sequence[str]) -> bool:
    changed = False
    for field in links:
        name = record.get(field)
        if isinstance(name, str) and name in tree.cut:
            record[field] = tree.nearest(name, position)
            changed = True
    return changed


#: New bytes for kept lines, by the turn's position: ids are not unique.
Edits = Mapping[int, bytes]


def rewritten(raw: bytes, change: Callable[[dict[str, Any]], bool]) -> bytes:
    """Return the line with `change` applied to its objects. Unchanged values keep their spelling."""
    done = []
    touched = False
    for source, record in decode_line(raw)[0]:
        changed = change(record)
        touched = touched or changed
        done.append(respelled(source, record) if changed else source.rstrip(b"\r\n"))
    return b" ".join(done) if touched else raw
