"""Decoders of agents' records: each finds texts, tool calls, results and thoughts in its agent's records.

Also parsers of a person's answers to an agent's questions, the shortening of records, and a search for secrets.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple

from indexer.json_values import dict_in, dicts_in, json_in, list_in, text_in
from indexer.lazy_compilation import late
from indexer.masking.multiline_blocks import asks_for_one
from indexer.masking.secrets import key_lines, secrets_in_output
from indexer.transcripts.actions import status_and_body
from indexer.transcripts.commands import command_of
from indexer.transcripts.lines import Line, is_long
from indexer.transcripts.model import GivenBack, Item, Origin, RecordSize, Session, UsedTool
from indexer.transcripts.texts import LEFT_OUT_TAG, PersonAnswers, Questions, Said

Record = dict[str, Any]


class Codec(ABC):
    """A decoder of one agent's records (the JSON objects in its logs). It skips unexpected parts."""

    #: See `Tools`.
    tools: ClassVar[Mapping[str, str]] = MappingProxyType({})
    shell: ClassVar[str | None] = ""
    not_run: ClassVar[tuple[str, ...]] = ()
    answers: ClassVar[PersonAnswers] = PersonAnswers()
    #: The tools that start another agent.
    starting: ClassVar[tuple[str, ...]] = ()
    #: The types of the objects that hold thoughts. Some are signed as they are.
    thoughts: ClassVar[tuple[str, ...]] = ()

    def measured(self, line: Line) -> RecordSize | None:
        """Return the size of a line's record; `None` outside the conversation, and for agents without sizes."""
        return None

    @abstractmethod
    def decode(self, record: Record) -> Item:
        """Return the item in a record: its text, tool calls, tool results, thoughts and number of images."""

    def used(self, record: Record) -> Iterator[UsedTool]:
        """Yield the tool calls in a record, under common names such as "Bash" instead of the agent's own."""
        for call in self.decode(record).calls:
            if isinstance(call.given, dict | str):
                yield call._replace(name=self.tools.get(call.name, call.name))

    def gave(self, record: Record) -> Iterator[GivenBack]:
        """Yield the tool results in a record."""
        yield from self.decode(record).results

    def calls(self, record: Record) -> Iterator[UsedTool]:
        """Yield the tool calls in a record, under the agent's own names."""
        yield from self.decode(record).calls

    def thought(self, record: Record | None, before: str | None = None) -> str:
        """Return the text `before`, then the thoughts in a record, as paragraphs; empty without both."""
        return in_paragraphs((before, *(self.decode(record).thoughts if record else ())))

    def thoughts_between(self, session: Session) -> Mapping[int, str]:
        """Return thoughts that the log has in separate records, each by the number of the turn after it."""
        return {}

    def _is_thought(self, value: Mapping[str, Any]) -> bool:
        return value.get("type") in self.thoughts


class Header(NamedTuple):
    """The place of a record in its session, and the facts that it states. The reader of the log checks the values.

    * `role`: who speaks; empty for a record that only states facts.
    * `id`: the record's id; if it is missing, the record's number is used.
    * `parent`: the id of the record before it; "" means the one before it in the log, `None` that it is the first.
    * `asked`: for a record with the role "user", True if a person wrote it.
    * `loaded`: the number of tokens in the context after the record.
    * `named`: True if a person chose the `title`.
    """

    role: Literal["user", "assistant", "system", ""] = ""
    id: object = None
    parent: object = ""
    moment: object = None
    asked: bool = True
    group: str = ""
    loaded: object = 0
    compacts: bool = False
    interrupts: bool = False
    session_id: object = None
    cwd: object = None
    branch: object = None
    version: object = None
    model: object = None
    title: object = None
    named: bool = False
    parent_session: object = None
    origin: Origin | None = None


class ReadCodec(Codec):
    """A decoder for an agent that is only read: each record is a message, or states facts about the session."""

    @abstractmethod
    def header(self, record: Record) -> Header | None:
        """Return the place and facts of a record; `None` for a record of an unknown kind."""


