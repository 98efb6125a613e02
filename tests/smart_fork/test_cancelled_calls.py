"""Tests of cancelled calls: they begin nothing that cannot be undone."""

from __future__ import annotations

import hashlib
import threading

import anyio
import pytest
from mcp import Client

from smart_fork.system import call_context
from smart_fork.system.call_context import Cancelled, cancellable, refuse_cancelled
from smart_fork.workers.registry import Registry
from tests.smart_fork.forks import eventually
from tests.smart_fork.mcp_client import answer
from tests.smart_fork.tool_server import create_server

#: Where each tool asks, and the longest that its thread may take.
START, SECONDS = "smart_fork.forking.start", 60


@pytest.fixture
def cancelled(world, shop, monkeypatch):
    """Call a tool, and cancel the call just before `place` does something that cannot be undone."""

    def call(place: str, tool: str, **arguments: object) -> list[type[BaseException] | None]:
        reached, over, raised = threading.Event(), threading.Event(), []

        def at_the_last_moment() -> None:
            given_up = call_context._given_up.get()
            reached.set()
            given_up.wait(SECONDS)
            try:
                refuse_cancelled()
            except Cancelled:
                raised.append(Cancelled)
                raise
            finally:
                over.set()

        async def talk() -> None:
            async with Client(create_server(world.model, everything=True), mode="legacy") as session:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(session.call_tool, tool, arguments)
                    await anyio.to_thread.run_sync(reached.wait, SECONDS)
                    tasks.cancel_scope.cancel()
                await anyio.to_thread.run_sync(over.wait, SECONDS)

        monkeypatch.chdir(shop)
        monkeypatch.setattr(f"{place}.refuse_cancelled", at_the_last_moment)
        anyio.run(talk)
        return raised

    return call


def digest(world) -> dict[str, str]:
    return {
        str(path.relative_to(world.home)): hashlib.sha256(path.read_bytes()).hexdigest()
        for agent in (".claude", ".codex")
        for path in (world.home / agent).rglob("*.jsonl")
    }


@pytest.mark.parametrize(
    ("place", "tool", "arguments"),
    [
        (START, "smart_fork", {"intent": "retry", "fork_session_id": "", "run_in": "process", "worktree": "mine"}),
        (START, "smart_fork", {"intent": "retry", "auto_fork": True, "min_score": 0, "run_in": "process"}),
        (START, "spawn_workers", {"workers": [{"prompt": "retry", "project_path": ".", "run_in": "process"}]}),
        (START, "branch_session", {"session_id": "", "start": True, "prompt": "retry", "run_in": "process"}),
        ("smart_fork.forking.branch", "branch_session", {"session_id": ""}),
        (
            "smart_fork.excise.cutting",
            "excise_session",
            {"session_id": "", "turns": "0", "force": True, "dry_run": False},
        ),
    ],
    ids=["fork", "find and fork", "spawn", "branch and start", "branch", "cut"],
)
def test_a_cancelled_call_starts_and_writes_nothing(  # noqa: PLR0917
    world, shop, scripted, cancelled, place, tool, arguments
):
    knows = world.claude(shop, "retry the upload", "It retries.", "and the header", "painted")
    answer(world, intent="retry", project_path=str(shop))
    arguments = {name: knows if value == "" else value for name, value in arguments.items()}
    before = digest(world)

    raised = cancelled(place, tool, **arguments)

    assert [Cancelled] == raised
    assert {} == scripted.ran()

    def undone() -> bool:  # in the thread that was left
        with Registry() as registry:
            return {one.state for one in registry.workers()} <= {"failed"} and before == digest(world)

    assert eventually(undone)
    assert not list(world.home.rglob(".worktrees/*/mine*"))


def test_a_worker_that_a_call_had_started_when_it_was_cancelled_is_named_in_the_next_answer(
    world, shop, scripted, monkeypatch
):
    knows = world.claude(shop, "retry the upload", "It retries.")
    reached, texts = threading.Event(), list[list[str]]()

    def too_late() -> None:
        given_up = call_context._given_up.get()
        reached.set()
        given_up.wait(SECONDS)

    async def talk() -> None:
        async with Client(create_server(world.model, everything=True), mode="legacy") as session:
            arguments = {"intent": "retry", "fork_session_id": knows, "run_in": "process", "prompt": "go"}
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(session.call_tool, "smart_fork", arguments)
                await anyio.to_thread.run_sync(reached.wait, SECONDS)
                tasks.cancel_scope.cancel()

            def noted() -> bool:
                with Registry() as registry:
                    return [one.state for one in registry.workers()] == ["running"]

            assert await anyio.to_thread.run_sync(lambda: eventually(noted))
            with anyio.fail_after(SECONDS):
                while not texts or len(texts[-1]) < 2:
                    found = await session.call_tool("list_workers", {"project_path": str(shop)})
                    texts.append([one.text for one in found.content])
            texts.append([one.text for one in (await session.call_tool("list_workers", {})).content])

    monkeypatch.chdir(shop)
    monkeypatch.setattr(f"{START}.refuse_cancelled", too_late)
    anyio.run(talk)

    with Registry() as registry:
        (worker,) = registry.workers()
    *_, told, after = texts
    assert told[1:] == [f"Your cancelled call of smart_fork came too late: worker {worker.id}. list_workers shows it."]
    assert len(after) == 1


def test_a_cancelled_message_is_not_typed_and_no_worker_is_ended(world, shop, scripted, cancelled):
    order = {"prompt": "retry", "project_path": str(shop), "run_in": "process", "worktree": False}
    (made,) = answer(world, "spawn_workers", workers=[order])["workers"]

    closed = cancelled("smart_fork.workers.termination", "close_workers", workers=[made["worker_id"]])
    told = cancelled("smart_fork.workers.messages", "message_worker", worker=made["worker_id"], message="more")

    assert [Cancelled] == closed == told
    (seen,) = answer(world, "list_workers", project_path=str(shop))["workers"]
    assert "running" == seen["state"]


def test_outside_of_a_call_and_in_one_that_is_waited_for_nothing_is_refused():
    refuse_cancelled()
    assert 1 == cancellable(threading.Event(), lambda: refuse_cancelled() or 1)
