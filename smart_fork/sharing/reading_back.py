"""Shared records, read back with the reader of their agent: whether they are whole.

A log of their agent is written for a moment, and must give the same records in the same order: then every id, every
pair of call and result, and every link between records is intact.
"""

from __future__ import annotations

import secrets
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path

import orjson

from indexer.transcripts.model import Session
from smart_fork.agents import AGENTS
from smart_fork.agents.copier import NewSession
from smart_fork.agents.forms import Becomes, Forms, HomePlace
from smart_fork.agents.readers import READERS
from smart_fork.errors import ForkRefused, NotFound, Unshareable
from smart_fork.sharing.canonical import Record, decode

_AGAIN = "Nothing was sent. Drop the records that the agent cannot read, or report it."


def check(agent: str, records: Sequence[bytes]) -> Session:
    """Return the session of these canonical records, as their agent's reader reads it.

    Raises:
        Unshareable: A record has fields that are not shared, or reads back differently; the message names it.
        Usage: Sessions of that agent cannot be shared.
    """
    with replayed(agent, records) as session:
        return session


@contextmanager
def replayed(agent: str, records: Sequence[bytes], decoded: Sequence[Record] | None = None) -> Iterator[Session]:
    """Yield the session of `check` while its temporary log exists. `decoded` are the same records, decoded."""
    forms = AGENTS.forms_of(agent)
    decoded = [decode(record) for record in records] if decoded is None else decoded
    for number, record in enumerate(decoded, start=1):
        if forms.sent(record) != record:
            raise Unshareable(f"Record {number} contains a field that is not shared.", _AGAIN)
    place = HomePlace(f"/{secrets.token_hex(16)}", f"/{secrets.token_hex(16)}")  # that no record names
    with written(agent, decoded, place) as log:
        session = _records_of(agent, log)
        _compare(forms, session, place, records)
        yield session


@contextmanager
def written(agent: str, records: Sequence[Record], place: HomePlace) -> Iterator[Path]:
    """Yield a temporary log with these records."""
    new = NewSession(str(uuid.uuid4()), None, datetime.now(UTC))
    with tempfile.TemporaryDirectory(prefix="sf-replay-") as folder:
        log = Path(folder) / AGENTS.copier_of(agent).place(Path(folder) / "log", new).name
        with log.open("wb") as file:
            for record in AGENTS.forms_of(agent).anew(records, Becomes(new.id, place)):
                file.write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))
        yield log


def _records_of(agent: str, log: Path) -> Session:
    result = READERS[agent].read(log)
    if result.broken:
        raise Unshareable(f"Record {result.broken[0].number} cannot be read: {result.broken[0].reason}", _AGAIN)
    if result.session is None:
        raise Unshareable(f"The prepared records are not a conversation: {result.skipped}", _AGAIN)
    return result.session


def _compare(forms: Forms, session: Session, place: HomePlace, records: Sequence[bytes]) -> None:
    try:
        again = (
            orjson.dumps(forms.outgoing(record, place), option=orjson.OPT_SORT_KEYS)
            for record in forms.records_of(session)
        )
        for number, (before, after) in enumerate(zip_longest(records, again), start=1):
            if before != after:
                raise Unshareable(f"Record {number} changes when it is sent and read again.", _AGAIN)
    except (NotFound, ForkRefused) as error:
        raise Unshareable(f"The prepared records cannot be read: {error.message}", _AGAIN) from error
