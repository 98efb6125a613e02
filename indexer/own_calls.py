"""What of a session was said to ask smart-fork, and of its answers.

It repeats questions and quotes sessions, so that it would be found before the one that knows: it is not searched. What
the session did besides is. The measure is an exchange: one that asks and changes nothing says nothing of its own; of
one that goes on to work, the words between a question to smart-fork and the next thing done are left out.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby

from indexer.masking import NOTHING, Masked, joined, mask
from indexer.pieces import Piece
from indexer.shapes import dataclass
from indexer.transcripts.base import Agents
from indexer.transcripts.model import Exchange, Session, Turn
from indexer.transcripts.ours import calls_us
from indexer.transcripts.retold import calls_of
from indexer.transcripts.titles import title_of
from indexer.unanswered import changes

_US = re.compile(r"smart[-_ ]fork", re.IGNORECASE)
_SENTENCES = re.compile(r"(?<=[.!?])(?=\s)|(?<=\n)")


@dataclass(frozen=True, slots=True)
class OwnTalk:
    """What a session can be found by: `pieces`, its `title`, empty where that is a question to smart-fork, other names.

    `until` is the time of the last of it; `acted` the index of the last exchange in which the session did something of
    its own, -1 where it only talked.
    """

    pieces: tuple[Piece, ...]
    title: Masked
    also_called: Masked
    until: str
    acted: int


def told(session: Session, pieces: Sequence[Piece], agents: Agents) -> OwnTalk:
    """`session` without what only asks smart-fork something, or repeats what it has answered."""
    exchanges = session.exchanges()
    acted = max((one.index for one in exchanges if _own_actions(one)), default=-1)
    asking = {one.index: one for one in exchanges if _asks(one)}
    if not asking:
        return OwnTalk(tuple(pieces), session.title, session.also_called, session.last_activity, acted)
    quoting = {turn.id for one in asking.values() for turn in _quoting(one)}
    left: list[Piece] = []
    apart = False
    for piece in pieces:
        parts = _parts(piece, quoting, agents) if piece.exchange in asking else [(piece.text, True)]
        for run in _runs(piece, parts):
            if run is None:
                apart = True
            else:
                left.append(run._replace(apart=True) if apart else run)
                apart = False
    until = session.turns[left[-1].turn].timestamp if left else ""
    return OwnTalk(tuple(left), *_names(session, pieces, left), until, acted)


def _names(session: Session, pieces: Sequence[Piece], left: Sequence[Piece]) -> tuple[Masked, Masked]:
    """Its title and its other names. A name that somebody gave is the session's own; any other is made of its prompts,
    as far as they count.
    """
    before, now = (title_of("", _prompts(some)) for some in (pieces, left))
    if before == now:
        return session.title, session.also_called
    return (session.title if left and session.named else now), NOTHING


def _prompts(pieces: Sequence[Piece]) -> Iterator[Masked]:
    """What is there of each prompt."""
    for _, runs in groupby((one for one in pieces if one.role == "user"), key=lambda one: one.turn):
        yield joined(" ", (one.text for one in runs))


def _parts(piece: Piece, quoting: Collection[str], agents: Agents) -> list[tuple[str, bool]]:
    """A piece of an exchange that asks smart-fork: its stretches, and whether each says something of its own.

    Of a prompt these are the sentences that do not name us.
    """
    if piece.role == "action":
        return [(line, not agents.opens_a_session(line.strip())) for line in piece.text.splitlines(keepends=True)]
    if piece.role == "user":
        return [
            (part, piece.message_id not in quoting and not _US.search(part)) for part in _SENTENCES.split(piece.text)
        ]
    return [(piece.text, piece.message_id not in quoting)]


def _runs(piece: Piece, parts: Sequence[tuple[str, bool]]) -> Iterator[Piece | None]:
    """What is kept of a piece, in stretches without a gap, each with the line on which it begins; `None` for a gap."""
    if all(kept for _, kept in parts):
        yield piece
        return
    line = piece.line
    for kept, run in groupby(parts, key=lambda part: part[1]):
        text = "".join(part for part, _ in run)
        inside = text.strip()
        if not kept:
            yield None
        elif inside:
            yield piece._replace(text=mask(inside), line=line + text[: text.index(inside)].count("\n"))
        line += text.count("\n")


def _asks(exchange: Exchange) -> bool:
    return any(
        (turn.prompt and calls_us(turn.text)) or any(call.ours for call in calls_of(turn)) for turn in exchange.turns
    )


def _own_actions(exchange: Exchange) -> list[str]:
    return [call.action for turn in exchange.turns for call in calls_of(turn) if call.action]


def _quoting(exchange: Exchange) -> Iterator[Turn]:
    """The turns whose text is about smart-fork's answer: all where nothing is changed, else until something is."""
    changing = [changes(turn) for turn in exchange.turns]
    if not any(changing):
        yield from exchange.turns
        return
    asking = [any(call.ours for call in calls_of(turn)) for turn in exchange.turns]
    first = next(i for i, does in enumerate(zip(changing, asking, strict=True)) if any(does))
    quotes = not changing[first]
    for turn, changing_it, asks in zip(exchange.turns, changing, asking, strict=True):
        quotes = not changing_it if changing_it or asks else quotes
        if quotes and not turn.prompt:
            yield turn
