"""What hangs on the turns of a session of Qwen Code: their chain, its sub-agents' files, and who has it open."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from smart_fork.agents.qwen.copy import agents_of
from smart_fork.agents.qwen.loader import QwenLoader
from smart_fork.agents.qwen.presence import process_of
from smart_fork.agents.tree_cut import TreeCutter
from smart_fork.cuts.model import Transcript, TranscriptTurn
from smart_fork.system.processes import SystemProcesses

#: A name from a log that cannot lead out of a folder.
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,128}")


class QwenCutter(TreeCutter):
    """Transcripts of Qwen Code."""

    tool = "qwen"
    loader = QwenLoader

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
