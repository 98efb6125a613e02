"""What of a session is indexed: what was said, and a line for each action. Secrets are masked here, for all readers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from indexer.masking import Masked, joined, mask_once
from indexer.patterns import late
from indexer.transcripts.error_lines import plain
from indexer.transcripts.model import Session, Turn
from indexer.transcripts.ours import is_ours
from indexer.transcripts.retold import ASKED_US, Retold, retold

PieceRole = Literal["user", "assistant", "action"]
_BLANK_LINES = late(r"\n{3,}")
#: What marks the summary that a compaction has left, or that a session begins with which continues another one.
_SUMMARY = "Summary of what came before: "
#: What stands at a refused call behind which the person says why, in place of the program's long sentence.
_REFUSED = mask_once("refused")
#: Of a longer text, its beginning and end are searched, and between them so much of the lines that say something new.
LONG_CHARACTERS, _EDGE, _BETWEEN = 24_000, 4_000, 12_000
_PART = late(r"[^\n]{0,799}(?:\n|[^\n])")


class Piece(NamedTuple):
    """A stretch of one turn. `turn` indexes ``Session.turns``, `exchange` counts from 0.

    `line` is the line of the export on which its text begins, from 1; 0 before it is rendered. `apart` says that
    something stands between it and the piece before which is not indexed. A `summary` is found by its words alone: as
    passages it would say once more what the exchanges before it say.
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
    """The pieces of a session in order, what was said in them passed through `mask`.

    Tool output, thinking and our own tool's calls are not among them; what is told of another agent's is as if it were
    its own.
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
            told = retold(said) if role == "assistant" else Retold(said)
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
    """Yield the lines of a long text, each with whether it is searched: a paste says most things again and again.

    A line is new if it differs from all before it in more than numbers, times, ids and paths. Longer lines are parted.
    """
    left, at, seen = _BETWEEN, 0, set[str]()
    for found in _PART.finditer(text):
        line, kept = found[0], at < _EDGE or at >= len(text) - _EDGE
        if not kept and left > 0 and (said := plain(line)) not in seen:
            left -= len(line)
            kept = True
            seen.add(said)
        elif kept:
            seen.add(plain(line))
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
    """Without NUL, at which C libraries end a text; with lines that end alike for every reader, one blank at a time."""
    text = "\n".join(text.replace("\0", "").splitlines()).strip()
    return _BLANK_LINES.sub("\n\n", text) if "\n\n\n" in text else text
