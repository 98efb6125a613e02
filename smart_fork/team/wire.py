"""The messages between client and server, in version 1 of the protocol. Unknown fields are refused.

Only modules of the team import this module, since it needs pydantic, which takes 0.1 s to import.
"""

from __future__ import annotations

import binascii
from itertools import pairwise
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import Field, ValidationError
from pydantic.functional_serializers import PlainSerializer
from pydantic.functional_validators import AfterValidator, BeforeValidator, model_validator
from pydantic.types import AwareDatetime, StringConstraints

from smart_fork.errors import Usage
from smart_fork.sharing import canonical
from smart_fork.team.segments import SegmentPlace

PROTOCOL = 1
#: The header in which both sides name their version.
PROTOCOL_HEADER = "Smart-Fork-Protocol"
#: The most sessions on a page, segments of a session, and vectors in one push.
MAX_PAGE, MAX_SEGMENTS, MAX_VECTORS = 100, 200_000, 20_000
_MAX_QUESTION = 10_000
#: Messages about the owner of a session, and the hint for something that does not exist or may not be read.
NOT_OWNER = "You don't own this session. Use smart-fork team fork."
IS_OWNER = "You own this session. Use smart-fork team branch to create a copy."
NOT_FOUND_HINT = "Fork a teammate's session with `smart-fork team fork`. Only its owner can share a private one."


def _key(text: str) -> str:
    try:
        return canonical.check_key(text)
    except Usage as error:
        raise ValueError(error.message) from error


def _named(text: str) -> str:
    if not (name := canonical.on_one_line(text)):
        raise ValueError("it has no readable character")
    return name


def _summary(text: str) -> str:
    return "\n".join(map(canonical.on_one_line, text.splitlines()))


def _decoded(value: object) -> object:
    return binascii.a2b_base64(value, strict_mode=True) if isinstance(value, str) else value


def _encoded(value: bytes) -> str:
    return binascii.b2a_base64(value, newline=False).decode()


#: Bytes, encoded as text in JSON.
Base64 = Annotated[bytes, BeforeValidator(_decoded), PlainSerializer(_encoded, when_used="json")]
Name = Annotated[str, StringConstraints(min_length=1, max_length=canonical.TEXT), AfterValidator(_named)]
Summary = Annotated[str, StringConstraints(max_length=canonical.SUMMARY), AfterValidator(_summary)]
Tags = Annotated[tuple[Name, ...], Field(max_length=canonical.TAGS)]
User = Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]{1,32}$")]
ProjectKey = Annotated[str, StringConstraints(max_length=canonical.TEXT), AfterValidator(_key)]
Fingerprint = Annotated[str, StringConstraints(pattern=r"^[!-~]{1,200}$")]
Position = Annotated[int, Field(ge=0, le=MAX_SEGMENTS)]
Bookmark = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_=.-]{1,400}$")]
Visibility = Literal["private", "public"]


M = TypeVar("M", bound=canonical.WireModel)


def valid_message(model: type[M], **values: Any) -> M:
    """Return a message of the type `model` with the given values, or raise `Usage` if one is not valid."""
    try:
        return model(**values)
    except ValidationError as error:
        raise canonical.invalid_message(error) from None


class Hello(canonical.WireModel):
    """``GET hello``: the version of the protocol that the server uses, and the server's own version."""

    protocol: canonical.Count
    version: canonical.Text


Token = Annotated[str, StringConstraints(pattern=r"^sft_[A-Za-z0-9_-]{20,100}$")]


class LoginRequest(canonical.WireModel):
    """``POST login``: an invitation, which works once, and the machine's name.

    The client stores the `token` before it sends the request. After a lost answer, it can send both again. Without a
    token, the server makes one.
    """

    invite: Annotated[str, StringConstraints(pattern=r"^sfi_[A-Za-z0-9_-]{20,100}$")]
    machine: Name
    token: Token | None = None


class Administer(canonical.WireModel):
    """``POST admin``: an administrator's request about people, tokens, or background jobs."""

    verb: Literal["add", "invite", "users", "disable", "enable", "member", "tokens", "revoke", "jobs", "retry"]
    name: Annotated[str, StringConstraints(max_length=100)] = ""
    admin: bool = False
    project: Annotated[str, StringConstraints(max_length=200)] = ""
    role: Literal["reader", "writer", "maintainer", "none"] = "none"
    make: bool = False
    token: Annotated[int, Field(ge=0, lt=1 << 63)] = 0


class Administered(canonical.WireModel):
    """The answer to an admin request. `told` has other keys for each verb of the request."""

    told: dict[str, Any]


class LoggedIn(canonical.WireModel):
    """The answer to a login: the machine's token. The server stores only its hash."""

    user: User
    token: Token
    scope: Literal["read", "write", "admin"]
    expires_at: AwareDatetime | None = None


