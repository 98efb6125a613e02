"""Claude Code's logs: ``<home>/projects/<slug>/<session-id>.jsonl``, a record a line, linked by ``parentUuid``."""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Container, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from indexer.json_values import dict_in, json_at, json_in, text_in
from indexer.transcripts.base import MAX_DAYS, Retention
from indexer.transcripts.lines import last_lines
from indexer.transcripts.reader_state import is_path, utc
from smart_fork.agents.agent import KeptPrompt
from smart_fork.agents.claude import HOME
from smart_fork.agents.log_adapters import TreeAdapter
from smart_fork.agents.storage import Storage

#: The setting with the days after which a log is deleted at the next start; with 0 none is kept. Then its default.
_DAYS, _USUAL_DAYS = "cleanupPeriodDays", 30.0


class ClaudeAdapter(TreeAdapter):
    """The adapter that finds and reads Claude Code's sessions. Versions 1.0 to 2.1 were seen."""

    name = "claude"
    depth = 1
    fold = "claude.session_reader:ClaudeTree"

    def retention(self) -> Retention:
        path = HOME.folder() / "settings.json"
        said: Any = None
        with suppress(OSError, ValueError, RecursionError):  # as JavaScript reads it: too large a number is infinite
            said = dict_in(json.loads(path.read_bytes())).get(_DAYS)
        is_number = isinstance(said, int | float) and not isinstance(said, bool) and said >= 0
        return Retention(float(min(said, MAX_DAYS)) if is_number else _USUAL_DAYS, f"{_DAYS} in {path}")

    def slug(self, directory: str) -> str:
        return slug(directory)

    def is_session(self, location: str, projects: str) -> bool:
        folder, _, name = location.rpartition("/")
        return not name.startswith("agent-") and folder != projects


class ClaudeStorage(Storage):
    """The rules for where Claude Code stores sessions. Each session can be resumed in every directory."""

    everywhere = True

    def folder(self, directory: Path) -> Path:
        return folder_of(directory)

    def second_path(self, log: Path, session_id: str, directory: Path) -> Path | None:
        return None if log.parent == folder_of(directory) else folder_of(directory) / log.name


def folder_of(directory: Path) -> Path:
    """Return the folder in which Claude Code, started in `directory`, looks for sessions."""
    return HOME.folder() / "projects" / slug(str(directory))


_SLUG_CHARACTERS = 200


def slug(path: str) -> str:
    """Return the name of the folder with the logs of the directory `path`. Several directories can share a folder."""
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


def guessed_directory(name: str) -> str:
    """Return the directory that a folder of logs is named after, with "/" for each "-"; empty unless it exists.

    This guess is used only for logs without any ``cwd``.
    """
    guess = name.replace("-", "/")
    return guess if guess.startswith("/") and Path(guess).is_dir() else ""


#: The bytes at the file's end that are read: ten thousand prompts, which every search looks through.
MAX_BYTES = 2 << 20
#: Finds the session of a prompt. Older versions name none, so that it is unknown whether the session still exists.
_SESSION = re.compile(rb'"sessionId" ?: ?"([0-9A-Za-z-]{8,64})"')


def kept_prompts(known: Container[str]) -> Iterator[KeptPrompt]:
    """Yield the prompts in ``history.jsonl``, oldest first. Skip slash commands, and sessions that are `known` or open.

    Raises:
        OSError: The file cannot be read.
    """
    try:
        lines = [*last_lines(HOME.folder() / "history.jsonl", MAX_BYTES)]
    except FileNotFoundError:
        return
    # What is open, and so new that nothing was written, is not gone.
    are_open = {text_in(dict_in(json_at(path)).get("sessionId")) for path in HOME.folder().glob("sessions/*.json")}
    for line in reversed(lines):
        named = _SESSION.search(line)
        if named is None or named[1].decode() in known or named[1].decode() in are_open:
            continue
        record = dict_in(json_in(line))
        text, directory, session = (record.get(name) for name in ("display", "project", "sessionId"))
        if not (isinstance(text, str) and is_path(directory) and session == named[1].decode()):
            continue  # the name was found in a prompt
        if (text := text.strip()) and not text.startswith("/"):
            yield KeptPrompt(session, utc(record.get("timestamp")), directory, text)
