"""Conversion of an agent's records to a form that is the same on every machine, to share them, and back.

A session's id and a record's place in the log are removed, and added again when the record is written into a log.
Two private-use characters replace the paths of the project's root and the owner's home.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import orjson

from indexer.transcripts.model import Session
from smart_fork.agents.decoders import Codec, Record, only
from smart_fork.agents.excision.transcript import MAX_DEPTH, PATH_FIELDS, is_fixed_field

#: Replacements of the project's root and the home. The third escapes these characters in a person's text.
ROOT, HOME, LITERAL = "\ue0f0", "\ue0f1", "\ue0f2"
_MARKS = f"[{ROOT}{HOME}{LITERAL}]"
_MARKED = re.compile(f"{LITERAL}({_MARKS})|{ROOT}|{HOME}")
#: A path begins after a character that no name contains, after an address's scheme, after JSON's escape of a line end,
#: or after a diff's prefix of a name.
_BEGINS = r"(?:(?<=://)|(?<=\\[bfnrt])|(?<= [ab])|(?<![\w.~%+@/\\-]))"
#: It ends before any character that would make another name of it. The full stop of a sentence would not.
_ENDS = r"(?![\w~%+@-]|\.+[\w~%+@-])"


NO_FIELDS: Record = {}


class HomePlace(NamedTuple):
    """A project's root and the home of the session's owner, as paths without a final slash."""

    root: str
    home: str

    @classmethod
    def of(cls, root: Path) -> HomePlace:
        """Return the place of a project in the home of the current user."""
        return cls(str(root).rstrip("/"), str(Path.home()).rstrip("/"))

    def shortened(self, text: str) -> str:
        """Return a text for people, with "." instead of the root's path and "~" instead of the home's."""
        return self.readable(_to_marks(self)(text)).replace(LITERAL, "")

    @staticmethod
    def readable(shared: str) -> str:
        """Return a shared text with "." and "~" instead of the marks for root and home."""
        return shared.replace(ROOT, ".").replace(HOME, "~")


class TargetSession(NamedTuple):
    """The session that converted records are written into. `forked_from` is their former session, if forked."""

    session_id: str
    place: HomePlace
    forked_from: str = ""


class Utterance(NamedTuple):
    """A message for the log of any agent. `moment` is an ISO 8601 time, or empty."""

    user: bool
    text: str
    moment: str = ""


class Image(NamedTuple):
    """An image or other document in a record: its kind and its size in bytes.

    `instead(note)` returns the object that says `note` in place of the image.
    """

    kind: str
    size: int
    instead: Callable[[str], Any]


class Converter(Codec):
    """Converts one agent's records for sharing with teammates, and writes other agents' sessions in its format."""

    #: The fields of a record that identify its session and place.
    taken: ClassVar[frozenset[str]]
    #: The field with a record's id.
    identity: ClassVar[str] = "uuid"
    #: The fields with tools' inputs and outputs, in which names of fields have no fixed meaning.
    free: ClassVar[frozenset[str]]

    @abstractmethod
    def records_of(self, session: Session, end: int | None = None) -> Iterator[Record]:
        """Yield the unchanged records of the conversation up to turn `end`.

        Left out are sub-agents' records, turns that a rewind removed, and records about the session itself.

        Raises:
            NotFound: A session that this one was forked from is gone.
            ForkRefused: The log was rewritten during reading.
        """

    def names_another(self, log: bytes) -> bool:
        """Return True if a received log says that it continues another, which reading it would open on this machine."""
        return False

    def in_line(
        self, records: Iterable[Record], becomes: TargetSession, is_root: Callable[[Record], bool] = lambda _: False
    ) -> Iterator[Record]:
        """Yield the records of the session `becomes` as one chain: each names the one before it in ``parentUuid``.

        A record for which `is_root` is True, such as a compaction, names it in ``logicalParentUuid`` instead.
        """
        parent: str | None = None
        for record in records:
            fields: dict[str, Any] = {"parentUuid": parent, "sessionId": becomes.session_id}
            if is_root(record):
                fields |= {"parentUuid": None, "logicalParentUuid": parent}
            identity = record.get("uuid")
            if becomes.forked_from:
                fields["forkedFrom"] = {"sessionId": becomes.forked_from, "messageUuid": identity}
            yield self.incoming(record, becomes.place, fields)
            parent = identity if isinstance(identity, str) else parent

    @abstractmethod
    def anew(self, records: Iterable[Record], becomes: TargetSession) -> Iterator[Record]:
        """Yield the records of a new session's log, made of these shared records (see `outgoing`)."""

    @abstractmethod
    def log_of(self, said: Iterable[Utterance], becomes: TargetSession) -> Iterator[Record]:
        """Yield the records of a new session's log that has these messages, and no tool calls."""

    def ids(self, record: Record) -> Iterator[str]:
        """Yield the ids in a record; none if only its position identifies the record."""
        if isinstance(identity := record.get(self.identity), str):
            yield identity

    @abstractmethod
    def sent(self, record: Record) -> Record | None:
        """Return a record with only the fields that may be shared; `None` if none may be. Idempotent."""

    @abstractmethod
    def withheld(self, record: Record, ids: Collection[str], mark: str) -> Record:
        """Return the record with `mark` instead of the inputs and outputs of the tool calls with these ids."""

    @abstractmethod
    def image(self, value: Record) -> Image | None:
        """Return the image that `value`, an object in a record, holds; `None` if it holds none."""

    def changed(self, record: Record, change: Callable[[Record], Record | None]) -> Record | None:
        """Return a record with `change(part)` instead of each part (`None` drops it); `None` if no part is left."""
        return record

    def without_thoughts(self, record: Record, of: Callable[[Record], bool]) -> Record | None:
        """Return the record without the thoughts for which `of` returns True; `None` if nothing is left."""
        return self.changed(record, lambda part: None if self._is_thought(part) and of(part) else part)

    def untied(self, record: Record) -> Record | None:
        """Return the record without account-bound data other than thoughts; `None` if nothing is left."""
        return record

    def arrived(self, record: Record, *, others: bool) -> Record | None:
        """Return a received record with only the fields that may be shared; `None` if nothing is left.

        If another person wrote it (`others`), signed and encrypted data, bound to that person's account, is dropped.
        """
        kept = self.sent(record)
        if kept is None or not others:
            return kept
        kept = self.without_thoughts(kept, lambda _: True)
        return None if kept is None else self.untied(kept)

    def own_fields(self, record: Record) -> Record:
        """Return the fields of this record that `outgoing` removes, so that `incoming` can add them again."""
        return only(record, self.taken)

    def outgoing(self, record: Record, place: HomePlace) -> Record:
        """Return a record for sharing: without its session's id and place in the log, and with marks for paths."""
        return self._changed(record, _to_marks(place), _signs(place))

    def incoming(self, record: Record, place: HomePlace, own: Record = NO_FIELDS) -> Record:
        """Return a shared record in the form of this machine: with the fields `own`, and the paths of `place`."""
        return self._changed(record, _from_marks(place), _signs(None)) | own

    def _changed(self, record: Record, change: Callable[[str], str], signs: Collection[bytes] | None) -> Record:
        """Return a record without the fields in `self.taken`, and with all its texts changed by `change`.

        Texts are changed only if the record contains one of `signs`: without them, no text has a path.
        """
        kept = {name: value for name, value in record.items() if name not in self.taken}
        where = {"cwd": change(kept["cwd"])} if isinstance(kept.get("cwd"), str) else {}
        if _names(kept | dict.fromkeys(where, ""), signs):
            return {name: self._mapped(name, value, change) for name, value in kept.items()}
        return kept | where

    def _mapped(self, name: str, value: Any, change: Callable[[str], str], depth: int = 0) -> Any:
        """Return the value of the field `name`, its texts and the names of its fields changed by `change`."""
        if name in PATH_FIELDS and isinstance(value, str):
            return change(value)
        if is_fixed_field(name, value) or depth >= MAX_DEPTH:
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
    """Return the paths of `place` and the marks as JSON spells them, to find records with one; `None` if it cannot."""
    try:
        return tuple(orjson.dumps(sign)[1:-1] for sign in (*filter(None, place or ()), ROOT, HOME, LITERAL))
    except orjson.JSONEncodeError:
        return None


