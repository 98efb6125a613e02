"""Reading of Qwen Code's sessions: decoding records, building sessions, sub-agents, families and live status.

Messages have the form of Gemini CLI, of which Qwen Code is a fork: ``parts``, each a text, a thought, a call or a
result. ``parentUuid`` links the records to a chain. Records of type ``system`` are links without conversation, also if
they repeat texts: telemetry, snapshots and commands of Qwen Code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from indexer.json_values import dict_in, dicts_in, list_in
from indexer.lazy_compilation import late
from indexer.transcripts.lines import Line
from indexer.transcripts.model import GivenBack, Item, Origin, Session, Turn, UsedTool, estimate_tokens
from indexer.transcripts.reader_state import count
from indexer.transcripts.texts import (
    PersonAnswers,
    Questions,
    Said,
    last_names,
    masked_name,
    strip_boilerplate,
    strip_recall,
)
from smart_fork.agents import AGENTS, log_tail
from smart_fork.agents.ancestry import TreeAncestry, origin_by_workers
from smart_fork.agents.decoders import (
    MessageCodec,
    Record,
    characters,
    parts_answer,
    parts_text,
    patch_shown,
    shortened,
    texts_of,
)
from smart_fork.agents.qwen.log_files import agents_of, project_of, slug
from smart_fork.agents.subagents import LoggedSubAgents
from smart_fork.agents.tree import Tree

#: The output of a shell command, between its header and the lines below.
_RAN = re.compile(r"\ACommand: .*?^Output: (?P<output>.*)^Error: ", re.DOTALL | re.MULTILINE)
_EXIT = re.compile(r"^Exit Code: (-?\d{1,9})$", re.MULTILINE)


#: The types of records that the model is sent.
SAID = ("user", "assistant", "tool_result")


class QwenAnswers(PersonAnswers):
    """The parser of a person's answers to Qwen Code's questions. Each answer follows its question's heading."""

    asking = late(r"(?i)ask_?user_?question")
    under_headings = "User has provided the following answers:"

    def answered(self, output: str, questions: Questions) -> Said:
        if not output.lstrip().startswith(self.under_headings):
            return super().answered(output, questions)
        headings = {heading or f"Question {number}": text for number, (_, heading, text) in enumerate(questions, 1)}
        named = "|".join(map(re.escape, headings))
        parts = re.split(rf"^\*\*({named})\*\*: ", output, flags=re.MULTILINE)
        return [(headings[one], words.strip()) for one, words in zip(parts[1::2], parts[2::2], strict=True)]


class QwenCodec(MessageCodec):
    """The decoder of Qwen Code's records. An edit's diff is a field beside the result."""

    field = "parts"
    answers = QwenAnswers()
    shell, not_run = "run_shell_command", ("[Operation Cancelled]",)
    tools = MappingProxyType({
        "edit": "Edit", "write_file": "Write", "notebook_edit": "NotebookEdit", "read_file": "Read",
        "grep_search": "Grep", "glob": "Glob", "todo_write": "TodoWrite", "task_stop": "KillShell",
        "tool_search": "ToolSearch", "exit_plan_mode": "EnterPlanMode", "run_shell_command": "Bash",
    })  # fmt: skip
    starting = ("agent",)

    def decode(self, record: Record) -> Item:
        parts = parts_of(record.get("message"))
        patch = patch_shown(dict_in(record.get("toolCallResult")).get("resultDisplay"))
        calls = dicts_in([part.get("functionCall") for part in parts])
        answers = dicts_in([part.get("functionResponse") for part in parts])
        return Item(
            parts_text(parts),
            tuple(UsedTool(str(one.get("id") or ""), str(one.get("name") or ""), one.get("args")) for one in calls),
            tuple(GivenBack(str(one.get("id") or ""), *output_of(one), patch) for one in answers),
            tuple(str(part.get("text") or "") for part in parts if part.get("thought") is True),
            sum("inlineData" in part for part in parts),
        )

    def is_sent(self, record: Record) -> bool:
        return record.get("type") in SAID or self.sums_up(record)

    def sums_up(self, record: Record) -> bool:
        return record.get("subtype") == "chat_compression"

    def size(self, record: Record) -> int:
        return len(summary_in(record)) if self.sums_up(record) else characters(record.get("message"))

    def short_part(self, part: Record) -> Record:
        if not isinstance(part.get("functionResponse"), dict):
            return part
        made: Record = shortened(part)
        return made


