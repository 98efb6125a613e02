"""Reading of Copilot CLI's sessions: decoding events, building sessions, sub-agents, families and live status.

An answer's event contains its tool calls, and each result is an event of its own. ``parentId`` links the events to a
chain, in the order of the file. A sub-agent's events are in the same chain and name the sub-agent. Events without
conversation, such as instructions, permissions and usage, serve only as links.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import islice
from sys import intern
from types import MappingProxyType
from typing import Any

from indexer.json_values import dict_in, dicts_in, text_in
from indexer.lazy_compilation import late
from indexer.masking import Masked
from indexer.safe_files import open_regular
from indexer.transcripts.lines import Line, LineReader
from indexer.transcripts.model import GivenBack, Item, Origin, Session, Turn, UsedTool
from indexer.transcripts.reader_state import count, utc
from indexer.transcripts.texts import PersonAnswers, strip_boilerplate, strip_recall, title_of
from smart_fork.agents import AGENTS
from smart_fork.agents.ancestry import HEAD_RECORDS, Ancestry, CopiedMessage, FamilyLog, origin_by_workers
from smart_fork.agents.copilot.log_files import WORKSPACE, name_in
from smart_fork.agents.decoders import Record, SizedCodec, characters, shortened
from smart_fork.agents.log_tail import AnswerTokens, RecordSign, Tail, answer_tokens
from smart_fork.agents.record_reader import read
from smart_fork.agents.subagents import SubAgents
from smart_fork.agents.tree import ID_CHARACTERS, ROOT, FolderlessTree

#: The event with a result, and the fields with a thought: as text, and signed or encrypted.
ANSWERED, THOUGHTS = "tool.execution_complete", ("reasoningText", "reasoningOpaque")
COMPACTED = "session.compaction_complete"
#: The events of which the model is sent something. A tuple: a hostile type may have no hash.
SAID = ("user.message", "assistant.message", ANSWERED, COMPACTED)
#: The end of a shell's output.
_ENDED = re.compile(
    r"\n?<(?:shellId: \S{1,100} completed with exit code -?\d{1,9}|exited with exit code -?\d{1,9})>\s*\Z"
)


class CopilotAnswers(PersonAnswers):
    """The parser of a person's answers to Copilot CLI's questions."""

    asking = late(r"(?i)ask_?user")


class CopilotCodec(SizedCodec):
    """The decoder of Copilot CLI's events."""

    answers = CopilotAnswers()
    shell, not_run = "bash", ("Permission denied", "The user rejected", "Denied by")
    tools = MappingProxyType({
        "bash": "Bash", "view": "Read", "edit": "Edit", "create": "Write", "grep": "Grep", "glob": "Glob",
        "read_bash": "BashOutput", "stop_bash": "KillBash", "update_todo": "TodoWrite",
    })  # fmt: skip
    starting = ("task",)

    def decode(self, record: Record) -> Item:
        data = data_of(record)
        text, thought, result = data.get("content"), data.get(THOUGHTS[0]), data.get("result")
        calls = (
            UsedTool(str(one.get("toolCallId") or ""), str(one.get("name") or ""), one.get("arguments"))
            for one in requests_in(data)
        )
        results: tuple[GivenBack, ...] = ()
        images = 0
        if record.get("type") == ANSWERED:
            told = dict_in(result)
            patch = text_in(told.get("detailedContent"))
            results = (GivenBack(str(data.get("toolCallId") or ""), *output_of(data), patch),)
            images = sum(part.get("type") == "image" for part in dicts_in(told.get("contents")))
        thoughts = (text_in(thought),) if any(map(data.get, THOUGHTS)) else ()
        return Item(text_in(text), tuple(calls), results, thoughts, images)

    def has_place(self, record: Record) -> bool:
        return not is_of_subagent(record)

    def is_sent(self, record: Record) -> bool:
        return record.get("type") in SAID

    def sums_up(self, record: Record) -> bool:
        return record.get("type") == COMPACTED

    def size(self, record: Record) -> int:
        data = data_of(record)
        if self.sums_up(record):
            return len(summary_in(record))
        if record.get("type") == ANSWERED:
            return characters(_sent_result(data)) + characters(data.get("error"))
        called = [{"name": one.get("name"), "arguments": one.get("arguments")} for one in requests_in(data)]
        return characters(data.get("transformedContent") or data.get("content")) + characters(called)

    def short(self, record: Record) -> Record:
        data = data_of(record)
        if record.get("type") != ANSWERED or "result" not in data:
            return record
        content = shortened(_sent_result(data))
        return record | {
            "data": data | {"result": {"content": content} if isinstance(data["result"], dict) else content}
        }


