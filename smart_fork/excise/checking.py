"""Whether a transcript is whole, and whether anything of what was cut can still be found (``excise verify``)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from indexer import kept
from indexer.markdown import export_path
from indexer.paths import index_db
from indexer.store.base import SessionRow
from indexer.store.sqlite import SqliteStore
from indexer.transcripts.agents import adapter
from indexer.transcripts.lines import decode_line
from indexer.transcripts.model import Agent
from smart_fork.excise import snapshots
from smart_fork.excise.closure import dangling, unanswered
from smart_fork.excise.loading import load_with_tool, located
from smart_fork.excise.model import CutWarning, Session
from smart_fork.excise.strings import texts
from smart_fork.excise.writing import written_path
from smart_fork.retrieval.opening import opened

#: Words that a search could be made for.
_WORD = re.compile(r"\w{3,64}")


def check(reference: str | None, tool: str = "auto") -> dict[str, Any]:
    """What is broken in a transcript, and which words of its cuts are still found in the index.

    Raises:
        NotFound, Usage: there is no such transcript.
    """
    session = load_with_tool(tool, located(reference))
    loose = dangling(session.turns)
    gaps = broken_links(session)
    words = words_found(session)
    return {
        "session_id": session.session_id,
        "tool": session.tool,
        "path": str(session.source_path),
        "ok": not loose and not gaps and not words,
        "dangling": [{"turn_id": one.turn_id, "reason": one.reason} for one in loose],
        "broken_links": [{"turn_id": one.turn_id, "reason": one.reason} for one in gaps],
        "unanswered": sorted(unanswered(session.turns)),
        "words_found": words,
    }


def broken_links(session: Session) -> list[CutWarning]:
    """The turns whose parent is not in the file (E-041)."""
    known = {name for turn in session.turns for name in (turn.id, *turn.aliases)}
    return [
        CutWarning(turn.id, f"its parent {turn.parent_id} is not in the file")
        for turn in session.turns
        if turn.parent_id and turn.parent_id not in known and not turn.id.startswith("line-")
    ]


def words_found(session: Session) -> list[str]:
    """The words that were cut, are nowhere in the transcript any more, and still in its index, export or kept copy.

    Raises:
        IndexUnavailable: the index cannot be looked into.
    """
    gone = cut_words(session)
    if not gone or session.tool not in ("claude", "codex"):
        return []
    agent: Agent = "claude" if session.tool == "claude" else "codex"
    found = gone & _words([_text_of(export_path(agent, session.session_id)), *_kept(agent, session.session_id)])
    if index_db().exists():
        with opened() as store:
            row = store.session(agent, adapter(agent).id_of(session.source_path))
            if row is not None:
                found |= _indexed(store, row, gone)
    return sorted(found)


def cut_words(session: Session) -> set[str]:
    """The words of all cuts so far, as the snapshots have them, that no line which stays has."""
    lines: set[bytes] = set()
    cuts = [entry for entry in snapshots.logged(written_path(session)) if entry.get("command") != "rollback"]
    if not cuts:
        return set()
    staying = {turn.raw for turn in session.turns}
    known = {one.id: one for one in snapshots.snapshots(session.session_id)}
    for entry in cuts:
        snapshot = known.get(str(entry.get("snapshot")))
        if snapshot is not None:
            whole = b"".join(snapshots.content(snapshot))
            lines.update(line for line in whole.split(b"\n") if line.strip() and line not in staying)
    return _words_of(lines) - _words(line.decode("utf-8", "replace") for line in staying)


def _indexed(store: SqliteStore, row: SessionRow, words: set[str]) -> set[str]:
    chunks = {placement.chunk for placement in store.placements_of(row.row)}
    found = words & _words([row.title, *store.texts(chunks).values()])
    return found | {word for word in words - found if store.having("sessions", f'"{word}"', [row.row])}


def _kept(agent: Agent, session_id: str) -> list[str]:
    copy = kept.find(agent, session_id)
    if copy is None:
        return []
    with kept.opened(copy) as path:
        return [_text_of(path)]


def _words_of(lines: Iterable[bytes]) -> set[str]:
    found: set[str] = set()
    for line in lines:
        for _, record in decode_line(line)[0]:
            found |= _words(texts(record))
    return found


def _words(texts: Iterable[str]) -> set[str]:
    return {word.lower() for text in texts for word in _WORD.findall(text)}


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