class Failure(canonical.WireModel):
    """The body of an error answer.

    If the session has advanced (status 409), `count` and `digest` describe its records now.
    """

    error: Annotated[str, StringConstraints(pattern=r"^[a-z_]{1,40}$")]
    message: canonical.Text
    hint: canonical.Text = ""
    count: canonical.Count | None = None
    digest: canonical.Digest | None = None
    used: canonical.Count | None = None
    limit: canonical.Count | None = None


class SessionFacts(canonical.WireModel):
    """Facts about a session that its client reads from the log, such as its git branch and number of turns."""

    branch: canonical.Text = ""
    model: canonical.Text = ""
    turns: canonical.Count = 0
    tokens: canonical.Count = 0
    begun: AwareDatetime | None = None
    last_activity: AwareDatetime | None = None


class SessionInfo(canonical.WireModel):
    """The description of a session, without its records."""

    id: canonical.SessionId
    project: ProjectKey
    owner: User
    agent: canonical.AgentName
    root_id: canonical.SessionId
    parent_id: canonical.SessionId | None
    base_count: canonical.Count
    base_digest: canonical.Digest
    head_digest: canonical.Digest
    record_count: canonical.Count
    revision: canonical.Count
    visibility: Visibility
    title: canonical.Text = ""
    tags: Tags = ()
    summary: Summary = ""
    meta: SessionFacts = SessionFacts()
    bytes: canonical.Count = 0


class SessionRead(canonical.WireModel):
    """``GET sessions/{id}``: a session and the positions of its segments (compressed blocks of records)."""

    session: SessionInfo
    segments: Annotated[tuple[SegmentPlace, ...], Field(max_length=MAX_SEGMENTS)]


class EditableDescription(canonical.WireModel):
    """The editable description of a session. A request without a field does not change that field."""

    title: canonical.Text | None = None
    tags: Tags | None = None
    summary: Summary | None = None


class SessionChange(EditableDescription):
    """``PATCH sessions/{id}``: a new description or visibility of a session. Missing fields do not change."""

    visibility: Visibility | None = None


class SessionListPage(canonical.WireModel):
    """A page of ``GET projects/{p}/sessions``, newest first."""

    sessions: Annotated[tuple[SessionInfo, ...], Field(max_length=MAX_PAGE)]
    next_page: Bookmark | None = None


class Have(canonical.WireModel):
    """``POST projects/{p}/have``: asks which segments (compressed blocks of records) the server already has."""

    segments: Annotated[tuple[canonical.SegmentDigest, ...], Field(max_length=10_000)]


class HaveAnswer(canonical.WireModel):
    """The digests of the requested segments (blocks of records) that the server has and the client may read."""

    present: tuple[canonical.SegmentDigest, ...]


class SegmentBody(canonical.WireModel):
    """A segment (a compressed block of records) inside a push."""

    digest: canonical.SegmentDigest
    body: Base64


class Vector(canonical.WireModel):
    """The vector of a text passage, in 16-bit floats, for search by meaning. `chunk` is the hash of the passage.

    The passage itself is not sent: the server makes the passages from the records.
    """

    chunk: canonical.SegmentDigest
    e: Base64


class Vectors(canonical.WireModel):
    """Vectors of text passages for search by meaning. `space` names the embedding model that computed all of them."""

    space: Fingerprint
    vectors: Annotated[tuple[Vector, ...], Field(max_length=MAX_VECTORS)]


class Push(SessionChange):
    """``POST projects/{p}/push``: a session's new state, valid only if the server has the expected old state.

    `base_count` and `base_digest` describe the old state, `count` and `digest` the new one. `segments` (blocks of
    records) replace the session's segments from number `position` on: they have the new records, and before these the
    records of a last segment that had room. `agent` and the description are used only for a new session. `vectors` are
    those that the client has for text passages of the session.
    """

    id: canonical.SessionId
    agent: canonical.AgentName
    base_count: canonical.Count
    base_digest: canonical.Digest
    count: canonical.Count
    digest: canonical.Digest
    position: Position = 0
    segments: Annotated[tuple[SegmentPlace, ...], Field(max_length=MAX_SEGMENTS)]
    bodies: tuple[SegmentBody, ...] = ()
    meta: SessionFacts = SessionFacts()
    vectors: Vectors | None = None

    @model_validator(mode="after")
    def _grows(self) -> Self:
        if self.count < self.base_count:
            raise ValueError("a push cannot remove records")
        for before, after in pairwise(self.segments):
            if after.first_record != before.end:
                raise ValueError("segments do not follow each other")
        if self.segments and self.segments[-1].end != self.count:
            raise ValueError("the segments do not end where the session does")
        return self


class Pushed(canonical.WireModel):
    """The answer to a push. `created` is false for an existing session, `up_to_date` true if no record was new."""

    session: SessionInfo
    created: bool
    up_to_date: bool


class Branch(SessionChange):
    """``POST projects/{p}/branches``: create a session with the first `count` records of another session.

    The verb ``branch`` takes one of the caller's own sessions, ``fork`` another person's public session.
    """

    verb: Literal["branch", "fork"]
    id: canonical.SessionId
    source_id: canonical.SessionId
    count: canonical.Count | None = None
    force: bool = False


