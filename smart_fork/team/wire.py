"""The messages between client and server, in version 1 of the protocol. Unknown names are refused.

The import takes 0.1 s because of pydantic, so only clients of a server, and servers, import it.
"""

from __future__ import annotations

import binascii
from itertools import pairwise
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic.types import AwareDatetime

from smart_fork.errors import Usage
from smart_fork.sharing import fields, limits
from smart_fork.sharing.remote import check_key
from smart_fork.team.segments import Place

PROTOCOL = 1
#: The header in which both sides name their version.
PROTOCOL_HEADER = "Smart-Fork-Protocol"
#: The most sessions on a page, segments of a session, and vectors in one push.
PAGE, SEGMENTS, VECTORS = 100, 200_000, 20_000
_QUESTION = 10_000
#: What both sides say of whose a session is, and the hint for all that cannot be had.
NOT_YOURS = "You don't own this session. Use smart-fork team fork."
YOURS = "You own this session. Use smart-fork team branch to create a copy."
NOT_FOUND = "Fork a teammate's session with `smart-fork team fork`. Only its owner can share a private one."


def _key(text: str) -> str:
    try:
        return check_key(text)
    except Usage as error:
        raise ValueError(error.message) from error


def _named(text: str) -> str:
    if not (name := fields.shown(text)):
        raise ValueError("no record is readable")
    return name


def _summary(text: str) -> str:
    return "\n".join(map(fields.shown, text.splitlines()))


def _decoded(value: object) -> object:
    return binascii.a2b_base64(value, strict_mode=True) if isinstance(value, str) else value


def _encoded(value: bytes) -> str:
    return binascii.b2a_base64(value, newline=False).decode()


#: Bytes, encoded as text in JSON.
Base64 = Annotated[bytes, BeforeValidator(_decoded), PlainSerializer(_encoded, when_used="json")]
Name = Annotated[str, StringConstraints(min_length=1, max_length=limits.TEXT), AfterValidator(_named)]
Summary = Annotated[str, StringConstraints(max_length=limits.SUMMARY), AfterValidator(_summary)]
Tags = Annotated[tuple[Name, ...], Field(max_length=limits.TAGS)]
User = Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]{1,32}$")]
ProjectKey = Annotated[str, StringConstraints(max_length=limits.TEXT), AfterValidator(_key)]
Fingerprint = Annotated[str, StringConstraints(pattern=r"^[!-~]{1,200}$")]
Position = Annotated[int, Field(ge=0, le=SEGMENTS)]
Bookmark = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_=.-]{1,400}$")]
Visibility = Literal["private", "public"]


M = TypeVar("M", bound=fields.Message)


def made(model: type[M], **values: Any) -> M:
    """Make a message of a person's input.

    Raises:
        Usage: A value is not valid.
    """
    try:
        return model(**values)
    except ValidationError as error:
        raise fields.refused(error) from None


class Hello(fields.Message):
    """``GET hello``: the server's version."""

    protocol: fields.Count
    version: fields.Text


Token = Annotated[str, StringConstraints(pattern=r"^sft_[A-Za-z0-9_-]{20,100}$")]


class Login(fields.Message):
    """``POST login``: a single-use invitation, and the machine's name.

    The client makes and stores the `token` before it asks: an answer can be lost, and the same token makes the same
    invitation valid again. Without a token, the server makes one.
    """

    invite: Annotated[str, StringConstraints(pattern=r"^sfi_[A-Za-z0-9_-]{20,100}$")]
    machine: Name
    token: Token | None = None


class Administer(fields.Message):
    """``POST admin``: an administrator's request about people, tokens, or background jobs."""

    verb: Literal["add", "invite", "users", "disable", "enable", "member", "tokens", "revoke", "jobs", "retry"]
    name: Annotated[str, StringConstraints(max_length=100)] = ""
    admin: bool = False
    project: Annotated[str, StringConstraints(max_length=200)] = ""
    role: Literal["reader", "writer", "maintainer", "none"] = "none"
    make: bool = False
    token: Annotated[int, Field(ge=0, lt=1 << 63)] = 0


class Administered(fields.Message):
    """The result of such a request. Each verb has its own fields."""

    told: dict[str, Any]


class LoggedIn(fields.Message):
    """The token of a machine. The server stores only its hash."""

    user: User
    token: Token
    scope: Literal["read", "write", "admin"]
    expires_at: AwareDatetime | None = None


