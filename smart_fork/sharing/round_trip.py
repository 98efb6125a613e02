"""Checks records before they are shared: the reader of their agent must read back an equal session.

Records are written to a temporary log. Reading it must give equal records in equal order, so every id, pair of call and
result, and link between records is intact. The sent part must equal the local session: its turns with their ids, calls
and results; no broken link; ids, signatures and encrypted reasoning byte for byte. No secret may be left that masking
would find.
"""

from __future__ import annotations

import re
import secrets
import tempfile
import uuid
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from typing import Any

import orjson

from indexer.transcripts.model import Session, Turn
from smart_fork.agents import AGENTS
from smart_fork.agents.copier import NewSession
from smart_fork.agents.excision.transcript import is_fixed_field
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.portable_records import Converter, HomePlace, TargetSession
from smart_fork.errors import ForkRefused, NotFound, SmartForkError, Unshareable
from smart_fork.excise.cut_plan import results_without_call
from smart_fork.forking.record_masking import MaskedSecrets
from smart_fork.sharing.canonical import Record, decode
from smart_fork.sharing.outgoing import Outgoing

_AGAIN = "Nothing was sent. Drop the records that the agent cannot read, or report it."


def read_back(agent: str, records: Sequence[bytes]) -> Session:
    """Return the session that the agent's reader finds in canonical records, written to a temporary log.

    Raise `Unshareable`, with the record's number, if a record has fields that are not shared, or reads back
    differently.
    """
    with replayed(agent, records) as session:
        return session


@contextmanager
def replayed(agent: str, records: Sequence[bytes], decoded: Sequence[Record] | None = None) -> Iterator[Session]:
    """Write canonical records to a temporary log, and yield the session that the agent's reader finds in it.

    `decoded` are the parsed records if they are known. Raise `Unshareable` in the same cases as `read_back`.
    """
    converter = AGENTS.converter_of(agent)
    decoded = [decode(record) for record in records] if decoded is None else decoded
    for number, record in enumerate(decoded, start=1):
        if converter.sent(record) != record:
            raise Unshareable(f"Record {number} contains a field that is not shared.", _AGAIN)
    place = HomePlace(f"/{secrets.token_hex(16)}", f"/{secrets.token_hex(16)}")  # that no record names
    with written(agent, decoded, place) as log:
        session = _records_of(agent, log)
        _compare(converter, session, place, records)
        yield session


@contextmanager
def written(agent: str, records: Sequence[Record], place: HomePlace) -> Iterator[Path]:
    """Write `records` to a temporary log of their agent, and yield its path. The log is deleted after the block."""
    new = NewSession(str(uuid.uuid4()), None, datetime.now(UTC))
    with tempfile.TemporaryDirectory(prefix="sf-replay-") as folder:
        log = Path(folder) / AGENTS.copier_of(agent).place(Path(folder) / "log", new).name
        with log.open("wb") as file:
            for record in AGENTS.converter_of(agent).anew(records, TargetSession(new.id, place)):
                file.write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))
        yield log


def _records_of(agent: str, log: Path) -> Session:
    result = READERS[agent].read(log)
    if result.broken:
        raise Unshareable(f"Record {result.broken[0].number} cannot be read: {result.broken[0].reason}", _AGAIN)
    if result.session is None:
        raise Unshareable(f"The prepared records are not a conversation: {result.skipped}", _AGAIN)
    return result.session


def _compare(converter: Converter, session: Session, place: HomePlace, records: Sequence[bytes]) -> None:
    try:
        again = (
            orjson.dumps(converter.outgoing(record, place), option=orjson.OPT_SORT_KEYS)
            for record in converter.records_of(session)
        )
        for number, (before, after) in enumerate(zip_longest(records, again), start=1):
            if before != after:
                raise Unshareable(f"Record {number} changes when it is sent and read again.", _AGAIN)
    except (NotFound, ForkRefused) as error:
        raise Unshareable(f"The prepared records cannot be read: {error.message}", _AGAIN) from error


