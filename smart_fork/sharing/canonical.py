"""Canonical records, digests and project keys: everything that two machines must write with the same bytes.

Canonical JSON is UTF-8 with sorted names and no white space. A value that JSON cannot represent exactly is refused: a
number that is no double, half of a surrogate pair, a name that occurs twice.

The digest of a session's first n records is a hash chain, which can be continued from any state:

    d0 = SHA256("smart-fork/records/1")
    dn = SHA256(d(n-1) || SHA256(record n))
    written "sf1:<hex>"

Limits apply to decoded bytes, so that a small archive cannot expand into a large one.

A project key names the project of a git clone by the address of its remote, equally for all clones:

    git@GitHub.com:acme/shop.git, https://token@github.com/acme/shop, ssh://git@github.com:22/acme/shop/
    -> github.com/acme/shop
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Any
from urllib.parse import quote, unquote

import orjson
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from smart_fork.display_text import printable
from smart_fork.errors import TooLarge, Unshareable, Usage

MIB = 1 << 20
GIB = 1 << 30

#: A segment ends with the record that reaches this many bytes, or this many records. Both numbers decide the segments
#: of all sessions, so they are not settings: other numbers would store everything once more.
SEGMENT_BYTES = 256 << 10
SEGMENT_RECORDS = 512
#: The longest title, name or tag, the longest summary, and the number of tags.
TEXT, SUMMARY, TAGS = 200, 2_000, 50


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a team server for records, sessions and requests. Clients of the server keep to them.

    A segment (a stored piece of a session) of more than 1 MiB may be at most `ratio` times its compressed size.
    """

    record_bytes: int = 8 * MIB
    depth: int = 64
    session_bytes: int = 200 * MIB
    session_records: int = 200_000
    ratio: int = 200
    user_bytes: int = 5 * GIB
    project_bytes: int = 50 * GIB
    requests_a_minute: int = 1_000
    bytes_an_hour: int = 200 * MIB
    body_seconds: float = 30

    @property
    def segment_bytes(self) -> int:
        """The largest size of a segment in bytes: a segment is closed by the record that fills it."""
        return SEGMENT_BYTES + self.record_bytes + 1

    @property
    def segment_body_bytes(self) -> int:
        """The largest compressed size of a segment in bytes. Compression makes random data a little larger."""
        return self.segment_bytes + self.segment_bytes // 256 + 64


LIMITS = Limits()


Record = dict[str, Any]


def encode(record: Record) -> bytes:
    """Return the canonical JSON bytes of a record: UTF-8, sorted names, no white space.

    Raises:
        Unshareable: decoding the bytes would give another record.
        TooLarge: the record is too long or too deep.
    """
    try:
        data = orjson.dumps(record, option=orjson.OPT_SORT_KEYS)
        same = orjson.loads(data) == record
    except (orjson.JSONEncodeError, orjson.JSONDecodeError, RecursionError) as error:
        raise Unshareable(f"A record cannot be written as JSON: {error}") from error
    if not same:
        raise Unshareable("A record changes when JSON writes and reads it.")
    _check_length(data)
    _check_depth(data, record)
    return data


def decode(data: bytes) -> Record:
    """Parse the canonical JSON bytes of a record.

    Raises:
        Unshareable: the bytes are not a record, or not canonical.
        TooLarge: the record is too long or too deep.
    """
    _check_length(data)
    try:
        record = orjson.loads(data)
    except (orjson.JSONDecodeError, RecursionError) as error:
        raise Unshareable(f"A record is not JSON: {error}") from error
    if not isinstance(record, dict):
        raise Unshareable(f"A record is a JSON {type(record).__name__}, not an object.")
    _check_depth(data, record)
    if orjson.dumps(record, option=orjson.OPT_SORT_KEYS) != data:
        raise Unshareable("A record is not in its canonical form.")
    return record


def _check_length(data: bytes) -> None:
    if len(data) > LIMITS.record_bytes:
        raise TooLarge(f"A record has {len(data)} bytes; at most {LIMITS.record_bytes} are allowed.")


def _check_depth(data: bytes, record: Record) -> None:
    if data.count(b"{") + data.count(b"[") <= LIMITS.depth:  # of nearly all records; no deeper than there are brackets
        return
    level: list[Any] = [record]
    for _ in range(LIMITS.depth):
        parts = (part for value in level for part in (value.values() if isinstance(value, dict) else value))
        level = [part for part in parts if isinstance(part, dict | list)]
        if not level:
            return
    raise TooLarge(f"A record is nested more than {LIMITS.depth} deep.")


_WRITTEN = re.compile(r"sf1:([0-9a-f]{64})")
#: The state of the hash chain before the first record.
START = sha256(b"smart-fork/records/1").digest()


def chain_states(records: Iterable[bytes], start: bytes = START) -> Iterator[bytes]:
    """Yield the state of the hash chain after each of the canonical `records`. `start` is the state before them."""
    state = start
    for record in records:
        state = sha256(state + sha256(record).digest()).digest()
        yield state


def state_after(records: Iterable[bytes], start: bytes = START) -> bytes:
    """Return the state of the hash chain after all canonical `records`. `start` is the state before them."""
    state = start
    for state in chain_states(records, start):  # noqa: B007 - the last is what is asked for
        pass
    return state


def digest_of_state(state: bytes) -> str:
    """Return the digest for a state of the hash chain: "sf1:" and hexadecimal digits."""
    return f"sf1:{state.hex()}"


def digest_of(records: Iterable[bytes]) -> str:
    """Return the digest ("sf1:" and hexadecimal digits) of a session that has the canonical `records`."""
    return digest_of_state(state_after(records))


