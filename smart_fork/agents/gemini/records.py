"""The records of Gemini CLI: messages of parts that say, call or answer, and what it remembers of a session by them.

* A message whose id is known stands in the place of that one.
* ``$set.messages`` is all that it remembers from there on. What is missing in that was compressed, where something that
  nobody has typed stands for it, or was broken off.
* ``$rewindTo`` takes a message away and all behind it; all of them, where there is none of that id.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import orjson

from indexer.transcripts.items import GivenBack, Item, UsedTool
from indexer.transcripts.state import count
from indexer.unchecked import dict_in, dicts_in, text_in
from smart_fork.agents.codec import Codec, in_paragraphs, patch_shown

Record = dict[str, Any]
#: How its own words begin that it puts into the place of a person's.
_CONTEXT = ("<session_context>", "<hook_context>")
#: What a tool gave back stands in an element that says that it is not to be believed.
_UNTRUSTED = re.compile(r"\A<untrusted_context>\n(?P<inside>.*?)\n?</untrusted_context>\s*\Z", re.DOTALL)
#: What a shell command gave back, and what stands below its output.
_RAN = re.compile(
    r"\A(?:Command: .*?^)?Output: (?P<output>.*?)"
    r"(?=^(?:Error|Exit Code|Signal|Background PIDs|Process Group PGID): |\Z)",
    re.DOTALL | re.MULTILINE,
)
_EXIT = re.compile(r"^Exit Code: (-?\d{1,9})$", re.MULTILINE)


class MadeCall(NamedTuple):
    """A call of a tool: its id and name, what it was given, and what came back, `None` where nothing has."""

    id: str
    name: str
    given: object
    result: list[Record] | None = None
    status: str = ""


def parts_of(content: object) -> list[Record]:
    """The parts of a message's content, which may be a text, a part, or a list of both."""
    listed = content if isinstance(content, list) else [content]
    parts = ({"text": part} if isinstance(part, str) else part for part in listed)
    return [part for part in parts if isinstance(part, dict)]


def text_of(parts: Iterable[Record]) -> str:
    """What these parts say, without thoughts."""
    texts = (part.get("text") for part in parts if not part.get("thought"))
    return "\n\n".join(text for text in texts if isinstance(text, str) and text)


def typed_in(record: Record) -> str:
    """What a person has typed: files that it names are in the message as well."""
    shown = record.get("displayContent")
    return text_of(parts_of(shown)) if shown is not None else text_of(parts_of(record.get("content")))


def is_context(text: str) -> bool:
    """Whether Gemini CLI itself has said this in the place of a person."""
    return text.lstrip().startswith(_CONTEXT)


def calls_in(record: Record) -> Iterator[MadeCall]:
    """The calls that a message makes: with what came back, or, after a compaction, as the model has made them."""
    made = dicts_in(record.get("toolCalls"))
    for call in made:
        given, status = call.get("args"), str(call.get("status") or "")
        yield MadeCall(_id(call), str(call.get("name") or ""), given, _result(call.get("result")), status)
    known = {_id(call) for call in made}
    for part in parts_of(record.get("content")):
        asked = part.get("functionCall")
        if isinstance(asked, dict) and _id(asked) not in known:
            yield MadeCall(_id(asked), str(asked.get("name") or ""), asked.get("args"))


def answers_in(record: Record) -> list[Record]:
    """What tools gave back that stands in a message of its own."""
    parts = parts_of(record.get("content"))
    return [answer for part in parts if isinstance(answer := part.get("functionResponse"), dict)]


def output_of(call: MadeCall) -> tuple[str, bool]:
    """What came back from a call, with a shell's exit status first, and whether the call failed."""
    answers = [part["functionResponse"] for part in call.result or () if isinstance(part.get("functionResponse"), dict)]
    texts = [answered(answer) for answer in answers] or [(text_of(call.result or ()), False)]
    failed = call.status in ("error", "cancelled") or any(failed for _, failed in texts)
    return "\n".join(text for text, _ in texts), failed


def answered(answer: Mapping[str, Any]) -> tuple[str, bool]:
    """What one answer says, and whether it says that the call failed."""
    given = dict_in(answer.get("response"))
    failed = isinstance(given.get("error"), str)
    output = text_in(given.get("error") if failed else given.get("output"))
    if inside := _UNTRUSTED.match(output):
        output = inside["inside"]
    if ran := _RAN.match(output):
        status = _EXIT.search(output, ran.end())
        said = ran["output"].rstrip("\n")
        output = f"Exit code: {status[1]}\n{said}" if status else said
        failed = failed or (status is not None and status[1] != "0")
    return output, failed


def loaded_after(record: Mapping[str, Any]) -> int:
    """What the model had in its context when it had said this."""
    return count(dict_in(record.get("tokens")).get("total"))


def _id(call: Mapping[str, Any]) -> str:
    return str(call.get("id") or "")


def _result(result: object) -> list[Record] | None:
    return None if result is None else parts_of(result)


class GeminiCodec(Codec):
    """See `Codec`. Results stand beside their calls, or in messages of their own."""

    tools = MappingProxyType({
        "run_shell_command": "Bash", "replace": "Edit", "write_file": "Write", "read_file": "Read", "glob": "Glob",
        "grep_search": "Grep", "search_file_content": "Grep", "write_todos": "TodoWrite", "save_memory": "TodoWrite",
    })  # fmt: skip

    def decode(self, record: Record) -> Item:
        """See `Codec.decode`."""
        parts, calls = parts_of(record.get("content")), list(calls_in(record))
        patches = {_id(call): patch_shown(call.get("resultDisplay")) for call in dicts_in(record.get("toolCalls"))}
        given = (
            GivenBack(call.id, *output_of(call), patches.get(call.id, "")) for call in calls if call.result is not None
        )
        answers = (GivenBack(_id(answer), *answered(answer)) for answer in answers_in(record))
        listed = (in_paragraphs(map(one.get, ("subject", "description"))) for one in dicts_in(record.get("thoughts")))
        return Item(
            text_of(parts),
            tuple(UsedTool(call.id, call.name, call.given) for call in calls),
            (*given, *answers),
            (*listed, *(str(part.get("text") or "") for part in parts if part.get("thought"))),
            sum("inlineData" in part for part in parts),
        )


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
        """What can be gone on with, as JSON values."""
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
        """What the next record of a log says."""
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
    """What a message and the same one under another id have in common; empty for what is no conversation."""
    if record.get("type") not in _SAID:
        return _NOTE
    text = text_of(parts_of(record.get("content")))
    if record.get("type") == "user" and is_context(text):
        return ""
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
