"""Which tasks a log says run in the background: shells, monitors, workflows and sub-agents that the agent has started.

What an agent says itself of their beginning and end counts, never what was only asked for. Where its log tells of no
end, a task is one that runs; whether there is still an agent to run it, the log does not say.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from indexer.masking import Masked
from indexer.transcripts.model import Agent
from indexer.transcripts.state import utc
from smart_fork.snippets import quoted

_NOTIFICATION = re.compile(r"<task-notification>(.*?)</task-notification>", re.DOTALL)
_TASK = re.compile(r"<task-id>([^<]+)</task-id>")
#: What a monitor has seen is told without a status: it goes on.
_STATUS = re.compile(r"<status>(\w+)</status>")
_GOING_ON = ("running", "pending", "pending_init", "paused")
_RUNNING = re.compile(r"^Process running with session ID (\d+)$", re.MULTILINE)
_OVER = re.compile(r"^Process exited with code |Unknown (?:process|session)", re.MULTILINE)
_OUTPUT = "\nOutput:\n"
_OF_SUBAGENT = re.compile(r"<subagent_notification>\s*(\{.*\})\s*</subagent_notification>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Task:
    """What runs in the background. `what` is how its agent or its command line calls it."""

    id: str
    what: Masked


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of a tool whose result has not been read yet."""

    tool: str
    given: Mapping[str, Any]

    def text(self, *names: str) -> str:
        return next((value for name in names if isinstance(value := self.given.get(name), str) and value), "")


_NO_CALL = _Call("", {})
_Calls = dict[str, _Call]
#: The id of a task, and what it is called where it begins; `None` where it has ended.
_Steps = Iterator[tuple[str, str | None]]


def running_tasks(agent: Agent, records: Iterable[Mapping[str, Any]], since: str = "") -> tuple[Task, ...]:
    """The tasks that were begun since that moment and not seen to end, oldest first."""
    calls: _Calls = {}
    running: dict[str, str] = {}
    for record in records:
        for identity, what in _STEPS[agent](record, calls):
            if what is None:
                running.pop(identity, None)
            elif utc(record.get("timestamp")) >= since:
                running[identity] = what
    return tuple(Task(identity, quoted(" ".join((what or identity).split()))) for identity, what in running.items())


def _claude(record: Mapping[str, Any], calls: _Calls) -> _Steps:
    """Sub-agents' own tasks end with them; what was copied from another session runs there."""
    if record.get("isSidechain") is True or "forkedFrom" in record:
        return
    message, attachment = record.get("message"), record.get("attachment")
    content = message.get("content") if isinstance(message, dict) else None
    call = _NO_CALL
    for block in _dicts(content):
        if block.get("type") == "tool_use" and isinstance(given := block.get("input"), dict):
            calls[str(block.get("id"))] = _Call(str(block.get("name")), given)
        elif block.get("type") == "tool_result":
            call = calls.pop(str(block.get("tool_use_id")), call)
    if isinstance(result := record.get("toolUseResult"), dict):
        yield from _claude_result(result, call)
    if record.get("type") == "user":
        yield from _notified(_text(content))
    elif record.get("type") == "queue-operation":
        yield from _notified(_text(record.get("content")))
    elif isinstance(attachment, dict) and attachment.get("type") == "queued_command":
        yield from _notified(_text(attachment.get("prompt")))
    elif isinstance(attachment, dict) and attachment.get("type") == "task_status":
        yield from _told(attachment, "taskId")


def _claude_result(result: Mapping[str, Any], call: _Call) -> _Steps:
    said = _Call("", result)
    if begun := _begun(said):
        yield begun, call.text("description", "command") or said.text("description", "workflowName", "summary")
    if stopped := said.text("task_id", "shell_id"):
        if said.text("message"):
            yield stopped, None
    elif isinstance(task := result.get("task"), dict):
        yield from _told(task, "task_id")
    elif "shellId" in result:
        yield from _told(result, "shellId")


def _begun(said: _Call) -> str:
    """The id of the task that a tool says it has begun; empty for most."""
    if said.text("status") in ("async_launched", "remote_launched"):
        return said.text("agentId", "taskId")
    if isinstance(said.given.get("timeoutMs"), int | float):
        return said.text("taskId")
    return said.text("backgroundTaskId", "resumedAgentId")


def _told(task: Mapping[str, Any], name: str) -> _Steps:
    """What a tool says of a task, whose id it calls so: only its end is news."""
    if task.get("status") not in _GOING_ON:
        yield str(task.get(name)), None


def _notified(text: str) -> _Steps:
    for told in _NOTIFICATION.finditer(text):
        task, status = _TASK.search(told[1]), _STATUS.search(told[1])
        if task and status and status[1] not in _GOING_ON:
            yield task[1].strip(), None


def _codex(record: Mapping[str, Any], calls: _Calls) -> _Steps:
    payload = record.get("payload")
    if not isinstance(payload, dict):
        return
    kind = payload.get("type")
    if kind == "function_call":
        calls[str(payload.get("call_id"))] = _Call(str(payload.get("name")), _object(payload.get("arguments")))
    elif kind == "function_call_output":
        call = calls.pop(str(payload.get("call_id")), _NO_CALL)
        yield from _codex_result(call, _text(payload.get("output")))
    elif kind == "exec_command_end":
        yield str(payload.get("process_id")), None
    elif kind == "message" and payload.get("role") == "user":
        for told in _OF_SUBAGENT.finditer(_text(payload.get("content"))):
            said = _object(told[1])
            yield from _come_to_rest({str(said.get("agent_path") or said.get("agent_id")): said.get("status")})


def _codex_result(call: _Call, output: str) -> _Steps:
    if call.tool in ("exec_command", "write_stdin"):
        about = output.partition(_OUTPUT)[0]
        if running := _RUNNING.search(about):
            if call.tool == "exec_command":
                yield running[1], call.text("cmd", "command")
        elif _OVER.search(about):
            yield str(call.given.get("session_id")), None
        return
    said = _object(output)
    if call.tool == "spawn_agent" and isinstance(agent := said.get("agent_id"), str):
        yield agent, call.text("message") or str(said.get("nickname") or "")
    elif call.tool == "send_input" and "submission_id" in said:
        yield call.text("target", "id"), call.text("message")
    elif call.tool == "close_agent":
        yield call.text("target", "id"), None
    elif call.tool in ("wait", "wait_agent") and isinstance(states := said.get("status"), dict):
        yield from _come_to_rest(states)


def _come_to_rest(states: Mapping[str, Any]) -> _Steps:
    """Those sub-agents that do nothing more; one that has done something says what."""
    for agent, state in states.items():
        if isinstance(state, dict) or (isinstance(state, str) and state not in _GOING_ON):
            yield agent, None


def _object(text: object) -> dict[str, Any]:
    try:
        value = orjson.loads(text) if isinstance(text, str) else text
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _dicts(content: object) -> list[dict[str, Any]]:
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(text for block in _dicts(content) if isinstance(text := block.get("text"), str))


_STEPS: Mapping[Agent, Callable[[Mapping[str, Any], _Calls], _Steps]] = {"claude": _claude, "codex": _codex}
