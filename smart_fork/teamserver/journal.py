"""The journal of withdrawals, beside the data and outside the database: a restore of an older backup does them again.

A line for each, of digests and of the records that took the place of others. A record that was replaced and is then
withdrawn itself stands in no line any more.
"""

from __future__ import annotations

import base64
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import orjson

from indexer.files import replace_file
from smart_fork.errors import Unshareable
from smart_fork.teamserver.edits import Edits

FILE = "withdrawn.jsonl"


@dataclass(frozen=True, slots=True)
class Entry:
    """A withdrawal, to be done again. `hide` is whether the whole session goes."""

    project: str
    session_id: str
    kind: str
    edits: Edits

    def without(self, later: Edits) -> Entry:
        """The same where some of what it brought was replaced later."""
        new = {old: _after(record, later) for old, record in self.edits.items()}
        return Entry(self.project, self.session_id, self.kind, new)

    def line(self) -> bytes:
        """As it is written."""
        edits = [[old.hex(), _encoded(new)] for old, new in self.edits.items()]
        facts = {"project": self.project, "session": self.session_id, "kind": self.kind, "edits": edits}
        return orjson.dumps(facts) + b"\n"

    @classmethod
    def read(cls, line: bytes) -> Entry:
        """The reverse.

        Raises:
            Unshareable: It is none.
        """
        try:
            facts = orjson.loads(line)
            edits = {bytes.fromhex(old): _decoded(new) for old, new in facts["edits"]}
            return cls(str(facts["project"]), str(facts["session"]), str(facts["kind"]), edits)
        except (ValueError, KeyError, TypeError) as error:
            raise Unshareable(f"A line of the journal of withdrawals is damaged: {error}") from error


class Journal:
    """The file of a server, which several of its processes write."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def entries(self) -> list[Entry]:
        """All that was withdrawn, in its order.

        Raises:
            Unshareable: A line is damaged; nothing is restored without it.
        """
        try:
            lines = self.path.read_bytes().splitlines()
        except FileNotFoundError:
            return []
        return [Entry.read(line) for line in lines if line]

    def add(self, entry: Entry) -> None:
        """Write down a withdrawal, before it is done. The file is the old one or the new one.

        Raises:
            Unshareable: The journal is damaged.
            OSError: It cannot be written.
        """
        with self._alone():
            before = [one.without(entry.edits) if one.project == entry.project else one for one in self.entries()]
            if entry not in before:
                before.append(entry)
            replace_file(self.path, [one.line() for one in before])

    @contextmanager
    def _alone(self) -> Iterator[None]:
        file = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
        finally:
            os.close(file)


def _after(record: bytes | None, later: Edits) -> bytes | None:
    return None if record is None else later.get(sha256(record).digest(), record)


def _encoded(record: bytes | None) -> str | None:
    return None if record is None else base64.b64encode(record).decode()


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text, validate=True)
