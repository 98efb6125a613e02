"""The names of Codex's threads, which it keeps in one file beside the logs: a line a naming, the last one counts."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from indexer.transcripts.lines import decode_line, open_regular

FILE = "session_index.jsonl"
#: Of a longer file the end is read: where the newest names are.
_MOST_BYTES = 4 << 20


def thread_name(home: Path, session_id: str) -> str:
    """What the thread is called there; empty where it has no name or the file cannot be read."""
    path = home / FILE
    try:
        info = path.stat()
        return _names(path, info.st_size, info.st_mtime_ns, info.st_ino).get(session_id, "")
    except OSError:
        return ""


@lru_cache(maxsize=1)
def _names(path: Path, size: int, _changed: int, _inode: int) -> Mapping[str, str]:
    """As of one state of the file."""
    names = {}
    with open_regular(path) as file:
        file.seek(max(0, size - _MOST_BYTES))
        for line in file.read(_MOST_BYTES).split(b"\n"):
            for _, record in decode_line(line)[0] if line else ():
                if isinstance(known := record.get("id"), str) and isinstance(name := record.get("thread_name"), str):
                    names[known] = name
    return names
