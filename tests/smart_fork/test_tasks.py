"""Tests of long calls: tasks for a client that knows tasks, ordinary calls for all others."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.extension import ClientExtension
from mcp.shared.exceptions import MCPError

from smart_fork.server.mcp_tasks import TaskParams
from smart_fork.system import call_context
from smart_fork.system.call_context import Cancelled, refuse_cancelled
from smart_fork.workers.registry import Registry
from tests.smart_fork.mcp_client import Follower, State, TaskRequest, TaskState, answer
from tests.smart_fork.tool_server import create_server

RETRY, DONE = "add retry with backoff to the uploader", "The uploader in upload.py retries five times with backoff"
SECONDS = 60


@pytest.fixture
def at_once(monkeypatch):
    """Make every call a task."""
    monkeypatch.setattr("smart_fork.server.mcp_tasks.DIRECT_SECONDS", 0.0)


@pytest.fixture(autouse=True)
def _in_the_project(shop, monkeypatch):
    monkeypatch.chdir(shop)


def call(world, follower: Follower | None, tool: str, mode: str = "auto", **arguments: object) -> types.CallToolResult:
    async def talk() -> types.CallToolResult:
        server = create_server(world.model, everything=True)
        extensions = [follower] if follower else []
        with anyio.fail_after(SECONDS):
            async with Client(server, mode=mode, extensions=extensions) as client:
                return await client.call_tool(tool, arguments)

    return anyio.run(talk)


def test_waiting_for_a_worker_is_a_task_with_its_progress_and_its_result(world, shop, scripted, at_once):
    order = {"prompt": "go", "project_path": str(shop), "run_in": "process", "worktree": False}
    (worker,) = answer(world, "spawn_workers", workers=[order])["workers"]

    async def end_it(follower: Follower, state: State) -> None:
        while "0 of 1 workers" not in state["statusMessage"]:
            state = await follower.ask("get")
        await follower.session.call_tool("close_workers", {"workers": [worker["worker_id"]]}, allow_claimed=True)

    follower = Follower(end_it)
    told = call(world, follower, "wait_workers", workers=[worker["worker_id"]])

    assert ["working", "completed"] == follower.statuses
    assert told.structured_content is not None
    assert (True, "ended") == (told.structured_content["done"], told.structured_content["workers"][0]["state"])


def test_what_is_answered_soon_is_no_task(world, shop):
    world.claude(shop, RETRY, DONE)

    told = call(world, follower := Follower(), "find_sessions", intent=RETRY)

    assert told.structured_content is not None
    assert (1, []) == (len(told.structured_content["results"]), follower.statuses)


@pytest.mark.parametrize(("knows", "mode"), [(False, "auto"), (False, "legacy"), (True, "legacy")])
def test_a_client_that_has_not_said_that_it_knows_tasks_is_answered_directly(world, shop, at_once, knows, mode):
    world.claude(shop, RETRY, DONE)

    told = call(world, Follower() if knows else None, "find_sessions", mode, intent=RETRY)

    assert told.structured_content is not None
    assert 1 == len(told.structured_content["results"])


def test_a_mistake_is_the_result_of_a_task(world, at_once):
    told = call(world, follower := Follower(), "read_session", session_id="12345678")

    assert (["working", "completed"], True) == (follower.statuses, told.is_error)
    assert "12345678" in told.content[0].text


@pytest.mark.slow
def test_a_fork_whose_task_is_cancelled_leaves_nothing(world, shop, scripted, at_once, monkeypatch):
    knows = world.claude(shop, RETRY, DONE)
    over, raised = threading.Event(), list[type[BaseException]]()

    def at_the_last_moment() -> None:
        call_context._given_up.get().wait(SECONDS)
        try:
            refuse_cancelled()
        except Cancelled:
            raised.append(Cancelled)
            raise
        finally:
            over.set()

    monkeypatch.setattr("smart_fork.forking.start.refuse_cancelled", at_the_last_moment)

    async def cancel(follower: Follower, state: State) -> None:
        while "starting the fork" not in state["statusMessage"]:
            state = await follower.ask("get")
        await follower.ask("cancel")
        assert await anyio.to_thread.run_sync(over.wait, SECONDS)

    arguments = {"intent": RETRY, "fork_session_id": knows, "run_in": "process", "worktree": "mine"}
    call(world, follower := Follower(cancel), "smart_fork", **arguments)

    assert (["working", "cancelled"], [Cancelled]) == (follower.statuses, raised)
    assert {} == scripted.ran()
    with Registry() as registry:
        assert {one.state for one in registry.workers()} <= {"failed", "starting"}


@pytest.mark.parametrize(("chosen", "forks"), [(1, 1), (None, 0)])
@pytest.mark.slow
def test_a_question_in_a_task_is_asked_there_and_its_answer_goes_on(  # noqa: PLR0917
    world, shop, launched, at_once, chosen, forks
):
    for where in ("first", "second", "third"):
        world.claude(shop, f"{RETRY} {where}", DONE)
    forms = list[dict[str, Any]]()

    async def choose(follower: Follower, state: State) -> None:
        if state["status"] == "input_required":
            forms.append(state["inputRequests"]["session"]["params"])
            offered = [one["const"] for one in forms[0]["requestedSchema"]["properties"]["session"]["oneOf"]]
            said = {"action": "accept", "content": {"session": offered[chosen]}} if chosen else {"action": "cancel"}
            await follower.ask("update", input_responses={"another": {"action": "cancel"}})
            await follower.ask("update", input_responses={"session": said})

    async def talk() -> types.CallToolResult:
        async def never(*_: object) -> types.ErrorData:
            return types.ErrorData(code=-32601, message="asked in the call itself")

        with anyio.fail_after(SECONDS):
            server = create_server(world.model)
            async with Client(server, extensions=[follower], elicitation_callback=never) as client:
                return await client.call_tool("smart_fork", {"intent": RETRY, "auto_fork": True})

    follower = Follower(choose)
    told = anyio.run(talk)

    assert 1 == len(forms)
    assert ["working", "input_required"] == follower.statuses[:2]
    assert "completed" == follower.statuses[-1]
    assert (forks, forks) == (len(launched), "forked_session" in (told.structured_content or {}))


def test_a_task_that_is_not_there_is_an_error(world):
    async def talk(extensions: list[ClientExtension]) -> MCPError:
        async with Client(create_server(world.model), extensions=extensions) as client:
            with pytest.raises(MCPError) as refused:
                await client.session.send_request(
                    TaskRequest(method="tasks/get", params=TaskParams(task_id="x")), TaskState
                )
            return refused.value

    assert (-32602, -32021) == (anyio.run(talk, [Follower()]).error.code, anyio.run(talk, []).error.code)


def test_the_first_index_is_waited_for_by_who_knows_tasks(world, shop, monkeypatch):
    monkeypatch.setattr("smart_fork.finding.session_library.READ_SECONDS", 0.0)
    for number in range(3):
        world.claude(shop, f"{RETRY} {number}", DONE)

    told = call(world, Follower(), "find_sessions", intent=RETRY)

    assert told.structured_content is not None
    assert (3, True) == (len(told.structured_content["results"]), told.structured_content["index"]["complete"])
