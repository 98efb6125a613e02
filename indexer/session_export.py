"""The Markdown export of a session, and its division into chunks, which are embedded and searched.

The export stays when the agent deletes the log. *Pieces* are the masked messages of a session, and a line for each
action. *Chunks* are spans of the export, within one exchange (a prompt with its answer), so a growing session changes
only chunks of its last exchange.

The hash of a chunk includes the hash of the chunk before, and a family (a session and its forks) starts from one seed.
So the common beginning of a fork and its parent has equal hashes, and is stored and embedded once.

A chunk has the text of its lines in the export, without headings, marks of actions and surrounding white space. The
heading of a prompt becomes "User: ". A backslash before a line that only looks like a heading or an action is removed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from indexer.handover_action_lines import ASKED_US, HandoverText, parse_handover
from indexer.lazy_compilation import dataclass, late
from indexer.masking import Masked, joined, mask
from indexer.masking.alternate_readings import INVISIBLE
from indexer.safe_files import file_name, index_root, open_regular, private_dir, replace_file
from indexer.transcripts.commands import is_ours
from indexer.transcripts.line_hashes import line_shape
from indexer.transcripts.model import AgentName, Session, Turn

PieceRole = Literal["user", "assistant", "action"]
_BLANK_LINES = late(r"\n{3,}")
#: The beginning of the piece for a summary: one that a compaction left, or one with which a continued session begins.
_SUMMARY = "Summary of what came before: "
#: The note on a call that a person refused with a reason, in place of the program's long sentence.
_REFUSED = mask("refused")
#: Of a text longer than the first number, this much is searched at its beginning and its end, and this much of the new
#: lines between them.
LONG_CHARACTERS, _EDGE_CHARACTERS, _MIDDLE_CHARACTERS = 24_000, 4_000, 12_000
_PART = late(r"[^\n]{0,799}(?:\n|[^\n])")


class Piece(NamedTuple):
    """A message of a turn, or its list of actions. `turn` is an index into ``Session.turns``. `exchange` counts from 0.

    `line` is the piece's first line in the export, from 1; 0 before rendering. `apart` is True if text before this
    piece is not indexed, so that a new chunk begins. A `summary` (of a compaction, the agent's own shortening of its
    context) is searched as part of the session, but has no chunks: they would repeat earlier exchanges.
    """

    role: PieceRole
    text: Masked
    turn: int
    message_id: str
    exchange: int
    line: int = 0
    apart: bool = False
    summary: bool = False


def pieces_of(session: Session, mask: Callable[[str], Masked]) -> tuple[Piece, ...]:
    """Return the messages and action lists of a session in order. Messages are masked with `mask`.

    Tool output, thinking and calls of smart-fork are dropped. Actions in a handed-over session (one agent's session,
    given to another as text) count as the session's own.
    """
    ours = {call.id for turn in session.turns for call in turn.tool_calls if is_ours(call.name)}
    notes = {
        result.tool_use_id: _REFUSED if result.words else result.note
        for turn in session.turns
        for result in turn.tool_results
        if result.note and result.tool_use_id not in ours
    }
    pieces: list[Piece] = []
    for exchange in session.exchanges():
        for offset, turn in enumerate(exchange.turns):
            index = exchange.start + offset
            role: PieceRole = "user" if turn.role == "user" else "assistant"
            said = _clean(turn.text) if turn.text and turn.role in ("user", "assistant") else ""
            told = parse_handover(said) if role == "assistant" else HandoverText(said)
            if summary := _clean(turn.summary):
                text = mask(_SUMMARY + summary)
                pieces.append(Piece("assistant", text, index, turn.id, exchange.index, summary=True))
            if told.said:
                pieces.append(Piece(role, mask(told.said), index, turn.id, exchange.index))
            # One by one, as they stand in the other agent's own session: so passages begin and end where those do.
            done = [mask(one.noted) for one in told.done if one.line != ASKED_US]
            done += [own] if (own := _actions(turn, notes)) else []
            pieces += [Piece("action", actions, index, turn.id, exchange.index) for actions in done]
            if answer := _clean(turn.answer):
                pieces.append(Piece("user", mask(answer), index, turn.id, exchange.index))
    return tuple(pieces)


def lines_searched(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the lines of a long text, each with True if it is searched. Pasted text repeats itself, so some are not.

    Lines at both ends of the text are searched. A line in between is searched if it differs from all earlier ones in
    more than numbers, times, ids and paths, until a number of characters is reached. Long lines are split.
    """
    left, at, seen = _MIDDLE_CHARACTERS, 0, set[str]()
    for found in _PART.finditer(text):
        line, kept = found[0], at < _EDGE_CHARACTERS or at >= len(text) - _EDGE_CHARACTERS
        if not kept and left > 0 and (said := line_shape(line)) not in seen:
            left -= len(line)
            kept = True
            seen.add(said)
        elif kept:
            seen.add(line_shape(line))
        yield line, kept
        at = found.end()


