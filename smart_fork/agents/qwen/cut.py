"""What hangs on the turns of a session of Qwen Code: their chain, its sub-agents' files, and who has it open."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path

from smart_fork.agents.qwen.copy import agents_of
from smart_fork.agents.qwen.loader import LINKS, QwenLoader
from smart_fork.agents.qwen.presence import process_of
from smart_fork.cuts.cutter import Cutter
from smart_fork.cuts.edits import Edits
from smart_fork.cuts.lines import names_one_of
from smart_fork.cuts.links import relinked
from smart_fork.cuts.model import Transcript, TranscriptTurn
from smart_fork.system.processes import SystemProcesses

#: A name from a log that cannot lead out of a folder.
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,128}")


class QwenCutter(Cutter):
    """Transcripts of Qwen Code."""

    tool = "qwen"

    def detect(self, path: Path) -> bool:
        return QwenLoader.detect(path)

    def load(self, path: Path, composer: str = "") -> Transcript:
        del composer
        return QwenLoader.load(path)

    def relinked(self, turns: Sequence[TranscriptTurn], gone: Collection[str]) -> Edits:
        return relinked(turns, gone, LINKS)

    def holds(self, path: Path, keys: Collection[str]) -> bool:
        return names_one_of(path, keys)

    def files_of(self, path: Path) -> list[Path]:
        folder = agents_of(path)
        return [] if folder.is_symlink() else [one for one in folder.rglob("*") if one.is_file()]

    def beside(self, path: Path, removed: Sequence[TranscriptTurn]) -> list[Path]:
        """The logs of the sub-agents of calls."""
        folder = agents_of(path)
        calls = {call.id for turn in removed for call in turn.tool_calls if _PLAIN.fullmatch(call.id)}
        found = [one for call in sorted(calls) for one in sorted(folder.glob(f"agent-*-{call}.*"))]
        return [one for one in found if one.name.endswith((".jsonl", ".meta.json")) and one.is_file()]

    def writer_of(self, session: Transcript) -> str:
        """It notes each running session beside its log, and leaves the note there at its end."""
        alive = SystemProcesses().alive
        return next((f"Qwen Code, process {pid}" for pid in process_of(session.source_path) if alive(pid)), "")
