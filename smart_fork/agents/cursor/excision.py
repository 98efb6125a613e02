"""Removal of turns from Cursor's conversations: a side-car, a file beside the database, gets the remaining turns.

Cursor's database itself is not changed.
"""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import orjson

from indexer.json_values import dicts_in, json_in, text_in
from indexer.safe_files import config_home
from indexer.transcripts.lines import decode_line
from indexer.transcripts.model import Role, estimate_tokens
from smart_fork.agents.excision.cutter import Cutter, first_record, opened, preview, raw_lines
from smart_fork.agents.excision.snapshots import cuts
from smart_fork.agents.excision.transcript import Call, Result, Transcript, TranscriptTurn
from smart_fork.agents.foreign_database import read_only
from smart_fork.errors import NotFound, SmartForkError, Usage

DATABASES = (".vscdb", ".sqlite")
SIDE_CAR = ".excised.jsonl"
_BUBBLES = "SELECT key, value FROM cursorDiskKV WHERE key LIKE 'bubbleId:%' ORDER BY rowid"


def default_cursor_path() -> Path:
    """Return the path on this platform of the database with Cursor's conversations, which need not exist."""
    below = Path("Cursor/User/globalStorage/state.vscdb")
    if platform.system() == "Darwin":
        return Path.home() / "Library/Application Support" / below
    if platform.system() == "Windows":
        return Path(os.environ.get("APPDATA") or Path.home() / "AppData/Roaming") / below
    return config_home() / below


def conversation_of(record: dict[str, Any]) -> str:
    """Return the id of the conversation that a side-car's record belongs to; empty if it names none."""
    return str(record.get("composerId") or "")


def side_car(path: Path) -> Path:
    """Return the file to which a cut of `path` is written: one beside a database, or the side-car `path` itself."""
    return path.with_name(path.name + SIDE_CAR) if path.suffix.lower() in DATABASES else path


def _newer_bubbles(
    bubbles: Sequence[TranscriptTurn], left: Sequence[TranscriptTurn], side: Path, composer: str
) -> list[TranscriptTurn]:
    """Return the bubbles (messages) added by Cursor after the last cut. `left` are the turns in the side-car `side`."""
    known = {turn.id for turn in left}
    cut = {one for entry in cuts(side) if entry.session_id == composer for one in entry.removed_ids}
    last = max((at for at, turn in enumerate(bubbles) if turn.id in known), default=-1)
    return [turn for turn in bubbles[last + 1 :] if turn.id not in cut]


def _rows(path: Path) -> list[tuple[str, str, bytes]]:
    """Return (conversation's id, bubble's id, JSON text) for each bubble (message) in a database."""
    if not path.is_file() or not path.stat().st_size:
        raise NotFound(f"Cursor's database is empty or not there: {path}", "Close Cursor and try again.")
    try:
        with read_only(path, locked=True) as db:
            keys = ((str(key).split(":"), value) for key, value in db.execute(_BUBBLES))
            return [(parts[1], parts[2], _bytes(value)) for parts, value in keys if len(parts) > 2]
    except (apsw.Error, OSError, UnicodeDecodeError) as error:
        raise SmartForkError(
            f"Cursor's database cannot be read: {path}: {error}", "Close Cursor and try again."
        ) from error


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")


def _load_side_car(path: Path, composer: str) -> Transcript:
    """Load the conversation `composer` from a side-car, by default its first one.

    Raises:
        Usage: The side-car has no conversation.
    """
    file, stamp = opened(path)
    turns = []
    with file:
        for line in raw_lines(file, path):
            record = line.objects[0] if line.objects else {}
            bubble = record.get("bubble")
            composer = composer or conversation_of(record)
            if conversation_of(record) not in ("", composer):
                continue
            if isinstance(bubble, dict):
                turns.append(_turn(str(bubble.get("bubbleId") or f"line-{line.number}"), bubble, line.place))
            else:
                turns.append(TranscriptTurn(f"line-{line.number}", kept=line.place))
    if not composer:
        raise Usage(f"No conversation of Cursor in {path}")
    return Transcript("cursor", path, composer, tuple(turns), composer_id=composer, stamp=stamp)


