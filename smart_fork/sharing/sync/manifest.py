"""The encrypted files on the remote (the list of synchronized sessions, and each session's records), and their key.

Each file is encrypted with its own key, derived from the person's key with a random salt, and bound to its purpose. The
list contains the digests of the records, which prove that they are unchanged, and a version number.
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
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from pydantic import Field, StringConstraints, ValidationError

from indexer.safe_files import private_dir, state_home, write_new
from smart_fork.errors import NotFound, SmartForkError, TooLarge, Unshareable, Usage
from smart_fork.sharing import canonical

#: The beginning of a key in words.
BEGINNING = "sfk_"
_KEY, _CHECK, _SALT, _NONCE = 32, 4, 16, 12
_FORM = b"smart-fork/sync/1"


class WrongKey(SmartForkError):
    """Data on the synchronization's git remote that was encrypted with another key, or was changed there."""

    code = "wrong_key"


@dataclass(frozen=True, slots=True)
class SyncKey:
    """The secret key that all machines of a person share. Only `words` shows it."""

    secret: bytes = field(repr=False)

    def words(self) -> str:
        """Return the key as text to type on another machine, with a checksum that finds typing errors."""
        return BEGINNING + base64.b32encode(self.secret + _check(self.secret)).decode().rstrip("=").lower()

    def seal(self, what: str, data: bytes) -> bytes:
        """Encrypt `data` for the purpose `what`, such as a session's id. Decryption needs the same purpose."""
        salt, nonce = os.urandom(_SALT), os.urandom(_NONCE)
        return salt + nonce + ChaCha20Poly1305(self._derived("seal", salt)).encrypt(nonce, data, what.encode())

    def open(self, what: str, sealed: bytes) -> bytes:
        """Decrypt data that `seal` encrypted for the purpose `what`. Raise `WrongKey` if it was encrypted otherwise."""
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
        """Return the file name on the remote for `what`: a pseudonym, equal on all machines with this key."""
        return hmac.new(self._derived("name"), what.encode(), sha256).hexdigest()

    def id(self, what: str) -> str:
        """Return a pseudonym for `what` in the form of a session id, equal on all machines with this key."""
        return str(uuid.UUID(bytes=bytes.fromhex(self.name(what))[:16], version=5))

    def _derived(self, use: str, salt: bytes = b"") -> bytes:
        """Derive a key for the purpose `use` from the secret and a salt, as HKDF's expand step does.

        HKDF's extract step is not needed, since the secret is random.
        """
        return hmac.new(self.secret, b"\0".join((_FORM, use.encode(), salt)), sha256).digest()


def new_key() -> SyncKey:
    """Create a random key for synchronization."""
    return SyncKey(os.urandom(_KEY))


def store_key(key: SyncKey) -> None:
    """Store `key` as this machine's key. Raise `FileExistsError` if it has one."""
    write_new(_path(), [key.words().encode() + b"\n"])


def own_key() -> SyncKey:
    """Return this machine's key for synchronization, or raise `NotFound`."""
    try:
        return parse_key(_path().read_text("ascii"))
    except FileNotFoundError:
        raise NotFound("This machine is not set up.", "Run: smart-fork sync setup REMOTE") from None
    except (UnicodeDecodeError, Usage) as error:
        raise SmartForkError(f"{_path()} is damaged.", "Copy the key from another machine.") from error


def has_key() -> bool:
    """Return True if this machine has a key for synchronization."""
    return _path().exists()


def delete_key() -> None:
    """Delete this machine's key for synchronization."""
    _path().unlink(missing_ok=True)


def parse_key(words: str) -> SyncKey:
    """Parse a key for synchronization as `SyncKey.words` writes it.

    Raises:
        Usage: `words` is no key. The error message does not contain `words`, since they may be nearly a key.
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
    """Return the folder for synchronization's own files. It is created if needed."""
    return private_dir(state_home() / "sync")


def _path() -> Path:
    return folder() / "key"


def _check(secret: bytes) -> bytes:
    return sha256(_FORM + secret).digest()[:_CHECK]


#: The name of the list on the remote.
NAME = "list"
#: The largest unpacked size of a list or a session.
_BYTES = canonical.LIMITS.session_bytes + canonical.LIMITS.session_records
_LEVEL = 6
Short = Annotated[str, StringConstraints(max_length=200)]
PathText = Annotated[str, StringConstraints(max_length=4096)]


class SharedEntry(canonical.WireModel):
    """A session in the remote's list of synchronized sessions.

    `directory` is its repository on the sending machine; `remote`, `roots` and `head` identify the repository. `sealed`
    is the digest of the encrypted records.
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
    """The remote's list of synchronized sessions, and the times at which sessions were withdrawn by their owner."""

    form: Literal[1] = 1
    number: canonical.Count = 0
    sessions: dict[canonical.SessionId, SharedEntry] = Field(default_factory=dict)
    withdrawn: dict[canonical.SessionId, Short] = Field(default_factory=dict)


def sealed(manifest: Manifest, key: SyncKey) -> bytes:
    """Encrypt the list of synchronized sessions, to be stored on the remote."""
    return key.seal(NAME, _packed(manifest.model_dump_json().encode()))


def opened(data: bytes, key: SyncKey) -> Manifest:
    """Decrypt the list of synchronized sessions that is on the remote.

    Raises:
        WrongKey: the list was encrypted with another key.
        SmartForkError: another version of smart-fork wrote the list.
    """
    plain = _unpacked(key.open(NAME, data))
    try:
        return Manifest.model_validate_json(plain)
    except ValidationError as error:
        raise SmartForkError(
            "Another version of smart-fork wrote the remote's data.", "Install the same version on all machines."
        ) from error


def sealed_records(session_id: str, records: tuple[bytes, ...], key: SyncKey) -> bytes:
    """Encrypt the records of a session, to be stored on the remote."""
    return key.seal(session_id, _packed(orjson.dumps([one.decode() for one in records])))


def opened_records(session_id: str, entry: SharedEntry, data: bytes, key: SyncKey) -> tuple[bytes, ...]:
    """Decrypt the records of a session, and check them against its `entry` in the list.

    Raises:
        WrongKey: the records were encrypted with another key.
        Unshareable: the records do not match the list.
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
