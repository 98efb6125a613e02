"""Removal of turns from Gemini CLI's logs, and from files beside them.

A message is a record on one or more lines, or an element of a list of all remembered messages. A list is one line, and
a cut removes messages from it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from indexer.json_values import dict_in, dicts_in, json_in
from indexer.masking import mask
from indexer.transcripts.model import GivenBack, Item, Role
from indexer.transcripts.texts import strip_boilerplate
from smart_fork.agents.decoders import Record
from smart_fork.agents.description import AgentDescription
from smart_fork.agents.excision import titles
from smart_fork.agents.excision.cutter import Edits, RawLine, opened, raw_lines, rewritten
from smart_fork.agents.excision.transcript import Transcript, TranscriptTurn
from smart_fork.agents.gemini.home import id_of
from smart_fork.agents.gemini.messages import CODEC, Memory, answers_in, is_context, typed_in
from smart_fork.agents.gemini.session_reader import started_agents
from smart_fork.agents.tree_cutter import COMPACTS, PLAIN, TreeCutter, files_below

#: The fields about the whole conversation, in the first record or in changes.
ABOUT = ("summary", "memoryScratchpad")
_NEEDED, LISTS = {"needed": "Gemini CLI"}, {"lists": True}
#: The characters that Gemini CLI replaces in the names of files.
_OTHER = re.compile(r"[^A-Za-z0-9_-]")


class GeminiCutter(TreeCutter):
    """Loads Gemini CLI's logs, ``session-….jsonl``, so that turns can be removed."""

    codec = CODEC
    identity, links = "id", ()
    histories, withdraws = (), False

    def __init__(self, of: AgentDescription) -> None:
        super().__init__(of)
        self._memory = Memory()
        self._known: set[str] = set()
        self._names: dict[str, str] = {}  # by a later id of a message, its first

    def load(self, path: Path, composer: str = "") -> Transcript:
        loader = GeminiCutter(self.of)
        file, stamp = opened(path)
        with file:
            turns = [turn for line in raw_lines(file, path) for turn in loader.turns(line)]
        later: dict[str, tuple[str, ...]] = {}
        for name, first in loader._names.items():
            later[first] = (*later.get(first, ()), name)
        named = tuple(replace(turn, aliases=later[turn.id]) if turn.id in later else turn for turn in turns)
        return Transcript("gemini", path, id_of(path), named, stamp=stamp)

    def begins(self, record: Record) -> bool:
        return {"sessionId", "projectHash", "startTime"} <= record.keys()

    def turns(self, line: RawLine) -> Iterator[TranscriptTurn]:
        """Yield the turns of one line: its message, else the line itself and the messages that are only in its list."""
        record = line.objects[0] if line.objects else {}
        before = self._memory.now
        told = list(self._memory.apply(record))
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
        """Return the turn for the message `record`, which is on `line` or in the line's list."""
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
        if record.get("type") != "user" or is_context(record):
            return "system"
        return "tool" if answers_in(record) else "user"

    def is_typed(self, record: Record) -> bool:
        return bool(strip_boilerplate(typed_in(record)))

    def said(self, record: Record, item: Item) -> str:
        return typed_in(record) if record.get("type") == "user" else item.text

    def relinked(self, turns: Sequence[TranscriptTurn], gone: Collection[str]) -> Edits:
        """Return new lines for rewinds to removed messages, so that each names the next remaining message.

        After a rewind to an unknown id, Gemini CLI would remember no message.
        """
        names = _names(turns, gone)
        edits = {}
        for position, turn in enumerate(turns):
            if turn.links and turn.links[0] in names and turn.id not in gone:
                left = next((one for one in turn.links if one not in names), None)
                edits[position] = orjson.dumps({"$rewindTo": left} if left else {"$set": {}})
        return edits

    def without_repetitions(self, session: Transcript, gone: Collection[str]) -> Edits:
        names = _names(session.turns, gone)
        quoted = {mark for turn in session.turns if turn.id in gone for mark in titles.marks(turn.says)}
        edits = {}
        for position, turn in enumerate(session.turns):
            if names and turn.id not in gone and ("lists" in turn.meta or "needed" in turn.meta):
                raw = turn.raw
                new = rewritten(raw, lambda record: _remove_messages(record, names, quoted))
                if new != raw:
                    edits[position] = new
        return edits

    def pieces(self, line: bytes) -> list[bytes]:
        """Return each message of a line's ``$set`` list as JSON, or the line itself if it has no such list."""
        listed = dict_in(dict_in(json_in(line)).get("$set")).get("messages")
        return [orjson.dumps(one) for one in dicts_in(listed)] if isinstance(listed, list) else [line]

    def files_of(self, path: Path) -> list[Path]:
        session = id_of(path)
        if not PLAIN.fullmatch(session):
            return []
        folders = (path.parent / session, path.parents[1] / f"tool-outputs/session-{session}")
        return [one for folder in folders for one in files_below(folder)]

    def beside(self, path: Path, removed: Sequence[TranscriptTurn]) -> list[Path]:
        """Return the files to delete with the `removed` turns: long results, sub-agents' logs, other names of the log.

        Another name (hard link) would keep the old text, because a cut writes a new file under the log's name.
        """
        agents = {name for turn in removed if turn.tool_calls for _, name in started_agents(turn.raw)}
        calls = tuple(_OTHER.sub("_", call.id).lower() for turn in removed for call in turn.tool_calls if call.id)
        beside = [one for one in self.files_of(path) if one.stem in agents or one.stem.endswith(calls)]
        with contextlib.suppress(OSError):
            inode = path.stat().st_ino
            beside += [one for one in path.parent.glob("session-*.jsonl") if one != path and one.stat().st_ino == inode]
        return beside

    def revised(self, path: Path, keys: Collection[str]) -> dict[Path, bytes]:
        """Return ``logs.json``, where Gemini CLI repeats prompts, without the prompts `keys`; empty if unchanged."""
        history, session = path.parents[1] / "logs.json", id_of(path)
        with contextlib.suppress(OSError, ValueError, TypeError):
            told: list[Any] = orjson.loads(history.read_bytes())
            kept = [one for one in told if not _is_cut(one, session, keys)]
            if len(kept) < len(told):
                return {history: orjson.dumps(kept, option=orjson.OPT_INDENT_2)}
        return {}