def summary_in(record: Mapping[str, Any]) -> str:
    """Return the summary in a compaction's event; empty for other events."""
    return text_in(data_of(record).get("summaryContent"))


def _sent_result(data: Mapping[str, Any]) -> Any:
    """Return the tool result that the model is sent. An event's result may also hold a longer text for the screen."""
    result = data.get("result")
    return result.get("content") if isinstance(result, dict) else result


def data_of(record: Mapping[str, Any]) -> Record:
    """Return an event's ``data`` object; empty if it has none."""
    return dict_in(record.get("data"))


def is_of_subagent(record: Mapping[str, Any]) -> bool:
    """Return True if an event belongs to a sub-agent, not to the session itself."""
    return record.get("agentId") is not None


def requests_in(data: Mapping[str, Any]) -> list[Record]:
    """Return the tool calls in the data of an answer's event."""
    return dicts_in(data.get("toolRequests"))


def output_of(data: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the text of a tool result (a shell command's exit status first), and True if the call failed."""
    error, shell = data.get("error"), data.get("shellExecution")
    if data.get("success") is False:
        return text_in(error.get("message") if isinstance(error, dict) else error), True
    output = text_in(_sent_result(data))
    status = dict_in(shell).get("exitCode")
    if type(status) is int:
        return f"Exit code: {status}\n{_ENDED.sub('', output)}", status != 0
    return output, False


CODEC = CopilotCodec()
#: The message that names the parent of a fork, and the limit up to which a message is searched.
_LONGEST = 4000
_FORKED = re.compile(r'\AForked from ".*" \(([0-9a-f-]{36})\) as ".*" \([0-9a-f-]{36}\)\.\Z', re.DOTALL)
#: The limit for the file that describes a session.
_MOST = 64 * 1024


#: The events outside the conversation.
_ASIDE = (
    "session.resume", "session.shutdown", "session.error", "session.idle", "session.warning", "session.handoff",
    "session.usage_info", "session.usage_checkpoint", "session.compaction_start", "session.model_change",
    "session.mode_changed", "session.plan_changed", "session.permissions_changed", "session.title_changed",
    "session.truncation", "session.workspace_file_changed", "assistant.turn_start", "assistant.turn_end",
    "assistant.intent", "assistant.usage", "tool.execution_start", "tool.execution_progress",
    "tool.execution_partial_result", "subagent.started", "subagent.configured", "subagent.selected",
    "subagent.completed", "subagent.failed", "permission.requested", "permission.completed", "hook.start", "hook.end",
    "system.message", "system.notification", "skill.invoked",
)  # fmt: skip


class CopilotTree(FolderlessTree):
    """The fold (reader) that builds a session from a Copilot CLI log, in which events name their parents."""

    agent = "copilot"
    #: The sub-agent that has this conversation, and to which each ``user.message`` is a prompt; `None` for the session.
    agent_id: str | None = None
    known = frozenset({
        "session.start", "session.usage_record", "session.info", COMPACTED, "user.message",
        "assistant.message", "tool.execution_complete", "abort", *_ASIDE,
    })  # fmt: skip
    codec, session_logs = CODEC, AGENTS.session_logs

    def is_known(self, record: Record) -> bool:
        """Return True if the type of an event is known. All types that begin with ``model.`` are (of a compaction)."""
        return super().is_known(record) or str(record.get("type")).startswith("model.")

    def feed(self, line: Line) -> None:
        """Add the next event of the log, with its fields renamed as `Tree` expects them."""
        record = line.record
        data = data_of(record)
        place = dict_in(data.get("context")) if record.get("type") == "session.start" else {}
        said: Record = {name: record.get(name) for name in ("timestamp", "type", "agentId", ROOT)}
        said |= {"uuid": record.get("id"), "parentUuid": record.get("parentId"), "data": data}
        if place:
            said |= {"cwd": place.get("cwd"), "gitBranch": place.get("branch"), "sessionId": data.get("sessionId")}
            said["version"] = data.get("copilotVersion")
        super().feed(line._replace(record=said))

    def is_name(self, record: Record) -> bool:
        return bool(forked_from(record))

    def note_title(self, record: Record) -> None:
        """Note the parent session, if this event names it. The title is not in the log, but in a file beside it."""
        if parent := forked_from(record):
            self.facts |= {"parent": parent, "copied": True}

    def turn(self, record: Record, identity: str, line: Line) -> Turn | None:
        if record.get("agentId") != self.agent_id:
            self.facts["sidechain"] = True
            return None
        kind, data = record["type"], record["data"]
        if kind == "session.usage_record":
            self.facts["spent"] = loaded_after(data)
        elif kind == "assistant.message":
            self.note_model(data.get("model"))
            item, loaded = CODEC.decode(record), self.facts.pop("spent", 0)
            text = strip_recall(item.text)
            return self.make(record, identity, line, "assistant", text, calls=item.calls, loaded=loaded)
        elif kind == "tool.execution_complete":
            return self.make(record, identity, line, "tool", "", results=CODEC.decode(record).results)
        elif kind == "user.message":
            text = strip_boilerplate(CODEC.decode(record).text) if self.agent_id is not None or is_typed(data) else ""
            return self.make(record, identity, line, "user" if text else "system", text, prompt=bool(text))
        elif kind == "abort":
            self.facts["interrupted"] = identity
            return self.make(record, identity, line, "system", "")
        elif kind == COMPACTED and data.get("success") is True:
            self.note_compaction()
            left = max(1, count(data.get("postCompactionTokens")))
            return self.summary(record, identity, line, summary_in(record), left)
        return None

    def names(self, turns: tuple[Turn, ...]) -> Iterable[str]:
        return filter(None, (self.given_name(),))

    def origin(self) -> Origin:
        """Return who began the session, as smart-fork noted it: the prompts of a script look like a person's."""
        return origin_by_workers(self.own_id(), named=bool(self.given_name()))

    def given_name(self) -> str:
        """Return the name that a person gave the session, from ``workspace.yaml`` beside the log; else empty."""
        with suppress(OSError), open_regular(self.path.with_name(WORKSPACE)) as file:
            return name_in(file.read(_MOST).decode("utf-8", "replace"))
        return ""

    def own_id(self) -> str:
        name = self.path.parent.name
        return name if len(name) >= ID_CHARACTERS else str(self.facts.get("first_session_id", name))


def is_typed(data: Mapping[str, Any]) -> bool:
    """Return True if a ``user.message`` is a prompt from a person, or from a script in a person's place."""
    return data.get("source") in (None, "user")


def is_prompt(record: Mapping[str, Any]) -> bool:
    """Return True if an event is a prompt to the session itself: not to a sub-agent, and not by Copilot CLI."""
    return record.get("type") == "user.message" and not is_of_subagent(record) and is_typed(data_of(record))


def loaded_after(data: Mapping[str, Any]) -> int:
    """Return the number of tokens in the context after an answer, from the data of its usage event."""
    usage = dict_in(data.get("usage"))
    return count(usage.get("inputTokens")) + count(usage.get("outputTokens"))


def forked_from(record: Mapping[str, Any]) -> str:
    """Return the id of the parent session, if this is the event by which a fork names it; else empty."""
    data = data_of(record)
    if record.get("type") != "session.info" or data.get("infoType") != "fork":
        return ""
    said = data.get("message")
    told = _FORKED.match(said) if isinstance(said, str) and len(said) <= _LONGEST else None
    return told[1] if told else ""


#: The tool that starts a sub-agent, and the event that notes the start.
_TOOL, _STARTED = "task", "subagent.started"


class CopilotSubAgents(SubAgents):
    """Reads Copilot CLI's sub-agents, whose events are in the log of their session."""

    def begun(self, session: Session) -> Mapping[str, str]:
        if not any(call.name == _TOOL for turn in session.turns for call in turn.tool_calls):
            return {}
        try:
            records = [line.record for line in LineReader(session.source_path) if line.record.get("type") == _STARTED]
        except OSError:
            return {}
        named = [(data_of(one).get("toolCallId"), one.get("agentId")) for one in records]
        return {call: name for call, name in named if isinstance(call, str) and isinstance(name, str)}

    def read(self, session: Session, name: str) -> Session | None:
        class OneSubAgent(_SubAgentTree):
            agent_id = name

        return read(OneSubAgent, session.source_path, None, keep_raw=True).session


class _SubAgentTree(CopilotTree):
    """Builds a sub-agent's conversation from its session's log. Other events only connect the sub-agent's events."""

    def feed(self, line: Line) -> None:
        record = line.record
        if record.get("agentId") == self.agent_id or record.get("type") == "session.start":
            super().feed(line)
        elif isinstance(identity := record.get("id"), str):
            parent = record.get("parentId")
            self.chain.link(intern(identity), parent if isinstance(parent, str) else None)

    def title(self, turns: tuple[Turn, ...]) -> Masked:
        return title_of("", (turn.text for turn in turns if turn.prompt))

    def names(self, turns: tuple[Turn, ...]) -> Iterable[str]:
        return ()


class CopilotAncestry(Ancestry):
    """Finds the parents of Copilot CLI's sessions by the first messages that two logs share."""

    def begins(self, kin: FamilyLog) -> bool:
        records = (line.record for line in islice(LineReader(kin.path), HEAD_RECORDS))
        kin.first = next((CopiedMessage(identity) for record in records if (identity := _message_id(record))), None)
        return kin.first is not None

    def messages(self, kin: FamilyLog) -> list[CopiedMessage]:
        """Return the log's messages in order; those before the event that names the parent are marked as copied."""
        said: list[str] = []
        inherited = 0
        for line in LineReader(kin.path):
            if parent := forked_from(line.record):
                kin.recorded, inherited = parent, len(said)
                kin.begun = utc(line.record.get("timestamp"))
            elif identity := _message_id(line.record):
                said.append(identity)
            elif not kin.begun:
                kin.begun = utc(line.record.get("timestamp"))
        return [CopiedMessage(one, kin.recorded if number < inherited else "") for number, one in enumerate(said)]


def _message_id(record: Mapping[str, Any]) -> str:
    """Return the event's id if it is a message of the session itself; else empty."""
    kind, identity = record.get("type"), record.get("id")
    is_message = kind in SAID and kind != COMPACTED and not is_of_subagent(record)
    return identity if is_message and isinstance(identity, str) else ""


_USAGE = ("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens")


def _sign(record: Mapping[str, Any]) -> RecordSign:
    kind, data = record.get("type"), data_of(record)
    if is_of_subagent(record):
        return RecordSign()
    if kind == "assistant.message":
        return RecordSign("working" if requests_in(data) else "idle")
    if kind == "session.usage_record":
        return RecordSign(tokens=loaded_after(data))
    if kind in ("assistant.turn_start", "tool.execution_start", "tool.execution_complete"):
        return RecordSign("working")
    if kind == "user.message":
        return RecordSign("working") if is_typed(data) else RecordSign()
    if kind == "session.error":
        return RecordSign("idle", problem=text_in(data.get("message")) or "The model could not be reached")
    return RecordSign("idle") if kind in ("abort", "session.shutdown") else RecordSign()


def _answers(records: Iterable[Mapping[str, Any]]) -> AnswerTokens:
    for number, record in enumerate(records):
        if record.get("type") == "session.usage_record":
            yield answer_tokens(number, dict_in(data_of(record).get("usage")), _USAGE)


#: The live status of Copilot CLI's sessions.
TAIL = Tail(_sign, _answers)