class CopyCodec(Codec):
    """A decoder that can also measure and shorten records, for copies within a budget of tokens."""

    @abstractmethod
    def size(self, record: Record) -> int:
        """Return how many characters of a record are sent to the model."""

    @abstractmethod
    def short(self, record: Record) -> Record:
        """Return a record with its tool results shortened."""


class SizedCodec(CopyCodec):
    """A decoder that measures each record while the log is read (see `measured`)."""

    def has_place(self, record: Record) -> bool:
        """Return True if a record belongs to the conversation itself, not to a sub-agent."""
        return record.get("isSidechain") is not True

    def as_said(self, record: Record) -> Record:
        """Return a record as the agent sends it to the model, where that differs from the log."""
        return record

    @abstractmethod
    def is_sent(self, record: Record) -> bool:
        """Return True if a record is sent to the model."""

    @abstractmethod
    def sums_up(self, record: Record) -> bool:
        """Return True if a record is the summary that a compaction wrote."""

    def measured(self, line: Line) -> RecordSize | None:
        """Return the size of a record; `None` outside the conversation. Of a very long record, all bytes count."""
        if not self.has_place(line.record):
            return None
        said = self.as_said(line.record)
        if not self.is_sent(said):
            return RecordSize()
        size, short = self.size(said), self.size(self.short(said))
        if sums_up := self.sums_up(said):
            return RecordSize(size, short, sums_up)
        long = len(line.kept) * is_long(line.kept) if isinstance(line.kept, bytes) else line.kept.size
        return RecordSize(max(size, long), short)


class MessageCodec(SizedCodec):
    """A decoder of records whose message is a list of parts: texts, tool calls, tool results, thoughts."""

    #: The field of a message with its parts.
    field: ClassVar[str]

    def parts(self, record: Record) -> list[Record]:
        """Return the parts of the message in a record."""
        return dicts_in(dict_in(record.get("message")).get(self.field))

    def changed(self, record: Record, change: Callable[[Record], Record | None]) -> Record | None:
        """Return a record with `change(part)` instead of each part (`None` drops it); `None` if no part is left."""
        old = self.parts(record)
        new = [one for part in old if (one := change(part)) is not None]
        if new == old:
            return record
        return record | {"message": record["message"] | {self.field: new}} if new else None

    @abstractmethod
    def short_part(self, part: Record) -> Record:
        """Return a part of a message, shortened if it is a tool result."""

    def short(self, record: Record) -> Record:
        return self.changed(record, self.short_part) or record


def only(record: Record, names: Collection[str]) -> Record:
    """Return a copy of a record with only the fields in `names`."""
    return {name: value for name, value in record.items() if name in names}


def text_of(content: object) -> str:
    """Return `content` if it is a text, else the texts of its parts with type ``text``, as paragraphs."""
    if isinstance(content, str):
        return content
    texts = (part.get("text") for part in dicts_in(content) if part.get("type") == "text")
    return "\n\n".join(text for text in texts if isinstance(text, str))


def texts_of(content: object, joint: str = "\n") -> str:
    """Return `content` if it is a text, else the texts of its parts, whatever their type, joined with `joint`."""
    if isinstance(content, str):
        return content
    return joint.join(text for part in dicts_in(content) if isinstance(text := part.get("text"), str))


def status_first(output: str, ended: re.Pattern[str]) -> str:
    """Return a command's output with its exit status, which `ended` matches at the end, moved to the first line."""
    found = ended.search(output)
    return f"Exit code: {found[1]}\n{output[: found.start()]}" if found else output


