"""A record in the form that is the same on every machine, and back.

Whose record it is, is no part of it: its session's id and its place in the log are taken away, and made again where it
is written. The project's root and the home of whoever wrote it become two characters of private use.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import orjson

from indexer.transcripts.model import Session
from smart_fork.agents.codec import Codec
from smart_fork.cuts.ties import is_tie

Record = dict[str, Any]
#: In the place of the project's root, and of the home; the third stands before one that somebody wrote.
ROOT, HOME, LITERAL = "\ue0f0", "\ue0f1", "\ue0f2"
_MARKS = f"[{ROOT}{HOME}{LITERAL}]"
_MARKED = re.compile(f"{LITERAL}({_MARKS})|{ROOT}|{HOME}")
#: A path begins after what no name has in it, also after an address's scheme, a line's end as JSON writes it, or what
#: a diff has before each of its two names.
_BEGINS = r"(?:(?<=://)|(?<=\\[bfnrt])|(?<= [ab])|(?<![\w.~%+@/\\-]))"
#: And ends before what would make another name of it. The dot of a sentence does not.
_ENDS = r"(?![\w~%+@-]|\.+[\w~%+@-])"
#: Deeper than any record is.
_DEPTH = 64


class HomePlace(NamedTuple):
    """Where a session works: the project's root, and the home of whose it is, without a slash at their ends."""

    root: str
    home: str


class Identity(NamedTuple):
    """Whose a record is on this machine: where it was written, and the fields that are no part of it."""

    place: HomePlace
    fields: Mapping[str, Any]


class Becomes(NamedTuple):
    """The session that records are written as. `forked_from` is the id of another one that they are of."""

    session_id: str
    place: HomePlace
    forked_from: str = ""


class Utterance(NamedTuple):
    """Something that was said, as a log of any agent can have it. `moment` is ISO 8601, or empty."""

    user: bool
    text: str
    moment: str = ""


class Image(NamedTuple):
    """An image, or a document of another kind than text: what it is, how many bytes it has, and how what is said in
    its place is written.
    """

    kind: str
    size: int
    instead: Callable[[str], Any]


class Teller(ABC):
    """How one agent is told of a session that another one had."""

    @abstractmethod
    def log_of(self, said: Iterable[Utterance], becomes: Becomes) -> Iterator[Record]:
        """The log of a new session in which that was said, and nothing done."""