def state_of(digest: str) -> bytes:
    """Return the state of the hash chain from a digest ("sf1:…"). Raise `Unshareable` for another text."""
    if found := _WRITTEN.fullmatch(digest):
        return bytes.fromhex(found[1])
    raise Unshareable("Not a digest of records: it begins with sf1: and has 64 hexadecimal digits, in small letters.")


#: The digest of no records.
NOTHING = digest_of_state(START)


#: The characters of an invalid value that an error repeats.
_SHOWN = 200


def on_one_line(text: str) -> str:
    """Return `text` on one line, without terminal control characters."""
    return " ".join(printable(text).split())


#: Text for people, without terminal control characters.
Text = Annotated[str, StringConstraints(max_length=TEXT), AfterValidator(on_one_line)]
AgentName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,31}$")]
SessionId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")]
#: A digest of records (see `digest_of_state`), and a digest of a segment (see `team.segments.SegmentPlace`).
Digest = Annotated[str, StringConstraints(pattern=r"^sf1:[0-9a-f]{64}$")]
SegmentDigest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0, le=1 << 40)]


class WireModel(BaseModel):
    """The base class of all messages between machines."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def invalid_message(error: ValidationError) -> Usage:
    """Turn a pydantic error about an invalid message between machines into an error in plain words."""
    first = error.errors(include_url=False, include_input=False)[0]
    where, kind = printable(".".join(map(str, first["loc"])))[:100] or "The request", first["type"]
    if kind == "extra_forbidden":
        return Usage(f"{where} is unknown in this version of the protocol.")
    if kind == "missing":
        return Usage(f"{where} is missing.")
    if kind == "json_invalid":
        return Usage("The request is not JSON.")
    if kind == "value_error":
        return Usage(f"{where}: {printable(first['msg'].removeprefix('Value error, '))[:_SHOWN]}")
    if kind == "string_unicode":
        return Usage(f"{where} is not UTF-8, which the team server needs.", "Type it in UTF-8.")
    if kind in ("string_too_long", "too_long"):
        unit = "characters" if kind == "string_too_long" else "entries"
        return Usage(f"{where} is too long: at most {first['ctx']['max_length']} {unit}.")
    return Usage(f"{where} has an invalid value.")


#: The longest address, and the longest key.
_ADDRESS, _KEY = 2_000, 200
_SCHEMES = frozenset({"https", "http", "ssh", "git", "git+ssh", "ssh+git", "git+https", "git+http"})
_REMOTE_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)/+(.*)", re.DOTALL)
#: scp's form: no scheme, and a colon before the first slash. A single letter is a Windows drive.
_SCP = re.compile(r"((?:[^@/:]*@)?(?:\[[^\]/]*\]|[^:/@\[\]]{2,})):(?!:|//)(.*)", re.DOTALL)
_PORT = re.compile(r":[0-9]{0,5}$")
_HOST = re.compile(r"(?!-)[a-z0-9]([a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\]")
_GIT = re.compile(r"(\.git)+$")
#: Letters of any script, without characters that are special in a shell, path, address or terminal.
_PART = re.compile(r"[\w.~+@][\w.~+@ -]*")


def project_key(remote: str) -> str:
    """Return the key of the project with this git remote: "github.com/acme/shop" for "git@github.com:acme/shop.git".

    Raises:
        Usage: the remote is a folder of this machine, or git could not clone it.
    """
    host, path = _split(remote.strip())
    return _key(host, path, remote)


def check_key(key: str) -> str:
    """Return `key` if it is a project key such as "github.com/acme/shop"; else raise `Usage`."""
    host, _, path = key.partition("/")
    if _key(host, path, key) != key:
        raise Usage("Not a project key. A key looks like github.com/acme/shop.")
    return key


def _split(remote: str) -> tuple[str, str]:
    if len(remote) > _ADDRESS:
        raise Usage("The address of the remote is too long.")
    if found := _REMOTE_URL.fullmatch(remote):
        scheme, place, path = found.groups()
        if scheme.lower() not in _SCHEMES:
            raise Usage("The remote is on this machine, or is not an address.", _NAME_ONE)
        if scheme.lower().startswith(("http", "git+http")):
            path = re.split(r"[?#]", path, maxsplit=1)[0]
        return place.rpartition("@")[2], _decoded(path)
    if found := _SCP.fullmatch(remote):
        return found[1].rpartition("@")[2], found[2]
    raise Usage("The remote is on this machine, or is not an address.", _NAME_ONE)


_NAME_ONE = "Name the project, such as git.example.org/acme/shop."


def _key(host: str, path: str, remote: str) -> str:
    host = _ascii(_PORT.sub("", host)).lower().removesuffix(".")
    parts = [part for part in unicodedata.normalize("NFC", path).split("/") if part]
    if parts:
        parts[-1] = _GIT.sub("", parts[-1])
    key = "/".join((host, *parts))
    good = parts and _HOST.fullmatch(host) and ".." not in host and all(map(_is_name, parts))
    if not good or len(key) > _KEY:
        raise Usage(f"Not the address of a project: {remote[:_KEY]!r}", _NAME_ONE)
    return key


def _is_name(part: str) -> bool:
    return _PART.fullmatch(part) is not None and set(part) != {"."} and not part.endswith(" ")


def _ascii(host: str) -> str:
    """Return a host name in ASCII: other letters are encoded in IDNA. Empty if that is impossible."""
    if host.isascii():
        return host
    try:
        return host.encode("idna").decode()
    except UnicodeError:
        return ""


def _decoded(path: str) -> str:
    try:
        return unquote(path, errors="strict")
    except UnicodeDecodeError:
        return ""


def url_of(server: str, project: str, session_id: str) -> str:
    """Return the address of a session that a team's server shares. Commands accept it instead of the session's id."""
    return f"{server}/v1/sessions/{session_id}?project={quote(project, safe='')}"
