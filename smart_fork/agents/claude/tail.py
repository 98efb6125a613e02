"""Reads activity from Claude Code's records: working or waiting, background tasks, edited files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from indexer.values import dict_in, dicts_in
from smart_fork.agents.claude.fold import USAGE, loaded_after, usage_of
from smart_fork.agents.codec import texts_of
from smart_fork.agents.log_tail import (
    GOING_ON,
    NO_CALL,
    AnswerTokens,
    Calls,
    OpenCall,
    RecordSign,
    Steps,
    Tail,
    answer_tokens,
    notified,
)

_INTERRUPTED = "[Request interrupted by user"
#: What Claude Code writes down about commands of its own, which no model sees or answers.
_COMMANDS = ("<command-name>", "<local-command-", "<command-message>")


def _sign(record: Mapping[str, Any]) -> RecordSign:
    kind, message = record.get("type"), record.get("message")
    if record.get("isSidechain") is True or record.get("isMeta") is True:
        return RecordSign()
    if kind == "system" and record.get("subtype") == "turn_duration":
        return RecordSign("idle")
    if kind == "queue-operation" and record.get("operation") in ("enqueue", "dequeue"):
        return RecordSign("working")
    if kind == "assistant" and isinstance(message, dict):
        return _said(record, message)
    if kind == "user" and isinstance(message, dict):
        return _heard(message)
    return RecordSign()


def _said(record: Mapping[str, Any], message: Mapping[str, Any]) -> RecordSign:
    tokens, text = loaded_after(dict(message)), texts_of(message.get("content"))
    if record.get("isApiErrorMessage") is True:
        return RecordSign("idle", tokens, problem=text or "The model could not be reached")
    if message.get("stop_reason") in ("end_turn", "stop_sequence", "max_tokens", "refusal"):
        return RecordSign("idle", tokens)
    # The blocks of one message are records of their own: behind a text may come a call.
    settling = bool(text) and message.get("stop_reason") is None
    return RecordSign("idle" if settling else "working", tokens, settling=settling)


def _heard(message: Mapping[str, Any]) -> RecordSign:
    text = texts_of(message.get("content"))
    if text.startswith(_INTERRUPTED):
        return RecordSign("idle")
    return RecordSign() if text.startswith(_COMMANDS) else RecordSign("working")


def _steps(record: Mapping[str, Any], calls: Calls) -> Steps:
    """Sub-agents' own tasks end with them; what was copied from another session runs there."""
    if record.get("isSidechain") is True or "forkedFrom" in record:
        return
    content, attachment = dict_in(record.get("message")).get("content"), dict_in(record.get("attachment"))
    call = NO_CALL
    for block in dicts_in(content):
        if block.get("type") == "tool_use" and isinstance(given := block.get("input"), dict):
            calls[str(block.get("id"))] = OpenCall(str(block.get("name")), given)
        elif block.get("type") == "tool_result":
            call = calls.pop(str(block.get("tool_use_id")), call)
    if isinstance(result := record.get("toolUseResult"), dict):
        yield from _result(result, call)
    if record.get("type") == "user":
        yield from notified(texts_of(content))
    elif record.get("type") == "queue-operation":
        yield from notified(texts_of(record.get("content")))
    elif attachment.get("type") == "queued_command":
        yield from notified(texts_of(attachment.get("prompt")))
    elif attachment.get("type") == "task_status":
        yield from _told(attachment, "taskId")


def _result(result: Mapping[str, Any], call: OpenCall) -> Steps:
    said = OpenCall("", result)
    if begun := _begun(said):
        yield begun, call.text("description", "command") or said.text("description", "workflowName", "summary")
    if stopped := said.text("task_id", "shell_id"):
        if said.text("message"):
            yield stopped, None
    elif isinstance(task := result.get("task"), dict):
        yield from _told(task, "task_id")
    elif "shellId" in result:
        yield from _told(result, "shellId")


def _begun(said: OpenCall) -> str:
    """The id of the task that a tool says it has begun; empty for most."""
    if said.text("status") in ("async_launched", "remote_launched"):
        return said.text("agentId", "taskId")
    if isinstance(said.given.get("timeoutMs"), int | float):
        return said.text("taskId")
    return said.text("backgroundTaskId", "resumedAgentId")


def _told(task: Mapping[str, Any], name: str) -> Steps:
    """Return the steps in a tool's report on a task with this id field. Only the task's end is news."""
    if task.get("status") not in GOING_ON:
        yield str(task.get(name)), None


def _answers(records: Iterable[Mapping[str, Any]]) -> AnswerTokens:
    """A message stands in several records; each says what was written up to then."""
    for record in records:
        message = dict_in(record.get("message"))
        if record.get("type") == "assistant":
            yield answer_tokens(message.get("id") or record.get("uuid"), usage_of(message), USAGE, whole=False)


def _is_prompt(record: Mapping[str, Any]) -> bool:
    """Versions that do not note the prompt name the directory in it, and what git says of that."""
    return dict_in(record.get("attachment")).get("type") == "prompt_snapshot"


#: Logs of Claude Code.
TAIL = Tail("claude", _sign, _steps, _answers, is_prompt=_is_prompt)
