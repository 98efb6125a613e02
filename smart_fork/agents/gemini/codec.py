"""The records of Gemini CLI as items: messages of parts that say, call or answer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from indexer.lazy import late
from indexer.transcripts.model import GivenBack, Item, UsedTool
from indexer.values import dict_in, dicts_in, text_in
from smart_fork.agents.codec import CopyCodec, JsonAnswers, Record, characters, in_paragraphs, patch_shown, shortened

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
    """Return the text of these parts, without thoughts."""
    texts = (part.get("text") for part in parts if not part.get("thought"))
    return "\n\n".join(text for text in texts if isinstance(text, str) and text)


def typed_in(record: Record) -> str:
    """Return the text that a person typed. The message also has the files that it names."""
    shown = record.get("displayContent")
    return text_of(parts_of(shown)) if shown is not None else said_in(record)


def said_in(record: Mapping[str, Any]) -> str:
    """Return the text of a message, without thoughts."""
    return text_of(parts_of(record.get("content")))


def is_context(record: Mapping[str, Any]) -> bool:
    """Return True if Gemini CLI itself wrote this user message."""
    return record.get("type") == "user" and said_in(record).lstrip().startswith(_CONTEXT)


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
    """Return tool results that are in a message of their own."""
    parts = parts_of(record.get("content"))
    return [answer for part in parts if isinstance(answer := part.get("functionResponse"), dict)]


def result_of(call: MadeCall, patch: str = "") -> GivenBack:
    """Return a call's output, with a shell's exit status first, and True if the call failed."""
    answers = [part["functionResponse"] for part in call.result or () if isinstance(part.get("functionResponse"), dict)]
    texts = [answered(answer) for answer in answers] or [(text_of(call.result or ()), False)]
    failed = call.status in ("error", "cancelled") or any(failed for _, failed in texts)
    return GivenBack(call.id, "\n".join(text for text, _ in texts), failed, patch)


def results_in(record: Record) -> list[GivenBack]:
    """The same as results."""
    return [GivenBack(_id(answer), *answered(answer)) for answer in answers_in(record)]


def answered(answer: Mapping[str, Any]) -> tuple[str, bool]:
    """Return an answer's text, and True if it reports a failed call."""
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


def _id(call: Mapping[str, Any]) -> str:
    return str(call.get("id") or "")


def _result(result: object) -> list[Record] | None:
    return None if result is None else parts_of(result)


class GeminiAnswers(JsonAnswers):
    """See `Answers`."""

    asking = late(r"(?i)ask_?user")
    behind = late(r"\n\s*The plan is stored at: ")


class GeminiCodec(CopyCodec):
    """See `Codec`. Results stand beside their calls, or in messages of their own."""

    answers = GeminiAnswers()
    #: What a call gave back is in its own record: the line of a shell's command is noted with the result.
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
            text_of(parts),
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
