"""Tests of the MCP server through a client."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client

from indexer.safe_files import index_db
from indexer.store.damage import kept
from indexer.store.schema import connect
from smart_fork.agents import AGENTS
from smart_fork.display_text import one_of
from smart_fork.server import Server
from smart_fork.server.session_tools import MAX_BROKEN
from tests.smart_fork.mcp_client import answer, call, refusal
from tests.smart_fork.world import BrokenModel, WordsModel, World

RETRY = "add retry with backoff to the uploader"
DONE = "The uploader in upload.py retries five times with exponential backoff"
#: What changes something, and what ends something.
CHANGES = {"smart_fork", "spawn_workers", "branch_session", "message_worker", "close_workers", "excise_session"}
ENDS = {"close_workers", "excise_session"}
TOOLS = CHANGES | {
    *("find_sessions", "list_sessions", "read_session", "index_status", "session_lineage"),
    *("list_workers", "read_worker", "wait_workers", "compare_workers"),
}


@pytest.fixture(autouse=True)
def _in_the_project(shop: Path, monkeypatch):
    monkeypatch.chdir(shop)


class TestDamage:
    def test_an_index_that_was_set_aside_is_told(self, world, shop):
        knows = world.claude(shop, RETRY, DONE)
        index_db().parent.mkdir()
        index_db().write_bytes(b"this is no database" * 1000)

        told, afterwards = answer(world, intent=RETRY), answer(world, intent=RETRY)

        assert [knows] == [hit["session_id"] for hit in told["results"]]
        (aside,) = kept(index_db())
        assert f"The index was damaged. It is kept as {aside}" in told["index_notice"]
        assert "index_notice" not in afterwards

    def test_damage_that_is_met_while_searching_is_told_with_what_there_is(self, world, shop):
        knows = world.claude(shop, RETRY, DONE)
        answer(world, intent=RETRY)
        db = connect(index_db())
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        size, root = (
            db.execute("PRAGMA page_size").get,
            db.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'placements'").get,
        )
        db.close()
        with index_db().open("r+b") as file:
            file.seek((root - 1) * size)
            file.write(b"\xff" * size)

        told = answer(world, intent=RETRY)

        assert "index_not_available" == told["error"]
        assert "damaged" in told["message"]
        assert told["next_steps"]
        assert [knows] == [one["session_id"] for one in told["fallback_sessions"]]

    def test_a_way_of_searching_that_fails_is_told(self, world, shop, monkeypatch):
        world.claude(shop, RETRY, DONE)

        def fail(*_: object) -> None:
            raise ValueError("a block of vectors has a strange size")

        monkeypatch.setattr("indexer.store.queries.StoreReading.similarities", fail)
        told = answer(world, intent=RETRY)

        assert ("lexical", True) == (told["search_mode"], told["fallback_used"])
        assert "strange size" in told["search_error"]


class TestWhatIsOffered:
    def tools(self, world: World, *, everything: bool = True) -> dict[str, types.Tool]:
        async def ask() -> list[types.Tool]:
            async with Client(Server(world.model, everything=everything)) as session:
                return (await session.list_tools()).tools

        return {tool.name: tool for tool in anyio.run(ask)}

    def test_the_parameters_and_defaults_of_the_main_tool(self, world):
        """F-001."""
        schema = self.tools(world)["smart_fork"].input_schema
        defaults = {name: about.get("default") for name, about in schema["properties"].items()}

        assert list(defaults.items())[:9] == [
            ("intent", None), ("agent_type", "claude"), ("limit", 5), ("project_path", None), ("collection", None),
            ("min_score", None), ("include_snippets", True), ("auto_fork", False), ("fork_index", None),
        ]  # fmt: skip
        assert set(defaults) - {"intent"} >= {"fork_session_id", "prompt", "run_in", "at", "worktree"}
        assert schema["required"] == ["intent"]

    def test_every_tool_says_what_it_is_for_and_whether_it_only_reads(self, world):
        tools = self.tools(world)

        assert set(tools) == TOOLS
        for name, tool in tools.items():
            assert len(tool.description) > 60
            assert tool.title
            assert tool.annotations.read_only_hint is (name not in CHANGES)
            assert tool.annotations.destructive_hint is (name in ENDS)
            assert tool.output_schema is None, "no agent shows it to its model"
            assert tool.input_schema["additionalProperties"] is False
            for parameter in tool.input_schema["properties"].values():
                assert parameter["description"]

    def test_a_few_tools_are_listed_where_nothing_else_is_said(self, world):
        assert {
            "smart_fork", "find_sessions", "list_sessions", "read_session", "list_workers", "wait_workers", "message_worker",
        } == set(self.tools(world, everything=False))  # fmt: skip

    def test_nothing_is_said_to_be_there_that_is_not(self, world):
        async def ask() -> dict[str, Any]:
            async with Client(Server(world.model), mode="legacy") as session:
                return session.server_capabilities.model_dump(exclude_none=True)

        assert {"prompts": {"list_changed": False}, "tools": {"list_changed": False}} == anyio.run(ask)

    @pytest.mark.parametrize(("name", "argument"), [("fork", "task"), ("recall", "question")])
    def test_a_person_asks_by_name_and_the_model_is_told_of_tools_that_are_listed(self, world, name, argument):
        async def ask() -> tuple[list[types.Prompt], str]:
            async with Client(Server(world.model), mode="legacy") as session:
                told = await session.get_prompt(name, {argument: "the retry of the uploader"})
                return (await session.list_prompts()).prompts, told.messages[0].content.text

        prompts, text = anyio.run(ask)

        (prompt,) = [one for one in prompts if one.name == name]
        assert ([argument], True) == ([one.name for one in prompt.arguments], bool(prompt.description and prompt.title))
        assert "the retry of the uploader" in text
        assert set(re.findall(r"\b[a-z]+_[a-z]*(?:session|worker|fork)s?\b", text)) - {"fork_session_id"} <= {
            "find_sessions", "read_session"
        } | {"smart_fork"}  # fmt: skip

    def test_what_a_model_has_to_read_before_it_asks_is_short(self, world):
        few, more = (
            [
                json.dumps({"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema})
                for tool in self.tools(world, everything=everything).values()
            ]
            for everything in (False, True)
        )

        assert (
            sum(map(len, few)) <= 8_700
        )  # 7,700 before: what wrote code, in two tools; a session, an error, a tag, unmasked, in one
        assert sum(map(len, more)) < 18_000
        assert all(len(tool.description) < 2_048 for tool in self.tools(world).values())


def filled(value: Any) -> Any:
    """Return a value without the keys that have no value."""
    if isinstance(value, dict):
        return {key: filled(inner) for key, inner in value.items() if inner is not None}
    return [filled(inner) for inner in value] if isinstance(value, list) else value


class TestAnswers:
    def test_found(self, world, shop):
        knows = world.claude(shop, RETRY, DONE)

        found = answer(world, intent=RETRY)

        assert found["results"][0]["session_id"] == knows
        assert {"query", "index", "search_mode"} <= found.keys()
        assert {
            "rank", "score", "session_id", "agent_type", "working_directory", "date", "snippet", "source_path", "jsonl_path",
            "can_fork",
        } <= found["results"][0].keys()  # fmt: skip

    def test_who_wants_the_scores_explained_gets_all(self, world, shop):
        world.claude(shop, RETRY, DONE)

        assert filled(world.find(RETRY, shop, agent_type="claude", explain=True)) == answer(
            world, intent=RETRY, explain=True
        )

    @pytest.mark.parametrize("tool", ["smart_fork", "find_sessions"])
    def test_a_key_without_a_value_is_left_out_of_an_answer(self, world, shop, tool):
        world.claude(shop, RETRY, DONE)
        found = call(world, tool, intent=RETRY)

        assert found.structured_content == filled(found.structured_content)
        assert found.structured_content == json.loads(found.content[0].text)
        assert "\n" not in found.content[0].text

    def test_five_long_hits_are_found_in_4_kb(self, world):
        depths = "/".join(["a-directory-with-a-long-name"] * 3)
        project = world.repository("shop-" + "x" * 60)
        (project / depths).mkdir(parents=True)
        for number in range(6):
            world.claude(
                project / depths, f"{RETRY} in module {number} " + "of the many that we have here " * 9, DONE * 9
            )

        found = call(world, "find_sessions", intent=RETRY, project_path=str(project), also=["x" * 300, "y" * 300])

        assert 5 == len(found.structured_content["results"])
        assert len(json.dumps(found.structured_content, ensure_ascii=False)) <= 4_000

    def test_not_available(self, world, shop, monkeypatch):
        """D11: a missing index is an answer, not an error."""
        knows = world.codex(shop, RETRY, DONE)
        monkeypatch.setenv("SMART_FORK_INDEXING", "0")

        found = answer(world, intent=RETRY, agent_type="codex")

        assert set(found) == {"error", "message", "next_steps", "next", "fallback_sessions"}
        assert found["fallback_sessions"][0]["session_id"] == knows

    def test_nothing_to_fork_is_an_answer_with_the_results(self, world, shop):
        """F-091, F-092."""
        world.claude(shop, RETRY, DONE)
        (world.home / "bin/claude").unlink()

        found = answer(world, intent=RETRY, auto_fork=True)

        assert found["error"] == "No forkable sessions found"
        assert "claude was not found" in found["hint"]
        assert found["count"] == 1

    def test_forked(self, world, shop, launched):
        """F-082, F-090."""
        world.claude(shop, "paint the logo", "painted")
        knows = world.claude(shop, RETRY, DONE)

        found = answer(
            world,
            intent=RETRY,
            fork_index=0,
            auto_fork=True,
            prompt='{"json": ["kept"]}',
            at=1,
            worktree="true",
            with_changes=True,
        )

        assert launched == [
            (
                knows,
                '{"json": ["kept"]}',
                {
                    "at": 1,
                    "worktree": True,
                    "with_changes": True,
                    "place": None,
                    "name": None,
                    "cwd": str(shop),
                    "dry_run": False,
                },
            )
        ]
        assert found["forked_session"]["resume_session_id"] == knows
        assert found["forked_session"]["forked_index"] == 0

    def test_without_a_prompt_the_fork_gets_the_whole_intent(self, world, shop, launched):
        world.claude(shop, RETRY, DONE)
        intent = RETRY + " please" * 2000

        answer(world, intent=intent, auto_fork=True)

        assert launched[0][1] == intent

    def test_a_tool_says_all_that_the_library_says(self, world, shop):
        log = world.log_of(world.claude(shop, RETRY, DONE))
        with log.open("a") as file:
            file.write("{broken\n" * 3)
        found = world.find(RETRY, shop, agent_type="claude", explain=True) | {"count": 1}
        assert answer(world, intent=RETRY, explain=True) == filled(found)
        from smart_fork.finding.index_status import index_status

        assert answer(world, "index_status") == filled(index_status().as_json())
        assert answer(world, "index_status")["broken_logs"][0]["lines"] == 3

    def test_a_damaged_index_has_a_status_too(self, world):
        state = world.home / ".smart-fork"
        state.mkdir()
        (state / "index.db").write_bytes(b"this is no database" * 100)

        found = answer(world, "index_status")

        assert (found["sessions"], len(kept(index_db()))) == (0, 1)  # it is set aside, and a new one is there

    @pytest.mark.thorough
    def test_many_broken_logs_are_not_all_told_to_a_model(self, world, shop):
        for _ in range(MAX_BROKEN + 2):
            log = world.log_of(world.claude(shop, RETRY, DONE))
            log.write_text(log.read_text() + "{broken\n")
        world.find(RETRY, shop)

        assert len(answer(world, "index_status")["broken_logs"]) == MAX_BROKEN

    def test_recent_sessions_without_the_callers(self, world, shop):
        older, newer = world.claude(shop, RETRY, DONE), world.codex(shop, "other", "done")
        asking = world.codex(shop, "who knows", "asking")
        world.claude(world.repository("elsewhere"), RETRY, DONE)

        found = answer(world, "list_sessions", client="codex-mcp-client", meta={"threadId": asking}, limit=None)

        assert [one["session_id"] for one in found["sessions"]] == [newer, older]
        assert found["count"] == 2
        assert not (world.home / ".smart-fork").exists()
        assert len(answer(world, "list_sessions", limit=1)["sessions"]) == 1


class TestMistakes:
    """D11: a caller's mistake is a tool error with the required text."""

    @pytest.mark.parametrize(
        ("arguments", "text"),
        [
            ({"intent": " "}, "intent is required"),
            ({"intent": "x", "agent_type": "gpt"}, f"agent_type must be {one_of(AGENTS.choices())}"),
            ({"intent": "x", "limit": 0}, "limit must be at least 1"),
            ({"intent": "x", "fork_index": -1}, "fork_index must be non-negative"),
            ({"intent": "x", "at": -1}, "at must be non-negative"),
            ({"intent": "x", "min_score": "nan"}, "min_score must be a finite number"),
            ({"intent": "x", "min_score": "high"}, "min_score"),
            ({"intent": "x", "run_in": "moon"}, "run_in"),
            ({"intent": "x", "project_path": "/no/such"}, "project_path does not exist: /no/such"),
            ({"intent": "x", "project_path": "/dev/null"}, "project_path is no directory: /dev/null"),
            ({"intent": "x", "project_path": "/no\x1b[31m/such"}, "project_path does not exist: /no[31m/such"),
            (
                {"intent": "x", "agent": "codex", "limits": 3},
                "unknown parameter: agent, limits. Known: intent, agent_type,",
            ),
        ],
    )
    def test_a_wrong_call(self, world, arguments, text):
        assert text in refusal(world, **arguments)
        assert not (world.home / ".smart-fork").exists()

    def test_unknown_parameters_of_the_other_tools(self, world):
        assert "Known: none" in refusal(world, "index_status", verbose=True)
        assert "unknown parameter: n" in refusal(world, "list_sessions", n=1)
        assert refusal(world, "list_sessions", limit=-1).startswith("limit ")

    def test_explicit_nulls_are_defaults(self, world, shop):
        """F-007."""
        world.codex(shop, RETRY, DONE)
        names = (
            "agent_type",
            "limit",
            "project_path",
            "collection",
            "min_score",
            "include_snippets",
            "auto_fork",
            "at",
        )
        more = ("fork_index", "fork_session_id", "prompt", "run_in", "worktree")

        found = answer(world, client="codex-mcp-client", intent=RETRY, **dict.fromkeys(names + more))

        assert found["agent_type"] == "codex"
        assert found["results"][0]["snippet"]


