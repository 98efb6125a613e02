"""A session as Markdown: what people read and what is searched are spans of one file, the session's export.

It stays when the agent deletes its log.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from indexer.files import replace_file
from indexer.masking.invisible import INVISIBLE
from indexer.paths import file_name, index_root, private_dir
from indexer.patterns import late
from indexer.pieces import Piece, PieceRole
from indexer.shapes import dataclass
from indexer.transcripts.model import AgentName, Session

_HEADINGS = {"user": "## User", "assistant": "## Assistant", "action": "## Assistant"}
#: How the line of an action begins: whoever reads the conversation alone may pass it over.
ACTION = "- ⚙ "
#: What was said that would pass for a heading or an action of ours: it has a backslash before it.
_ALIKE = late(r"[ \t]*(?:##[ \t]+(?:User|Assistant)[ \t#]*$|- ⚙)")
#: What any reader may take for the end of a line.
_LINE_ENDS = late(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")
_LABEL = late(r"(?:[-*]\s+)?[*_`]*([A-Za-z][A-Za-z _]*?)[*_`]*:[*_`]*(?=\s|$)")
_MARKED = late(r"(\*\*|`)(.*)\1")

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Export:
    """The text of a session's export, and what was said and done in it with the lines on which that begins."""

    text: str
    pieces: tuple[Piece, ...]

    @property
    def digest(self) -> bytes:
        """By which the file is known again."""
        return _hash(_encoded(self.text)).digest()


def to_markdown(session: Session, pieces: Iterable[Piece], repo_root: str = "") -> Export:
    """Front matter and the conversation, each piece word for word, under an answer a list of what was done then.

    Nothing that was said can pass for a heading or an action.
    """
    lines = [
        "---",
        f"Session ID: {_one_line(session.session_id)}",
        f"Working Directory: {_one_line(session.cwd)}",
        f"Date: {_one_line(session.started)}",
        f"Agent: {session.agent}",
        *([f"Repo Root: {_one_line(repo_root)}"] if repo_root else []),
        "---",
    ]
    number, before, placed = len(lines), "", []
    for piece in pieces:
        lead = _lead(before, piece.role)
        text = _listed(piece.text) if piece.role == "action" else _escaped(piece.text)
        lines += [*lead, text]
        number += len(lead)
        placed.append(piece._replace(line=number + 1))
        number += 1 + text.count("\n")
        before = piece.role
    return Export("\n".join([*lines, ""]), tuple(placed))


def export_path(agent: AgentName, session_id: str) -> Path:
    """Where a session's export lives."""
    return index_root() / agent / f"{file_name(session_id)}.md"


def export_names(agent: AgentName) -> set[str]:
    """The names of all exports of an agent that there are; what is no file of its own is none."""
    try:
        with os.scandir(index_root() / agent) as entries:
            return {entry.name for entry in entries if entry.is_file(follow_symlinks=False)}
    except OSError:
        return set()


def write_export(path: Path, text: str) -> bool:
    """Write `text` atomically, private, as UTF-8. An identical file is left alone, a link or a pipe is replaced; says
    whether it was written.

    The disk is not waited for, which would take longer than all else: an export is made again from the log.
    """
    data = _encoded(text)
    if is_export(path, _hash(data).digest()):
        return False
    private_dir(path.parent)
    replace_file(path, [data], durable=False)
    return True


def is_export(path: Path, digest: bytes) -> bool:
    """Whether the export there is byte for byte the one of this digest; never of what is no file of its own."""
    try:
        descriptor = os.open(path, _READ)
    except OSError:
        return False
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return False
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return hashlib.file_digest(file, _hash).digest() == digest
    except OSError:
        return False
    finally:
        os.close(descriptor)


def parse_front_matter(text: str) -> dict[str, str]:
    """The header of an export; nothing after its closing line can add to it. Keys in lower case with ``_``.

    Labels in any case, with a bullet or bold marks, are read as well.
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


def _lead(before: str, role: PieceRole) -> list[str]:
    """The lines that stand before a piece: a heading, but not between an answer and what was done then."""
    if role == "action" and before != "user" and before:
        return [""] if before == "assistant" else []
    return ["", _HEADINGS[role], ""]


def _listed(actions: str) -> str:
    return ACTION + actions.replace("\n", f"\n{ACTION}")


def _escaped(said: str) -> str:
    # Few texts have one of these anywhere. Only they are looked through line by line, without what readers drop.
    if "#" not in said and "⚙" not in said:
        return said
    return "\n".join(f"\\{line}" if _ALIKE.match(INVISIBLE.sub("", line)) else line for line in said.split("\n"))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _hash(data: bytes = b"") -> hashlib.blake2b:
    return hashlib.blake2b(data, digest_size=16)


def _one_line(text: str) -> str:
    return _LINE_ENDS.sub(" ", text).strip()
