"""Cuts sessions of Copilot CLI: the files beside a log, its database of all sessions, and who has a session open."""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

import apsw
import orjson

from smart_fork.agents.copilot.home import EVENTS, WORKSPACE, copilot_home, name_in
from smart_fork.agents.copilot.loader import CopilotLoader
from smart_fork.agents.copilot.presence import PRESENCE, processes_in
from smart_fork.agents.foreign_database import erase
from smart_fork.agents.tree_cut import TreeCutter
from smart_fork.cuts import titles
from smart_fork.cuts.model import Transcript
from smart_fork.system.processes import SystemProcesses

_NAME = re.compile(rb"^name:.*\n(?:[ \t].*\n|\n)*", re.MULTILINE)


class CopilotCutter(TreeCutter):
    """Transcripts of Copilot CLI."""

    tool = "copilot"
    loader = CopilotLoader
    histories, withdraws = ("command-history-state.json",), False

    def files_of(self, path: Path) -> list[Path]:
        folder = path.parent
        if path.name != EVENTS or folder.is_symlink():
            return []
        return [one for one in folder.rglob("*") if one.is_file() and one != path]

    def revised(self, path: Path, keys: Collection[str]) -> dict[Path, bytes]:
        """Its name, unless a person gave one that quotes no prompt; and the prompts to which it can rewind."""
        found = {}
        with suppress(OSError):
            workspace = path.with_name(WORKSPACE)
            before = workspace.read_bytes()
            name = name_in(before.decode("utf-8", "replace"))
            if (not name or not titles.marks(titles.quoting(name)).isdisjoint(keys)) and _NAME.search(before):
                found[workspace] = _NAME.sub(b"", before)
        with suppress(OSError, ValueError, TypeError, KeyError):
            rewinds = path.parent / "rewind-file-snapshots/index.json"
            told = orjson.loads(rewinds.read_bytes())
            kept = [one for one in told["snapshots"] if one["eventId"] not in keys]
            if len(kept) < len(told["snapshots"]):
                found[rewinds] = orjson.dumps(told | {"snapshots": kept}, option=orjson.OPT_INDENT_2)
        return found

    def forget(self, session: Transcript) -> None:
        """Delete the rows of a session in the database of its own search. It does not need them."""

        def change(db: apsw.Connection) -> None:
            for table in _tables(db):
                db.execute(f'DELETE FROM "{table}" WHERE session_id = ?', (session.session_id,))  # noqa: S608 - its own
            db.execute("UPDATE sessions SET summary = NULL WHERE id = ?", (session.session_id,))

        erase(copilot_home() / "session-store.db", "Copilot CLI", change)

    def writer_of(self, session: Transcript) -> str:
        """It notes each running session beside its log, and may leave the note there at its end."""
        noted = {*PRESENCE.noted(session.session_id), *processes_in(session.source_path.parent)}
        alive = SystemProcesses().alive
        return next((f"Copilot CLI, process {pid}" for pid in sorted(noted) if alive(pid)), "")


def _tables(db: apsw.Connection) -> list[str]:
    """Return the tables with texts of sessions."""
    query = """SELECT m.name FROM sqlite_schema AS m JOIN pragma_table_info(m.name) AS c
        WHERE m.type = 'table' AND c.name = 'session_id' AND m.name <> 'assistant_usage_events'"""
    return [str(name) for (name,) in db.execute(query)]