def _turn(identity: str, bubble: dict[str, Any], kept: Any) -> TranscriptTurn:
    """Return a bubble (a message in Cursor's database) as a turn. `kept` is its line, or the line's place in a file."""
    said = text_in(bubble.get("text")) or text_in(bubble.get("richtext"))
    calls = tuple(
        Call(str(one.get("toolCallId") or one.get("id") or ""), str(one.get("name") or one.get("toolName") or ""))
        for one in _dicts(bubble.get("toolFormers") or bubble.get("toolFormerData"))
    )
    results = [str(one.get("toolCallId") or "") for one in _dicts(bubble.get("toolResults"))]
    role: Role = "user" if bubble.get("type") == 1 else "tool" if results and not said else "assistant"
    counted = bubble.get("tokenCount")
    known = counted if isinstance(counted, int) and counted > 0 else 0
    return TranscriptTurn(
        id=identity,
        role=role,
        timestamp=str(bubble.get("createdAt") or bubble.get("timestamp") or ""),
        preview=preview(said, [call.name for call in calls], ["" for _ in results], prompt=role == "user"),
        token_est=known or estimate_tokens(said, len(calls)),
        tool_calls=calls,
        tool_results=tuple(Result(one) for one in results),
        kept=kept,
        says=(f"turn:{identity}",),
        key=identity,
        prompt=role == "user" and bool(said.strip()),
    )


def _dicts(value: object) -> list[dict[str, Any]]:
    return dicts_in(value if isinstance(value, list) else [value])


class CursorCutter(Cutter):
    """Loads Cursor's conversations from ``state.vscdb`` or side-cars, so that turns can be removed."""

    suffixes = (*DATABASES, ".jsonl")

    def detect(self, path: Path) -> bool:
        """Return True for a database, recognized by its name, or a side-car, recognized by its first line."""
        if path.suffix.lower() in DATABASES:
            return path.is_file()
        return {"composerId", "bubble"} <= first_record(path).keys()

    def load(self, path: Path, composer: str = "") -> Transcript:
        """Load a conversation, by default the one with most bubbles (messages).

        From a database, load what earlier cuts have left of it, and the bubbles that Cursor has added since.

        Raises:
            NotFound: The file or the conversation does not exist.
            SmartForkError: The database cannot be read.
        """
        if path.suffix.lower() not in DATABASES:
            return _load_side_car(path, composer)
        found = self.conversations(path)
        if not found or (composer and composer not in dict(found)):
            known = ", ".join(name for name, _ in found)
            raise NotFound(f"No such conversation in {path}: {composer}", f"There are: {known}" if known else "")
        chosen = composer or found[0][0]
        turns = []
        for one, identity, value in _rows(path):
            if one == chosen and isinstance(bubble := json_in(value), dict):
                kept = orjson.dumps({"composerId": chosen, "bubble": bubble})  # no escaping of <>&
                turns.append(_turn(identity, bubble, kept))
        side, stamp = side_car(path.resolve()), None
        if side.is_file():
            session = _load_side_car(side, chosen)
            left, stamp = [replace(turn, kept=turn.raw) for turn in session.turns], session.stamp
            turns = [*left, *_newer_bubbles(turns, left, side, chosen)]
        return Transcript("cursor", path, chosen, tuple(turns), composer_id=chosen, stamp=stamp)

    def newest(self) -> Path:
        return default_cursor_path()

    def conversations(self, path: Path) -> list[tuple[str, int]]:
        """Return the id and the number of bubbles (messages) of each conversation, most bubbles first."""
        counts = Counter(one for one, _, _ in _rows(path))
        return sorted(counts.items(), key=lambda item: (-item[1], item[0]))

    def public(self) -> Mapping[str, object]:
        return {"CursorLoader": self, "default_cursor_path": default_cursor_path}

    def written(self, path: Path) -> Path:
        return side_car(path)

    def of_others(self, session: Transcript) -> list[bytes]:
        side = side_car(session.source_path.resolve())
        if not side.is_file():
            return []
        return [
            raw.rstrip(b"\n") + b"\n"
            for raw in side.read_bytes().split(b"\n")
            if any(conversation_of(record) not in ("", session.composer_id) for _, record in decode_line(raw)[0])
        ]
