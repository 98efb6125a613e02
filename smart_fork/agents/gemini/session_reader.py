"""Reading of Gemini CLI's sessions: building them from records, sub-agents, families and live status.

A session's turns are first the messages that a compression replaced by a summary, then the messages that Gemini CLI
still remembers. Records have no directory, branch or version. The log's folder tells the directory, or else Gemini
CLI's description of the workspace.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice, takewhile
from pathlib import Path
from sys import intern
from typing import Any, NamedTuple, Self

from indexer.json_values import dict_in, dicts_in, json_in
from indexer.masking import NOTHING, mask_once
from indexer.transcripts.base import UNREAD, Checkpoint, ReadResult, regular_files
from indexer.transcripts.lines import NO_LOG, Line, LineReader, decode_file, first_lines, resume
from indexer.transcripts.model import (
    Inferred,
    Origin,
    RecordSize,
    Session,
    ToolCall,
    ToolResult,
    Turn,
    UsedTool,
    estimate_tokens,
    turn_of,
)
from indexer.transcripts.reader_state import count, is_path, pack, utc
from indexer.transcripts.texts import masked_name, strip_boilerplate, strip_recall
from smart_fork.agents import AGENTS, record_reader
from smart_fork.agents.ancestry import HEAD_RECORDS, Ancestry, CopiedMessage, FamilyLog, origin_by_workers
from smart_fork.agents.decoders import Record
from smart_fork.agents.gemini.home import CHATS, digest, id_of, root_of
from smart_fork.agents.gemini.messages import (
    CODEC,
    Memory,
    MemoryChange,
    answers_in,
    calls_in,
    is_context,
    result_of,
    results_in,
    said_in,
    signature_of,
    typed_in,
)
from smart_fork.agents.log_tail import AnswerTokens, RecordSign, Tail, answer_tokens
from smart_fork.agents.subagents import SubAgents

#: The tool that runs command lines.
_SHELL = "run_shell_command"
#: The content of the record that notes an interruption by the person.
CANCELLED = "Request cancelled."
#: The first directory in Gemini CLI's description of the workspace.
_WORKSPACE = re.compile(r"^- \*\*Workspace Directories:\*\*\n  - (/[^\n]*)$", re.MULTILINE)
_WHOLE = ".json"


class LoggedMessage(NamedTuple):
    """A message in a log. `sums_up` is True for the summary that a compression wrote."""

    record: Record
    sums_up: bool

    @classmethod
    def of(cls, told: MemoryChange, before: Mapping[str, LoggedMessage]) -> Self:
        """Return the message of a change. It sums up if the change is a summary, or repeats a summary in `before`."""
        old = before.get(told.again) if told.again else None
        summary = told.way == "summary" and told.record.get("type") == "user"
        return cls(told.record, (old is not None and old.sums_up) or summary)


def for_copy(record: Record, known: set[str]) -> Record | None:
    """Return `record` if a copy needs it; `None` if it is no message, or only repeats results of the calls `known`."""
    if not signature_of(record):
        return None
    answers = answers_in(record)
    if answers and all(str(answer.get("id") or "") in known for answer in answers):
        return None
    return record


def answered_calls(messages: Iterable[Record]) -> set[str]:
    """Return the ids of the calls in `messages` that have a result."""
    return {call.id for message in messages for call in calls_in(message) if call.result is not None}


class GeminiFold(record_reader.LineFold):
    """The fold (reader) that builds a session from the records of one Gemini CLI log."""

    agent = "gemini"
    known = frozenset({"user", "gemini", "info", "error", "warning"})
    codec, session_logs = CODEC, AGENTS.session_logs
    naming = (b'"summary"',)

    def is_known(self, record: Record) -> bool:
        """Return True for a known record: a message by its type, a header or change by its fields."""
        return super().is_known(record) or not {"sessionId", "$set", "$rewindTo"}.isdisjoint(record)

    def begin(self, turns: list[Turn]) -> None:
        self._memory = Memory(self.facts.pop("memory", None))
        self._turns = {turn.id: turn for turn in turns}
        self._kept = dict[str, LoggedMessage]()

    def sizes_of(self, turns: tuple[Turn, ...]) -> tuple[tuple[int, RecordSize], ...]:
        """Return (turn's number, size) for each turn. A result that a call and a message have is counted once."""
        kept = [self._kept[turn.id] for turn in turns if turn.id in self._kept]
        if len(kept) < len(turns):
            return ()
        known = answered_calls(one.record for one in kept)
        said = ((one, for_copy(one.record, known)) for one in kept)
        return tuple(
            (number, RecordSize(CODEC.size(one), CODEC.size(CODEC.short(one)), kept.sums_up) if one else RecordSize())
            for number, (kept, one) in enumerate(said)
        )

    def pack(self) -> bytes:
        return pack(self.facts, {"memory": self._memory.kept()} | self.recorder.kept(), self.active())

    def feed(self, line: Line) -> None:
        record = line.record
        self.note(record)
        before = self._memory.compactions
        self._memory.reordered = False
        for told in self._memory.apply(record):
            if self.sizes is not None:
                self._kept[told.id] = LoggedMessage.of(told, self._kept)
            self._turns[told.id] = self.said(self._turn(told, line.raw if self.keep_raw else b""))
        self.facts["compactions"] = self.facts.get("compactions", 0) + self._memory.compactions - before
        if self._memory.reordered:
            order = (*self._memory.past, *self._memory.now)
            self._turns = {one: self._turns[one] for one in order if one in self._turns}

    def note(self, record: Record) -> None:
        """Note the session's facts (name, parent, times, interruption) in a record."""
        facts = self.facts
        for said in (record, dict_in(record.get("$set"))):
            if isinstance(summary := said.get("summary"), str) and summary.strip():
                facts["summary"] = masked_name(summary)
        if isinstance(record.get("sessionId"), str) and "hash" not in facts:
            facts["hash"], facts["kind"] = str(record.get("projectHash") or ""), record.get("kind") == "subagent"
            origin = record.get("forkedFrom")
            if isinstance(origin, dict) and isinstance(origin.get("sessionId"), str):
                facts["parent"] = origin["sessionId"]
                if isinstance(root := origin.get("root"), str) and root:  # it may leave out what the family began with
                    facts["root"] = root
        self.note_moment(self.moment_of(record)[0])
        self.note_moment(utc(record.get("startTime")), done=False)
        if record.get("type") in ("user", "gemini"):
            facts["interrupted"] = False
        elif record.get("type") == "info" and record.get("content") == CANCELLED:
            facts["interrupted"] = True

    def note_title(self, record: Record) -> None:
        self.note({"$set": record.get("$set")})

    def excluded(self) -> str:
        return "only sub-agent records" if self.facts.get("kind") else ""

    def own_id(self) -> str:
        return id_of(self.path)

    def own_name(self, turns: tuple[Turn, ...]) -> str:
        return str(self.facts.get("summary", ""))

    def moment_of(self, record: Record) -> tuple[str, bool]:
        return utc(record.get("timestamp")), True

    def origin(self) -> Origin:
        return origin_by_workers(self.own_id())

    def is_copy(self) -> bool:
        """Return True if the session began in another directory than the one that the log's folder names."""
        told, here = self.facts.get("hash", ""), root_of(self.path.parent.parent)
        return bool(told and here) and told != digest(here)

    def active(self) -> tuple[Turn, ...]:
        return tuple(
            turn if turn.parent_id == parent else replace(turn, parent_id=parent)
            for turn, parent in zip(self._turns.values(), (None, *self._turns), strict=False)
        )

    def directory(self) -> tuple[str, Inferred]:
        if told := root_of(self.path.parent.parent):
            return told, ""
        workspace = self.facts.get("workspace", "")
        return (workspace, "environment_context") if workspace else ("", "")

    def _turn(self, told: MemoryChange, raw: bytes) -> Turn:
        """Return the turn of a message, with the time and call results of an earlier message that it repeats."""
        before = self._turns.get(told.again) if told.again else None
        identity, record = intern(told.id), told.record
        text = said_in(record)
        moment = before.timestamp if before and before.timestamp else utc(record.get("timestamp"))
        if told.way == "summary":
            loaded = estimate_tokens(text) if record.get("type") == "user" else 0
            summary = mask_once(text) if loaded else NOTHING
            return turn_of(identity, None, "system", moment, raw=raw, loaded=loaded, summary=summary)
        if before and before.role == "system" and told.way == "listed":  # what nobody said, once more
            return replace(before, id=identity, raw=raw)
        if record.get("type") == "gemini":
            calls, results = self._calls(record, before)
            self.note_model(record.get("model"))
            said, loaded = strip_recall(text), loaded_after(record)
            done: dict[str, Any] = {"tool_calls": calls, "tool_results": results}
            return turn_of(identity, None, "assistant", moment, said, raw=raw, loaded=loaded, **done)
        if before and told.way == "listed":  # what was said, whatever has become of it
            return replace(before, id=identity, raw=raw)
        return self._heard(identity, record, moment, raw)

    def _heard(self, identity: str, record: Record, moment: str, raw: bytes) -> Turn:
        if answers := results_in(record):
            known = self._given_back()
            results = self.recorder.results(one for one in answers if one.id not in known)
            return turn_of(identity, None, "tool" if results else "system", moment, tool_results=results, raw=raw)
        if is_context(record):
            found = _WORKSPACE.search(said_in(record))
            if found and is_path(found[1]):
                self.facts.setdefault("workspace", found[1])
            return turn_of(identity, None, "system", moment, raw=raw)
        text = strip_boilerplate(typed_in(record))
        if text:
            self.facts.setdefault("root", f"gemini-{identity}")
        return turn_of(identity, None, "user" if text else "system", moment, text, raw=raw, prompt=bool(text))

    def _given_back(self) -> set[str]:
        """Return the ids of the tool calls since the last prompt that already have a result."""
        since = takewhile(lambda turn: not turn.prompt, reversed(self._turns.values()))
        return {result.tool_use_id for turn in since for result in turn.tool_results}

    def _calls(self, record: Record, before: Turn | None) -> tuple[tuple[ToolCall, ...], tuple[ToolResult, ...]]:
        known = {call.id: call for call in before.tool_calls} if before else {}
        given_back = {result.tool_use_id: result for result in before.tool_results} if before else {}
        calls, results = [], []
        for made in calls_in(record):
            call = UsedTool(made.id, made.name, made.given if isinstance(made.given, dict) else {})
            calls.append(known.get(made.id) or self.recorder.call(call))
            if made.id in given_back:
                results.append(given_back[made.id])
            elif made.result is not None:
                if made.name == _SHELL and made.id not in self.recorder.ours:
                    self.recorder.begin(call)
                results.append(self.recorder.result(result_of(made)))
        return tuple(calls), tuple(results)


def loaded_after(record: Mapping[str, Any]) -> int:
    """Return the number of tokens in the model's context after the message `record`."""
    return count(dict_in(record.get("tokens")).get("total"))


def read(path: Path, checkpoint: Checkpoint | None, *, keep_raw: bool) -> ReadResult:
    """Read a log (see `AgentAdapter.read`). A JSON file of an old version never grows, and is read completely."""
    if path.suffix == _WHOLE:
        found = GeminiFold(path, None, keep_raw=keep_raw)
        size = _feed_whole(found, path)
        session, skipped = found.session()
        return ReadResult(session, skipped, UNREAD, (), size)
    return record_reader.read(GeminiFold, path, checkpoint, keep_raw=keep_raw)


def glance(path: Path) -> Session | None:
    """Return the session in a log with only what a list of sessions shows; `None` if the log is no session."""
    if path.suffix != _WHOLE:
        return record_reader.glance(GeminiFold, path)
    found = GeminiFold(path, None, keep_raw=False)
    if not _feed_whole(found, path):
        raise OSError(f"{NO_LOG}it is not a JSON object")
    return found.session()[0]


def is_copy(path: Path) -> bool:
    """Return True if a log is a copy: its first record names another directory than its folder does."""
    found = GeminiFold(path, None, keep_raw=False)
    for line in decode_file(path) if path.suffix == _WHOLE else first_lines(path):
        found.note(line.record)
        if "hash" in found.facts:
            break
    return found.is_copy()


def log_records(path: Path, *, whole: bool = False) -> Iterable[Record]:
    """Return the records of a log in order. Very long texts are shortened, unless they are read `whole`.

    Raises:
        OSError: The log cannot be read.
    """
    lines = decode_file(path) if path.suffix == _WHOLE else resume(path, None)[0]
    return (line.whole if whole else line.record for line in lines)


def _feed_whole(found: GeminiFold, path: Path) -> int:
    size = 0
    for line in decode_file(path):
        size = len(line.source)
        found.feed(line)
    return size


#: A record with this text may name a sub-agent. The pattern is the form of ids that can name a folder.
_NAMES, _ID = b'"agentId"', re.compile(r"[0-9A-Za-z-]{1,100}")


class GeminiSubAgents(SubAgents):
    """Reads Gemini CLI's sub-agents, each with a log file of its own."""

    def begun(self, session: Session) -> Mapping[str, str]:
        answers = [turn.raw for turn in session.turns if turn.tool_calls and _NAMES in turn.raw]
        logs = _logs(session) if answers else {}
        return {call: name for raw in answers for call, name in started_agents(raw) if name in logs}

    def read(self, session: Session, name: str) -> Session | None:
        if (log := _logs(session).get(name)) is None:
            return None
        found = GeminiFold(log, None, keep_raw=True).take(LineReader(log))
        found.facts["kind"] = False  # a sub-agent's log would be no session
        return found.session()[0]


def _logs(session: Session) -> Mapping[str, Path]:
    """Return the logs of the sub-agents that the session itself began, by the sub-agents' names."""
    chats = session.source_path.parent
    folder = chats / session.session_id
    if chats.name != CHATS or not _ID.fullmatch(session.session_id) or folder.is_symlink():
        return {}
    return {file.path.stem: file.path for file in regular_files(folder, "gemini")}


def started_agents(raw: bytes) -> Iterator[tuple[str, str]]:
    """Yield (call id, sub-agent's name) for each tool call in a raw record that started a sub-agent."""
    for call in dicts_in(dict_in(json_in(raw)).get("toolCalls")):
        if isinstance(name := call.get("agentId"), str):
            yield str(call.get("id") or ""), name


class GeminiAncestry(Ancestry):
    """Finds the parents of Gemini CLI's sessions by the first messages that two logs share."""

    def begins(self, kin: FamilyLog) -> bool:
        memory = Memory()
        for record in islice(log_records(kin.path), HEAD_RECORDS):
            _note(kin, record)
            if (said := next((told.id for told in memory.apply(record) if _is_said(told.record)), None)) is not None:
                kin.first = CopiedMessage(said, kin.recorded)
                return True
        return False

    def messages(self, kin: FamilyLog) -> list[CopiedMessage]:
        memory = Memory()
        told = (one for record in log_records(kin.path) for one in memory.apply(record))
        return [
            CopiedMessage(one, kin.recorded) for one in dict.fromkeys(one.id for one in told if _is_said(one.record))
        ]

    def shared(self, kin: FamilyLog, parent: FamilyLog, above: Session, fork: Callable[[], Session | None]) -> int:
        there = {message.id for message in kin.messages}
        return max(
            (number + 1 for number, turn in enumerate(above.turns) if turn.prompt and turn.id in there), default=0
        )


def _note(kin: FamilyLog, record: Record) -> None:
    kin.begun = kin.begun or utc(record.get("startTime"))
    origin = record.get("forkedFrom")
    if isinstance(origin, dict) and isinstance(origin.get("sessionId"), str):
        kin.recorded = kin.recorded or origin["sessionId"]


def _is_said(record: Record) -> bool:
    return bool(signature_of(record)) and not answers_in(record)


def _sign(record: Mapping[str, Any]) -> RecordSign:
    kind, text = record.get("type"), said_in(record)
    said = dict(record)
    if kind == "gemini":
        loaded = loaded_after(record)
        if not text or next(calls_in(said), None):
            return RecordSign("working", loaded)
        return RecordSign("idle", loaded, settling=True)  # of a call behind it nothing is written before its result
    if kind == "user":
        return RecordSign() if is_context(record) and not answers_in(said) else RecordSign("working")
    if kind == "error":
        return RecordSign("idle", problem=text or "The model could not be reached")
    return RecordSign("idle") if kind == "info" and text == CANCELLED else RecordSign()


def _answers(records: Iterable[Mapping[str, Any]]) -> AnswerTokens:
    """Yield the token counts of the model's answers. An answer may be in several records with the same id."""
    for record in records:
        if record.get("type") == "gemini":
            tokens = dict_in(record.get("tokens"))
            output = count(tokens.get("output")) + count(tokens.get("thoughts"))
            yield answer_tokens(record.get("id"), tokens | {"output": output}, ("input", "output", "cached", ""))


#: The live status of Gemini CLI's sessions.
TAIL = Tail(_sign, _answers)
