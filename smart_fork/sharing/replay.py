"""Checks, before anything is sent, that the records to send still load.

It is written as a log of the agent's and read again, as the server does (`smart_fork.sharing.reading_back`), and
compared with the session here: the same turns by the same, in the same order, with the same ids, calls and results; no
link that leads nowhere; ids, signatures and encrypted reasoning byte for byte; nothing left that masking would change.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from itertools import zip_longest
from typing import Any

from indexer.masking import MARK
from indexer.transcripts.model import Session, Turn
from smart_fork.agents import AGENTS
from smart_fork.agents.codec import Record
from smart_fork.agents.cuts import ties
from smart_fork.agents.forms import Forms
from smart_fork.errors import SmartForkError, Unshareable
from smart_fork.excise.cut_plan import dangling
from smart_fork.forking.secrets import LOOSE, MaskedSecrets
from smart_fork.sharing.canonical import decode
from smart_fork.sharing.outgoing import Outgoing
from smart_fork.sharing.reading_back import replayed

_NOT_SENT = "Nothing was sent. Push an earlier part of the session, or report it."
#: All that a message says whose images were left out: without them it may have said nothing.
_NOTES = re.compile(r"\s*(?:\[(?:image|document) dropped: [^\]]*\]\s*)+")


def check(outgoing: Outgoing) -> None:
    """Look at all that would be sent.

    Raises:
        Unshareable: It would not load, or not be the same session; it says which record.
    """
    if not outgoing.records:
        return
    try:
        _check(outgoing)
    except SmartForkError:
        if outgoing.whole is None:
            raise
        # What is new can be the end of a turn that went out before: then it is none by itself.
        whole = outgoing.whole()
        if whole.records[-len(outgoing.records) :] != outgoing.records:
            raise
        _check(whole)


def _check(outgoing: Outgoing) -> None:
    agent = outgoing.session.agent
    forms = AGENTS.forms_of(agent)
    records = [decode(record) for record in outgoing.records]
    _masked_once(outgoing, records, forms)
    _ties(outgoing, records, forms)
    with replayed(agent, outgoing.records, records) as session:
        _turns(outgoing, {identity for record in records for identity in forms.ids(record)}, session)
        _links(outgoing, session)


def _masked_once(outgoing: Outgoing, records: Sequence[Record], forms: Forms) -> None:
    """Masking what was not changed by it has been done twice: only what has a mask is looked at again."""
    for number, data, record in zip(outgoing.numbers, outgoing.records, records, strict=True):
        if MARK.encode() in data and outgoing.secrets.record(record, forms, MaskedSecrets()) != record:
            raise Unshareable(f"Record {number} would be masked again in a second pass.", _NOT_SENT)


def _ties(outgoing: Outgoing, records: Sequence[Record], forms: Forms) -> None:
    for number, record, before in zip(outgoing.numbers, records, outgoing.here, strict=True):
        here = _tied(before, forms)
        if not all(tie in here for tie in _tied(record, forms)):  # in this order: what was passed is gone
            raise Unshareable(f"Record {number} would have another id or signature than here.", _NOT_SENT)


def _tied(value: Any, forms: Forms) -> Iterator[tuple[str, Any]]:
    """Yield the ids and signatures that tie a record to others, in order."""
    if isinstance(value, dict):
        for name in sorted(value):
            if name in forms.free or name in LOOSE or name == "type":  # what an image is becomes a text
                continue
            if ties.is_tie(name, value[name]) and not isinstance(value[name], dict | list):
                yield name, value[name]
            else:
                yield from _tied(value[name], forms)
    elif isinstance(value, list):
        for part in value:
            yield from _tied(part, forms)


def _turns(outgoing: Outgoing, ids: set[str], session: Session) -> None:
    notes = {turn.id for turn in session.turns if _NOTES.fullmatch(turn.text) and not turn.tool_results}
    there = [turn for turn in session.turns if turn.id not in notes]
    here = outgoing.session.turns[: outgoing.end + 1]
    if ids:
        here = tuple(turn for turn in here if turn.id in ids - notes)
    elif outgoing.whole:
        here = here[-len(there) :]
    for number, (before, after) in enumerate(zip_longest(here, there), start=1):
        if before is None or after is None or _told(before, ids) != _told(after, ids):
            raise Unshareable(f"Turn {number} would change on the way.", _NOT_SENT)


def _told(turn: Turn, ids: Container[str]) -> tuple[object, ...]:
    """Return the properties of a turn that must not change. Without record ids, its position identifies it."""
    calls = tuple((call.id, call.name) for call in turn.tool_calls)
    results = tuple((result.tool_use_id, result.is_error) for result in turn.tool_results)
    return turn.id if turn.id in ids else "", turn.role, turn.prompt, bool(turn.text), calls, results


def _links(outgoing: Outgoing, session: Session) -> None:
    """Agents themselves leave results without a call; nothing may be added to these.

    That every record comes after another one has been seen: the reader came to all of them by their links.
    """
    loose = dangling(session.turns)
    if len(loose) > len(dangling(outgoing.session.turns)):
        raise Unshareable(f"Turn {loose[0].turn_id} {loose[0].reason}.", _NOT_SENT)
