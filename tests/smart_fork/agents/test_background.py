"""The background tasks in a log: all ways in which tasks begin, and all ways in which they end."""

from __future__ import annotations

from smart_fork.agents import AGENTS
from tests.smart_fork.forks import said
from tests.support.cases import parametrize_subtests

SHELL = {"stdout": "", "stderr": "", "interrupted": False, "backgroundTaskId": "b1"}
BEGUN = {
    "a shell": ({"command": "pnpm dev", "run_in_background": True}, SHELL),
    "a shell that was put there later": ({"command": "pnpm dev"}, SHELL | {"backgroundedByUser": True}),
    "a monitor": ({"command": "tail -f x", "description": "pnpm dev"}, {"taskId": "b1", "timeoutMs": 3000, "persistent": True}),
    "a sub-agent": ({"prompt": "x"}, {"isAsync": True, "status": "async_launched", "agentId": "b1", "description": "pnpm dev"}),
    "a workflow": ({"script": "x"}, {"status": "async_launched", "taskId": "b1", "taskType": "local_workflow", "workflowName": "pnpm dev"}),
    "a sub-agent that goes on": ({"to": "b1", "description": "pnpm dev"}, {"success": True, "message": "Resumed", "resumedAgentId": "b1"}),
}  # fmt: skip


def notification(status: str = "<status>completed</status>", task: str = "b1") -> str:
    return f"<task-notification>\n<task-id>{task}</task-id>\n{status}\n<summary>s</summary>\n</task-notification>"


def answered(result: object, given: dict | None = None, **more: object) -> list[dict]:
    """Return the records of a tool call and of its result."""
    call = {"type": "tool_use", "id": "t1", "name": "Tool", "input": given or {}}
    back = {"type": "tool_result", "tool_use_id": "t1", "content": "as text"}
    return [said("c", None, "assistant", [call], **more), said("r", "c", "user", [back], toolUseResult=result, **more)]


ENDED = {
    "a message": [said("n", "r", "user", notification())],
    "a message of blocks": [said("n", "r", "user", [{"type": "text", "text": notification("<status>failed</status>")}])],
    "a message that waits for its turn": [{"type": "queue-operation", "operation": "enqueue", "content": notification()}],
    "a message between two answers": [{"type": "attachment", "attachment": {"type": "queued_command", "prompt": notification("<status>killed</status>")}}],
    "a reminder": [{"type": "attachment", "attachment": {"type": "task_status", "taskId": "b1", "status": "completed"}}],
    "TaskStop": answered({"message": "Successfully stopped task: b1", "task_id": "b1", "task_type": "local_bash"}),
    "KillShell": answered({"message": "Successfully killed shell: b1", "shell_id": "b1"}),
    "TaskOutput": answered({"retrieval_status": "success", "task": {"task_id": "b1", "status": "completed"}}),
    "BashOutput": answered({"shellId": "b1", "status": "failed", "exitCode": 255}),
}  # fmt: skip
GOING_ON = {
    "what a monitor saw": [said("n", "r", "user", notification("<event>one more line</event>"))],
    "another's end": [said("n", "r", "user", notification(task="b2"))],
    "a stop that was only asked for": [said("k", "r", "assistant", [{"type": "tool_use", "id": "t2", "name": "TaskStop", "input": {"task_id": "b1"}}])],
    "a stop that failed": answered("Error: No task found with ID: b1", {"task_id": "b1"}),
    "TaskOutput": answered({"retrieval_status": "timeout", "task": {"task_id": "b1", "status": "running"}}),
    "BashOutput": answered({"shellId": "b1", "status": "running", "exitCode": None}),
    "a reminder": [{"type": "attachment", "attachment": {"type": "task_status", "taskId": "b1", "status": "running"}}],
    "no records at all": [{}, {"message": 3, "attachment": 4, "toolUseResult": [5]}, {"message": {"content": [6]}}],
}  # fmt: skip


def running(records: list[dict], agent: str = "claude", since: str = "") -> list[tuple[str, str]]:
    return [(task.id, task.what) for task in AGENTS.tail_of(agent).running_tasks(records, since)]


@parametrize_subtests("begun", BEGUN.values())
def test_what_claude_code_has_begun_runs_until_its_log_tells_of_its_end(begun):
    given, result = begun
    assert [("b1", "pnpm dev")] == running(answered(result, given))
    for records in ENDED.values():
        assert [] == running(answered(result, given) + records)


@parametrize_subtests("records", GOING_ON.values())
def test_what_is_told_of_a_task_need_not_be_its_end(records):
    assert [("b1", "pnpm dev")] == running(answered(SHELL, {"command": "pnpm dev"}) + records)


