"""The live status of a Claude Code session, read from its records: working or waiting, background tasks, tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from indexer.json_values import dict_in, dicts_in
from smart_fork.agents import log_tail
from smart_fork.agents.claude.session_reader import INTERRUPTED, USAGE, loaded_after, usage_of
from smart_fork.agents.decoders import texts_of

#: The beginnings of texts about Claude Code's own commands, which are not sent to a model.
_OWN_COMMANDS = ("<command-name>", "<local-command-", "<command-message>")


def _sign(record: Mapping[str, Any]) -> log_tail.RecordSign:
    kind, message = record.get("type"), record.get("message")
    if record.get("isSidechain") is True or record.get("isMeta") is True:
        return log_tail.RecordSign()
    if kind == "system" and record.get("subtype") == "turn_duration":
        return log_tail.RecordSign("idle")
    if kind == "queue-operation" and record.get("operation") in ("enqueue", "dequeue"):
        return log_tail.RecordSign("working")
    if kind == "assistant" and isinstance(message, dict):
        return _answer_sign(record, message)
    if kind == "user" and isinstance(message, dict):
        text = texts_of(message.get("content"))
        if not text.startswith(_OWN_COMMANDS):
            return log_tail.RecordSign("idle" if text.startswith(INTERRUPTED) else "working")
    return log_tail.RecordSign()


def _answer_sign(record: Mapping[str, Any], message: Mapping[str, Any]) -> log_tail.RecordSign:
    tokens, text = loaded_after(dict(message)), texts_of(message.get("content"))
    if record.get("isApiErrorMessage") is True:
        return log_tail.RecordSign("idle", tokens, problem=text or "The model could not be reached")
    if message.get("stop_reason") in ("end_turn", "stop_sequence", "max_tokens", "refusal"):
        return log_tail.RecordSign("idle", tokens)
    # The blocks of one message are records of their own: behind a text may come a call.
    settling = bool(text) and message.get("stop_reason") is None
    return log_tail.RecordSign("idle" if settling else "working", tokens, settling=settling)


def _steps(record: Mapping[str, Any], calls: log_tail.Calls) -> log_tail.Steps:
    """Yield (id, name) for each background task that a record starts, (id, `None`) for each that it ends.

    Records of sub-agents, and records that a fork copied from its parent, are skipped.
    """
    if record.get("isSidechain") is True or "forkedFrom" in record:
        return
    content, attachment = dict_in(record.get("message")).get("content"), dict_in(record.get("attachment"))
    call = log_tail.NO_CALL
    for block in dicts_in(content):
        if block.get("type") == "tool_use" and isinstance(given := block.get("input"), dict):
            calls[str(block.get("id"))] = log_tail.OpenCall(str(block.get("name")), given)
        elif block.get("type") == "tool_result":
            call = calls.pop(str(block.get("tool_use_id")), call)
    if isinstance(result := record.get("toolUseResult"), dict):
        yield from _result_steps(result, call)
    if record.get("type") == "user":
        yield from log_tail.notified(texts_of(content))
    elif record.get("type") == "queue-operation":
        yield from log_tail.notified(texts_of(record.get("content")))
    elif attachment.get("type") == "queued_command":
        yield from log_tail.notified(texts_of(attachment.get("prompt")))
    elif attachment.get("type") == "task_status":
        yield from _task_end(attachment, "taskId")


def _result_steps(result: Mapping[str, Any], call: log_tail.OpenCall) -> log_tail.Steps:
    said = log_tail.OpenCall("", result)
    if begun := _begun_task(said):
        yield begun, call.text("description", "command") or said.text("description", "workflowName", "summary")
    if stopped := said.text("task_id", "shell_id"):
        if said.text("message"):
            yield stopped, None
    elif isinstance(task := result.get("task"), dict):
        yield from _task_end(task, "task_id")
    elif "shellId" in result:
        yield from _task_end(result, "shellId")


def _begun_task(said: log_tail.OpenCall) -> str:
    """Return the id of the task that a tool result says it started; empty for most results."""
    if said.text("status") in ("async_launched", "remote_launched"):
        return said.text("agentId", "taskId")
    if isinstance(said.given.get("timeoutMs"), int | float):
        return said.text("taskId")
    return said.text("backgroundTaskId", "resumedAgentId")


def _task_end(task: Mapping[str, Any], name: str) -> log_tail.Steps:
    if task.get("status") not in log_tail.GOING_ON:
        yield str(task.get(name)), None


def _answers(records: Iterable[Mapping[str, Any]]) -> log_tail.AnswerTokens:
    """Yield the token counts in the model's answers. Of an answer with several records, the last has the total."""
    for record in records:
        message = dict_in(record.get("message"))
        if record.get("type") == "assistant":
            yield log_tail.answer_tokens(message.get("id") or record.get("uuid"), usage_of(message), USAGE, whole=False)


def _has_system_prompt(record: Mapping[str, Any]) -> bool:
    """Return True if a record has the session's system prompt. Older versions of Claude Code do not log it."""
    return dict_in(record.get("attachment")).get("type") == "prompt_snapshot"


#: The functions for Claude Code's logs.
TAIL = log_tail.Tail(_sign, _answers, _steps, is_prompt=_has_system_prompt)
