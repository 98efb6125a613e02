"""Cuts sessions of Gemini CLI: lists of messages, what lies beside a log, and who may have a session open."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import orjson
import psutil

from indexer.masking import mask
from indexer.unchecked import dicts_in
from smart_fork.agents.gemini.home import root_of
from smart_fork.agents.gemini.loader import ABOUT, GeminiLoader
from smart_fork.agents.gemini.log import id_of
from smart_fork.agents.gemini.presence import PRESENCE
from smart_fork.agents.gemini.subagents import named_in
from smart_fork.agents.tree_cut import TreeCutter
from smart_fork.cuts import titles
from smart_fork.cuts.edits import Edits, rewritten
from smart_fork.cuts.model import Transcript, TranscriptTurn
from smart_fork.system.processes import every_process

#: A name from a log that cannot lead out of a folder.
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,128}")
#: The characters that it replaces in the names of files.
_OTHER = re.compile(r"[^A-Za-z0-9_-]")


class GeminiCutter(TreeCutter):
    """Transcripts of Gemini CLI."""

    tool = "gemini"
    loader = GeminiLoader
    histories, withdraws = (), False

    def relinked(self, turns: Sequence[TranscriptTurn], gone: Collection[str]) -> Edits:
        """It forgets all of a session that is rewound to a message which is not there."""
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
                new = rewritten(raw, lambda record: _without(record, names, quoted))
                if new != raw:
                    edits[position] = new
        return edits

    def pieces(self, line: bytes) -> list[bytes]:
        """A list of messages in pieces, as its messages are kept."""
        try:
            listed = dicts_in(orjson.loads(line)["$set"]["messages"])
        except (ValueError, TypeError, KeyError):
            return [line]
        return [orjson.dumps(message) for message in listed]

    def files_of(self, path: Path) -> list[Path]:
        session = id_of(path)
        if not _PLAIN.fullmatch(session):
            return []
        folders = (path.parent / session, path.parents[1] / f"tool-outputs/session-{session}")
        found = (one for folder in folders if not folder.is_symlink() for one in sorted(folder.rglob("*")))
        return [one for one in found if one.is_file()]

    def beside(self, path: Path, removed: Sequence[TranscriptTurn]) -> list[Path]:
        """Long results and sub-agents of calls; and the name that a log had before we gave it its whole id."""
        agents = {name for turn in removed if turn.tool_calls for _, name in named_in(turn.raw)}
        calls = tuple(_OTHER.sub("_", call.id).lower() for turn in removed for call in turn.tool_calls if call.id)
        beside = [one for one in self.files_of(path) if one.stem in agents or one.stem.endswith(calls)]
        with contextlib.suppress(OSError):
            inode = path.stat().st_ino
            beside += [one for one in path.parent.glob("session-*.jsonl") if one != path and one.stat().st_ino == inode]
        return beside

    def revised(self, path: Path, keys: Collection[str]) -> dict[Path, bytes]:
        """The prompts that were typed on its screen."""
        history, session = path.parents[1] / "logs.json", id_of(path)
        with contextlib.suppress(OSError, ValueError, TypeError):
            told: list[Any] = orjson.loads(history.read_bytes())
            kept = [one for one in told if not _is_cut(one, session, keys)]
            if len(kept) < len(told):
                return {history: orjson.dumps(kept, option=orjson.OPT_INDENT_2)}
        return {}

    def writer_of(self, session: Transcript) -> str:
        """It notes nowhere which sessions it has open. So it must not run in the session's directory."""
        root = root_of(session.source_path.parent.parent)
        for process in every_process() if root else ():
            with contextlib.suppress(psutil.Error, OSError):
                if PRESENCE.runs(process.cmdline()) and process.cwd() == root:
                    return f"Gemini CLI, process {process.pid}, runs in {root}"
        return ""


def _names(turns: Sequence[TranscriptTurn], gone: Collection[str]) -> set[str]:
    """Return all ids of the messages that go."""
    return {name for turn in turns if turn.id in gone for name in (turn.id, *turn.aliases)}


def _without(record: dict[str, Any], names: Collection[str], quoted: Collection[str]) -> bool:
    """Take messages out of a list, and what is said of the conversation out of the first record of a log."""
    changes = record.get("$set")
    if not isinstance(changes, dict):
        ours = "forkedFrom" in record and titles.marks(titles.quoting(record.get("summary"))).isdisjoint(quoted)
        about = [name for name in ABOUT if name in record and not (ours and name == "summary")]
        return bool([record.pop(name) for name in about])
    before = changes["messages"]
    changes["messages"] = [one for one in before if not (isinstance(one, dict) and one.get("id") in names)]
    return len(changes["messages"]) < len(before)


def _is_cut(entry: Any, session: str, keys: Collection[str]) -> bool:
    if not isinstance(entry, dict) or entry.get("sessionId") != session:
        return False
    said = str(entry.get("message") or "")
    return not set(titles.made_of(said)).isdisjoint(keys) or mask(said) != said
