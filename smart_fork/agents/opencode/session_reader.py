"""Reading of OpenCode's sessions: decoding messages, building sessions, families, sub-agents and live status.

A message has parts, and a call and its result are one part. OpenCode does not record a fork's parent, but a fork's
copied messages keep their times. So sessions whose first messages have the same time and text are a family. The parent
shares the most messages with the fork, or is named in smart-fork's note in a shortened copy.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from sys import intern
from types import MappingProxyType
from typing import Any

import orjson

from indexer.json_values import dict_in, dicts_in, text_in
from indexer.lazy_compilation import late
from indexer.masking import mask_once
from indexer.safe_files import open_regular
from indexer.transcripts.base import UNREAD, ReadResult
from indexer.transcripts.lines import current_bound
from indexer.transcripts.model import (
    BrokenLine,
    GivenBack,
    Inferred,
    Item,
    Origin,
    RecordSize,
    Role,
    Session,
    Turn,
    UsedTool,
    estimate_tokens,
    turn_of,
)
from indexer.transcripts.reader_state import count, is_path, utc
from indexer.transcripts.texts import strip_boilerplate, strip_recall
from smart_fork.agents import AGENTS
from smart_fork.agents.ancestry import Ancestry, CopiedMessage, FamilyLog
from smart_fork.agents.decoders import IMAGE_CHARACTERS, CopyCodec, QuotedAnswers, Record, characters, shortened
from smart_fork.agents.log_tail import AnswerTokens, RecordSign, Tail, answer_tokens
from smart_fork.agents.opencode.database import KEY, Source, opened, read_session, session_in_file
from smart_fork.agents.record_reader import Fold
from smart_fork.agents.subagents import SubAgents


class OpenCodeAnswers(QuotedAnswers):
    """The parser of a person's answers to OpenCode's questions."""

    asking = late(r"(?i)question")


class OpenCodeCodec(CopyCodec):
    """The decoder of OpenCode's messages."""

    shell = "Bash"
    not_run = ("The user rejected permission", "The user has specified a rule which prevents", "Tool execution aborted")
    answers = OpenCodeAnswers()
    tools = MappingProxyType({
        "bash": "Bash", "edit": "Edit", "glob": "Glob", "grep": "Grep", "multiedit": "MultiEdit", "read": "Read",
        "todoread": "TodoWrite", "todowrite": "TodoWrite", "write": "Write",
    })  # fmt: skip
    starting = ("task",)

    def decode(self, record: Record) -> Item:
        parts = dicts_in(record.get("parts"))
        made = [part for part in parts if part.get("type") == "tool"]
        states = [(text_in(part.get("callID") or part.get("id")), dict_in(part.get("state"))) for part in made]
        return Item(
            text_of(parts),
            tuple(
                UsedTool(identity, self.tools.get(name := text_in(part.get("tool")), name), dict_in(state.get("input")))
                for part, (identity, state) in zip(made, states, strict=True)
            ),
            tuple(
                GivenBack(identity, *output_of(state), text_in(dict_in(state.get("metadata")).get("diff")))
                for identity, state in states
                if state.get("status") in ("completed", "error")
            ),
            tuple(text_in(part.get("text")) for part in parts if part.get("type") == "reasoning"),
            sum(part.get("type") == "file" and str(part.get("mime")).startswith("image/") for part in parts),
        )

    def size(self, record: Record) -> int:
        return sum(map(_sent, record["parts"]))

    def short(self, record: Record) -> Record:
        parts = [_short_part(part) if part.get("type") == "tool" else part for part in record["parts"]]
        return record | {"parts": parts}


#: The text that the model is sent instead of a result that OpenCode has pruned.
_CLEARED = "[Old tool result content cleared]"