_NOT_SENT = "Nothing was sent. Push an earlier part of the session, or report it."
#: A message that consists of notes of removed images.
_NOTES = re.compile(r"\s*(?:\[(?:image|document) dropped: [^\]]*\]\s*)+")


def check_outgoing(outgoing: Outgoing) -> None:
    """Check that the agent's reader finds the same session in the records of a prepared session.

    Raises:
        Unshareable: the records would not load, or would not be the same session. The message has the record's number.
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
    converter = AGENTS.converter_of(agent)
    records = [decode(record) for record in outgoing.records]
    _masked_once(outgoing, records, converter)
    _ties(outgoing, records, converter)
    with replayed(agent, outgoing.records, records) as session:
        _turns(outgoing, {identity for record in records for identity in converter.ids(record)}, session)
        _links(outgoing, session)


def _masked_once(outgoing: Outgoing, records: Sequence[Record], converter: Converter) -> None:
    """Refuse records with masked secrets in which a second masking would find more secrets."""
    for number, data, record in zip(outgoing.numbers, outgoing.records, records, strict=True):
        if not outgoing.secrets.is_masked(record, data, converter):
            raise Unshareable(f"Record {number} would be masked again in a second pass.", _NOT_SENT)


def _ties(outgoing: Outgoing, records: Sequence[Record], converter: Converter) -> None:
    for number, record, before in zip(outgoing.numbers, records, outgoing.here, strict=True):
        here = _tied(before, converter)
        if not all(tie in here for tie in _tied(record, converter)):  # in this order: what was passed is gone
            raise Unshareable(f"Record {number} would have another id or signature than here.", _NOT_SENT)


def _tied(value: Any, converter: Converter) -> Iterator[tuple[str, Any]]:
    """Yield name and value of each field that masking must not change, since it links a record to others, such as ids.

    In each object, they are ordered by name.
    """
    if isinstance(value, dict):
        for name in sorted(value):
            if (
                name in converter.free or name in MaskedSecrets.MASKABLE_TIES or name == "type"
            ):  # what an image is becomes a text
                continue
            if is_fixed_field(name, value[name]) and not isinstance(value[name], dict | list):
                yield name, value[name]
            else:
                yield from _tied(value[name], converter)
    elif isinstance(value, list):
        for part in value:
            yield from _tied(part, converter)


def _turns(outgoing: Outgoing, ids: set[str], session: Session) -> None:
    notes = {turn.id for turn in session.turns if _NOTES.fullmatch(turn.text) and not turn.tool_results}
    there = [turn for turn in session.turns if turn.id not in notes]
    here = outgoing.session.turns[: outgoing.end + 1]
    if ids:
        here = tuple(turn for turn in here if turn.id in ids - notes)
    elif outgoing.whole:
        here = here[-len(there) :]
    for number, (before, after) in enumerate(zip_longest(here, there), start=1):
        if before is None or after is None or _sent_properties(before, ids) != _sent_properties(after, ids):
            raise Unshareable(f"Turn {number} would change on the way.", _NOT_SENT)


def _sent_properties(turn: Turn, ids: Container[str]) -> tuple[object, ...]:
    """Return the properties of a turn that sending must not change, such as its role and tool calls.

    The turn's id is among them only if it is in `ids`. Other turns are identified by their position.
    """
    calls = tuple((call.id, call.name) for call in turn.tool_calls)
    results = tuple((result.tool_use_id, result.is_error) for result in turn.tool_results)
    return turn.id if turn.id in ids else "", turn.role, turn.prompt, bool(turn.text), calls, results


def _links(outgoing: Outgoing, session: Session) -> None:
    """Refuse to send records with more tool results that have no call than the local session has.

    Agents leave some such results themselves. All other links are intact, since the reader reached all records by them.
    """
    loose = results_without_call(session.turns)
    if len(loose) > len(results_without_call(outgoing.session.turns)):
        raise Unshareable(f"Turn {loose[0].turn_id} {loose[0].reason}.", _NOT_SENT)