def summary_in(record: Record) -> str:
    """Return the summary in a compaction's record: the first message in its history; empty without one."""
    history = dicts_in(dict_in(record.get("systemPayload")).get("compressedHistory"))
    return texts_of(list_in(history[0].get("parts"))) if history else ""


def parts_of(message: object) -> list[Record]:
    """Return a message's parts (text, thought, call or result); empty if the value is no message."""
    return dicts_in(dict_in(message).get("parts"))


def output_of(answer: Record) -> tuple[str, bool]:
    """Return the text of a tool result (a shell command's exit status first), and True if the call failed."""
    output, failed = parts_answer(answer)
    if output.startswith("Command: ") and (ran := _RAN.match(output)):
        status = _EXIT.search(output, ran.end())
        output = f"Exit code: {status[1]}\n{ran['output']}" if status else ran["output"]
    return output, failed


CODEC = QwenCodec()
#: The subtypes of a person's messages. Other messages come from schedules, goals and background tasks.
_TYPED = (None, "mid_turn_user_message")


class QwenTree(Tree):
    """The fold (reader) that builds a session from one Qwen Code log, in which records name their parents.

    If a parent is missing, the conversation begins after the gap, since Qwen Code loads nothing before it.
    """

    agent = "qwen"
    known = frozenset({
        "user", "assistant", "tool_result", "ui_telemetry", "attribution_snapshot", "file_history_snapshot", "rewind",
        "slash_command", "chat_compression", "custom_title", "notification", "parent_session", "agent_bootstrap",
    })  # fmt: skip
    bridged = False
    naming = (b'"custom_title"',)
    codec, session_logs = CODEC, AGENTS.session_logs

    def is_known(self, record: Record) -> bool:
        """Return True if this kind of record is known; of a system record the subtype decides."""
        return super().is_known({"type": record.get("subtype")} if record.get("type") == "system" else record)

    def is_name(self, record: Record) -> bool:
        return record.get("subtype") == "custom_title"

    def note_title(self, record: Record) -> None:
        given = dict_in(record.get("systemPayload")) if self.is_name(record) else {}
        if isinstance(title := given.get("customTitle"), str):
            name = masked_name(title.strip())
            self.facts["ai_title" if given.get("titleSource") == "auto" else "custom_title"] = name
            self.facts["names"] = last_names(self.facts.get("names", ()), name)

    def turn(self, record: Record, identity: str, line: Line) -> Turn | None:
        kind, message = record.get("type"), record.get("message")
        if kind == "system":
            return self._system(record, identity, line)
        if not isinstance(message, dict):
            return None
        item = CODEC.decode(record)
        if kind == "assistant":
            self.note_model(record.get("model"))
            text = strip_recall(item.text)
            return self.make(record, identity, line, "assistant", text, calls=item.calls, loaded=loaded_after(record))
        if kind == "tool_result":
            return self.make(record, identity, line, "tool", "", results=item.results)
        return self._user(record, item.text, identity, line) if kind == "user" else None

    def _system(self, record: Record, identity: str, line: Line) -> Turn | None:
        """Return the turn of a system record that is a compaction's summary or a rewind; else `None`.

        A rewind's record is the end of the conversation until a new message follows it.
        """
        subtype = record.get("subtype")
        if subtype == "parent_session":
            self.facts["begun_by_another"] = True
        if subtype == "rewind":
            return self.make(record, identity, line, "system", "")
        payload = dict_in(record.get("systemPayload"))
        history = payload.get("compressedHistory")
        if not CODEC.sums_up(record) or not isinstance(history, list):
            return None
        self.note_compaction()
        said = [parts_text(parts_of(one)) for one in history]
        left = count(dict_in(payload.get("info")).get("newTokenCount")) or max(1, sum(map(estimate_tokens, said)))
        return self.summary(record, identity, line, next((text for text in said if text.strip()), ""), left)

    def _user(self, record: Record, said: str, identity: str, line: Line) -> Turn:
        if not is_typed(record):
            return self.make(record, identity, line, "system", "")
        text = strip_boilerplate(typed_in(record, said))
        return self.make(record, identity, line, "user", text, prompt=bool(text))

    def given_name(self) -> str:
        return str(self.facts.get("custom_title", ""))

    def own_name(self, turns: tuple[Turn, ...]) -> str:
        return str(self.facts.get("ai_title", ""))

    def origin(self) -> Origin:
        """Return who began the session, as smart-fork noted it: the prompts of a script look like a person's."""
        named = bool(self.given_name())
        return "subagent" if self.facts.get("begun_by_another") else origin_by_workers(self.own_id(), named=named)

    def folder(self) -> str:
        return self.path.parent.parent.name

    def folder_for(self, directory: str) -> str:
        return slug(directory)