class Forms(Codec, Teller):
    """One agent's records as they are shared."""

    #: The fields of a record that say whose it is.
    taken: ClassVar[frozenset[str]]
    #: The fields that hold what tools were given and gave back: in them no name says what a value is.
    free: ClassVar[frozenset[str]]

    @abstractmethod
    def records_of(self, session: Session, end: int | None = None) -> Iterator[Record]:
        """The records of the whole conversation in its order, up to turn `end`, as they are in the log.

        Not among them are sub-agents, what was rewound, and records about the session itself.

        Raises:
            NotFound: a session that this one was forked from is gone.
            ForkRefused: the log was rewritten meanwhile.
        """

    def in_line(
        self, records: Iterable[Record], becomes: Becomes, is_root: Callable[[Record], bool] = lambda _: False
    ) -> Iterator[Record]:
        """Write records as one line of parents. A root has none, and says after which record it was."""
        parent: str | None = None
        for record in records:
            fields: dict[str, Any] = {"parentUuid": parent, "sessionId": becomes.session_id}
            if is_root(record):
                fields |= {"parentUuid": None, "logicalParentUuid": parent}
            identity = record.get("uuid")
            if becomes.forked_from:
                fields["forkedFrom"] = {"sessionId": becomes.forked_from, "messageUuid": identity}
            yield self.incoming(record, Identity(becomes.place, fields))
            parent = identity if isinstance(identity, str) else parent

    @abstractmethod
    def anew(self, records: Iterable[Record], becomes: Becomes) -> Iterator[Record]:
        """The log of a new session that has these records, which are in the form of `outgoing`."""

    def ids(self, record: Record) -> Iterator[str]:
        """The ids of what it says; none where its place alone tells it from others."""
        if isinstance(identity := record.get("uuid"), str):
            yield identity

    @abstractmethod
    def sent(self, record: Record) -> Record | None:
        """What of it is shared, from a list of what may be; `None` where nothing is. Doing it again changes nothing."""

    @abstractmethod
    def withheld(self, record: Record, ids: Collection[str], mark: str) -> Record:
        """The record with `mark` in the place of what the calls of these ids were given, and gave back."""

    @abstractmethod
    def image(self, value: Record) -> Image | None:
        """The image that an object in a record is, if it is one."""

    @abstractmethod
    def without_thoughts(self, record: Record, of: Callable[[Record], bool]) -> Record | None:
        """The record without those of its thoughts for which `of` is true; `None` where nothing is left of it."""

    def untied(self, record: Record) -> Record | None:
        """The record without what belongs to the account that it was made for, beside thoughts; `None` if all does."""
        return record

    def arrived(self, record: Record, *, others: bool) -> Record | None:
        """What of a record from elsewhere is written here: what is on the list of what is shared, whoever sent it.

        Of `others`, nothing that is signed or encrypted for their account.
        """
        kept = self.sent(record)
        if kept is None or not others:
            return kept
        kept = self.without_thoughts(kept, lambda _: True)
        return None if kept is None else self.untied(kept)

    def identity_of(self, record: Record, place: HomePlace) -> Identity:
        """What `incoming` needs to give this very record again."""
        return Identity(place, {name: record[name] for name in self.taken if name in record})

    def outgoing(self, record: Record, place: HomePlace) -> Record:
        """A record as it is shared."""
        return self._changed(record, _to_marks(place), _signs(place))

    def incoming(self, record: Record, identity: Identity) -> Record:
        """A shared record as it is written here."""
        return self._changed(record, _from_marks(identity.place), _signs(None)) | dict(identity.fields)

    def _changed(self, record: Record, change: Callable[[str], str], signs: Collection[bytes] | None) -> Record:
        """A record without what says whose it is, its paths changed. Nearly all name none but where they stand."""
        kept = {name: value for name, value in record.items() if name not in self.taken}
        where = {"cwd": change(kept["cwd"])} if isinstance(kept.get("cwd"), str) else {}
        if _names(kept | dict.fromkeys(where, ""), signs):
            return {name: self._mapped(name, value, change) for name, value in kept.items()}
        return kept | where

    def _mapped(self, name: str, value: Any, change: Callable[[str], str], depth: int = 0) -> Any:
        """A field with its paths changed, which may be names of fields as well."""
        if name == "cwd" and isinstance(value, str):
            return change(value)
        if is_tie(name, value) or depth >= _DEPTH:
            return value
        if isinstance(value, str):
            return change(value)
        if isinstance(value, list):
            return [self._mapped("", part, change, depth + 1) for part in value]
        if isinstance(value, dict) and not self._is_thought(value):
            return {change(key): self._mapped(key, part, change, depth + 1) for key, part in value.items()}
        return value


@lru_cache(8)
def _signs(place: HomePlace | None) -> Collection[bytes] | None:
    """What is in a record, as JSON writes it, where there is something to change in it; `None` if that cannot be said.

    A place is named by its paths, the marks by themselves.
    """
    try:
        return tuple(orjson.dumps(sign)[1:-1] for sign in (*filter(None, place or ()), ROOT, HOME, LITERAL))
    except orjson.JSONEncodeError:
        return None


def _names(record: Record, signs: Collection[bytes] | None) -> bool:
    """Whether there may be something to change in it."""
    if signs is None:
        return True
    try:
        data = orjson.dumps(record)
    except orjson.JSONEncodeError:
        return True
    return any(sign in data for sign in signs)


def all_texts(value: Any, mark: str, depth: int = 0) -> Any:
    """The same with `mark` in the place of every text."""
    if isinstance(value, str) or depth >= _DEPTH:
        return mark
    if isinstance(value, list):
        return [all_texts(part, mark, depth + 1) for part in value]
    if isinstance(value, dict):
        return {name: all_texts(part, mark, depth + 1) for name, part in value.items()}
    return value


@lru_cache(4)
def _to_marks(place: HomePlace) -> Callable[[str], str]:
    marks = {path: mark for path, mark in ((place.home, HOME), (place.root, ROOT)) if path.rstrip("/")}
    paths = "|".join(re.escape(path) for path in sorted(marks, key=len, reverse=True))
    found = re.compile(f"{_MARKS}|{_BEGINS}(?:{paths}){_ENDS}" if paths else _MARKS)
    signs = (*marks, ROOT, HOME, LITERAL)

    def change(text: str) -> str:
        if not any(sign in text for sign in signs):  # nearly all, and much faster than the pattern
            return text
        return found.sub(lambda match: marks.get(match[0]) or LITERAL + match[0], text)

    return change


@lru_cache(4)
def _from_marks(place: HomePlace) -> Callable[[str], str]:
    paths = {ROOT: place.root, HOME: place.home}

    def change(text: str) -> str:
        return _MARKED.sub(lambda match: match[1] or paths[match[0]], text)

    return change