def _sent(part: Mapping[str, Any]) -> int:
    if part.get("type") in ("text", "reasoning"):
        return characters(part.get("text")) if part.get("ignored") is not True else 0
    if part.get("type") == "file":
        kind = part.get("mime")
        shown = isinstance(kind, str) and (kind.startswith("text/") or kind == "application/x-directory")
        return 0 if shown else IMAGE_CHARACTERS
    if part.get("type") != "tool":
        return 0
    state = dict_in(part.get("state"))
    images = state.get("attachments")
    cleared = bool(dict_in(state.get("time")).get("compacted"))
    back = characters(_CLEARED if cleared else state.get("output")) + characters(state.get("error"))
    pictures = IMAGE_CHARACTERS * len(images) if isinstance(images, list) and not cleared else 0
    return characters(part.get("tool")) + characters(state.get("input")) + back + pictures


def _short_part(part: Mapping[str, Any]) -> dict[str, Any]:
    state = dict(dict_in(part.get("state")))
    for name in ("output", "error"):
        if name in state:
            state[name] = shortened(state[name])
    if state.pop("attachments", None):
        state["output"] = f"{state.get('output', '')}\n[an image, dropped from this copy]".strip()
    if isinstance(shown := state.get("metadata"), dict):  # what its screen has beside it
        state["metadata"] = {name: shortened(one) if isinstance(one, str) else one for name, one in shown.items()}
    return {**part, "state": state}


def output_of(state: Record) -> tuple[str, bool]:
    """Return a tool call's output (a shell command's exit status first), and True if the call failed."""
    output = text_in(state.get("output") if state.get("status") == "completed" else state.get("error"))
    status = dict_in(state.get("metadata")).get("exit")
    if type(status) is int:
        output = f"Exit code: {status}\n{output}"
    return output, state.get("status") == "error" or (type(status) is int and status != 0)


def text_of(parts: Sequence[Record]) -> str:
    """Return the text in a message's parts, without text that OpenCode inserted, such as files' content."""
    said = (
        part.get("text")
        for part in parts
        if part.get("type") == "text" and part.get("synthetic") is not True and part.get("ignored") is not True
    )
    return "\n\n".join(text for text in said if isinstance(text, str) and text).strip()


#: The limit for a file with one session, which is read completely.
MAX_FILE_BYTES = 1 << 30
#: The number of messages that are read for a list.
_GLANCE_MESSAGES = 20
CODEC = OpenCodeCodec()
#: The title of a session without a name.
_NAMELESS = re.compile(r"(?:New|Child) session - \d{4}-\d\d-\d\dT[\d:.]+Z")
#: The error that OpenCode notes when a person stops an answer.
ABORTED = "MessageAbortedError"
#: The key under which a line about omitted messages has the copied session and its family.
LEFT_OUT = "smart-fork"


def read(path: Path, *, keep_raw: bool) -> ReadResult:
    """Read the session at `path`, in the database or an exported file (see `AgentAdapter.read`)."""
    source = _source(path)
    broken = tuple(BrokenLine(path, one.number, one.reason) for one in source.broken)
    if source.document is None:
        return ReadResult(None, "no conversation", UNREAD, broken, 0)
    bound = current_bound.get()
    unmeasured = source.abridged if bound and bound.measures else None
    found = OpenCodeFold(path, source.document, keep_raw=keep_raw, unmeasured=unmeasured)
    session, skipped = found.session()
    records, unknown = found.counts()
    size = len(orjson.dumps(source.document))
    return ReadResult(session, skipped, UNREAD, broken, size, records=records, unknown=unknown)


def glance(path: Path) -> Session | None:
    """Read only a session's first messages, enough to list it (see `AgentAdapter.glance`)."""
    found = _source(path, _GLANCE_MESSAGES).document
    return OpenCodeFold(path, found, keep_raw=False).session()[0] if found else None


def exported(path: Path) -> bytes:
    """Return a session as one line of JSON, in the form that ``opencode export`` prints."""
    return orjson.dumps(document_at(path, whole=True), option=orjson.OPT_APPEND_NEWLINE)


def document_at(path: Path, most: int = -1, *, whole: bool = False) -> Record:
    """Return the document of the session at `path`, with at most `most` messages (-1: all), shortened unless `whole`.

    Raises:
        OSError: The session cannot be read, or does not exist.
    """
    found = _source(path, most, whole=whole).document
    if found is None:
        raise FileNotFoundError(f"no such session: {path}")
    return found