def is_typed(record: Record) -> bool:
    """Return True if a ``user`` record is a prompt from a person, or from a script in a person's place."""
    return record.get("subtype") in _TYPED and record.get("provenance") in (None, "real_user")


def typed_in(record: Record, said: str) -> str:
    """Return the text that a person typed in a prompt. Hooks may have added to `said`, the whole text."""
    shown = dict_in(record.get("systemPayload")).get("displayText")
    return shown if isinstance(shown, str) else said


def loaded_after(record: Record) -> int:
    """Return the number of tokens in the model's context after the message `record`."""
    return count(dict_in(record.get("usageMetadata")).get("totalTokenCount"))


class QwenSubAgents(LoggedSubAgents):
    """Reads Qwen Code's sub-agents, each with a log file of its own."""

    tree = QwenTree

    def folders(self, session: Session) -> Iterable[tuple[Path, int]]:
        log = session.source_path
        inside = log.parent if log.parent.parent.name == "subagents" else None
        return ((inside or agents_of(log), 0),)

    def begun(self, session: Session) -> Mapping[str, str]:
        logs = self.logs(session)
        calls = {call.id for turn in session.turns for call in turn.tool_calls if call.id} if logs else set()
        return {call: name for call in calls for name in logs if name.endswith(f"-{call}")}


class QwenAncestry(TreeAncestry):
    """Finds the parents of Qwen Code's sessions by the first messages that two logs share.

    Forks that Qwen Code makes have the same form as smart-fork's copies.
    """

    said = SAID

    def names_a_copy(self, record: dict[str, Any]) -> bool:
        return record.get("subtype") == "custom_title" and "forkedFrom" not in record

    def project(self, log: Path) -> Path:
        return project_of(log)


_USAGE = ("promptTokenCount", "candidatesTokenCount", "cachedContentTokenCount", "")
#: The text with which a tool names its task in the background.
_BEGUN = re.compile(r"^(?:task_id|Task ID|Background shell started\. id): ([\w-]{1,100})", re.MULTILINE)


def _sign(record: Mapping[str, Any]) -> log_tail.RecordSign:
    kind = record.get("type")
    if record.get("isSidechain") is True:
        return log_tail.RecordSign()
    if kind == "assistant":
        calls = any("functionCall" in part for part in parts_of(record.get("message")))
        return log_tail.RecordSign("working" if calls else "idle", loaded_after(dict(record)))
    if kind == "tool_result":
        stopped = dict_in(record.get("toolCallResult")).get("status") == "cancelled"
        return log_tail.RecordSign("idle" if stopped else "working")
    return log_tail.RecordSign("working") if kind == "user" else log_tail.RecordSign()


def _steps(record: Mapping[str, Any], calls: log_tail.Calls) -> log_tail.Steps:
    """Yield (id, name) for each background task that starts with a record, (id, `None`) for each that ends.

    Records of sub-agents, and records that a fork copied from its parent, are skipped.
    """
    if record.get("isSidechain") is True or "forkedFrom" in record:
        return
    parts = parts_of(record.get("message"))
    for part in parts:
        call, answer = part.get("functionCall"), part.get("functionResponse")
        if isinstance(call, dict) and isinstance(given := call.get("args"), dict):
            calls[str(call.get("id"))] = log_tail.OpenCall(str(call.get("name")), given)
        elif isinstance(answer, dict):
            yield from _begun(answer, calls.pop(str(answer.get("id")), log_tail.NO_CALL))
    if record.get("type") == "user" and record.get("subtype") == "notification":
        yield from log_tail.notified(parts_text(parts))


def _begun(answer: Mapping[str, Any], call: log_tail.OpenCall) -> log_tail.Steps:
    output = dict_in(answer.get("response")).get("output")
    in_background = call.tool == "agent" or call.given.get("is_background") is True
    if in_background and isinstance(output, str) and (found := _BEGUN.search(output)):
        yield found[1], call.text("description", "command")


def _answers(records: Iterable[Mapping[str, Any]]) -> log_tail.AnswerTokens:
    for number, record in enumerate(records):
        if record.get("type") == "assistant":
            yield log_tail.answer_tokens(number, dict_in(record.get("usageMetadata")), _USAGE)


#: The live status of Qwen Code's sessions.
TAIL = log_tail.Tail(_sign, _answers, _steps)
