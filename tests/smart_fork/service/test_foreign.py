"""Sessions and workers of other projects do not exist for a client: no tool's answer reveals them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from smart_fork.workers.registry import Registry
from tests.support.cases import thorough_except

pytestmark = pytest.mark.slow

RETRY, DONE = "Add retry with backoff to the uploader", "The uploader retries five times now."
#: Nothing is looked up by these: they are passed on to an agent, or searched for.
FREE_TEXT = {"intent", "prompt", "title", "message", "name", "worktree"}
#: What each tool needs to get as far as looking something up. None of it starts anything.
NEEDED: dict[str, dict[str, Any]] = {
    "smart_fork": {"intent": RETRY},
    "spawn_workers": {"workers": [{"run_in": "process"}]},
    "excise_session": {"turns": "1"},
    "message_worker": {"message": "go on"},
    "wait_workers": {"timeout": 0.0},
}


def talk(served, root: Path, calls) -> list[str]:
    """Return the answers to one client's calls as JSON. The calls are made from the list of tools."""

    async def conversation() -> list[str]:
        async def list_roots(_: object) -> types.ListRootsResult:
            return types.ListRootsResult(roots=[types.Root(uri=root.as_uri())])

        async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {served.secret}"}, timeout=None) as http:
            transport = streamable_http_client(f"http://127.0.0.1:{served.port}/mcp", http_client=http)
            info = types.Implementation(name="claude-code", version="1")
            async with Client(transport, client_info=info, mode="legacy", list_roots_callback=list_roots) as session:
                tools = (await session.list_tools()).tools
                assert not (await session.list_resources()).resources, "then they must be asked for as well"
                assert not (await session.list_resource_templates()).resource_templates
                prompts = (await session.list_prompts()).prompts
                assert {"fork", "recall"} == {one.name for one in prompts}, (
                    "these repeat what they are given, and look nothing up"
                )
                return [
                    (await session.call_tool(tool, arguments)).model_dump_json() for tool, arguments in calls(tools)
                ]

    return anyio.run(conversation)


def asked_with(tools: list[types.Tool], reference: str, own: str, root: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield calls of every tool with the reference in each text parameter, one at a time."""
    for tool in tools:
        schema = tool.input_schema
        needed = dict(NEEDED.get(tool.name, {}))
        if "session_id" in schema.get("required", ()):
            needed["session_id"] = own
        for name, about in schema["properties"].items():
            kinds = {one.get("type") for one in (about, *about.get("anyOf", ()))}
            if name in FREE_TEXT or ("enum" in json.dumps(about.get("anyOf", [about])) and name != "workers"):
                continue
            if "array" in kinds and about.get("items", {}).get("type") == "object":
                for key, inner in about["items"]["properties"].items():
                    if inner.get("type") == "string" and key not in FREE_TEXT:
                        worker = {"project_path": str(root)} | needed[name][0] | {key: reference}
                        yield tool.name, needed | {name: [worker]}
            elif "array" in kinds:
                yield tool.name, needed | {name: [reference]}
            elif "string" in kinds:
                others = {} if name in ("session_id", "path", "worker") else needed
                yield tool.name, needed | others | {name: reference}


@pytest.fixture
def foreign(served, world, shop):
    """Write another project with a session, a worker and a forgotten session, and a session of our own. Index all."""
    theirs = world.repository("other")
    session = world.claude(theirs, RETRY, DONE, session_id=f"a{uuid.uuid4()}"[:36])  # its beginning is not a number
    own = world.claude(shop, "Paint the door", "The door is red.")
    with Registry() as registry:
        worker = registry.add(
            "claude", source_session_id=session, session_id=session, place="process", cwd=theirs, prompt="hidden",
            name="lighthouse",
        )  # fmt: skip
        registry.set_state(worker.id, "ended")
    world.find(RETRY, theirs)
    return {"session": session, "worker": worker.id, "own": own, "project": theirs, "log": world.log_of(session)}


REFERENCES = {
    "session": lambda it: (it["session"], str(uuid.uuid4())),
    "prefix": lambda it: (it["session"][:8], f"a{uuid.uuid4().hex[:7]}"),
    "worker": lambda it: (it["worker"], "claude-1700000000000"),
    "worker's name": lambda it: ("lighthouse", "lightships"),
    "log": lambda it: (str(it["log"]), str(it["log"].with_name(f"{uuid.uuid4()}.jsonl"))),
    "project": lambda it: (str(it["project"]), str(it["project"].with_name("never"))),
    "project's name": lambda it: ("../other", "../never"),
}


@pytest.mark.parametrize("kind", thorough_except(REFERENCES, "session"))  # the others are other names of the same
def test_every_tool_answers_as_if_what_is_another_projects_had_never_been(kind, served, world, shop, foreign):
    """The calls are made from the list of tools, so that a new tool or parameter is tested, too."""
    there, never = REFERENCES[kind](foreign)

    def calls(tools):
        assert set(NEEDED) <= {tool.name for tool in tools}
        pairs = [asked_with(tools, reference, foreign["own"], shop) for reference in (there, never)]
        return [call for pair in zip(*pairs, strict=True) for call in pair]

    made: list[tuple[str, dict[str, Any]]] = []

    def noted(tools):
        made.extend(calls(tools))
        return made

    answers = talk(served, shop, noted)

    assert len(made) > 20
    for number in range(0, len(made), 2):
        real, unreal = answers[number].replace(there, "…"), answers[number + 1].replace(never, "…")
        refused = [json.loads(one)["is_error"] for one in (real, unreal)]
        assert refused[0] == refused[1], (made[number], real, unreal)
        if refused[0] and "validation error" not in real:  # that quotes what it was given in part
            assert real == unreal, made[number]
        for secret in (DONE, "hidden", *({foreign["session"], "lighthouse"} - {there})):
            assert secret not in real, made[number]