class Failure(fields.Message):
    """An error. If the remote has advanced (409), `count` and `digest` are the remote's."""

    error: Annotated[str, StringConstraints(pattern=r"^[a-z_]{1,40}$")]
    message: fields.Text
    hint: fields.Text = ""
    count: fields.Count | None = None
    digest: fields.Digest | None = None
    used: fields.Count | None = None
    limit: fields.Count | None = None


class Meta(fields.Message):
    """Facts about a session from its log."""

    branch: fields.Text = ""
    model: fields.Text = ""
    turns: fields.Count = 0
    tokens: fields.Count = 0
    begun: AwareDatetime | None = None
    last_activity: AwareDatetime | None = None


class SessionInfo(fields.Message):
    """A session without its records."""

    id: fields.SessionId
    project: ProjectKey
    owner: User
    agent: fields.AgentName
    root_id: fields.SessionId
    parent_id: fields.SessionId | None
    base_count: fields.Count
    base_digest: fields.Digest
    head_digest: fields.Digest
    record_count: fields.Count
    revision: fields.Count
    visibility: Visibility
    title: fields.Text = ""
    tags: Tags = ()
    summary: Summary = ""
    meta: Meta = Meta()
    bytes: fields.Count = 0


class SessionRead(fields.Message):
    """``GET sessions/{id}``: a session and the positions of its segments."""

    session: SessionInfo
    segments: Annotated[tuple[Place, ...], Field(max_length=SEGMENTS)]


class Words(fields.Message):
    """Editable description of a session. A field without a value changes nothing."""

    title: fields.Text | None = None
    tags: Tags | None = None
    summary: Summary | None = None


class SessionChange(Words):
    """``PATCH sessions/{id}``: fields without a value do not change."""

    visibility: Visibility | None = None


class SessionPage(fields.Message):
    """``GET projects/{p}/sessions``: newest first."""

    sessions: Annotated[tuple[SessionInfo, ...], Field(max_length=PAGE)]
    next_page: Bookmark | None = None


class Have(fields.Message):
    """``POST projects/{p}/have``: asks which of these segments need not be sent."""

    segments: Annotated[tuple[fields.SegmentDigest, ...], Field(max_length=10_000)]


class HaveAnswer(fields.Message):
    """The present segments that the client may read."""

    present: tuple[fields.SegmentDigest, ...]


class SegmentBody(fields.Message):
    """A segment inside a push."""

    digest: fields.SegmentDigest
    body: Base64


class Vector(fields.Message):
    """A chunk's vector in 16-bit floats. The server makes the chunk itself, and matches it by hash."""

    chunk: fields.SegmentDigest
    e: Base64


class Vectors(fields.Message):
    """Vectors of one space."""

    space: Fingerprint
    vectors: Annotated[tuple[Vector, ...], Field(max_length=VECTORS)]


class Push(SessionChange):
    """``POST projects/{p}/push``: a session's new state, valid only if the server has the expected old state.

    `segments` begin at `position`, with the first that is new or replaces the open last one. `agent` and the
    description count only for a new session; later requests change them by name. `vectors` are those that the client
    has, of passages as the server will make them. The server makes the others.
    """

    id: fields.SessionId
    agent: fields.AgentName
    base_count: fields.Count
    base_digest: fields.Digest
    count: fields.Count
    digest: fields.Digest
    position: Position = 0
    segments: Annotated[tuple[Place, ...], Field(max_length=SEGMENTS)]
    bodies: tuple[SegmentBody, ...] = ()
    meta: Meta = Meta()
    vectors: Vectors | None = None

    @model_validator(mode="after")
    def _grows(self) -> Self:
        """Check that a push removes nothing, and that segments follow each other without a gap."""
        if self.count < self.base_count:
            raise ValueError("a push cannot remove records")
        for before, after in pairwise(self.segments):
            if after.first_record != before.end:
                raise ValueError("segments do not follow each other")
        if self.segments and self.segments[-1].end != self.count:
            raise ValueError("the segments do not end where the session does")
        return self


class Pushed(fields.Message):
    """A completed push. `created` is false for an existing session, `up_to_date` true if nothing was new."""

    session: SessionInfo
    created: bool
    up_to_date: bool