class RecordEdit(canonical.WireModel):
    """The replacement of a record, or its removal without `new`. Both are SHA-256 hashes of canonical records."""

    old: canonical.SegmentDigest
    new: canonical.SegmentDigest | None = None


class Rewrite(EditableDescription):
    """``POST sessions/{id}/rewrites``: records to withdraw (remove), and the replacements of some.

    A title, summary or tags replace the session's own, and equal ones in sessions made from it.
    """

    kind: Literal["cut", "mask"]
    revision: canonical.Count
    edits: Annotated[tuple[RecordEdit, ...], Field(min_length=1, max_length=MAX_SEGMENTS)]
    records: tuple[Base64, ...] = ()


class Rewritten(canonical.WireModel):
    """The answer to a withdrawal: the changed session, and the number of sessions made from it that changed too."""

    session: SessionInfo
    descendants: canonical.Count


class WithdrawnRecords(canonical.WireModel):
    """A withdrawal: records that an owner removed from a session, or replaced.

    The kind ``delete`` means that the owner removed all of the session's own records.
    """

    session_id: canonical.SessionId
    project: ProjectKey
    revision: canonical.Count
    kind: Literal["cut", "mask", "delete"]
    edits: tuple[RecordEdit, ...] = ()


class WithdrawnPage(canonical.WireModel):
    """``GET changes?since=``: withdrawals (removals of records by their owners) after the bookmark `since`.

    They are from the caller's own sessions, and from sessions that the caller pulled or forked.
    """

    changes: tuple[WithdrawnRecords, ...]
    next_page: Bookmark


class Search(canonical.WireModel):
    """``POST projects/{p}/search``: a question in one or more phrasings, with vectors of these to search by meaning.

    Vectors are 16-bit floats, in the order of `smart_fork.finding.query.Query.meanings`. If they are missing or come
    from another model, the server computes its own.
    """

    question: Annotated[str, StringConstraints(min_length=1, max_length=_MAX_QUESTION)]
    also: Annotated[
        tuple[Annotated[str, StringConstraints(max_length=canonical.SUMMARY)], ...], Field(max_length=8)
    ] = ()
    space: Fingerprint | None = None
    e: Annotated[tuple[Base64, ...], Field(max_length=9)] = ()
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 10


Share = Annotated[float, Field(ge=0, le=1)]


class PhrasingEvidence(canonical.WireModel):
    """The evidence that a session answers one phrasing of the question: see `smart_fork.finding.ranking.Parts`."""

    session_words: Share
    passage_words: Share
    title: Share
    work: Share = 0.0
    nearest: Share
    whole: Annotated[float, Field(ge=-1, le=1)]


class SearchPassage(canonical.WireModel):
    """The best passage of a found session, and the number of tokens that a fork after it would load."""

    text: Annotated[str, StringConstraints(max_length=_MAX_QUESTION)]
    turn: canonical.Count
    message_id: canonical.Text
    role: Literal["user", "assistant", "action"]
    exchange: canonical.Count
    ends: canonical.Count | None
    tokens: canonical.Count
    similarity: Annotated[float, Field(ge=-1, le=1)] | None = None


class SearchHit(canonical.WireModel):
    """A session that the search found, with the evidence for it. `similar` is true if it was also found by meaning.

    `family` is the id of the session's first ancestor, from which local copies of the session are recognized.
    """

    session: SessionInfo
    family: canonical.Text
    speaking: Annotated[tuple[PhrasingEvidence, ...], Field(min_length=1, max_length=9)]
    similar: bool
    passage: SearchPassage | None = None
    outcome: canonical.Text = ""
    turns: canonical.Count = 0
    tokens: canonical.Count = 0
    started: canonical.Text = ""
    last_activity: canonical.Text = ""


class SearchAnswer(canonical.WireModel):
    """The answer to a search: the best session of each family (a session and its forks).

    `embedded` is true if the search also compared meanings. `sessions` is the number of searched sessions, and
    `by_words_only` the number of those without vectors, which can be found only by words.
    """

    hits: Annotated[tuple[SearchHit, ...], Field(max_length=MAX_PAGE)]
    embedded: bool
    sessions: canonical.Count
    by_words_only: canonical.Count = 0


class AuditLine(canonical.WireModel):
    """An entry of the audit log: who did what, when, and to which session."""

    at: AwareDatetime
    actor: User
    verb: Annotated[str, StringConstraints(pattern=r"^[a-z_]{1,40}$")]
    project: ProjectKey | None = None
    session_id: canonical.SessionId | None = None
    details: dict[str, Any] = Field(default_factory=dict)


class Audit(canonical.WireModel):
    """A page of ``GET audit``, the log of who pushed, pulled, forked and withdrew what."""

    lines: Annotated[tuple[AuditLine, ...], Field(max_length=1_000)]
    next_page: Bookmark | None = None