def test_a_task_that_goes_on_after_its_end_runs_again():
    given, result = BEGUN["a sub-agent that goes on"]
    assert [("b1", "pnpm dev")] == running(
        answered(*reversed(BEGUN["a sub-agent"])) + ENDED["a message"] + answered(result, given)
    )


def test_what_is_another_s_does_not_run_here():
    """The tasks are copied from another session, a sub-agent's, or older than the running agent."""
    assert [] == running(answered(SHELL, forkedFrom={"sessionId": "x", "messageUuid": "y"}))
    assert [] == running(answered(SHELL, isSidechain=True))
    assert [] == running(answered(SHELL), since="2026-01-01T00:00:00.001Z")
    assert [("b1", "b1")] == running(answered(SHELL), since="2026-01-01T00:00:00.000Z")


def test_what_only_looks_like_a_task_is_none():
    plain = {"stdout": "Command running in background with ID: b1", "stderr": ""}
    done = {"status": "completed", "agentId": "b1", "content": []}
    listed = {"success": True, "taskId": "1", "updatedFields": ["status"]}
    for result in (
        plain,
        done,
        listed,
        {"task": {"id": "1", "subject": "x"}},
        "backgroundTaskId",
        {"backgroundTaskId": 5},
    ):
        assert [] == running(answered(result, {"command": "x", "run_in_background": True}))


def test_a_task_is_named_on_one_line_without_secrets():
    hostile = "echo \x1b[2J\n" + "ghp_" + "Zx9Qw3Er7Ty1Ui5Op2As8Df4Gh6Jk0LzXcVb" + " x" * 200
    ((_, what),) = running(answered(SHELL, {"command": hostile}))
    assert what.isprintable()
    assert "Zx9Qw3" not in what
    assert len(what) <= 80


def codex(name: str, given: str, output: object, call: str = "c1") -> list[dict]:
    return [
        {"type": "response_item", "payload": {"type": "function_call", "name": name, "arguments": given, "call_id": call}},
        {"type": "response_item", "payload": {"type": "function_call_output", "call_id": call, "output": output}},
    ]  # fmt: skip


def shell_said(how: str) -> str:
    return f"Command: /bin/sh -lc 'make'\nChunk ID: a1\nWall time: 1.0 seconds\n{how}\nOriginal token count: 1\nOutput:\nProcess exited with code 0\n"


RUNS = "Process running with session ID 42"
COMMAND = codex("exec_command", '{"cmd": "make watch"}', shell_said(RUNS))
SPAWNED = codex("spawn_agent", '{"message": "make watch"}', '{"agent_id": "a-1", "nickname": "Ohm"}')


def test_a_command_of_codex_s_runs_until_it_has_exited():
    look = '{"session_id": 42, "chars": ""}'
    assert [("42", "make watch")] == running(COMMAND, "codex")
    assert [("42", "make watch")] == running(COMMAND + codex("write_stdin", look, shell_said(RUNS)), "codex")
    assert [] == running(codex("exec_command", '{"cmd": "x"}', shell_said("Process exited with code 1")), "codex")
    for over in (
        codex("write_stdin", look, shell_said("Process exited with code 0")),
        codex("write_stdin", look, [{"type": "input_text", "text": shell_said("Process exited with code 0")}]),
        codex("write_stdin", look, "write_stdin failed: Unknown process id 42"),
        [{"type": "event_msg", "payload": {"type": "exec_command_end", "process_id": "42", "exit_code": 0}}],
    ):
        assert [] == running(COMMAND + over, "codex")


def test_a_sub_agent_of_codex_s_runs_until_it_has_come_to_rest():
    assert [("a-1", "make watch")] == running(SPAWNED, "codex")
    waited = codex("wait_agent", '{"targets": ["a-1"]}', '{"status": {}, "timed_out": true}')
    assert [("a-1", "make watch")] == running(SPAWNED + waited, "codex")
    told = '<subagent_notification>\n{"agent_path": "a-1", "status": {"completed": "done"}}\n</subagent_notification>'
    ends = (
        codex("wait_agent", '{"targets": ["a-1"]}', '{"status": {"a-1": {"completed": "x"}}, "timed_out": false}'),
        codex("close_agent", '{"target": "a-1"}', '{"previous_status": "running"}'),
        [{"type": "response_item", "payload": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": told}]}}],
    )  # fmt: skip
    for over in ends:
        assert [] == running(SPAWNED + over, "codex")
    again = codex("send_input", '{"target": "a-1", "message": "more"}', '{"submission_id": "s"}')
    assert [("a-1", "more")] == running(SPAWNED + ends[0] + again, "codex")


def test_broken_records_of_codex_s_say_nothing():
    for output in (None, 3, "{", "[]", '{"status": 3}'):
        assert [] == running(codex("wait_agent", "not JSON", output) + codex("spawn_agent", "[1]", output), "codex")
    assert [] == running([{}, {"payload": 3}], "codex")