class Branch(SessionChange):
    """``POST projects/{p}/branches``: a new session of the caller with the first `count` records of another.

    ``branch`` takes one of the caller's own sessions, ``fork`` another person's public one.
    """

    verb: Literal["branch", "fork"]
    id: fields.SessionId
    source_id: fields.SessionId
    count: fields.Count | None = None
    force: bool = False


class Edit(fields.Message):
    """A record to replace, or to remove if `new` is missing. Both are SHA-256 hashes of canonical bytes."""

    old: fields.SegmentDigest
    new: fields.SegmentDigest | None = None


class Rewrite(Words):
    """``POST sessions/{id}/rewrites``: the withdrawn records, and their replacements.

    A given title, summary or tags also replace equal ones in sessions made from this one.
    """

    kind: Literal["cut", "mask"]
    revision: fields.Count
    edits: Annotated[tuple[Edit, ...], Field(min_length=1, max_length=SEGMENTS)]
    records: tuple[Base64, ...] = ()


class Rewritten(fields.Message):
    """The session after a rewrite, and the number of other sessions that changed with it."""

    session: SessionInfo
    descendants: fields.Count


class Change(fields.Message):
    """A withdrawal from a session; with ``delete``, of all its own records."""

    session_id: fields.SessionId
    project: ProjectKey
    revision: fields.Count
    kind: Literal["cut", "mask", "delete"]
    edits: tuple[Edit, ...] = ()


class Changes(fields.Message):
    """``GET changes?since=``: withdrawals since then from sessions that the caller has pulled or forked."""

    changes: tuple[Change, ...]
    next_page: Bookmark


class Search(fields.Message):
    """``POST projects/{p}/search``: a question in several phrasings, with vectors of those to compare by meaning.

    Vectors are 16-bit floats, in the order of `smart_fork.finding.query.Query.meanings`. The server ignores vectors
    of another space, and makes its own if there are none.
    """

    question: Annotated[str, StringConstraints(min_length=1, max_length=_QUESTION)]
    also: Annotated[tuple[Annotated[str, StringConstraints(max_length=limits.SUMMARY)], ...], Field(max_length=8)] = ()
    space: Fingerprint | None = None
    e: Annotated[tuple[Base64, ...], Field(max_length=9)] = ()
    limit: Annotated[int, Field(ge=1, le=PAGE)] = 10


Share = Annotated[float, Field(ge=0, le=1)]


class Speaking(fields.Message):
    """The evidence for a session in one phrasing: see `smart_fork.finding.ranking.Parts`."""

    session_words: Share
    passage_words: Share
    title: Share
    work: Share = 0.0
    nearest: Share
    whole: Annotated[float, Field(ge=-1, le=1)]


class Passage(fields.Message):
    """The best passage: its text, its position, and the tokens that a fork after its exchange loads."""

    text: Annotated[str, StringConstraints(max_length=_QUESTION)]
    turn: fields.Count
    message_id: fields.Text
    role: Literal["user", "assistant", "action"]
    exchange: fields.Count
    ends: fields.Count | None
    tokens: fields.Count
    similarity: Annotated[float, Field(ge=-1, le=1)] | None = None


class Hit(fields.Message):
    """A found session with its evidence, also by meaning if `similar` is set.

    `family` is the id of its beginning, the same as that of a copy here.
    """

    session: SessionInfo
    family: fields.Text
    speaking: Annotated[tuple[Speaking, ...], Field(min_length=1, max_length=9)]
    similar: bool
    passage: Passage | None = None
    outcome: fields.Text = ""
    turns: fields.Count = 0
    tokens: fields.Count = 0
    started: fields.Text = ""
    last_activity: fields.Text = ""


class Found(fields.Message):
    """The best result of each family. `embedded` tells if the search was also by meaning; `by_words_only` counts the
    sessions without comparable vectors.
    """

    hits: Annotated[tuple[Hit, ...], Field(max_length=PAGE)]
    embedded: bool
    sessions: fields.Count
    by_words_only: fields.Count = 0


class AuditLine(fields.Message):
    """An entry of the audit log: person, action and time."""

    at: AwareDatetime
    actor: User
    verb: Annotated[str, StringConstraints(pattern=r"^[a-z_]{1,40}$")]
    project: ProjectKey | None = None
    session_id: fields.SessionId | None = None
    details: dict[str, Any] = Field(default_factory=dict)


class Audit(fields.Message):
    """``GET audit``."""

    lines: Annotated[tuple[AuditLine, ...], Field(max_length=1_000)]
    next_page: Bookmark | None = None