def _names(record: Record, signs: Collection[bytes] | None) -> bool:
    """Return True if a record may contain one of `signs` (paths or marks in JSON), so that texts must be changed."""
    if signs is None:
        return True
    try:
        data = orjson.dumps(record)
    except orjson.JSONEncodeError:
        return True
    return any(sign in data for sign in signs)


def all_texts(value: Any, mark: str, depth: int = 0) -> Any:
    """Return a JSON value with `mark` instead of each text in it."""
    if isinstance(value, str) or depth >= MAX_DEPTH:
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


#: The fields of a part that may be shared.
SHARED = frozenset({"text", "thought", "thoughtSignature", "functionCall", "functionResponse", "inlineData"})


class PartConverter(Converter):
    """Converts records whose messages consist of parts in Gemini's format, for sharing with teammates."""

    thoughts = ()

    def image(self, value: Record) -> Image | None:
        data = value.get("inlineData")
        if not isinstance(data, dict) or not isinstance(data.get("data"), str):
            return None
        return Image(str(data.get("mimeType") or "image"), len(data["data"]) * 3 // 4, lambda note: {"text": note})

    def _is_thought(self, value: Mapping[str, Any]) -> bool:
        return value.get("thought") is True


def unsigned(part: Record) -> Record:
    """Return a message part without its signature, which is bound to an account."""
    return {name: value for name, value in part.items() if name != "thoughtSignature"}


def withheld(part: Record, ids: Collection[str], mark: str) -> Record:
    """Return a message part with `mark` instead of the inputs and outputs of the tool calls in `ids`."""
    call, answer = part.get("functionCall"), part.get("functionResponse")
    if isinstance(call, dict) and str(call.get("id")) in ids:
        return part | {"functionCall": call | {"args": all_texts(call.get("args"), mark)}}
    if isinstance(answer, dict) and str(answer.get("id")) in ids:
        return part | {"functionResponse": answer | {"response": {"output": mark}}}
    return part
