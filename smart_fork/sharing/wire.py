"""What travels between a client and a server, in version 1 of the protocol. Names that are not known are refused.

Importing it takes a tenth of a second, for pydantic: only what talks to a server, or is one, does.
"""

from __future__ import annotations

import binascii
from itertools import pairwise
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic.types import AwareDatetime

from smart_fork.errors import Usage
from smart_fork.sharing.limits import SUMMARY, TAGS, TEXT
from smart_fork.sharing.remote import check_key
from smart_fork.text.snippets import printable

PROTOCOL = 1
#: The header in which both sides say it.
PROTOCOL_HEADER = "Smart-Fork-Protocol"
#: The most sessions on a page, segments of a session, and vectors in one push.
PAGE, SEGMENTS, VECTORS = 100, 200_000, 20_000
_QUESTION = 10_000
#: Of what somebody gave and was wrong, how much an error repeats.
_SHOWN = 200


def _key(text: str) -> str:
    try:
        return check_key(text)
    except Usage as error:
        raise ValueError(error.message) from error


def _shown(text: str) -> str:
    return " ".join(printable(text).split())


def _named(text: str) -> str:
    if not (name := _shown(text)):
        raise ValueError("no record is readable")
    return name


def _summary(text: str) -> str:
    return "\n".join(map(_shown, text.splitlines()))


def _decoded(value: object) -> object:
    return binascii.a2b_base64(value, strict_mode=True) if isinstance(value, str) else value


def _encoded(value: bytes) -> str:
    return binascii.b2a_base64(value, newline=False).decode()


#: Bytes, which travel as text.
Base64 = Annotated[bytes, BeforeValidator(_decoded), PlainSerializer(_encoded, when_used="json")]
#: Anything that a person reads: what would act on a terminal is taken out.
Text = Annotated[str, StringConstraints(max_length=TEXT), AfterValidator(_shown)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=TEXT), AfterValidator(_named)]
Summary = Annotated[str, StringConstraints(max_length=SUMMARY), AfterValidator(_summary)]
Tags = Annotated[tuple[Name, ...], Field(max_length=TAGS)]
User = Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]{1,32}$")]
AgentName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,31}$")]
SessionId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")]
#: `sharing.digest.written`, and `sharing.segments.Place.digest`.
Digest = Annotated[str, StringConstraints(pattern=r"^sf1:[0-9a-f]{64}$")]
SegmentDigest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
ProjectKey = Annotated[str, StringConstraints(max_length=TEXT), AfterValidator(_key)]
Fingerprint = Annotated[str, StringConstraints(pattern=r"^[!-~]{1,200}$")]
Count = Annotated[int, Field(ge=0, le=1 << 40)]
Position = Annotated[int, Field(ge=0, le=SEGMENTS)]
Bookmark = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_=.-]{1,400}$")]
Visibility = Literal["private", "public"]
Role = Literal["reader", "writer", "maintainer"]


class Message(BaseModel):
    """What all have in common."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


M = TypeVar("M", bound=Message)


def made(model: type[M], **values: Any) -> M:
    """A message of what a person has given.

    Raises:
        Usage: it cannot be sent.
    """
    try:
        return model(**values)
    except ValidationError as error:
        raise refused(error) from None


def refused(error: ValidationError) -> Usage:
    """In a sentence of ours what is wrong with a message."""
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


class LimitsSaid(Message):
    """What the server takes: see `sharing.limits.Limits`."""

    record_bytes: Count
    depth: Count
    session_bytes: Count
    session_records: Count
    ratio: Count


class Hello(Message):
    """``GET hello``: what the server is. `spaces` are the fingerprints of the vectors that it searches."""

    protocol: Count
    version: Text
    limits: LimitsSaid
    spaces: tuple[Fingerprint, ...] = ()


Token = Annotated[str, StringConstraints(pattern=r"^sft_[A-Za-z0-9_-]{20,100}$")]


class Login(Message):
    """``POST login``: an invitation, good once, and what the machine is called.

    The `token` that it is to have is made there and kept before it is asked for: with the same one the same invitation
    is good again, for an answer may be lost. Without one the server makes it.
    """

    invite: Annotated[str, StringConstraints(pattern=r"^sfi_[A-Za-z0-9_-]{20,100}$")]
    machine: Name
    token: Token | None = None


class Administer(Message):
    """``POST admin``: what an admin wants of the people, their tokens, and of work in the background."""

    verb: Literal["add", "invite", "users", "disable", "enable", "member", "tokens", "revoke", "jobs", "retry"]
    name: Annotated[str, StringConstraints(max_length=100)] = ""
    admin: bool = False
    project: Annotated[str, StringConstraints(max_length=200)] = ""
    role: Literal["reader", "writer", "maintainer", "none"] = "none"
    make: bool = False
    token: Annotated[int, Field(ge=0, lt=1 << 63)] = 0


class Administered(Message):
    """What that has led to: what is told of each verb is its own."""

    told: dict[str, Any]


class LoggedIn(Message):
    """The token of this machine; the server keeps its hash alone."""

    user: User
    token: Token
    scope: Literal["read", "write", "admin"]
    expires_at: AwareDatetime | None = None


class Failure(Message):
    """The answer to anything that was not done. `count` and `digest` are the remote's, where it has advanced (409)."""

    error: Annotated[str, StringConstraints(pattern=r"^[a-z_]{1,40}$")]
    message: Text
    hint: Text = ""
    count: Count | None = None
    digest: Digest | None = None
    used: Count | None = None
    limit: Count | None = None


