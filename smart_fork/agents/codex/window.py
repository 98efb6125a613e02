"""How many tokens the model of Codex takes: it writes that down in each turn."""

from __future__ import annotations

import os
import re

from indexer.transcripts.lines import open_regular
from smart_fork.agents.codex.log import CodexAdapter

#: So much is read of a log's end, of the newest logs that so many.
_BYTES, _LOGS = 1 << 20, 5
_SAID = re.compile(rb'"model_context_window":\s*(\d{4,8})\b')


def said_last() -> int | None:
    """What the newest logs say of it."""
    newest = sorted(CodexAdapter().discover(), key=lambda file: file.mtime_ns, reverse=True)
    for log in newest[:_LOGS]:
        try:
            with open_regular(log.path) as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - _BYTES))
                found = _SAID.findall(file.read(_BYTES))
        except OSError:
            continue
        if found:
            return int(found[-1])
    return None
