"""The encrypted list of what is on the remote, the encrypted records of each session, and the key to both.

Each text is sealed under a key of its own, derived from the person's with a random salt, and bound to what it is. The
list authenticates the rest: it has the digest of each sealed session. Its number grows with each change.
"""

from __future__ import annotations

import base64
import hmac
import os
import uuid
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal

import orjson
import zstandard
from pydantic import Field, StringConstraints, ValidationError

from indexer.files import private_dir, state_home, write_new
from smart_fork.errors import NotFound, SmartForkError, TooLarge, Unshareable, Usage
from smart_fork.sharing import canonical

#: A key in words begins with this.
BEGINNING = "sfk_"
_KEY, _CHECK, _SALT, _NONCE = 32, 4, 16, 12
_FORM = b"smart-fork/sync/1"


class WrongKey(SmartForkError):
    """The content of the remote was made with another key, or was changed there."""

    code = "wrong_key"


@dataclass(frozen=True, slots=True)
class SyncKey:
    """The secret, which is never shown but by `words`."""

    secret: bytes = field(repr=False)

    def words(self) -> str:
        """The key as a person carries it to another machine, with a sum that finds typing errors."""
        return BEGINNING + base64.b32encode(self.secret + _check(self.secret)).decode().rstrip("=").lower()

    def seal(self, what: str, data: bytes) -> bytes:
        """Encrypt; `what` it is must be given again to open it."""
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

        salt, nonce = os.urandom(_SALT), os.urandom(_NONCE)
        return salt + nonce + ChaCha20Poly1305(self._derived("seal", salt)).encrypt(nonce, data, what.encode())

    def open(self, what: str, sealed: bytes) -> bytes:
        """Decrypt.

        Raises:
            WrongKey: another key has sealed it, or something else, or it was changed.
        """
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

        salt, nonce, rest = sealed[:_SALT], sealed[_SALT : _SALT + _NONCE], sealed[_SALT + _NONCE :]
        if len(nonce) == _NONCE:
            try:
                return ChaCha20Poly1305(self._derived("seal", salt)).decrypt(nonce, rest, what.encode())
            except InvalidTag:
                pass
        raise WrongKey(
            "The remote's data does not open with this machine's key.",
            "`smart-fork sync key` on the other machine prints its key. With equal keys, the remote changed the data.",
        )

    def name(self, what: str) -> str:
        """A name for something that tells nobody what it is, the same on all machines with this key."""
        return hmac.new(self._derived("name"), what.encode(), sha256).hexdigest()

    def id(self, what: str) -> str:
        """The same in the form of a session's id."""
        return str(uuid.UUID(bytes=bytes.fromhex(self.name(what))[:16], version=5))

    def _derived(self, use: str, salt: bytes = b"") -> bytes:
        """A key for one use, as HKDF expands it: the secret is random already."""
        return hmac.new(self.secret, b"\0".join((_FORM, use.encode(), salt)), sha256).digest()


def made() -> SyncKey:
    """A new key."""
    return SyncKey(os.urandom(_KEY))


def keep(key: SyncKey) -> None:
    """Keep a key, which another machine may have made.

    Raises:
        FileExistsError: there is one.
    """
    write_new(_path(), [key.words().encode() + b"\n"])


def known() -> SyncKey:
    """The key of this machine.

    Raises:
        NotFound: there is none.
    """
    try:
        return read(_path().read_text("ascii"))
    except FileNotFoundError:
        raise NotFound("This machine is not set up.", "Run: smart-fork sync setup REMOTE") from None
    except (UnicodeDecodeError, Usage) as error:
        raise SmartForkError(f"{_path()} is damaged.", "Copy the key from another machine.") from error


def is_known() -> bool:
    """Return True if this machine has a key."""
    return _path().exists()


def forget() -> None:
    """Delete the key from this machine."""
    _path().unlink(missing_ok=True)


def read(words: str) -> SyncKey:
    """The key that a person gives.

    Raises:
        Usage: it is none; what was given is not repeated, since it may nearly be one.
    """
    text = words.strip()
    try:
        said = base64.b32decode(text.removeprefix(BEGINNING).upper() + "=" * (-(len(text) - len(BEGINNING)) % 8))
    except ValueError:
        said = b""
    secret, check = said[:_KEY], said[_KEY:]
    if not text.startswith(BEGINNING) or len(secret) != _KEY or not hmac.compare_digest(check, _check(secret)):
        raise Usage("That is not a key.", "`smart-fork sync key` on the other machine prints it: sfk_…")
    return SyncKey(secret)


def folder() -> Path:
    """Return the folder for synchronization's own files."""
    return private_dir(state_home() / "sync")


def _path() -> Path:
    return folder() / "key"


def _check(secret: bytes) -> bytes:
    return sha256(_FORM + secret).digest()[:_CHECK]


#: The file of the list on the remote.
NAME = "list"
#: No list, and no session, unpacks to more.
_BYTES = canonical.LIMITS.session_bytes + canonical.LIMITS.session_records
_LEVEL = 6
Short = Annotated[str, StringConstraints(max_length=200)]
PathText = Annotated[str, StringConstraints(max_length=4096)]


class SharedEntry(canonical.WireModel):
    """A session on the remote. `directory` is its repository's on the machine that sent it.

    `remote`, `roots` and `head` say which repository that is; `sealed` is the digest of its encrypted records.
    """

    agent: canonical.AgentName
    session_id: Short
    title: canonical.Text = ""
    machine: canonical.Text = ""
    last_activity: Short = ""
    directory: PathText = ""
    remote: PathText = ""
    roots: Annotated[tuple[Short, ...], Field(max_length=100)] = ()
    head: Short = ""
    records: canonical.Count
    digest: canonical.Digest
    sealed: canonical.SegmentDigest


class Manifest(canonical.WireModel):
    """All sessions on the remote, and those that were withdrawn, with the time."""

    form: Literal[1] = 1
    number: canonical.Count = 0
    sessions: dict[canonical.SessionId, SharedEntry] = Field(default_factory=dict)
    withdrawn: dict[canonical.SessionId, Short] = Field(default_factory=dict)


def sealed(manifest: Manifest, key: SyncKey) -> bytes:
    """Encrypt the list."""
    return key.seal(NAME, _packed(manifest.model_dump_json().encode()))


def opened(data: bytes, key: SyncKey) -> Manifest:
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


def sealed_records(session_id: str, records: tuple[bytes, ...], key: SyncKey) -> bytes:
    """Encrypt the records of a session."""
    return key.seal(session_id, _packed(orjson.dumps([one.decode() for one in records])))


def opened_records(session_id: str, entry: SharedEntry, data: bytes, key: SyncKey) -> tuple[bytes, ...]:
    """Decrypt the records of a session.

    Raises:
        WrongKey: they were not made with this key.
        Unshareable: they are not those of the list.
    """
    if sha256(data).hexdigest() != entry.sealed:
        raise Unshareable("The remote has changed the records of a session. They are not used.")
    records = tuple(one.encode() for one in orjson.loads(_unpacked(key.open(session_id, data))))
    if len(records) != entry.records or canonical.digest_of(records) != entry.digest:
        raise Unshareable("A session's records do not match the list.")
    return records


def _packed(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=_LEVEL).compress(data)


def _unpacked(data: bytes) -> bytes:
    if zstandard.get_frame_parameters(data).content_size > _BYTES:
        raise TooLarge("A file on the remote unpacks to more than a session can have.")
    return zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False)