class Meta(Message):
    """What a session's own agent says of it."""

    branch: Text = ""
    model: Text = ""
    turns: Count = 0
    tokens: Count = 0
    begun: AwareDatetime | None = None
    last_activity: AwareDatetime | None = None


class SessionInfo(Message):
    """A session, as far as it is shown without its records."""

    id: SessionId
    project: ProjectKey
    owner: User
    agent: AgentName
    root_id: SessionId
    parent_id: SessionId | None
    base_count: Count
    base_digest: Digest
    head_digest: Digest
    record_count: Count
    revision: Count
    visibility: Visibility
    title: Text = ""
    tags: Tags = ()
    summary: Summary = ""
    meta: Meta = Meta()
    bytes: Count = 0


class SegmentPlace(Message):
    """Where a segment stands in a session, and what the chain was before it."""

    position: Position
    digest: SegmentDigest
    first_record: Count
    records: Annotated[int, Field(ge=1, le=512)]
    raw_bytes: Count
    chain_start: Digest


class SessionRead(Message):
    """``GET sessions/{id}``: a session and where its segments are."""

    session: SessionInfo
    segments: Annotated[tuple[SegmentPlace, ...], Field(max_length=SEGMENTS)]


class SessionChange(Message):
    """``PATCH sessions/{id}``: what is not named stays."""

    visibility: Visibility | None = None
    title: Text | None = None
    tags: Tags | None = None
    summary: Summary | None = None


class SessionPage(Message):
    """``GET projects/{p}/sessions``: newest first."""

    sessions: Annotated[tuple[SessionInfo, ...], Field(max_length=PAGE)]
    next_page: Bookmark | None = None


class Have(Message):
    """``POST projects/{p}/have``: which of these segments need not be sent."""

    segments: Annotated[tuple[SegmentDigest, ...], Field(max_length=10_000)]


class HaveAnswer(Message):
    """Those that the asker may read anyway."""

    present: tuple[SegmentDigest, ...]


class SegmentBody(Message):
    """A segment that rides in the commit."""

    digest: SegmentDigest
    body: Base64


class Vector(Message):
    """The vector of a chunk that the server makes itself: of its hash, as 16-bit floats."""

    chunk: SegmentDigest
    e: Base64


class Vectors(Message):
    """Vectors of one space."""

    space: Fingerprint
    vectors: Annotated[tuple[Vector, ...], Field(max_length=VECTORS)]


class Push(Message):
    """``POST projects/{p}/push``: a session as it shall be, if it is as it was seen.

    `segments` are those from the first on that is new or replaces the open last one. `agent` and what describes the
    session count where it is new; later they are changed by name. `vectors` are of passages as the server will make
    them, as far as the pusher has them; the others are made there.
    """

    id: SessionId
    agent: AgentName
    base_count: Count
    base_digest: Digest
    count: Count
    digest: Digest
    segments: Annotated[tuple[SegmentPlace, ...], Field(max_length=SEGMENTS)]
    bodies: tuple[SegmentBody, ...] = ()
    visibility: Visibility | None = None
    title: Text | None = None
    tags: Tags | None = None
    summary: Summary | None = None
    meta: Meta = Meta()
    vectors: Vectors | None = None

    @model_validator(mode="after")
    def _grows(self) -> Self:
        """Nothing is taken away by a push, and segments follow each other without a gap."""
        if self.count < self.base_count:
            raise ValueError("a push cannot remove records")
        for before, after in pairwise(self.segments):
            if (after.position, after.first_record) != (before.position + 1, before.first_record + before.records):
                raise ValueError("segments do not follow each other")
        if self.segments and self.segments[-1].first_record + self.segments[-1].records != self.count:
            raise ValueError("the segments do not end where the session does")
        return self


class Pushed(Message):
    """A push that was done. `created` is false where the session was there, `up_to_date` where it said all that."""

    session: SessionInfo
    created: bool
    up_to_date: bool
    vectors_dropped: bool = False


