"""Gemini CLI's messages: their decoding, and the messages that Gemini CLI remembers after a sequence of records.

A message's content has parts, each a text, a thought, a call or a result. The records tell which messages of a session
Gemini CLI remembers:

* A message with a known id replaces the earlier message.
* ``$set.messages`` is the new list of all remembered messages. If it has a new message that no person typed, that is a
  compression's summary, which replaces the messages missing from the list. Otherwise the missing messages are dropped.
* ``$rewindTo`` removes the named message and all messages after it. If no message has that id, it removes all.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import orjson

from indexer.json_values import dicts_in
from indexer.lazy_compilation import late
from indexer.transcripts.model import GivenBack, Item, UsedTool
from smart_fork.agents.decoders import (
    CopyCodec,
    JsonAnswers,
    Record,
    characters,
    in_paragraphs,
    parts_answer,
    parts_text,
    patch_shown,
    shortened,
)

#: The beginnings of user messages that Gemini CLI itself writes.
_CONTEXT = ("<session_context>", "<hook_context>")
#: The element around a result that marks it as untrusted.
_UNTRUSTED = re.compile(r"\A<untrusted_context>\n(?P<inside>.*?)\n?</untrusted_context>\s*\Z", re.DOTALL)
#: The output of a shell command, up to the lines below it.
_RAN = re.compile(
    r"\A(?:Command: .*?^)?Output: (?P<output>.*?)"
    r"(?=^(?:Error|Exit Code|Signal|Background PIDs|Process Group PGID): |\Z)",
    re.DOTALL | re.MULTILINE,
)
_EXIT = re.compile(r"^Exit Code: (-?\d{1,9})$", re.MULTILINE)


class MadeCall(NamedTuple):
    """A tool call in a message. `result` is `None` while it runs."""

    id: str
    name: str
    given: object
    result: list[Record] | None = None
    status: str = ""


def parts_of(content: object) -> list[Record]:
    """Return a message's content as a list of parts. The content may be a text, a part, or a list of both."""
    listed = content if isinstance(content, list) else [content]
    parts = ({"text": part} if isinstance(part, str) else part for part in listed)
    return [part for part in parts if isinstance(part, dict)]


def typed_in(record: Record) -> str:
    """Return the text that a person typed in a user message, without the files that it mentions."""
    shown = record.get("displayContent")
    return parts_text(parts_of(shown)) if shown is not None else said_in(record)


def said_in(record: Mapping[str, Any]) -> str:
    """Return the text of a message, without the model's thoughts."""
    return parts_text(parts_of(record.get("content")))


def is_context(record: Mapping[str, Any]) -> bool:
    """Return True if Gemini CLI itself wrote a user message, such as its description of the workspace."""
    return record.get("type") == "user" and said_in(record).lstrip().startswith(_CONTEXT)


def calls_in(record: Record) -> Iterator[MadeCall]:
    """Yield the tool calls of a message; after a compression they are in its content, without results."""
    made = dicts_in(record.get("toolCalls"))
    for call in made:
        result = None if call.get("result") is None else parts_of(call["result"])
        name, status = str(call.get("name") or ""), str(call.get("status") or "")
        yield MadeCall(_id(call), name, call.get("args"), result, status)
    known = {_id(call) for call in made}
    for part in parts_of(record.get("content")):
        asked = part.get("functionCall")
        if isinstance(asked, dict) and _id(asked) not in known:
            yield MadeCall(_id(asked), str(asked.get("name") or ""), asked.get("args"))


def answers_in(record: Record) -> list[Record]:
    """Return the tool results in a message's content, which are not stored in their calls."""
    parts = parts_of(record.get("content"))
    return [answer for part in parts if isinstance(answer := part.get("functionResponse"), dict)]


def result_of(call: MadeCall, patch: str = "") -> GivenBack:
    """Return the result of a tool call (a shell command's exit status first), with the diff `patch`."""
    answers = [part["functionResponse"] for part in call.result or () if isinstance(part.get("functionResponse"), dict)]
    texts = [output_of(answer) for answer in answers] or [(parts_text(call.result or ()), False)]
    failed = call.status in ("error", "cancelled") or any(failed for _, failed in texts)
    return GivenBack(call.id, "\n".join(text for text, _ in texts), failed, patch)


def results_in(record: Record) -> list[GivenBack]:
    """Return the tool results in a message's content, each with its call's id, text, and True if it failed."""
    return [GivenBack(_id(answer), *output_of(answer)) for answer in answers_in(record)]


