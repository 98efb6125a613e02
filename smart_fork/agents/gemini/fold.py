"""What the records of one of Gemini CLI's sessions add up to: what was compressed, and then what is remembered.

No record says where, on which branch or with which version. The directory is told by the folder of the log, else by
what Gemini CLI has told its model of its workspace.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from sys import intern
from typing import Any

from indexer.transcripts.base import Checkpoint, ReadResult
from indexer.transcripts.boilerplate import strip_boilerplate, strip_recall
from indexer.transcripts.doings import Doings
from indexer.transcripts.items import GivenBack, UsedTool
from indexer.transcripts.lines import (
    NO_LOG,
    Line,
    LineReader,
    changed_at,
    decode_file,
    first_lines,
    last_records,
    probe,
    resume,
)
from indexer.transcripts.model import Inferred, Role, Session, ToolCall, ToolResult, Turn, estimate_tokens
from indexer.transcripts.model_names import shown, with_model
from indexer.transcripts.state import is_path, pack, utc
from indexer.transcripts.titles import title_of
from smart_fork.agents import READERS
from smart_fork.agents.gemini.home import digest, root_of
from smart_fork.agents.gemini.log import id_of
from smart_fork.agents.gemini.memory import Memory, Told
from smart_fork.agents.gemini.records import (
    GeminiCodec,
    Record,
    answered,
    answers_in,
    calls_in,
    is_context,
    loaded_after,
    output_of,
    parts_of,
    text_of,
    typed_in,
)
from smart_fork.agents.unattended import origin_of

#: The tool that runs command lines.
_SHELL = "run_shell_command"
#: How the answers begin of calls that were not carried out.
_NOT_RUN = ("[Operation Cancelled]", "Tool execution denied", "User denied")
#: How it writes down that the person has stopped it.
CANCELLED = "Request cancelled."
#: The directories of its workspace, as its model is told.
_WORKSPACE = re.compile(r"^- \*\*Workspace Directories:\*\*\n  - (/[^\n]*)$", re.MULTILINE)
_WHOLE = ".json"
_NO_SESSION = Checkpoint(0, 0, "", b"")
Kept = tuple[dict[str, Any], list[Turn]] | None


def _turn_of(identity: str, role: Role, text: str, moment: str, **more: Any) -> Turn:
    calls = more.get("tool_calls", ())
    return Turn(identity, None, role, moment, text, estimate_tokens(text, len(calls)), **more)


class _Fold:
    """What the records of one file add up to. Fed line by line; `pack` is what can be kept and gone on with."""

    def __init__(self, path: Path, kept: Kept, *, keep_raw: bool) -> None:
        self._path, self._keep_raw = path, keep_raw
        self.facts, turns = kept or ({}, [])
        self._memory = Memory(self.facts.pop("memory", None))
        self._turns = {turn.id: turn for turn in turns}
        self._doings = Doings(
            self.facts, runs="", not_run=_NOT_RUN, opens_a_session=READERS.opens_a_session, tools=GeminiCodec.tools
        )

    def pack(self) -> bytes:
        return pack(self.facts | {"memory": self._memory.kept()} | self._doings.kept(), self._chain())

    def feed(self, line: Line) -> None:
        record = line.record
        self.note(record)
        before = self._memory.compactions
        self._memory.reordered = False
        for told in self._memory.take(record):
            self._turns[told.id] = self._turn(told, line.raw if self._keep_raw else b"")
        self.facts["compactions"] = self.facts.get("compactions", 0) + self._memory.compactions - before
        if self._memory.reordered:
            order = (*self._memory.past, *self._memory.now)
            self._turns = {one: self._turns[one] for one in order if one in self._turns}

    def note(self, record: Record) -> None:
        """Note what a record says of the session, if it does."""
        facts = self.facts
        changes = record.get("$set")
        for said in (record, changes) if isinstance(changes, dict) else (record,):
            if isinstance(summary := said.get("summary"), str) and summary.strip():
                facts["summary"] = summary
        if isinstance(record.get("sessionId"), str) and "hash" not in facts:
            facts["hash"], facts["kind"] = str(record.get("projectHash") or ""), record.get("kind") == "subagent"
            origin = record.get("forkedFrom")
            if isinstance(origin, dict) and isinstance(origin.get("sessionId"), str):
                facts["parent"] = origin["sessionId"]
                if isinstance(root := origin.get("root"), str) and root:  # it may leave out what the family began with
                    facts["root"] = root
        moment, begun = utc(record.get("timestamp")), utc(record.get("startTime"))
        for one in filter(None, (moment, begun)):
            facts["started"] = min(one, facts.get("started", one))
        if moment:
            facts["last"] = max(moment, facts.get("last", moment))
        if record.get("type") in ("user", "gemini"):
            facts["interrupted"] = False
        elif record.get("type") == "info" and record.get("content") == CANCELLED:
            facts["interrupted"] = True

    def session(self) -> tuple[Session | None, str]:
        """The session; `None` and why, where it is none."""
        facts, turns = self.facts, tuple(self._chain())
        if facts.get("kind"):
            return None, "only sub-agent records"
        if not turns:
            return None, "no conversation"
        if not any(turn.prompt for turn in turns):
            return None, "it has no prompt"
        cwd, inferred = self._cwd()
        return Session(
            agent="gemini",
            session_id=id_of(self._path),
            source_path=self._path,
            turns=turns,
            cwd=cwd,
            title=title_of("", (turn.text for turn in turns if turn.prompt), by_agent=facts.get("summary", "")),
            started=facts.get("started", ""),
            last_activity=facts.get("last") or facts.get("started", ""),
            origin=origin_of(id_of(self._path)),
            parent_id=facts.get("parent"),
            root_id=facts.get("root", ""),
            compactions=facts.get("compactions", 0),
            symbols=tuple(self._doings.symbols),
            wrote=tuple(self._doings.wrote),
            copied=self.is_copy(),
            interrupted=bool(facts.get("interrupted")),
            inferred_from=inferred,
            models=shown(facts.get("models", ())),
        ), ""

    def is_copy(self) -> bool:
        """Whether it was begun in another directory than that whose sessions are in its folder."""
        told, here = self.facts.get("hash", ""), root_of(self._path.parent.parent)
        return bool(told and here) and told != digest(here)

    def _chain(self) -> list[Turn]:
        """All turns in order, each with the one before it as its parent."""
        return [
            turn if turn.parent_id == parent else replace(turn, parent_id=parent)
            for turn, parent in zip(self._turns.values(), (None, *self._turns), strict=False)
        ]

    def _cwd(self) -> tuple[str, Inferred]:
        if told := root_of(self._path.parent.parent):
            return told, ""
        workspace = self.facts.get("workspace", "")
        return (workspace, "environment_context") if workspace else ("", "")

    def _turn(self, told: Told, raw: bytes) -> Turn:
        """A message as a turn. What it says again keeps its time, and what its calls gave back."""
        before = self._turns.get(told.again) if told.again else None
        identity, record = intern(told.id), told.record
        text = text_of(parts_of(record.get("content")))
        moment = before.timestamp if before and before.timestamp else utc(record.get("timestamp"))
        if told.way == "summary":
            loaded = estimate_tokens(text) if record.get("type") == "user" else 0
            return _turn_of(identity, "system", "", moment, raw=raw, loaded=loaded)
        if before and before.role == "system" and told.way == "listed":  # what nobody said, once more
            return replace(before, id=identity, raw=raw)
        if record.get("type") == "gemini":
            calls, results = self._calls(record, before)
            self.facts["models"] = with_model(self.facts.get("models", ()), record.get("model"))
            said, loaded = strip_recall(text), loaded_after(record)
            return _turn_of(
                identity, "assistant", said, moment, tool_calls=calls, tool_results=results, raw=raw, loaded=loaded
            )
        if before and told.way == "listed":  # what was said, whatever has become of it
            return replace(before, id=identity, raw=raw)
        return self._heard(identity, record, moment, raw)

    def _heard(self, identity: str, record: Record, moment: str, raw: bytes) -> Turn:
        if answers := answers_in(record):
            known = self._given_back()
            new = [one for one in answers if str(one.get("id") or "") not in known]
            results = self._doings.results(GivenBack(str(one.get("id") or ""), *answered(one)) for one in new)
            return _turn_of(identity, "tool" if results else "system", "", moment, tool_results=results, raw=raw)
        if is_context(text_of(parts_of(record.get("content")))):
            self._note_workspace(record)
            return _turn_of(identity, "system", "", moment, raw=raw)
        text = strip_boilerplate(typed_in(record))
        if text:
            self.facts.setdefault("root", f"gemini-{identity}")
        return _turn_of(identity, "user" if text else "system", text, moment, raw=raw, prompt=bool(text))

    def _given_back(self) -> set[str]:
        """The calls since the last prompt whose results are known."""
        since = takewhile(lambda turn: not turn.prompt, reversed(self._turns.values()))
        return {result.tool_use_id for turn in since for result in turn.tool_results}

    def _note_workspace(self, record: Record) -> None:
        found = _WORKSPACE.search(text_of(parts_of(record.get("content"))))
        if found and is_path(found[1]):
            self.facts.setdefault("workspace", found[1])

    def _calls(self, record: Record, before: Turn | None) -> tuple[tuple[ToolCall, ...], tuple[ToolResult, ...]]:
        known = {call.id: call for call in before.tool_calls} if before else {}
        given_back = {result.tool_use_id: result for result in before.tool_results} if before else {}
        calls, results = [], []
        for made in calls_in(record):
            call = UsedTool(made.id, made.name, made.given if isinstance(made.given, dict) else {})
            calls.append(known.get(made.id) or self._doings.call(call))
            if made.id in given_back:
                results.append(given_back[made.id])
            elif made.result is not None:
                if made.name == _SHELL and made.id not in self._doings.ours:
                    self._doings.begin(call)
                results.append(self._doings.result(GivenBack(made.id, *output_of(made))))
        return tuple(calls), tuple(results)


def read(path: Path, checkpoint: Checkpoint | None, *, keep_raw: bool) -> ReadResult:
    """See `AgentAdapter.read`. A log of an old version is read as a whole: it never grows."""
    if path.suffix == _WHOLE:
        fold = _Fold(path, None, keep_raw=keep_raw)
        size = _feed_whole(fold, path)
        session, skipped = fold.session()
        return ReadResult(session, skipped, _NO_SESSION, (), size)
    reader, kept = resume(path, None if keep_raw else checkpoint)
    fold = _Fold(path, kept, keep_raw=keep_raw)
    for line in reader:
        fold.feed(line)
    state = fold.pack() if reader.worth_resuming and not keep_raw else b""
    after = Checkpoint(reader.offset, reader.lines, probe(path, reader.offset), state)
    session, skipped = fold.session()
    return ReadResult(session, reader.odd or skipped, after, tuple(reader.broken), reader.bytes_read, kept is not None)


def read_subagent(path: Path) -> Session | None:
    """The conversation in a sub-agent's log, whose turns have their records; `None` where there is none.

    Raises:
        OSError: it cannot be read.
    """
    fold = _Fold(path, None, keep_raw=True)
    for line in LineReader(path):
        fold.feed(line)
    fold.facts["kind"] = False  # it is looked for as what it is
    return fold.session()[0]


def glance(path: Path) -> Session | None:
    """See `AgentAdapter.glance`."""
    fold = _Fold(path, None, keep_raw=False)
    if path.suffix == _WHOLE:
        if not _feed_whole(fold, path):
            raise OSError(f"{NO_LOG}it is not a JSON object")
    else:
        for line in first_lines(path):
            fold.feed(line)
        for record in last_records(path, (b'"summary"',)):
            fold.note({"$set": record.get("$set")})
    session, _ = fold.session()
    return replace(session, last_activity=changed_at(path)) if session else None


def is_copy(path: Path) -> bool:
    """See `AgentAdapter.is_copy`."""
    fold = _Fold(path, None, keep_raw=False)
    for line in decode_file(path) if path.suffix == _WHOLE else first_lines(path):
        fold.note(line.record)
        if "hash" in fold.facts:
            break
    return fold.is_copy()


def lines_of(path: Path, *, whole: bool = False) -> Iterable[Record]:
    """The records of a log, in their order; `whole` with their long texts, to be written again.

    Raises:
        OSError: it cannot be read.
    """
    lines = decode_file(path) if path.suffix == _WHOLE else resume(path, None)[0]
    return (line.whole if whole else line.record for line in lines)


def _feed_whole(fold: _Fold, path: Path) -> int:
    size = 0
    for line in decode_file(path):
        size = len(line.source)
        fold.feed(line)
    return size
