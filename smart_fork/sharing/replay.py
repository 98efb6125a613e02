"""Records written as a log of their agent's, in a folder that is gone afterwards, and read again.

What its own reader gives back must be the same records in the same order: then every id, every pair of a call and its
result, and every link from one record to the next is as it was.
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
from smart_fork.agents import READERS
from smart_fork.agents.copier import NewSession
from smart_fork.agents.facets import copier, forms_of
from smart_fork.agents.forms import Becomes, Forms, HomePlace
from smart_fork.errors import ForkRefused, NotFound, Unshareable
from smart_fork.sharing.canonical import Record, decode

_AGAIN = "Nothing was sent. Drop the records that the agent cannot read, or report it."


def check(agent: str, records: Sequence[bytes]) -> Session:
    """The session that these canonical records are, as their agent's reader reads them.

    Raises:
        Unshareable: A record has what is not shared, or what is read is not what was written; it says which record.
        Usage: Sessions of that agent are not shared.
    """
    with replayed(agent, records) as session:
        return session


@contextmanager
def replayed(agent: str, records: Sequence[bytes], decoded: Sequence[Record] | None = None) -> Iterator[Session]:
    """See `check`; the log that the session was read from is there meanwhile. `decoded` are the same records."""
    forms = forms_of(agent)
    decoded = [decode(record) for record in records] if decoded is None else decoded
    for number, record in enumerate(decoded, start=1):
        if forms.sent(record) != record:
            raise Unshareable(f"Record {number} contains a field that is not shared.", _AGAIN)
    place = HomePlace(f"/{secrets.token_hex(16)}", f"/{secrets.token_hex(16)}")  # that no record names
    with written(agent, decoded, place) as log:
        session = _read(agent, log)
        _compare(forms, session, place, records)
        yield session


@contextmanager
def written(agent: str, records: Sequence[Record], place: HomePlace) -> Iterator[Path]:
    """A log of these records, in a folder that is gone afterwards."""
    new = NewSession(str(uuid.uuid4()), None, datetime.now(UTC))
    with tempfile.TemporaryDirectory(prefix="sf-replay-") as folder:
        log = Path(folder) / copier(agent).place(Path(folder) / "log", new).name
        with log.open("wb") as file:
            for record in forms_of(agent).anew(records, Becomes(new.id, place)):
                file.write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))
        yield log


def _read(agent: str, log: Path) -> Session:
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
