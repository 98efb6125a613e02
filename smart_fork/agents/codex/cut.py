"""What hangs on the turns of a rollout of Codex: what is said twice, forks that read from its file, and its lock."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from pathlib import Path

from indexer.transcripts.boilerplate import strip_boilerplate
from indexer.transcripts.lines import decode_line, first_lines
from indexer.transcripts.state import count
from smart_fork.agents.codex.base import base_of
from smart_fork.agents.codex.home import codex_home
from smart_fork.agents.codex.loader import CodexLoader, rewritten, text_of
from smart_fork.agents.codex.log import CodexAdapter
from smart_fork.agents.depth import MAX_FORK_DEPTH
from smart_fork.cuts import edits
from smart_fork.cuts.cutter import Cutter
from smart_fork.cuts.edits import Edits
from smart_fork.cuts.lines import first_record, head
from smart_fork.cuts.model import CutWarning, Transcript, TranscriptTurn, told_again

_ID = re.compile(r"[0-9a-fA-F-]{36}")


class CodexCutter(Cutter):
    """Transcripts of Codex."""

    tool = "codex"
    holder = "Codex still has it open. Close Codex and stop its server: codex app-server daemon stop"

    def detect(self, path: Path) -> bool:
        return CodexLoader.detect(path)

    def load(self, path: Path, composer: str = "") -> Transcript:
        return CodexLoader.load(path)

    def public(self) -> Mapping[str, object]:
        return {"CodexLoader": CodexLoader}

    def without_repetitions(self, session: Transcript, gone: Collection[str]) -> Edits:
        heads = set()
        for turn in session.turns:
            if turn.id in gone and turn.role in ("user", "assistant") and not turn.tool_calls:
                for said in (text_of(record) for _, record in decode_line(turn.raw)[0]):
                    heads |= {head(said), head(strip_boilerplate(said))}
        heads.discard("")
        return _without(session, gone, frozenset(heads)) if heads else {}

    def numbered(self, turns: Sequence[TranscriptTurn], numbers: Sequence[int | None]) -> Sequence[int | None]:
        """What is said twice, as an item for the model and as an event for the screen, is one message."""
        found = list(numbers)
        at = {turn.id: position for position, turn in enumerate(turns)}
        for position, turn in enumerate(turns):
            item = at.get(told_again(turn))
            if item is not None and found[item] is None:
                found[item] = found[position]
            elif item is not None and found[position] is None:
                found[position] = found[item]
        return found

    def may_have_others(self, path: Path) -> bool:
        """Only forks do, and their first records say that they are forks."""
        try:
            first = [line.record for line in islice(first_lines(path), 2)]
        except OSError:
            return False
        headers = [record.get("payload", record) for record in first if record.get("type") in ("session_meta", None)]
        return len(headers) > 1 or any(isinstance(one, dict) and "forked_from_id" in one for one in headers)

    def heirs(self, session_ids: Collection[str], first: int = 0) -> list[Path]:
        bases: dict[str, list[tuple[Path, int]]] = {}
        for file in CodexAdapter().discover():
            payload = first_record(file.path).get("payload")
            if isinstance(payload, dict) and (base := base_of(payload)):
                bases.setdefault(base.session_id, []).append((file.path, count(base.end)))
        found: list[Path] = []
        waiting = list(session_ids)
        for _ in range(MAX_FORK_DEPTH):
            below = [path for one in waiting for path, end in bases.get(one, ()) if end > first and path not in found]
            found += below
            waiting = [CodexAdapter().id_of(path) for path in below]
        return found

    def without_header(self, session: Transcript) -> list[CutWarning]:
        own = session.own
        if not own or "needed" in own[0].meta:
            return []
        return [CutWarning(own[0].id, "is the first record but not session_meta: Codex cannot load it")]

    def hold(self, session: Transcript) -> int | None:
        """It holds one for each session that it has open, its server a while longer. The file is only opened."""
        if not _ID.fullmatch(session.session_id):
            return None
        lock = codex_home() / "thread-writer-locks" / f"{session.session_id}.lock"
        try:
            descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor


def _without(session: Transcript, gone: Collection[str], heads: frozenset[str]) -> Edits:
    """The lines that stay and repeat what begins so, without that."""
    found = {}
    for position, turn in enumerate(session.turns):
        if turn.id in gone or turn.inherited or "repeating" not in turn.meta:
            continue
        raw = turn.raw
        new = edits.rewritten(raw, lambda record: rewritten(record, heads))
        if new != raw:
            found[position] = new
    return found