def _names(turns: Sequence[TranscriptTurn], gone: Collection[str]) -> set[str]:
    """Return all ids of the messages in `gone`: their own, and further ids that later records gave them."""
    return {name for turn in turns if turn.id in gone for name in (turn.id, *turn.aliases)}


def _remove_messages(record: dict[str, Any], names: Collection[str], quoted: Collection[str]) -> bool:
    """Remove the messages with an id in `names` from a record's ``$set`` list. Return True if the record changed.

    From a record without this list, remove the description of the conversation, such as a title. The title of a copy by
    smart-fork stays, unless it quotes a text in `quoted`.
    """
    changes = record.get("$set")
    if not isinstance(changes, dict):
        ours = "forkedFrom" in record and titles.marks(titles.mark_of_title(record.get("summary"))).isdisjoint(quoted)
        about = [name for name in ABOUT if name in record and not (ours and name == "summary")]
        return bool([record.pop(name) for name in about])
    before = changes["messages"]
    changes["messages"] = [one for one in before if not (isinstance(one, dict) and one.get("id") in names)]
    return len(changes["messages"]) < len(before)


def _is_cut(entry: Any, session: str, keys: Collection[str]) -> bool:
    if not isinstance(entry, dict) or entry.get("sessionId") != session:
        return False
    said = str(entry.get("message") or "")
    return not set(titles.mark_of_prompt(said)).isdisjoint(keys) or mask(said) != said
