"""The folders in which Gemini CLI stores a project's sessions, and the session ids in the logs' names.

The sessions of a directory are in a folder with a short name. Its file ``.project_root`` names the directory.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from indexer.json_values import json_in, text_in
from indexer.safe_files import open_regular, private_dir
from indexer.transcripts.reader_state import is_path
from smart_fork.agents.gemini import HOME

#: The folder of a project's sessions, the file that names the project's directory, and the prefix of logs.
CHATS, ROOT, BEGINS = "chats", ".project_root", "session-"
#: The limit for a directory's path.
_MOST = 4096
#: The characters that Gemini CLI replaces in the short name of a directory.
_OTHER, _DASHES = re.compile(r"[^a-z0-9]"), re.compile(r"-+")
_UUID = re.compile(r"-([0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})\Z")
#: The part of a log that is searched for the session's id, and the pattern of the id.
_HEAD_BYTES = 4096
_ID = re.compile(rb'"sessionId"\s*:\s*("(?:[^"\\]|\\.)*")')


def projects() -> Path:
    """Return the folder that contains Gemini CLI's folder for each project."""
    return HOME.folder() / "tmp"


def root_of(project: Path) -> str:
    """Return the working directory of the folder `project`, from its file ``.project_root``; else empty."""
    with suppress(OSError, UnicodeDecodeError), (project / ROOT).open("rb") as file:
        told = file.read(_MOST + 1).decode().strip()
        if is_path(told) and len(told) <= _MOST:
            return told
    return ""


def write_root(project: Path, directory: Path) -> list[Path]:
    """Write `directory` into ``.project_root`` of the folder `project`. Return [that file]; [] if it exists."""
    root = private_dir(project) / ROOT
    if root_of(project):
        return []
    with root.open("x", encoding="utf-8") as file:
        file.write(str(directory.resolve()))
    return [root]


def digest(directory: str) -> str:
    """Return the SHA-256 hash of a directory's path. Gemini CLI writes it into logs, and once named folders by it."""
    return hashlib.sha256(directory.encode("utf-8", "replace")).hexdigest()


def project_for(directory: Path) -> Path:
    """Return the folder in which Gemini CLI, started in `directory`, looks for sessions. It need not exist."""
    wanted = os.path.realpath(directory)
    if found := next((one for one in _folders() if root_of(one) == wanted), None):
        return found
    name = _DASHES.sub("-", _OTHER.sub("-", Path(wanted).name.lower())).strip("-") or "project"
    taken = {one.name for one in _folders()}
    number = 0
    while (slug := f"{name}-{number}" if number else name) in taken:
        number += 1
    return projects() / slug


def _folders() -> Iterator[Path]:
    with suppress(OSError):
        yield from sorted(one for one in projects().iterdir() if one.is_dir() and not one.is_symlink())


def id_of(path: Path) -> str:
    """Return the session id of a log: from its name, else from its first record, else the name without suffix."""
    if named := _UUID.search(path.stem):
        return named[1]
    with suppress(OSError), open_regular(path) as file:
        told = _ID.search(file.read(_HEAD_BYTES))
        return (told and text_in(json_in(told[1]))) or path.stem
    return path.stem


def is_named_whole(path: Path) -> bool:
    """Return True if a log's name has the whole session id, so that Gemini CLI does not delete it."""
    return _UUID.search(path.stem) is not None