def of_document(path: Path, found: Record) -> Session | None:
    """Return the session in a document, which may be a sub-agent's. Each turn keeps its raw record."""
    info = {name: value for name, value in found["info"].items() if name != "parentID"}
    return OpenCodeFold(path, {**found, "info": info}, keep_raw=True).session()[0]


def _source(path: Path, most: int = -1, *, whole: bool = False) -> Source:
    if path.parent.is_file():
        with opened(path.parent) as db:
            return read_session(db, path.name, most, whole=whole)
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > MAX_FILE_BYTES:
            raise OSError(f"larger than any session: {path}")
        return session_in_file(file.read())


def conversation(found: Record) -> Iterator[tuple[Record, list[Record]]]:
    """Yield (``info``, parts) of each message that the model is sent, without those that a person has reverted."""
    back = dict_in(found["info"].get("revert"))
    first, part = back.get("messageID"), back.get("partID")
    for one in found["messages"]:
        info, parts = one["info"], one["parts"]
        if first is not None and info.get("id") == first:
            if part is not None and (left := list(takewhile(lambda one: one.get("id") != part, parts))):
                yield info, left
            return
        yield info, parts


def _asks_to_compact(parts: Iterable[Record]) -> bool:
    return any(part.get("type") == "compaction" for part in parts)


def sums_up(info: Record) -> bool:
    """Return True if a message is a summary that a compaction wrote."""
    return info.get("summary") is True


def _size_of(info: Record, parts: Sequence[Record]) -> RecordSize:
    if _asks_to_compact(parts):
        return RecordSize()
    record = {"parts": parts}
    return RecordSize(CODEC.size(record), CODEC.size(CODEC.short(record)), sums_up(info))


class OpenCodeFold(Fold):
    """The fold (reader) that builds a session from one OpenCode document, message by message."""

    #: The types of messages' parts.
    known = frozenset({
        "text", "tool", "reasoning", "file", "step-start", "step-finish", "snapshot", "patch", "agent", "subtask",
        "retry", "compaction",
    })  # fmt: skip
    agent = "opencode"
    codec, session_logs = CODEC, AGENTS.session_logs

    def __init__(self, path: Path, found: Record, *, keep_raw: bool, unmeasured: Collection[str] | None = None) -> None:
        """Read the document `found`. Measure all messages except `unmeasured` (ids); none if this is `None`."""
        super().__init__(path, None, keep_raw=keep_raw)
        self.sizes, self._unmeasured = None if unmeasured is None else {}, unmeasured or ()
        self._info = info = found["info"]
        self._messages = list(conversation(found))
        when = dict_in(info.get("time"))
        self.facts["version"], self.facts["root"] = text_in(info.get("version")), family_id(self._messages)
        self.facts["started"] = utc(when.get("created"))
        for one, parts in () if self.excluded() else self._messages:
            self._add(one, parts)
        self.facts["last"] = self.facts.get("last") or utc(when.get("updated"))

    def begin(self, turns: list[Turn]) -> None:
        self._turns = turns

    def excluded(self) -> str:
        return "only sub-agent records" if self._info.get("parentID") else ""

    def active(self) -> tuple[Turn, ...]:
        return tuple(self._turns)

    def own_id(self) -> str:
        return self.path.name.removesuffix(".json")

    def directory(self) -> tuple[str, Inferred]:
        cwd = self._info.get("directory")
        return (cwd if is_path(cwd) else ""), ""

    def is_copy(self) -> bool:
        """Return True if the session was read from an exported file, not from the database."""
        return not self.path.parent.is_file()

    def own_name(self, turns: tuple[Turn, ...]) -> str:
        called = text_in(self._info.get("title"))
        return "" if _NAMELESS.fullmatch(called) else called

    def origin(self) -> Origin:
        """Return "automated" if the session's rules forbid questions, as ``opencode run`` sets them; else "person"."""
        rules = self._info.get("permission")
        asks_nobody = {"permission": "question", "pattern": "*", "action": "deny"}
        return "automated" if isinstance(rules, list) and asks_nobody in rules else "person"

    def _add(self, info: Record, parts: Sequence[Record]) -> None:
        identity = info.get("id")
        if not isinstance(identity, str) or not identity:
            return
        when = dict_in(info.get("time"))
        self.facts["last"] = max(self.facts.get("last", ""), utc(when.get("created")), utc(when.get("completed")))
        for part in parts:
            self.count(part)
        if self.sizes is not None and identity not in self._unmeasured:
            self.sizes[intern(identity)] = _size_of(info, parts)
        if info.get("role") == "user":
            self._user(info, parts)
        elif info.get("role") == "assistant":
            self._assistant(info, parts)

    def _user(self, info: Record, parts: Sequence[Record]) -> None:
        if _asks_to_compact(parts):
            self.note_compaction()
            self._make(info, parts, "system", "")
            return
        text = strip_boilerplate(text_of(parts))
        self._make(info, parts, "user" if text else "system", text, prompt=bool(text))
        if text:
            self.facts["interrupted"] = False

    def _assistant(self, info: Record, parts: Sequence[Record]) -> None:
        if sums_up(info):  # of what was before it, which is sent no more
            left = text_of(parts)
            self._make(info, parts, "system", "", loaded=estimate_tokens(left), summary=mask_once(left))
            return
        item = CODEC.decode({"parts": parts})
        done = {"tool_calls": self.recorder.calls(item.calls), "tool_results": self.recorder.results(item.results)}
        self.note_model(info.get("modelID"))
        self.facts["interrupted"] = dict_in(info.get("error")).get("name") == ABORTED
        self._make(info, parts, "assistant", strip_recall(item.text), loaded=loaded_after(info), **done)

    def _make(self, info: Record, parts: Sequence[Record], role: Role, text: str, **more: Any) -> None:
        before = self._turns[-1].id if self._turns else None
        raw = orjson.dumps({"info": info, "parts": parts}) if self.keep_raw else b""
        moment = utc(dict_in(info.get("time")).get("created"))
        self._turns.append(turn_of(intern(info["id"]), before, role, moment, text, raw=raw, **more))


