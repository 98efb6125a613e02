"""What hangs on the turns of a session of Claude Code: their chain, the files beside the log, and who has it open."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from indexer.transcripts.lines import decode_line
from indexer.unchecked import dict_in, json_at
from smart_fork.agents.claude.codec import is_request
from smart_fork.agents.claude.home import claude_home
from smart_fork.agents.claude.loader import ClaudeLoader
from smart_fork.agents.claude.newest import discover_newest_claude
from smart_fork.agents.claude.side_files import file_history
from smart_fork.agents.tree_cut import TreeCutter
from smart_fork.cuts.model import Transcript, TranscriptTurn
from smart_fork.system.processes import SystemProcesses

#: A name from a log that cannot lead out of a folder.
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,128}")


class ClaudeCutter(TreeCutter):
    """Transcripts of Claude Code."""

    tool = "claude"
    loader = ClaudeLoader

    def newest(self) -> Path:
        return discover_newest_claude()

    def public(self) -> Mapping[str, object]:
        return {"ClaudeLoader": ClaudeLoader, "discover_newest_claude": discover_newest_claude}

    def is_said(self, turn: TranscriptTurn) -> bool:
        return bool(turn.key)

    def pieces(self, line: bytes) -> list[bytes]:
        """See `Cutter.pieces`. A request has texts of the program as well, which other lines also have."""
        requests = b'"api-request' in line and any(is_request(record) for _, record in decode_line(line)[0])
        return [] if requests else [line]

    def files_of(self, path: Path) -> list[Path]:
        folder = path.with_suffix("")
        return [] if folder.is_symlink() else [one for one in folder.rglob("*") if one.is_file()]

    def stores(self, session_id: str) -> list[Path]:
        """The versions of files from before its edits."""
        folder = file_history(session_id)
        return [folder] if folder.is_dir() else []

    def apart(self) -> list[Path]:
        """Its settings: old versions kept a person's prompts there."""
        return [Path.home() / ".claude.json"]

    def beside(self, path: Path, removed: Sequence[TranscriptTurn]) -> list[Path]:
        """Long results, and the sub-agents of calls."""
        folder = path.with_suffix("")
        if not folder.is_dir():
            return []
        calls = {call.id for turn in removed for call in turn.tool_calls}
        calls |= {result.tool_use_id for turn in removed for result in turn.tool_results}
        found = [folder / "tool-results" / f"{call}.txt" for call in sorted(calls) if _PLAIN.fullmatch(call)]
        for agent in sorted({agent for turn in removed if turn.tool_results for agent in _agents_of(turn)}):
            found += [folder / "subagents" / f"agent-{agent}{ending}" for ending in (".jsonl", ".meta.json")]
        return [path for path in found if path.is_file()]

    def writer_of(self, session: Transcript) -> str:
        """It notes each running session in ``sessions/<pid>.json`` and takes the note away at its end."""
        for path in (claude_home() / "sessions").glob("*.json"):
            note = dict_in(json_at(path))
            pid = note.get("pid")
            if isinstance(pid, int) and note.get("sessionId") == session.session_id and SystemProcesses().alive(pid):
                return f"Claude Code, process {pid}"
        return ""


def _agents_of(turn: TranscriptTurn) -> Iterator[str]:
    """The sub-agents whose answers these are."""
    for _, record in decode_line(turn.raw)[0]:
        name = dict_in(record.get("toolUseResult")).get("agentId")
        if isinstance(name, str) and _PLAIN.fullmatch(name):
            yield name