def output_of(answer: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the text of a tool result (a shell command's exit status first), and True if the call failed."""
    output, failed = parts_answer(answer)
    if inside := _UNTRUSTED.match(output):
        output = inside["inside"]
    if ran := _RAN.match(output):
        status = _EXIT.search(output, ran.end())
        said = ran["output"].rstrip("\n")
        output = f"Exit code: {status[1]}\n{said}" if status else said
        failed = failed or (status is not None and status[1] != "0")
    return output, failed


def _id(call: Mapping[str, Any]) -> str:
    return str(call.get("id") or "")


class GeminiAnswers(JsonAnswers):
    """The parser of a person's answers to Gemini CLI's questions."""

    asking = late(r"(?i)ask_?user")
    behind = late(r"\n\s*The plan is stored at: ")


class GeminiCodec(CopyCodec):
    """The decoder of Gemini CLI's messages. A result is in its call, or in another message."""

    answers = GeminiAnswers()
    #: Empty, because a call's record has its result: a shell's command is noted with the result.
    shell = ""
    not_run = ("[Operation Cancelled]", "Tool execution denied", "User denied")
    tools = MappingProxyType({
        "run_shell_command": "Bash", "replace": "Edit", "write_file": "Write", "read_file": "Read", "glob": "Glob",
        "grep_search": "Grep", "search_file_content": "Grep", "write_todos": "TodoWrite", "save_memory": "TodoWrite",
    })  # fmt: skip

    def decode(self, record: Record) -> Item:
        parts, calls = parts_of(record.get("content")), list(calls_in(record))
        patches = {_id(call): patch_shown(call.get("resultDisplay")) for call in dicts_in(record.get("toolCalls"))}
        given = (result_of(call, patches.get(call.id, "")) for call in calls if call.result is not None)
        listed = (in_paragraphs(map(one.get, ("subject", "description"))) for one in dicts_in(record.get("thoughts")))
        return Item(
            parts_text(parts),
            tuple(UsedTool(call.id, call.name, call.given) for call in calls),
            (*given, *results_in(record)),
            (*listed, *(str(part.get("text") or "") for part in parts if part.get("thought"))),
            sum("inlineData" in part for part in parts),
        )

    def size(self, record: Record) -> int:
        return characters(record.get("content")) + characters(record.get("toolCalls"))

    def short(self, record: Record) -> Record:
        calls = record.get("toolCalls")
        if not isinstance(calls, list):
            return record
        made = [
            one | {"result": shortened(one["result"])} if isinstance(one, dict) and "result" in one else one
            for one in calls
        ]
        return record | {"toolCalls": made}


CODEC = GeminiCodec()


#: The types of records that the model is sent.
_SAID = ("user", "gemini")
#: The signature of notes, which the model is never sent.
_NOTE = "-"
#: The ids of remembered messages, their signatures, and the ids of compressed messages.
MemoryState = tuple[list[str], list[str], list[str]]


class MemoryChange(NamedTuple):
    """A message in a record of the log: it is new to what Gemini CLI remembers, or repeats an earlier message.

    `way` is "said" if the record is the message, "listed" if the message is in a list. In a compression's list,
    "summary" marks the summary and new messages after it. `again` is the id of the earlier message that this one
    repeats, or empty.
    """

    id: str
    record: Record
    way: str = "said"
    again: str = ""


class Memory:
    """The ids of the messages that Gemini CLI remembers (`now`), and of those that a compression replaced (`past`)."""

    def __init__(self, kept: MemoryState | None = None) -> None:
        before, signs, past = kept or ([], [], [])
        self._signs = dict(zip(before, signs, strict=True))
        self._past = dict.fromkeys(past)
        self.compactions = 0
        #: Whether the last record did more than add a message, or replace one in its place.
        self.reordered = False

    def kept(self) -> MemoryState:
        """Return the state as JSON values, from which a new `Memory` continues with the next record."""
        return list(self._signs), list(self._signs.values()), list(self._past)

    @property
    def now(self) -> list[str]:
        """The ids of the messages that Gemini CLI remembers, in order."""
        return [one for one, sign in self._signs.items() if sign != _NOTE]

    @property
    def past(self) -> list[str]:
        """The ids of the messages that a compression replaced by a summary, in order."""
        return list(self._past)

    def apply(self, record: Record) -> Iterator[MemoryChange]:
        """Apply the next record of the log. Yield the messages that the record adds or repeats."""
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

    def _say(self, record: Record) -> Iterator[MemoryChange]:
        identity, known = record["id"], record["id"] in self._signs
        before, self._signs[identity] = self._signs.get(identity, _NOTE), signature_of(record)
        is_note = self._signs[identity] == _NOTE
        self.reordered |= (known and is_note != (before == _NOTE)) or identity in self._past
        if not is_note:
            self._past.pop(identity, None)
            yield MemoryChange(identity, record, "said", identity if before != _NOTE else "")

    def _rewind(self, identity: str) -> None:
        self.reordered = True
        names = list(self._signs)
        first = names.index(identity) if identity in self._signs else 0
        for one in names[first:]:
            del self._signs[one]

    def _list(self, messages: list[Record]) -> Iterator[MemoryChange]:
        self.reordered = True
        listed = {one["id"]: signature_of(one) for one in messages}
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
            yield MemoryChange(identity, message, "summary" if behind and not again else "listed", again)


def signature_of(record: Record) -> str:
    """Return a hash of a message's text and calls, which stays the same if Gemini CLI gives the message another id.

    Return "-" for a note that the model is never sent, and "" for a message without a text, call or result.
    """
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
    """Map ids in `new` to ids in `lost` with the same signature. Of equal messages, the last ones match."""
    of_sign: dict[str, list[str]] = defaultdict(list)
    for one, sign in lost.items():
        of_sign[sign].append(one)
    return {one: of_sign[sign].pop() for one, sign in reversed(new.items()) if of_sign.get(sign)}


def _stands_for_others(message: Record) -> bool:
    return message.get("type") == "user" and bool(signature_of(message)) and not answers_in(message)


def _messages(listed: Iterable[object]) -> list[Record]:
    """Return those listed elements that are messages with an id. If an id occurs twice, the last message counts."""
    found = {one["id"]: one for one in listed if isinstance(one, dict) and isinstance(one.get("id"), str)}
    return list(found.values())
