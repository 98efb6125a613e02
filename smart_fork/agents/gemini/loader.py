"""Gemini CLI's sessions as they are cut.

A message is a record on one or more lines, or stands in a list of all that is remembered. A list is a line of its own:
a cut takes messages out of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import orjson

from indexer.transcripts.boilerplate import strip_boilerplate
from indexer.transcripts.items import GivenBack, Item
from indexer.transcripts.model import Role
from smart_fork.agents.codec import Record
from smart_fork.agents.gemini.log import id_of
from smart_fork.agents.gemini.memory import Memory
from smart_fork.agents.gemini.records import GeminiCodec, answers_in, is_context, parts_of, text_of, typed_in
from smart_fork.agents.tree_cut import COMPACTS, TreeLoader
from smart_fork.cuts.lines import RawLine, opened, raw_lines
from smart_fork.cuts.model import Transcript, TranscriptTurn
from smart_fork.errors import NotFound

#: What it notes about the whole conversation, in the first record or in changes.
ABOUT = ("summary", "memoryScratchpad")
_NEEDED, LISTS = {"needed": "Gemini CLI"}, {"lists": True}


class GeminiLoader(TreeLoader):
    """Reads ``session-….jsonl``."""

    tool = "gemini"
    codec = GeminiCodec()
    identity, links = "id", ()

    def __init__(self) -> None:
        self._memory = Memory()
        self._known: set[str] = set()
        self._names: dict[str, str] = {}  # by a later id of a message, its first

    @classmethod
    def load(cls, path: Path) -> Transcript:
        loader = cls()
        try:
            file, stamp = opened(path)
        except FileNotFoundError as error:
            raise NotFound(f"No such transcript: {path}") from error
        with file:
            turns = [turn for line in raw_lines(file, path) for turn in loader.turns(line)]
        later: dict[str, tuple[str, ...]] = {}
        for name, first in loader._names.items():
            later[first] = (*later.get(first, ()), name)
        named = tuple(replace(turn, aliases=later[turn.id]) if turn.id in later else turn for turn in turns)
        return Transcript("gemini", path, id_of(path), named, stamp=stamp)

    @staticmethod
    def begins(record: Record) -> bool:
        """See `TreeLoader.begins`."""
        return {"sessionId", "projectHash", "startTime"} <= record.keys()

    def turns(self, line: RawLine) -> Iterator[TranscriptTurn]:
        """Yield what stands on a line: a record, and the messages of a list that have no line of their own."""
        record = line.objects[0] if line.objects else {}
        before = self._memory.now
        told = list(self._memory.take(record))
        for one in told:
            if one.again and one.again != one.id:
                self._names[one.id] = self._names.get(one.again, one.again)
        if isinstance(record.get("id"), str):
            yield self.message(line, record)
            return
        yield self._note(line, record, before)
        for one in told:
            if one.id not in self._known and one.id not in self._names:
                turn = self.message(line, one.record)
                meta = COMPACTS if one.way == "summary" and turn.role == "user" else turn.meta
                yield replace(turn, kept=orjson.dumps(one.record), within=True, meta=meta)

    def message(self, line: RawLine, record: Record) -> TranscriptTurn:
        """Return a message as a turn."""
        self._known.add(record["id"])
        item = self.codec.decode(record)
        return self.turn(line, record, self.said(record, item), [item])

    def _note(self, line: RawLine, record: Record, before: Sequence[str]) -> TranscriptTurn:
        changes, target = record.get("$set"), record.get("$rewindTo")
        note = TranscriptTurn(f"line-{line.number}", kept=line.place, preview="")
        if "sessionId" in record:
            return replace(note, meta=_NEEDED)
        if isinstance(target, str):
            return replace(note, links=tuple(before[before.index(target) :]) if target in before else ())
        if isinstance(changes, dict) and isinstance(changes.get("messages"), list):
            return replace(note, meta=LISTS)
        if isinstance(changes, dict) and any(name in changes for name in ABOUT):
            return replace(note, repeats=tuple(f"turn:{one}" for one in self._known))
        return note

    def role(self, record: Record, said: str, results: Sequence[GivenBack]) -> Role:
        if record.get("type") == "gemini":
            return "assistant"
        if record.get("type") != "user" or is_context(text_of(parts_of(record.get("content")))):
            return "system"
        return "tool" if answers_in(record) else "user"

    def is_typed(self, record: Record) -> bool:
        return bool(strip_boilerplate(typed_in(record)))

    def said(self, record: Record, item: Item) -> str:
        return typed_in(record) if record.get("type") == "user" else item.text