def _actions(turn: Turn, notes: dict[str, Masked]) -> Masked:
    lines = []
    for call in turn.tool_calls:
        if call.action and not is_ours(call.name):
            note = notes.get(call.id)
            lines.append(joined(" -> ", (call.action, note)) if note else call.action)
    return joined("\n", lines)


def _clean(text: str) -> str:
    """Return `text` without NULs, at which C libraries end a text, with uniform line ends and single blank lines."""
    text = "\n".join(text.replace("\0", "").splitlines()).strip()
    return _BLANK_LINES.sub("\n\n", text) if "\n\n\n" in text else text


_HEADINGS = {"user": "## User", "assistant": "## Assistant", "action": "## Assistant"}
#: The beginning of an action's line in an export. A reader of the conversation alone can skip such lines.
ACTION = "- ⚙ "
#: A line of a message that looks like a heading or an action of the export. It gets a backslash.
_LIKE_A_MARK = late(r"[ \t]*(?:##[ \t]+(?:User|Assistant)[ \t#]*$|- ⚙)")
#: All characters that a reader may take for the end of a line.
_LINE_ENDS = late(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")
_LABEL = late(r"(?:[-*]\s+)?[*_`]*([A-Za-z][A-Za-z _]*?)[*_`]*:[*_`]*(?=\s|$)")
_MARKED = late(r"(\*\*|`)(.*)\1")


@dataclass(frozen=True, slots=True)
class Export:
    """The text of a session's export, and its pieces with the lines on which they begin."""

    text: str
    pieces: tuple[Piece, ...]

    @property
    def digest(self) -> bytes:
        """Return the hash of the export's text, which `is_export` compares with a file."""
        return _hash(_encoded(self.text)).digest()


def to_markdown(session: Session, pieces: Iterable[Piece], repo_root: str = "") -> Export:
    """Render a session as Markdown: front matter, then each piece verbatim; below an answer, a list of its actions."""
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
    """Return the path of a session's export."""
    return index_root() / agent / f"{file_name(session_id)}.md"


def export_names(agent: AgentName) -> set[str]:
    """Return the file names of an agent's existing exports. Only regular files count."""
    try:
        with os.scandir(index_root() / agent) as entries:
            return {entry.name for entry in entries if entry.is_file(follow_symlinks=False)}
    except OSError:
        return set()


def write_export(path: Path, text: str) -> bool:
    """Write an export atomically as a private file. Return False if the file already has exactly this text.

    The disk is not flushed: that takes most of the time, and a lost export is made again from the log.
    """
    data = _encoded(text)
    if is_export(path, _hash(data).digest()):
        return False
    private_dir(path.parent)
    replace_file(path, [data], durable=False)
    return True


def is_export(path: Path, digest: bytes) -> bool:
    """Return True if the regular file at `path`, which is no link, has content with the hash `digest`."""
    try:
        with open_regular(path) as file:
            return not path.is_symlink() and hashlib.file_digest(file, _hash).digest() == digest
    except OSError:
        return False


def parse_front_matter(text: str) -> dict[str, str]:
    """Return the fields of an export's header by name: in lower case, with ``_`` for blanks.

    Text after the header cannot add fields. Labels in any case, with a bullet or bold marks, are read as well.
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
    """Return the lines before a piece: a heading, but none between an answer and its actions.

    `before` is the role of the piece before; empty for the first one.
    """
    if role == "action" and before != "user" and before:
        return [""] if before == "assistant" else []
    return ["", _HEADINGS[role], ""]


def _listed(actions: str) -> str:
    return ACTION + actions.replace("\n", f"\n{ACTION}")


def _escaped(said: str) -> str:
    # Few texts have one of these anywhere. Only they are looked through line by line, without what readers drop.
    if "#" not in said and "⚙" not in said:
        return said
    return "\n".join(f"\\{line}" if _LIKE_A_MARK.match(INVISIBLE.sub("", line)) else line for line in said.split("\n"))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _hash(data: bytes = b"") -> hashlib.blake2b:
    return hashlib.blake2b(data, digest_size=16)


def _one_line(text: str) -> str:
    return _LINE_ENDS.sub(" ", text).strip()


#: Maximum size of a chunk, about 200 tokens. The embedding model reads 256, and shorter chunks embed faster a
#: character.
CHUNK_CHARACTERS = 800

LABELS = {"user": "User: ", "assistant": "", "action": ""}
_BREAKS = (late(r"\n\s*\n"), late(r"\n"), late(r"(?<=[.!?])\s"), late(r"\s"))

#: The positions in a text at which another role begins, each with the role.
Voices = tuple[tuple[int, PieceRole], ...]


@dataclass(frozen=True, slots=True)
class Chunk:
    """A span of a session's export that is embedded and searched. `hash` has 16 bytes.

    `turn`, `message_id` and `role` belong to the first piece (message or list of actions) in the span. `lines` are its
    first and last line in the export, from 1. `voices` says where in the text another role begins.
    """

    hash: bytes
    text: str
    turn: int
    message_id: str
    role: PieceRole
    exchange: int
    lines: tuple[int, int] = (0, 0)
    voices: Voices = ()


def chunk(pieces: Iterable[Piece], seed: str, limit: int = CHUNK_CHARACTERS) -> tuple[Chunk, ...]:
    """Split `pieces` (messages and lists of actions) into chunks of at most `limit` characters.

    The hash of each chunk includes the hash of the chunk before, and the first one `seed`.
    """
    packed = list(_packed(pieces, limit))
    return tuple(
        Chunk(digest, text, first.turn, first.message_id, first.role, first.exchange, lines, voices)
        for digest, (first, text, lines, voices) in zip(chained((one[1] for one in packed), seed), packed, strict=True)
    )


def chained(texts: Iterable[str], seed: str) -> Iterator[bytes]:
    """Yield a hash for each text, which includes the hash of the text before, or `seed` for the first one."""
    parent = _hash(_encoded(seed)).digest()
    for text in texts:
        parent = _hash(parent + _encoded(text)).digest()
        yield parent


def _packed(pieces: Iterable[Piece], limit: int) -> Iterator[tuple[Piece, str, tuple[int, int], Voices]]:
    """Join consecutive parts of one exchange (a prompt with its answer) into chunks of at most `limit` characters.

    Yield for each chunk its first piece, its text, its first and last line, and its voices (see `Chunk`).
    """
    first: Piece | None = None
    text, begins, ends = "", 0, 0
    voices: list[tuple[int, PieceRole]] = []
    apart = False
    for piece in pieces:
        apart = apart or piece.apart or piece.summary
        labelled = bool(LABELS[piece.role])
        for part, line in () if piece.summary else _placed(piece, limit):
            if first is not None and (first.exchange != piece.exchange or apart or len(text) + 1 + len(part) > limit):
                yield first, text, (begins, ends), tuple(voices)
                first = None
            if first is None:
                first, text, begins, voices = piece, part, line, []
            else:
                if labelled or piece.role != (voices[-1][1] if voices else first.role):
                    voices.append((len(text) + 1, piece.role))
                text = f"{text}\n{part}"
            ends, apart, labelled = line + part.count("\n"), False, False
    if first is not None:
        yield first, text, (begins, ends), tuple(voices)


def _placed(piece: Piece, limit: int) -> Iterator[tuple[str, int]]:
    """Yield parts of `piece`, of at most `limit` characters, each with its first line in the export."""
    text = LABELS[piece.role] + piece.text
    line, before = piece.line, 0
    for start, end in split(text, limit):
        line += text.count("\n", before, start)
        yield text[start:end], line
        before = start


def split(text: str, limit: int) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of consecutive spans of `text` with at most `limit` characters.

    Each ends at a paragraph, a line, a sentence or a word if possible.
    """
    start, last = len(text) - len(text.lstrip()), len(text.rstrip())
    while last - start > limit:
        cut = _cut(text, start, limit)
        yield start, start + len(text[start:cut].rstrip())
        start = cut
        while text[start].isspace():
            start += 1
    if start < last:
        yield start, last


def _cut(text: str, start: int, limit: int) -> int:
    for pattern in _BREAKS:
        cut = 0
        for found in pattern.finditer(text, start + limit // 2, start + limit):
            cut = found.start()
        if cut > start:
            return cut
    return start + limit
