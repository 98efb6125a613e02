"""Removal of turns from Codex's rollouts (log files).

A rollout shares records with its ancestors' rollouts, and has records that repeat others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from indexer.json_values import dict_in
from indexer.transcripts.base import LogFile
from indexer.transcripts.lines import decode_line, first_lines
from indexer.transcripts.reader_state import count
from indexer.transcripts.texts import strip_boilerplate
from smart_fork.agents import AGENTS
from smart_fork.agents.codex.ancestry import RolloutPart, complete_history, first_header
from smart_fork.agents.codex.codec import ForkBase, base_of, payload_of
from smart_fork.agents.codex.rollouts import id_in, rollout_in, rollouts
from smart_fork.agents.codex.sent_records import SeenRecord, linked_turns, with_event_numbers
from smart_fork.agents.decoders import texts_of
from smart_fork.agents.excision.cutter import Cutter, Edits, first_record, head, opened, raw_lines, rewritten
from smart_fork.agents.excision.transcript import CutWarning, FileVersion, Transcript, TranscriptTurn

_ENVELOPED = ("session_meta", "response_item", "event_msg", "turn_context", "compacted", "world_state")
#: The mark of the first record, which Codex needs to load a file.
_HEADER = {"needed": "Codex"}


class _RolloutReader:
    def __init__(self) -> None:
        self.seen: list[SeenRecord] = []
        self.first_id = self.base = ""
        self.numbered = False

    def read(self, part: RolloutPart, own: Path) -> FileVersion:
        """Read a rollout's lines that belong to the session with the log `own`. Return the version of the file."""
        file, stamp = opened(part.path)
        below = part.path != own
        apart = below and id_in(part.path) == id_in(own)
        with file:
            for before, line in enumerate(raw_lines(file, part.path)):
                record = line.objects[0] if line.objects else {}
                number = record.get("ordinal")
                if part.end is not None and (number if isinstance(number, int) else line.number) >= part.end:
                    break
                if not below:
                    self.first_id = self.first_id or str(payload_of(record)[1].get("id") or "")
                    self.numbered = self.numbered or isinstance(number, int)
                elif not apart:
                    self.base = id_in(part.path)
                one = SeenRecord.of(line.number, record, kept=line.place, inherited=below, apart=apart)
                if not before and payload_of(record)[0] == "session_meta":
                    one = one._replace(turn=replace(one.turn, meta=_HEADER))
                self.seen.append(one)
        return stamp


def _remove_repeated(record: dict[str, Any], heads: Collection[str]) -> bool:
    """Remove from a record each text that begins like a removed message (one of `heads`). Return True if it changed.

    The record at a turn's end repeats the turn's last answer; the record of a compaction repeats a person's prompts.
    """
    kind, payload = payload_of(record)
    if payload.get("type") == "task_complete" and head(str(payload.get("last_agent_message") or "")) in heads:
        payload["last_agent_message"] = None
        return True
    history = payload.get("replacement_history") if kind == "compacted" else None
    if not isinstance(history, list):
        return False
    kept = [item for item in history if head(texts_of(dict_in(item).get("content"))) not in heads]
    payload["replacement_history"] = kept
    return len(kept) < len(history)


class CodexCutter(Cutter):
    """Loads Codex's logs, ``rollout-….jsonl``, so that turns can be removed; a fork's with its inherited records."""

    def detect(self, path: Path) -> bool:
        """Return True if the first record is Codex's: a record with a ``payload``, or the header of an old log."""
        if path.suffix.lower() != ".jsonl":
            return False
        record = first_record(path)
        enveloped = record.get("type") in _ENVELOPED and isinstance(record.get("payload"), dict)
        return enveloped or ("type" not in record and {"id", "timestamp"} <= record.keys())

    def load(self, path: Path, composer: str = "") -> Transcript:
        opened(path)[0].close()
        reading = _RolloutReader()
        stamps = [reading.read(part, path) for part in complete_history(path)]
        session_id = id_in(path) or reading.first_id or path.stem
        turns = linked_turns(reading.seen)
        return Transcript(
            "codex", path, session_id, turns, stamp=stamps[-1], padded=reading.numbered, base=reading.base
        )

    def public(self) -> Mapping[str, object]:
        return {"CodexLoader": self}

    def without_repetitions(self, session: Transcript, gone: Collection[str]) -> Edits:
        heads = set()
        for turn in session.turns:
            if turn.id in gone and turn.role in ("user", "assistant") and not turn.tool_calls:
                for _, record in decode_line(turn.raw)[0]:
                    said = texts_of(payload_of(record)[1].get("content"))
                    heads |= {head(said), head(strip_boilerplate(said))}
        heads.discard("")
        found = {}
        for position, turn in enumerate(session.turns) if heads else ():
            if turn.id in gone or turn.inherited or "repeating" not in turn.meta:
                continue
            raw = turn.raw
            new = rewritten(raw, lambda record: _remove_repeated(record, heads))
            if new != raw:
                found[position] = new
        return found

    def numbered(self, turns: Sequence[TranscriptTurn], numbers: Sequence[int | None]) -> Sequence[int | None]:
        return with_event_numbers(turns, numbers)

    def may_have_others(self, path: Path) -> bool:
        try:  # a fork's header says that it is one, and no other log has records of others
            first = [line.record for line in islice(first_lines(path), 2)]
        except OSError:
            return False
        headers = [record.get("payload", record) for record in first if record.get("type") in ("session_meta", None)]
        return len(headers) > 1 or any(isinstance(one, dict) and "forked_from_id" in one for one in headers)

    def others(self, path: Path) -> list[Path]:
        of_session = rollouts(id_in(path)) if id_in(path) else ()
        return [file.path for file in of_session if rollout_in(file.path) != rollout_in(path)]

    def heirs(self, paths: Collection[Path], first: int = 0) -> list[Path]:
        bases: dict[str, list[tuple[Path, int]]] = {}
        for file in rollouts():
            if base := _base_in(file):
                bases.setdefault(base.rollout_id, []).append((file.path, count(base.end)))
        found: list[Path] = []
        waiting = list(paths)
        for _ in range(AGENTS.MAX_FORK_DEPTH):
            named = {rollout_in(path) for path in waiting}
            waiting = [path for one in named for path, end in bases.get(one, ()) if end > first and path not in found]
            found += waiting
        logs = {file.path for file in self.of.reader.discover()} if found else ()
        return [path for path in found if path in logs]

    def without_header(self, session: Transcript) -> list[CutWarning]:
        own = session.own
        if not own or "needed" in own[0].meta:
            return []
        return [CutWarning(own[0].id, "is the first record but not session_meta: Codex cannot load it")]


@lru_cache(maxsize=1 << 17)
def _base_in(file: LogFile) -> ForkBase | None:
    """Return the rollout that a file continues; `None` if none. Cached, since a cut asks for all logs several times."""
    with suppress(OSError):
        return base_of(first_header(file.path))
    return None
