"""What hangs on the bubbles of Cursor's conversations: they are written beside its database, all into one file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from indexer.transcripts.lines import decode_line
from smart_fork.agents.cursor.loader import (
    DATABASES,
    CursorLoader,
    composers,
    conversation_of,
    default_cursor_path,
    side_car,
)
from smart_fork.cuts.cutter import Cutter
from smart_fork.cuts.model import Transcript


class CursorCutter(Cutter):
    """Conversations of Cursor."""

    tool = "cursor"
    suffixes = (*DATABASES, ".jsonl")
    writes_on = False

    def detect(self, path: Path) -> bool:
        return CursorLoader.detect(path)

    def load(self, path: Path, composer: str = "") -> Transcript:
        return CursorLoader.load(path, composer)

    def newest(self) -> Path:
        return default_cursor_path()

    def conversations(self, path: Path) -> list[tuple[str, int]]:
        return composers(path)

    def public(self) -> Mapping[str, object]:
        return {"CursorLoader": CursorLoader, "default_cursor_path": default_cursor_path}

    def written(self, path: Path) -> Path:
        return side_car(path)

    def of_others(self, session: Transcript) -> list[bytes]:
        """A side-car is one file for all of a database's conversations."""
        side = side_car(session.source_path.resolve())
        if not side.is_file():
            return []
        return [
            raw.rstrip(b"\n") + b"\n"
            for raw in side.read_bytes().split(b"\n")
            if any(conversation_of(record) not in ("", session.composer_id) for _, record in decode_line(raw)[0])
        ]
