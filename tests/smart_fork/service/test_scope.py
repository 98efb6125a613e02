"""A client of the service asks about its own projects, and about projects that are always allowed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from indexer.safe_files import state_home
from smart_fork.workers.registry import Registry
from tests.smart_fork.mcp_client import Follower, Person, State, choices
from tests.smart_fork.session_family import branch
from tests.support.cases import thorough_except_first

pytestmark = pytest.mark.slow

RETRY, DONE = "Add retry with backoff to the uploader", "The uploader retries five times now."


def call(  # noqa: PLR0917
    served, tool: str, root: Path | None, client: str = "claude-code", meta: dict | None = None, mode: str = "legacy",
    can: dict[str, Any] | None = None, **arguments: Any,
):  # fmt: skip
    """Make one call of a client that works in `root`."""

    async def talk() -> types.CallToolResult:
        async def list_roots(_: object) -> types.ListRootsResult:
            return types.ListRootsResult(roots=[types.Root(uri=root.as_uri())] if root else [])

        async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {served.secret}"}, timeout=None) as http:
            transport = streamable_http_client(f"http://127.0.0.1:{served.port}/mcp", http_client=http)
            info = types.Implementation(name=client, version="1")
            more = {"list_roots_callback": list_roots} if root else {}
            async with Client(transport, client_info=info, mode=mode, **more, **(can or {})) as session:
                return await session.call_tool(tool, arguments, meta=meta)

    return anyio.run(talk)


def calls_of(served, tool: str, roots: Sequence[str], **arguments: Any) -> list[types.CallToolResult]:
    """Make the same call repeatedly as one client that names another directory each time."""

    async def talk() -> list[types.CallToolResult]:
        named = iter(roots)

        async def list_roots(_: object) -> types.ListRootsResult:
            return types.ListRootsResult(roots=[types.Root(uri=next(named))])

        async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {served.secret}"}, timeout=None) as http:
            transport = streamable_http_client(f"http://127.0.0.1:{served.port}/mcp", http_client=http)
            async with Client(transport, mode="legacy", list_roots_callback=list_roots) as session:
                return [await session.call_tool(tool, arguments) for _ in roots]

    return anyio.run(talk)


@pytest.fixture
def other(world):
    """Write another project with a session that knows the same."""
    return world.repository("other")


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_a_client_finds_what_its_own_project_knows(served, world, shop, other, mode):
    """The same holds for a client that names its project only when the answer to its call asks for it."""
    knows = world.claude(shop, RETRY, DONE)
    world.claude(other, RETRY, DONE)

    found = call(served, "smart_fork", shop, mode=mode, intent=RETRY)

    assert [knows] == [hit["session_id"] for hit in found.structured_content["results"]]
    assert str(shop) == found.structured_content["project_path"]


def test_a_client_that_chooses_a_session_says_its_project_with_the_choice(served, world, shop, launched):
    for where in ("first", "second"):
        world.claude(shop, f"{RETRY} {where}", f"{DONE} {where}")
    person = Person(1)

    asked = {"intent": RETRY, "auto_fork": True}
    found = call(served, "smart_fork", shop, mode="auto", can={"elicitation_callback": person}, **asked)

    assert [list(choices(person.forms[0]))[1]] == [session_id for session_id, *_ in launched]
    assert "forked_session" in found.structured_content


def test_a_client_waits_for_its_worker_in_a_task(served, shop, scripted, monkeypatch):
    """The call is answered by then, which does not mean that the client is gone."""
    monkeypatch.setattr("smart_fork.server.mcp_tasks.DIRECT_SECONDS", 0.0)
    order = {"prompt": "go", "project_path": str(shop), "run_in": "process", "worktree": False}
    (worker,) = call(served, "spawn_workers", shop, workers=[order]).structured_content["workers"]
    seen = list[str]()

    async def end_it(follower: Follower, state: State) -> None:
        while "0 of 1 workers" not in state["statusMessage"]:
            state = await follower.ask("get")
        for _ in range(3):  # it is looked at again and again
            seen.append((await follower.ask("get"))["status"])
        with Registry() as registry:
            registry.set_state(worker["worker_id"], "ended")

    how = {"mode": "auto", "can": {"extensions": [Follower(end_it)]}}
    told = call(served, "wait_workers", shop, workers=[worker["worker_id"]], **how)

    assert ["working"] * 3 == seen
    assert told.structured_content["done"]


def test_codex_names_its_workspaces(served, world, shop):
    knows = world.codex(shop, RETRY, DONE)
    meta = {"threadId": "x", "x-codex-turn-metadata": {"workspaces": {str(shop): {}}}}

    found = call(served, "smart_fork", None, client="codex-mcp-client", meta=meta, intent=RETRY)

    assert [knows] == [hit["session_id"] for hit in found.structured_content["results"]]


@pytest.mark.thorough
def test_no_tool_tells_of_another_project(served, world, shop, other):
    theirs = world.claude(other, RETRY, DONE)
    call(served, "smart_fork", shop, intent=RETRY)
    with Registry() as registry:
        worker = registry.add("claude", source_session_id=theirs, session_id=theirs, place="process", cwd=other, prompt="hidden")  # fmt: skip
        registry.set_state(worker.id, "ended")
    asked = [
        ("smart_fork", {"intent": RETRY, "project_path": str(other)}),
        ("smart_fork", {"intent": RETRY, "project_path": str(shop / ".." / "other")}),
        ("smart_fork", {"intent": RETRY, "fork_session_id": theirs}),
        ("list_sessions", {"project_path": str(other)}),
        ("read_session", {"session_id": theirs}),
        ("read_session", {"session_id": theirs[:8]}),
        ("session_lineage", {"session_id": theirs}),
        ("branch_session", {"session_id": theirs}),
        ("spawn_workers", {"workers": [{"project_path": str(other), "prompt": "x"}]}),
        ("spawn_workers", {"workers": [{"project_path": str(shop), "prompt": "x", "fork_from": theirs}]}),
        ("read_worker", {"worker": worker.id}),
        ("message_worker", {"worker": worker.id, "message": "x"}),
        ("wait_workers", {"workers": [worker.id]}),
        ("compare_workers", {"workers": [worker.id, worker.id]}),
        ("close_workers", {"workers": [worker.id]}),
        ("list_workers", {"project_path": str(other), "include_closed": True}),
        ("excise_session", {"session_id": theirs, "turns": "1"}),
        ("excise_session", {"path": str(world.log_of(theirs)), "turns": "1"}),
    ]
    for tool, arguments in asked:
        answer = call(served, tool, shop, **arguments)
        said = answer.model_dump_json()
        assert "retries five times" not in said, (tool, arguments)
        assert "hidden" not in said, (tool, arguments)
        refused = answer.is_error or "error" in (answer.structured_content or {})
        assert refused, (tool, arguments, said[:300])
        assert "unknown parameter" not in said, said
        assert "validation error" not in said, said


def test_a_client_that_names_no_project_may_ask_about_none(served, world, shop):
    world.claude(shop, RETRY, DONE)

    assert call(served, "smart_fork", None, intent=RETRY, project_path=str(shop)).is_error
    assert call(served, "smart_fork", None, intent=RETRY).is_error


def test_what_the_settings_allow_may_always_be_asked_about(served, world, shop, other):
    knows = world.claude(other, RETRY, DONE)
    (state_home() / "config.toml").write_text(f'[service]\nprojects = ["{other}"]\n')

    found = call(served, "smart_fork", shop, intent=RETRY, project_path=str(other))

    assert [knows] == [hit["session_id"] for hit in found.structured_content["results"]]


@pytest.mark.thorough
def test_all_projects_are_those_that_the_client_may_ask_about(served, world, shop, other):
    with Registry() as registry:
        for cwd, prompt in ((shop, "ours"), (other, "hidden")):
            worker = registry.add("claude", source_session_id="", place="process", cwd=cwd, prompt=prompt, name="same")
            registry.set_state(worker.id, "ended")

    listed = call(served, "list_workers", shop, all_projects=True, include_closed=True).structured_content
    named = call(served, "read_worker", shop, worker="same").structured_content

    assert ["ours"] == [worker["prompt"] for worker in listed["workers"]]
    assert "ours" == named["prompt"], "the newest of that name is not this client's business"


def test_of_a_family_only_the_members_in_the_clients_projects_are_shown(served, world, shop, other):
    ours = world.claude(shop, "Paint the door", "The door is red.")
    theirs = world.fork_claude(ours, other, RETRY, DONE)
    between = world.fork_claude(theirs, shop, "And the roof", "It is blue.")
    below = world.claude(other, RETRY, DONE)
    alone = world.fork_claude(below, shop, "And the floor", "It is green.")

    for asked, members in ((ours, {ours, between}), (between, {ours, between}), (alone, {alone})):
        answer = call(served, "session_lineage", shop, session_id=asked)
        assert members == {one["session_id"] for one in answer.structured_content["sessions"]}
        assert theirs not in answer.model_dump_json()


def test_a_branch_works_where_its_client_does(served, world, shop, other):
    ours = world.claude(shop, RETRY, DONE)

    assert call(served, "branch_session", shop, session_id=ours, cwd=str(other)).is_error
    assert not (world.log_of(ours).parent.parent / "other").exists()
    assert [world.log_of(ours)] == list(world.home.glob(".claude/projects/*/*.jsonl"))


def test_a_cut_follows_into_copies_in_the_clients_projects_only(served, world, shop, other):
    ours = world.claude(shop, "Paint the door", "The door is red.", RETRY, DONE)
    here, there = (branch(ours, cwd=str(cwd))["path"] for cwd in (shop, other))
    for path in (here, there):
        os.utime(path, (1.8e9, 1.8e9))
    world.find(RETRY, shop)
    world.find(RETRY, other)
    found = call(served, "smart_fork", shop, intent="Paint the door").structured_content["results"]
    assert 2 == found[0]["lineage"]["family_size"]
    before = Path(there).read_bytes()

    cut = call(served, "excise_session", shop, session_id=ours, turns="0-1", dry_run=False)

    assert [here] == [one["path"] for one in cut.structured_content["followed"]], cut
    assert before == Path(there).read_bytes()
    assert there not in cut.model_dump_json()
    assert "may not read" in cut.structured_content["remains"][-1]


@pytest.mark.parametrize("above", thorough_except_first(["~", "/", "~/.."]))
def test_a_client_that_was_started_at_home_or_above_has_not_named_what_is_below(served, world, shop, above):
    """Only sessions of that directory itself are meant."""
    world.claude(shop, RETRY, DONE)
    root = Path(os.path.normpath(Path(above).expanduser()))
    own = world.claude(root, "Paint the door", "The door is red.")

    for tool, more in (("smart_fork", {"intent": RETRY}), ("list_sessions", {}), ("list_workers", {})):
        assert call(served, tool, root, project_path=str(shop), **more).is_error
        assert call(served, tool, root, **more).is_error
    assert not call(served, "read_session", root, session_id=own).is_error


def test_roots_are_where_they_lead_to_and_may_change_between_two_calls(served, world, shop, other):
    knows = world.claude(shop, RETRY, DONE)
    (world.home / "link").symlink_to(other)

    def asked(*uris: str) -> list[bool]:
        return [answer.is_error for answer in calls_of(served, "read_session", uris, session_id=knows)]

    link, slash = (world.home / "link").as_uri(), shop.as_uri()
    assert [True, False, True] == asked(link, slash, link)
    assert [False, True] == asked(f"{link}/../shop", f"{slash}/../other")
    assert [True, True, True] == asked(f"file://elsewhere{shop}", f"file://{shop}%00", "file://localhost")


@pytest.mark.parametrize(
    "meta",
    thorough_except_first(
        [
            {"x-codex-turn-metadata": "text"},
            {"x-codex-turn-metadata": {"workspaces": ["/"]}},
            {"x-codex-turn-metadata": {"workspaces": {"\0": {}, "": {}, "x" * 5000: {}, "..": {}}}},
            {"x-codex-turn-metadata": [], "claudecode/toolUseId": {}, "threadId": 7},
        ]
    ),
)
def test_what_a_client_says_of_itself_may_be_anything(served, world, shop, meta):
    knows = world.claude(shop, RETRY, DONE)

    answer = call(served, "read_session", None, client="codex-mcp-client", meta=meta, session_id=knows)

    assert answer.is_error
    assert knows in answer.content[0].text


@pytest.mark.parametrize(
    "text",
    thorough_except_first(["[service", "service = 1", "[service]\nprojects = 1", '[service]\nprojects = [1, ""]']),
)
def test_settings_that_make_no_sense_are_an_error_and_allow_nothing(served, world, shop, text):
    state_home().mkdir(exist_ok=True)
    (state_home() / "config.toml").write_text(text)

    answer = call(served, "smart_fork", shop, intent=RETRY)

    assert answer.is_error
    assert "config.toml" in answer.content[0].text


def test_the_state_of_the_index_names_no_log(served, world, shop, other):
    with world.log_of(world.claude(other, RETRY, DONE)).open("a") as file:
        file.write("{broken\n")
    call(served, "smart_fork", shop, intent=RETRY)

    status = call(served, "index_status", shop).structured_content

    assert 1 == status["broken_lines"]
    assert [] == status["broken_logs"]