def family_id(messages: Sequence[tuple[Record, list[Record]]]) -> str:
    """Return an id that a session shares with its forks: a hash of the first prompt and its time, which forks copy.

    A shortened copy without that prompt has the id in smart-fork's note.
    """
    info, parts = next(((info, parts) for info, parts in messages if info.get("role") == "user"), ({}, []))
    told = text_in(note_in(parts).get("root"))
    return told or (f"opencode-{message_hash(info, parts)}" if info else "")


def note_in(parts: Sequence[Record]) -> Record:
    """Return the source session and family in smart-fork's note about dropped messages; empty without such a note."""
    return dict_in(dict_in(parts[0].get("metadata")).get(LEFT_OUT)) if len(parts) == 1 else {}


def message_hash(info: Record, parts: Sequence[Record]) -> str:
    """Return a hash of a message's author, time and text. A fork's copy of the message has the same."""
    words = f"{info.get('role')} {dict_in(info.get('time')).get('created')} {text_of(parts)}"
    return hashlib.blake2b(words.encode("utf-8", "replace"), digest_size=12).hexdigest()


def loaded_after(info: Record) -> int:
    """Return the number of tokens in the model's context after the message `info`."""
    tokens = dict_in(info.get("tokens"))
    cache = dict_in(tokens.get("cache"))
    named = [*(tokens.get(name) for name in ("input", "output", "reasoning")), cache.get("read"), cache.get("write")]
    return sum(map(count, named))


#: A record with this text may name a sub-agent.
_NAMES = b'"sessionId"'


class OpenCodeSubAgents(SubAgents):
    """Reads OpenCode's sub-agents, each a session of its own in the database."""

    def begun(self, session: Session) -> Mapping[str, str]:
        raw = [turn.raw for turn in session.turns if turn.tool_calls and _NAMES in turn.raw]
        named = [pair for one in raw for pair in started_agents(dicts_in(orjson.loads(one).get("parts")))]
        return {call: name for call, name in named if _sub_agent(session, name, 0)}

    def read(self, session: Session, name: str) -> Session | None:
        found = _sub_agent(session, name)
        return of_document(session.source_path.with_name(name), found) if found else None


