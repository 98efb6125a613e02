"""Claude Code: ``<home>/projects/<slug>/<session-id>.jsonl``, one record a line, linked by ``parentUuid``."""

from __future__ import annotations

import json
import os
import unicodedata
from contextlib import suppress
from pathlib import Path
from typing import Any

from indexer.transcripts.base import MOST_DAYS, Retention
from indexer.values import dict_in
from smart_fork.agents.agent import Storage
from smart_fork.agents.claude.home import claude_home
from smart_fork.agents.tree_log import TreeAdapter

#: The setting that says after how many days it deletes a log at its next start; with 0 it keeps none.
_DAYS, _USUAL_DAYS = "cleanupPeriodDays", 30.0


class ClaudeAdapter(TreeAdapter):
    """Reads Claude Code's sessions; versions 1.0 to 2.1 seen."""

    name = "claude"
    depth = 1
    fold = "claude.fold:ClaudeTree"

    def retention(self) -> Retention:
        path = claude_home() / "settings.json"
        said: Any = None
        with suppress(OSError, ValueError, RecursionError):  # as JavaScript reads it: too large a number is infinite
            said = dict_in(json.loads(path.read_bytes())).get(_DAYS)
        is_number = isinstance(said, int | float) and not isinstance(said, bool) and said >= 0
        return Retention(float(min(said, MOST_DAYS)) if is_number else _USUAL_DAYS, f"{_DAYS} in {path}")

    def slug(self, directory: str) -> str:
        return slug(directory)

    def is_session(self, location: str, projects: str) -> bool:
        folder, _, name = location.rpartition("/")
        return not name.startswith("agent-") and folder != projects


class ClaudeStorage(Storage):
    """The files of Claude Code."""

    def folder(self, directory: Path) -> Path:
        """See `Storage.folder`."""
        return folder_of(directory)

    def finds(self, log: Path, cwd: str, directory: Path) -> bool:
        """See `Storage.finds`: under a second name."""
        return True

    def resumed(self, log: Path, session_id: str, directory: Path) -> Path | None:
        """See `Storage.resumed`."""
        return None if log.parent == folder_of(directory) else folder_of(directory) / log.name


def folder_of(directory: Path) -> Path:
    """The folder in which Claude Code, started in `directory`, looks for sessions."""
    return claude_home() / "projects" / slug(str(directory))


_SLUG_CHARACTERS = 200


def slug(path: str) -> str:
    """The folder name that Claude Code gives a working directory. Lossy: never decode it."""
    resolved = unicodedata.normalize("NFC", os.path.realpath(path) if Path(path).is_absolute() else path)
    units = resolved.encode("utf-16-be", "surrogatepass")
    pairs = [units[i] << 8 | units[i + 1] for i in range(0, len(units), 2)]
    name = "".join(chr(u) if u < 128 and chr(u).isalnum() else "-" for u in pairs)
    if len(name) <= _SLUG_CHARACTERS:
        return name
    number = 0
    for unit in pairs:
        number = (number * 31 + unit) & 0xFFFFFFFF
    signed = number - (1 << 32) if number & 0x80000000 else number
    return f"{name[:_SLUG_CHARACTERS]}-{_base36(abs(signed))}"


def _base36(number: int) -> str:
    digits = ""
    while True:
        number, rest = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[rest] + digits
        if not number:
            return digits


def unslugged(name: str) -> str:
    """A slug taken back to a path, where that folder exists: the last resort for a log without any ``cwd``."""
    guess = name.replace("-", "/")
    return guess if guess.startswith("/") and Path(guess).is_dir() else ""
