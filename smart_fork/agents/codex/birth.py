"""How a session of Codex began: its first record says it. Later ones may be the parent's own first records."""

from __future__ import annotations

import contextlib
from pathlib import Path

from indexer.transcripts.lines import LineReader
from indexer.unchecked import dict_in, dicts_in
from smart_fork.agents.births import Birth, Births, moment


class CodexBirths(Births):
    """How sessions of Codex began."""

    def birth(self, log: Path) -> Birth | None:
        """See `Births.birth`."""
        with contextlib.suppress(OSError):
            meta = next((line.record.get("payload") for line in LineReader(log)), None)
            if isinstance(meta, dict):
                parent, born = meta.get("forked_from_id"), moment(meta.get("timestamp"))
                if isinstance(meta.get("id"), str) and isinstance(meta.get("cwd"), str) and born is not None:
                    return Birth(meta["id"], parent if isinstance(parent, str) else None, meta["cwd"], born)
        return None

    def was_asked(self, log: Path, prompt: str) -> bool:
        """See `Births.was_asked`."""
        return any(_asks(line.record.get("payload"), prompt) for line in LineReader(log))


def _asks(payload: object, prompt: str) -> bool:
    said = dict_in(payload)
    texts = (str(part.get("text")).strip() for part in dicts_in(said.get("content")))
    return said.get("role") == "user" and prompt.strip() in texts