class Gate(WordsModel):
    """A model that answers only after it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.open = threading.Event(), threading.Event()

    def embed(self, texts: Any) -> Any:
        self.entered.set()
        self.open.wait()
        return super().embed(texts)


def test_other_requests_are_answered_while_a_search_runs(world, shop):
    """F-034."""
    world.claude(shop, RETRY, DONE)
    gate = Gate()

    async def talk() -> None:
        async with Client(Server(gate, everything=True)) as session, anyio.create_task_group() as tasks:
            found = []

            async def search() -> None:
                found.append(await session.call_tool("smart_fork", {"intent": RETRY}))

            tasks.start_soon(search)
            await anyio.to_thread.run_sync(gate.entered.wait)
            assert len((await session.list_tools()).tools) == len(TOOLS)
            assert not (await session.call_tool("list_sessions", {})).is_error
            assert found == []
            gate.open.set()
        assert found[0].structured_content["search_mode"] == "hybrid"

    anyio.run(talk)


def test_while_the_model_is_loading_words_answer(world, shop, monkeypatch):
    monkeypatch.setattr("smart_fork.server.session_tools.MODEL_SECONDS", 0.0)
    knows = world.claude(shop, RETRY, DONE)
    gate = Gate()
    try:
        found = answer(world, model=gate, intent=RETRY)
    finally:
        gate.open.set()

    assert [hit["session_id"] for hit in found["results"]] == [knows]
    assert found["search_mode"] == "lexical"
    assert not found["index"]["complete"]


def test_what_a_call_has_no_time_for_goes_on_in_a_process_of_its_own(world, shop, monkeypatch):
    monkeypatch.delenv("SMART_FORK_BACKGROUND")
    started = []
    monkeypatch.setattr("smart_fork.finding.index_refresh.index_in_background", started.append)
    monkeypatch.setattr("smart_fork.finding.session_library.READ_SECONDS", 0.0)
    for number in range(3):
        world.claude(shop, f"{RETRY} {number}", DONE)

    answer(world, intent=RETRY)

    assert [str(shop)] == [project.root for project in started]


def test_a_broken_model_does_not_break_the_server(world, shop):
    world.claude(shop, RETRY, DONE)

    assert answer(world, model=BrokenModel(), intent=RETRY)["search_mode"] == "lexical"


def test_progress_is_told_in_numbers_that_grow(world, shop, monkeypatch):
    monkeypatch.setattr("smart_fork.server.calls.PROGRESS_SECONDS", 0.0)
    for number in range(5):
        world.claude(shop, f"{RETRY} {number}", DONE)
    told: list[tuple] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total, message))

    answer(world, progress=note, intent=RETRY)

    numbers = [progress for progress, _, _ in told]
    assert numbers == sorted(set(numbers))
    assert {message.split(":")[0] for _, _, message in told} == {"reading logs", "embedding passages"}
    assert all(progress <= total for progress, total, _ in told)