def item_of(content: object) -> Item:
    """Return the texts, calls, results, thoughts and images in a message's content in Anthropic's format."""
    parts = dicts_in(content)
    calls = [
        UsedTool(str(one.get("id") or ""), str(one.get("name") or ""), one.get("input"))
        for one in parts
        if one.get("type") == "tool_use"
    ]
    results, thoughts = [], []
    images = sum(one.get("type") == "image" for one in parts)
    for one in parts:
        if one.get("type") == "tool_result":
            inside = one.get("content")
            results.append(GivenBack(str(one.get("tool_use_id") or ""), text_of(inside), one.get("is_error") is True))
            images += sum(part.get("type") == "image" for part in dicts_in(inside))
        elif one.get("type") in ("thinking", "redacted_thinking"):
            thoughts.append(str(one.get("thinking") or ""))
    return Item(text_of(content), tuple(calls), tuple(results), tuple(thoughts), images)


def parts_text(parts: Iterable[Record]) -> str:
    """Return the text, without thoughts, of a message's parts in Gemini's format."""
    texts = (part.get("text") for part in parts if not part.get("thought"))
    return "\n\n".join(text for text in texts if isinstance(text, str) and text)


def parts_answer(answer: Mapping[str, Any]) -> tuple[str, bool]:
    """Return a tool result (a ``functionResponse`` in Gemini's format) as its text and True if the call failed."""
    given = dict_in(answer.get("response"))
    failed = isinstance(given.get("error"), str)
    return text_in(given.get("error") if failed else given.get("output")), failed


def patch_shown(display: object) -> str:
    """Return the unified diff in `display`, the object of a tool result for a person to see; empty without one."""
    return text_in(dict_in(display).get("fileDiff"))


def in_paragraphs(texts: Iterable[object]) -> str:
    """Join texts, each without surrounding whitespace, by empty lines. Values that are no text are skipped."""
    return "\n\n".join(said for text in texts if isinstance(text, str) and (said := text.strip()))


_UNNAMED = r'[^"\n]{1,1000}'
#: The text after an answer between quotation marks. A preview is the agent's text.
_END = late(
    r'"(?: selected preview:\n.*?)?(?: user notes: (?P<notes>.*?))?'
    r"(?:, |\. (?:You can now continue|Read the answers carefully|Call \w+ again).*|\.?\s*)\Z",
    re.DOTALL,
)
_NOTE = "user_note: "


class QuotedAnswers(PersonAnswers):
    """A parser of a person's answers to an agent's questions in the form ``"question"="answer"``."""

    none = ("", "Unanswered", "(No answer provided)")

    def answered(self, output: str, questions: Questions) -> Said:
        return self._quoted(output, questions) if '"="' in output else super().answered(output, questions)

    def _quoted(self, output: str, questions: Questions) -> Iterator[tuple[str, str]]:
        known = [re.escape(text) for *_, text in questions if text and f'"{text}"="' in output]
        parts = re.split(rf'"({"|".join(known) or _UNNAMED})"="', output)
        for question, rest in zip(parts[1::2], parts[2::2], strict=True):
            end = _END.search(rest)
            words, notes = (rest[: end.start()], end["notes"] or "") if end else (rest, "")
            if words not in self.none or notes:
                yield question, f"{'' if words in self.none else words} {notes}".strip()


class JsonAnswers(PersonAnswers):
    """A parser of a person's answers in a JSON object with the questions' ids, numbers or texts as keys."""

    def answered(self, output: str, questions: Questions) -> Said:
        if not output.lstrip().startswith("{"):
            return super().answered(output, questions)
        return self._named(dict_in(dict_in(json_in(output.strip())).get("answers")), questions)

    def _named(self, answers: Mapping[str, object], questions: Questions) -> Iterator[tuple[str, str]]:
        named = {str(number): text for number, (_, _, text) in enumerate(questions)}
        named |= {name: text for identity, _, text in questions for name in (identity, text) if name}
        for key, value in answers.items():
            told = dict_in(value).get("answers") if isinstance(value, Mapping) else value
            parts = [told] if isinstance(told, str) else [one for one in list_in(told) if isinstance(one, str)]
            yield named.get(key, ""), ", ".join(part.removeprefix(_NOTE) for part in parts)