def _sub_agent(session: Session, name: str, most: int = -1) -> Record | None:
    """Return the document of a sub-agent that `session` began, with at most `most` messages; `None` if unreadable."""
    with suppress(OSError):
        found = document_at(session.source_path.with_name(name), most) if KEY.fullmatch(name) else None
        if found and found["info"].get("parentID") == session.session_id:
            return found
    return None


def started_agents(parts: Iterable[Record]) -> Iterator[tuple[str, str]]:
    """Yield (call id, sub-agent's session id) for each tool call in `parts` that started a sub-agent."""
    for part in parts:
        name = dict_in(dict_in(part.get("state")).get("metadata")).get("sessionId")
        if part.get("type") == "tool" and isinstance(name, str):
            yield str(part.get("callID") or part.get("id") or ""), name


class OpenCodeAncestry(Ancestry):
    """Finds the parents of OpenCode's sessions by the first messages that two logs share."""

    def begins(self, kin: FamilyLog) -> bool:
        found = document_at(kin.path, 1)
        kin.begun = utc(found["info"]["time"]["created"])
        if first := next(iter(found["messages"]), None):
            kin.recorded = str(note_in(first["parts"]).get("sessionID") or "")
            kin.first = CopiedMessage(message_hash(first["info"], first["parts"]))
        return kin.first is not None

    def messages(self, kin: FamilyLog) -> list[CopiedMessage]:
        messages = document_at(kin.path)["messages"]
        return [CopiedMessage(message_hash(one["info"], one["parts"])) for one in messages if not note_in(one["parts"])]

    def shared(self, kin: FamilyLog, parent: FamilyLog, above: Session, fork: Callable[[], Session | None]) -> int:
        read = fork()
        end = 0
        for turn in read.turns if read else ():
            if turn.role == "system" and not turn.loaded:  # such as a line on what is left out
                continue
            copied = (turn.timestamp, turn.text)
            same = (i for i, one in enumerate(above.turns[end:], end) if (one.timestamp, one.text) == copied)
            if (place := next(same, None)) is None:
                break
            end = place + 1
        return end


#: The reasons for the end of a message after which the answer continues in another message.
_GOES_ON = ("tool-calls", "unknown")


def _records(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the session's messages. A message's timestamp is its end, or its beginning if it is unfinished."""
    for info, parts in conversation(document_at(path)):
        when = dict_in(info.get("time"))
        yield {"timestamp": utc(when.get("completed")) or utc(when.get("created")), "info": info, "parts": parts}


def _sign(record: Mapping[str, Any]) -> RecordSign:
    info = dict_in(record.get("info"))
    if info.get("role") == "user":
        return RecordSign("working")
    if info.get("role") != "assistant":
        return RecordSign()
    error, tokens = dict_in(info.get("error")), loaded_after(dict(info))
    if error:
        said = dict_in(error.get("data")).get("message") if error.get("name") != ABORTED else ""
        return RecordSign("idle", tokens, str(said or ""))
    if not dict_in(info.get("time")).get("completed") or info.get("finish") in _GOES_ON:
        return RecordSign("working", tokens)
    # OpenCode compacts only to continue, so it continues after a summary.
    return RecordSign("idle", tokens, settling=info.get("summary") is True)


def _answers(records: Iterable[Mapping[str, Any]]) -> AnswerTokens:
    for number, record in enumerate(records):
        info = dict_in(record.get("info"))
        if info.get("role") == "assistant":
            tokens = dict_in(info.get("tokens"))
            used = dict_in(tokens.get("cache")) | {"input": tokens.get("input")}
            used["output"] = count(tokens.get("output")) + count(tokens.get("reasoning"))
            yield answer_tokens(number, used, ("input", "output", "read", "write"), whole=False)


#: The live status of OpenCode's sessions.
TAIL = Tail(_sign, _answers, records=_records, backwards=lambda path: iter([*_records(path)][::-1]))