class Branch(Message):
    """``POST projects/{p}/branches``: a new session of one's own with the first `count` records of another.

    `verb` decides whose it may be: one's own for ``branch``, somebody else's public one for ``fork``.
    """

    verb: Literal["branch", "fork"]
    id: SessionId
    source_id: SessionId
    count: Count | None = None
    visibility: Visibility | None = None
    title: Text | None = None
    tags: Tags | None = None
    summary: Summary | None = None
    force: bool = False


class Edit(Message):
    """A record that is replaced, or with nothing in its place taken out; both by SHA-256 of its canonical bytes."""

    old: SegmentDigest
    new: SegmentDigest | None = None


class Rewrite(Message):
    """``POST sessions/{id}/rewrites``: what is withdrawn, and the records that take its place.

    What describes the session is replaced as well where it is given, also in what was made of it and says the same.
    """

    kind: Literal["cut", "mask"]
    revision: Count
    edits: Annotated[tuple[Edit, ...], Field(min_length=1, max_length=SEGMENTS)]
    records: tuple[Base64, ...] = ()
    title: Text | None = None
    tags: Tags | None = None
    summary: Summary | None = None


class Rewritten(Message):
    """The session as it is after a rewrite, and how many others were changed with it."""

    session: SessionInfo
    descendants: Count


class Change(Message):
    """Something that was withdrawn of a session; ``delete`` says that all that was its own was."""

    session_id: SessionId
    project: ProjectKey
    revision: Count
    kind: Literal["cut", "mask", "delete"]
    edits: tuple[Edit, ...] = ()


class Changes(Message):
    """``GET changes?since=``: what was withdrawn since, of what one has pulled or forked."""

    changes: tuple[Change, ...]
    next_page: Bookmark


class Search(Message):
    """``POST projects/{p}/search``: a question in its phrasings, and the vectors of those that are compared by meaning.

    These are 16-bit floats, in the order of `smart_fork.retrieval.found.Query.meanings`; vectors of another space than
    the server's are not looked at, and without any it makes them itself. `without` are sessions that are not told.
    """

    question: Annotated[str, StringConstraints(min_length=1, max_length=_QUESTION)]
    also: Annotated[tuple[Annotated[str, StringConstraints(max_length=SUMMARY)], ...], Field(max_length=8)] = ()
    space: Fingerprint | None = None
    e: Annotated[tuple[Base64, ...], Field(max_length=9)] = ()
    limit: Annotated[int, Field(ge=1, le=PAGE)] = 10
    without: Annotated[tuple[SessionId, ...], Field(max_length=1_000)] = ()
    include_automated: bool = False


Share = Annotated[float, Field(ge=0, le=1)]


class Speaking(Message):
    """What speaks for a session in one phrasing: see `smart_fork.retrieval.ranking.Parts`."""

    session_words: Share
    passage_words: Share
    title: Share
    work: Share = 0.0
    nearest: Share
    whole: Annotated[float, Field(ge=-1, le=1)]


class Passage(Message):
    """The passage that answers best: its text, where it stands, and what a fork at the end of its exchange loads."""

    text: Annotated[str, StringConstraints(max_length=_QUESTION)]
    turn: Count
    message_id: Text
    role: Literal["user", "assistant", "action"]
    exchange: Count
    ends: Count | None
    tokens: Count
    similarity: Annotated[float, Field(ge=-1, le=1)] | None = None


class Hit(Message):
    """A session that was found and what speaks for it, by meaning as well where it is `similar`.

    `family` is what its reader calls its beginning: that of a copy here is the same.
    """

    session: SessionInfo
    family: Text
    speaking: Annotated[tuple[Speaking, ...], Field(min_length=1, max_length=9)]
    similar: bool
    passage: Passage | None = None
    outcome: Text = ""
    turns: Count = 0
    tokens: Count = 0
    started: Text = ""
    last_activity: Text = ""


class Found(Message):
    """What a search gave, the best of each family. `embedded` is whether by meaning as well; `by_words_only` counts
    sessions that have no vectors to be compared with.
    """

    hits: Annotated[tuple[Hit, ...], Field(max_length=PAGE)]
    embedded: bool
    sessions: Count
    by_words_only: Count = 0


class AuditLine(Message):
    """Who did what, and when."""

    at: AwareDatetime
    actor: User
    verb: Annotated[str, StringConstraints(pattern=r"^[a-z_]{1,40}$")]
    project: ProjectKey | None = None
    session_id: SessionId | None = None
    details: dict[str, Any] = {}


class Audit(Message):
    """``GET audit``."""

    lines: Annotated[tuple[AuditLine, ...], Field(max_length=1_000)]
    next_page: Bookmark | None = None
