"""The encrypted list of what is on the remote, and the encrypted records of each session.

The list authenticates the rest: it has the digest of each sealed session. Its number grows with each change, so that a
remote which hands out an older list is noticed.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Annotated, Literal

import orjson
import zstandard
from pydantic import Field, StringConstraints, ValidationError

from smart_fork.errors import SmartForkError, TooLarge, Unshareable
from smart_fork.sharing.canonical import digest_of
from smart_fork.sharing.fields import AgentName, Count, Digest, Message, SegmentDigest, SessionId, Text
from smart_fork.sharing.limits import LIMITS
from smart_fork.sharing.sync.key import Key

#: The file of the list on the remote.
NAME = "list"
#: No list, and no session, unpacks to more.
_BYTES = LIMITS.session_bytes + LIMITS.session_records
_LEVEL = 6
Short = Annotated[str, StringConstraints(max_length=200)]
Path = Annotated[str, StringConstraints(max_length=4096)]


class Entry(Message):
    """A session on the remote. `directory` is its repository's on the machine that sent it.

    `remote`, `roots` and `head` say which repository that is; `sealed` is the digest of its encrypted records.
    """

    agent: AgentName
    session_id: Short
    title: Text = ""
    machine: Text = ""
    last_activity: Short = ""
    directory: Path = ""
    remote: Path = ""
    roots: Annotated[tuple[Short, ...], Field(max_length=100)] = ()
    head: Short = ""
    records: Count
    digest: Digest
    sealed: SegmentDigest


class Manifest(Message):
    """All sessions on the remote, and those that were withdrawn, with the time."""

    form: Literal[1] = 1
    number: Count = 0
    sessions: dict[SessionId, Entry] = Field(default_factory=dict)
    withdrawn: dict[SessionId, Short] = Field(default_factory=dict)


def sealed(manifest: Manifest, key: Key) -> bytes:
    """Encrypt the list."""
    return key.seal(NAME, _packed(manifest.model_dump_json().encode()))


def opened(data: bytes, key: Key) -> Manifest:
    """Decrypt the list.

    Raises:
        WrongKey: it was not made with this key.
        SmartForkError: another version has made it.
    """
    plain = _unpacked(key.open(NAME, data))
    try:
        return Manifest.model_validate_json(plain)
    except ValidationError as error:
        raise SmartForkError(
            "Another version of smart-fork wrote the remote's data.", "Install the same version on all machines."
        ) from error


def sealed_records(session_id: str, records: tuple[bytes, ...], key: Key) -> bytes:
    """Encrypt the records of a session."""
    return key.seal(session_id, _packed(orjson.dumps([one.decode() for one in records])))


def opened_records(session_id: str, entry: Entry, data: bytes, key: Key) -> tuple[bytes, ...]:
    """Decrypt the records of a session.

    Raises:
        WrongKey: they were not made with this key.
        Unshareable: they are not those of the list.
    """
    if sha256(data).hexdigest() != entry.sealed:
        raise Unshareable("The remote has changed the records of a session. They are not used.")
    records = tuple(one.encode() for one in orjson.loads(_unpacked(key.open(session_id, data))))
    if len(records) != entry.records or digest_of(records) != entry.digest:
        raise Unshareable("A session's records do not match the list.")
    return records


def _packed(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=_LEVEL).compress(data)


def _unpacked(data: bytes) -> bytes:
    if zstandard.get_frame_parameters(data).content_size > _BYTES:
        raise TooLarge("A file on the remote unpacks to more than a session can have.")
    return zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False)