#: Fields of a record that are not text for a model: ids, signatures, and encrypted data.
_NO_TEXT = frozenset({
    "type", "id", "role", "status", "call_id", "tool_use_id", "signature", "data", "encrypted_content",
    "thoughtSignature",
})  # fmt: skip
#: An estimate of an image's size in characters, independent of its file's size.
IMAGE_CHARACTERS = 6_000
_IMAGE_TYPES = frozenset({"image", "input_image", "image_url", "inlineData", "document"})
#: No record is deeper.
_MAX_DEPTH = 64
#: The characters kept at each end of a shortened result, and at least at each end of one of many texts; and the
#: length of the note between.
END_CHARACTERS, _MIN_END_CHARACTERS, _LINE = 200, 20, 80
#: The fields of a result with its text.
_RESULT_TEXTS = frozenset({"text", "output", "content", "error", "functionResponse", "response"})


def shortened(result: Any, kind: str = "text", end: int = END_CHARACTERS, depth: int = 0) -> Any:
    """Return a tool result with `end` characters from both ends of each text, and a note of type `kind` per image."""
    if isinstance(result, str):
        gone = len(result) - 2 * end
        if gone <= _LINE:
            return result
        return f"{result[:end]}\n[… {gone:,} characters dropped from this copy …]\n{result[-end:]}"
    if depth >= _MAX_DEPTH:
        return result
    if isinstance(result, list):
        each = max(_MIN_END_CHARACTERS, end // max(1, len(result)))
        return [shortened(part, kind, each, depth + 1) for part in result]
    if isinstance(result, dict):
        if str(result.get("type")) in _IMAGE_TYPES or "inlineData" in result:
            return {"type": kind, "text": "[an image, dropped from this copy]"}
        return {
            name: shortened(part, kind, end, depth + 1) if name in _RESULT_TEXTS else part
            for name, part in result.items()
        }
    return result


def characters(value: Any, depth: int = 0) -> int:
    """Return how many characters of a JSON value a model reads: no ids, and an estimate for each image."""
    if isinstance(value, str):
        return len(value)
    if depth >= _MAX_DEPTH:
        return 0
    if isinstance(value, list):
        return sum(characters(part, depth + 1) for part in value)
    if isinstance(value, dict):
        if str(value.get("type")) in _IMAGE_TYPES or "inlineData" in value:
            return IMAGE_CHARACTERS
        return sum(len(name) + characters(part, depth + 1) for name, part in value.items() if name not in _NO_TEXT)
    return 0 if value is None else 4


def aside(text: str) -> str:
    """Return smart-fork's note `text` for a copy, in tags that distinguish it from a person's prompt."""
    return f"<{LEFT_OUT_TAG}>\n{text}\n</{LEFT_OUT_TAG}>"


def revealed_secrets(lines: Iterable[bytes], codec: Codec | None) -> list[str]:
    """Return the secrets that a session's raw records `lines` reveal, longest first.

    They are lines of private keys, and secrets in the output of commands that print some. Without `codec`, which finds
    commands, only private keys are found.
    """
    found, asked = set[str](), dict[str, str]()
    for line in lines:
        if b"PRIVATE KEY" in line:
            found |= key_lines(line.decode("utf-8", "replace"))
        record = json_in(line)
        if codec is None or not isinstance(record, dict):
            continue
        commands = {one.id: _command(one.given) for one in codec.used(record)}
        asked |= {call: command for call, command in commands.items() if asks_for_one(command)}
        for back in codec.gave(record) if asked else ():
            if command := asked.get(back.id):
                found |= secrets_in_output(command, status_and_body(back.output)[1])
    return sorted(found, key=len, reverse=True)


def _command(given: Mapping[str, Any] | str) -> str:
    """Return the command in a tool call's input; for a call with a file's path instead, ``cat`` with the path."""
    if isinstance(given, str):
        return given
    path = given.get("file_path") or given.get("path")
    return command_of(given) or (f"cat {path}" if isinstance(path, str) else "")
