"""Reconstructs Gemini CLI's memory of a session from its records.

* A message whose id is known stands in the place of that one.
* ``$set.messages`` is all that it remembers from there on. What is missing in that was compressed, where something that
  nobody has typed stands for it, or was broken off.
* ``$rewindTo`` takes a message away and all behind it; all of them, where there is none of that id.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import orjson

from smart_fork.agents.codec import Record
from smart_fork.agents.gemini.codec import answers_in, calls_in, is_context, said_in

#: The kinds of records that the model is sent.
_SAID = ("user", "gemini")
#: What stands for what others say again by: notes, which the model is never sent.
_NOTE = "-"
#: The ids of what is remembered, with what they say again by, and the ids of what was compressed.
Kept = tuple[list[str], list[str], list[str]]


class Told(NamedTuple):
    """A message, and how it came there: `said` by somebody, `again` in the place of the one of that id (which may be
    its own), `listed` among others, or `summary`, what stands for all that was compressed; and the answer to that.
    """

    id: str
    record: Record
    way: str = "said"
    again: str = ""


class Memory:
    """The messages that are remembered, and those `past` ones that were compressed; each by its id."""

    def __init__(self, kept: Kept | None = None) -> None:
        before, signs, past = kept or ([], [], [])
        self._signs = dict(zip(before, signs, strict=True))
        self._past = dict.fromkeys(past)
        self.compactions = 0
        #: Whether a record did something else than to say something at the end, or the same thing otherwise.
        self.reordered = False

    def kept(self) -> Kept:
        """Return the state as JSON values, to be continued later."""
        return list(self._signs), list(self._signs.values()), list(self._past)

    @property
    def now(self) -> list[str]:
        """The ids of what is remembered, in order."""
        return [one for one, sign in self._signs.items() if sign != _NOTE]

    @property
    def past(self) -> list[str]:
        """The ids of what was compressed, in order."""
        return list(self._past)

    def take(self, record: Record) -> Iterator[Told]:
        """Read the next record of a log and yield its messages."""
        if isinstance(record.get("$rewindTo"), str):
            self._rewind(record["$rewindTo"])
        elif isinstance(record.get("id"), str):
            yield from self._say(record)
        elif isinstance(changes := record.get("$set"), dict):
            if isinstance(changes.get("messages"), list):
                yield from self._list(_messages(changes["messages"]))
        elif isinstance(record.get("messages"), list):  # a whole session, as old versions wrote it
            for message in _messages(record["messages"]):
                yield from self._say(message)

    def _say(self, record: Record) -> Iterator[Told]:
        identity, known = record["id"], record["id"] in self._signs
        before, self._signs[identity] = self._signs.get(identity, _NOTE), sign_of(record)
        is_note = self._signs[identity] == _NOTE
        self.reordered |= (known and is_note != (before == _NOTE)) or identity in self._past
        if not is_note:
            self._past.pop(identity, None)
            yield Told(identity, record, "said", identity if before != _NOTE else "")

    def _rewind(self, identity: str) -> None:
        self.reordered = True
        names = list(self._signs)
        first = names.index(identity) if identity in self._signs else 0
        for one in names[first:]:
            del self._signs[one]

    def _list(self, messages: list[Record]) -> Iterator[Told]:
        self.reordered = True
        listed = {one["id"]: sign_of(one) for one in messages}
        lost = {one: sign for one, sign in self._signs.items() if sign not in ("", _NOTE) and one not in listed}
        renamed = _renamed({one: sign for one, sign in listed.items() if one not in self._signs}, lost)
        for before in renamed.values():
            del lost[before]
        unknown = [one for one in messages if one["id"] not in {*self._signs, *renamed}]
        summary = next((one["id"] for one in unknown if lost and _stands_for_others(one)), None)
        if summary:
            self._past |= dict.fromkeys(lost)
            self.compactions += 1
        known, self._signs = self._signs, listed
        for one in listed:
            self._past.pop(one, None)
        behind = False
        for message in messages:
            if listed[identity := message["id"]] == _NOTE:
                continue
            behind = behind or identity == summary
            again = identity if known.get(identity, _NOTE) != _NOTE else renamed.get(identity, "")
            yield Told(identity, message, "summary" if behind and not again else "listed", again)


def sign_of(record: Record) -> str:
    """Return the signature that a message shares with its copies under other ids; empty if it is no conversation."""
    if record.get("type") not in _SAID:
        return _NOTE
    if is_context(record):
        return ""
    text = said_in(record)
    calls = [call.id for call in calls_in(record)]
    answers = [str(answer.get("id") or "") for answer in answers_in(record)]
    if not (text.strip() or calls or answers):
        return ""
    said = orjson.dumps([record.get("type"), text, calls, answers])
    return hashlib.blake2b(said, digest_size=12).hexdigest()


def _renamed(new: dict[str, str], lost: dict[str, str]) -> dict[str, str]:
    """For new messages that say what one says that is lost, that one: the last ones first, each once."""
    of_sign: dict[str, list[str]] = defaultdict(list)
    for one, sign in lost.items():
        of_sign[sign].append(one)
    return {one: of_sign[sign].pop() for one, sign in reversed(new.items()) if of_sign.get(sign)}


def _stands_for_others(message: Record) -> bool:
    return message.get("type") == "user" and bool(sign_of(message)) and not answers_in(message)


def _messages(listed: Iterable[object]) -> list[Record]:
    """Those with an id, the last of each."""
    found = {one["id"]: one for one in listed if isinstance(one, dict) and isinstance(one.get("id"), str)}
    return list(found.values())
