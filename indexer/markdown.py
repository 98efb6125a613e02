"""A session as Markdown: the export that people read, and what stays when the agent deletes its log (F-140…F-160)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from indexer.paths import file_name, index_root, private_dir
from indexer.pieces import Piece
from indexer.transcripts.model import Agent, Session

_HEADINGS = {"user": "## User", "assistant": "## Assistant"}
_BLANK_LINES = re.compile(r"\n{3,}")
#: What any reader may take for the end of a line.
_LINE_ENDS = re.compile(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")
_LABEL = re.compile(r"(?:[-*]\s+)?[*_`]*([A-Za-z][A-Za-z _]*?)[*_`]*:[*_`]*(?=\s|$)")
_MARKED = re.compile(r"(\*\*|`)(.*)\1")

#: Raised when the same session would be exported differently: every export is then written anew (F-148).
EXPORT_VERSION = 1


def to_markdown(session: Session, pieces: Iterable[Piece], repo_root: str = "") -> str:
    """Front matter and the conversation; actions are left out (F-141, F-153)."""
    header = [
        "---",
        f"Session ID: {_one_line(session.session_id)}",
        f"Working Directory: {_one_line(session.cwd)}",
        f"Date: {_one_line(session.started)}",
        f"Agent: {session.agent}",
        *([f"Repo Root: {_one_line(repo_root)}"] if repo_root else []),
        "---",
    ]
    body: list[str] = []
    for piece in pieces:
        if piece.role in _HEADINGS:
            body += ["", _HEADINGS[piece.role], "", _BLANK_LINES.sub("\n\n", piece.text).strip()]
    return "\n".join([*header, *body, ""])


def export_path(agent: Agent, session_id: str) -> Path:
    """Where a session's export lives."""
    return index_root() / agent / f"{file_name(session_id)}.md"


def export_names(agent: Agent) -> set[str]:
    """The names of all exports of an agent that there are; what is no file of its own is none."""
    try:
        with os.scandir(index_root() / agent) as entries:
            return {entry.name for entry in entries if entry.is_file(follow_symlinks=False)}
    except OSError:
        return set()


def write_export(path: Path, text: str) -> bool:
    """Write `text` atomically, private, as UTF-8 (F-157). An identical file is left alone; says whether it was written.

    One process at a time writes exports, so what a killed one left under the temporary name is written over.
    """
    data = text.encode("utf-8", "replace")
    try:
        if path.read_bytes() == data:
            return False
    except OSError:
        pass
    private_dir(path.parent)
    temporary = path.with_name(f".{path.name}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        with os.fdopen(os.open(temporary, flags, 0o600), "wb") as file:
            file.write(data)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return True


def parse_front_matter(text: str) -> dict[str, str]:
    """The header of an export; nothing after its closing line can add to it (F-056). Keys in lower case with ``_``.

    Labels in any case, with a bullet or bold marks, are read as well (F-051).
    """
    lines = text.split("\n")
    if not lines or lines[0].strip() != "---":
        return {}
    fields: dict[str, str] = {}
    for line in lines[1:]:
        if line.strip() == "---":
            return fields
        if line.startswith("#"):
            break
        if label := _LABEL.match(line.strip()):
            value = line.strip()[label.end() :].strip()
            marked = _MARKED.fullmatch(value)
            fields.setdefault(label[1].lower().replace(" ", "_"), marked[2].strip() if marked else value)
    return {}


def _one_line(text: str) -> str:
    return _LINE_ENDS.sub(" ", text).strip()
