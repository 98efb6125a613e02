"""Tests of the caller's part in a search, and of reading found sessions, over MCP."""

from __future__ import annotations

import pytest

from smart_fork.agents import AGENTS
from smart_fork.server.session_tools import READ_CHARACTERS
from tests.smart_fork.mcp_client import answer, refusal

RETRY = "add retry with backoff to the uploader"
DONE = "The uploader in upload.py retries five times with exponential backoff"


@pytest.fixture(autouse=True)
def _in_the_project(shop, monkeypatch):
    monkeypatch.chdir(shop)


class TestReading:
    def test_a_long_conversation_is_read_in_pieces_to_its_end(self, world, shop):
        session_id = world.claude(shop, *[f"message {number} " + "x" * 5000 for number in range(20)])
        numbers: list[int] = []
        at = None
        for _ in range(20):
            part = answer(world, "read_session", session_id=session_id[:8], **({} if at is None else {"at": at}))
            assert sum(len(message["text"]) for message in part["messages"]) <= READ_CHARACTERS
            numbers += [message["number"] for message in part["messages"]]
            at = part.get("next_at")
            if at is None:
                break

        assert numbers == list(range(20))

    def test_a_message_longer_than_a_piece_is_cut_and_says_so(self, world, shop):
        session_id = world.claude(shop, "y" * (READ_CHARACTERS + 7), "short")

        part = answer(world, "read_session", session_id=session_id)

        assert part["messages"][0]["text"].endswith("(7 more characters)")
        assert part["next_at"] == 1

    def test_with_context_it_begins_earlier(self, world, shop):
        session_id = world.claude(shop, "a", "b", "c", "d")

        part = answer(world, "read_session", session_id=session_id, at=3, context=1)

        assert [message["text"] for message in part["messages"]] == ["c", "d"]

    def test_a_session_whose_log_is_gone_is_read_from_its_export(self, world, shop):
        session_id = world.claude(shop, RETRY, DONE)
        world.find(RETRY, shop)
        world.log_of(session_id).unlink()

        assert DONE in answer(world, "read_session", session_id=session_id)["markdown"]

    def test_what_is_not_there_is_said(self, world, shop):
        assert "12345678" in refusal(world, "read_session", session_id="12345678")
        session_id = world.claude(shop, "a", "b")
        assert "No message 9" in refusal(world, "read_session", session_id=session_id, at=9)


class TestWhoAsks:
    def test_the_agent_that_asks_is_searched_unless_another_is_named(self, world, shop):
        """D1."""
        claude, codex = world.claude(shop, RETRY, DONE), world.codex(shop, RETRY, DONE)

        def ids(client: str, **more: object) -> list[str]:
            return [hit["session_id"] for hit in answer(world, client=client, intent=RETRY, **more)["results"]]

        assert ids("claude-code") == [claude]
        assert ids("codex-mcp-client") == [codex]
        assert ids("codex-mcp-client", agent_type="claude") == [claude]
        assert ids("somebody") == [claude]
        assert set(ids("claude-code", agent_type="both")) == {claude, codex}

    def test_codex_is_known_by_what_each_call_says_wherever_the_server_runs(self, world, shop, monkeypatch):
        other, asking = world.codex(shop, RETRY, DONE), world.codex(shop, RETRY, "asking")
        monkeypatch.chdir("/")
        meta = {"threadId": asking, "x-codex-turn-metadata": {"workspaces": {str(shop): {}}}}

        found = answer(world, client="codex-mcp-client", meta=meta, intent=RETRY)

        assert [hit["session_id"] for hit in found["results"]] == [other]
        assert found["project_path"] == str(shop)

    def test_claude_is_known_by_its_roots_and_its_environment(self, world, shop, monkeypatch):
        other, asking = world.claude(shop, RETRY, DONE), world.claude(shop, RETRY, "asking")
        monkeypatch.chdir("/")
        monkeypatch.setenv("CLAUDE_CODE_SESSION_ID", asking)

        found = answer(world, roots=[shop], intent=RETRY)

        assert [hit["session_id"] for hit in found["results"]] == [other]

    def test_an_argument_of_the_agent_names_the_session_and_is_none_of_the_tool(self, world, shop, monkeypatch):
        """A plugin in the agent may add this argument to each call. Calls of other agents with it are refused."""
        other, asking = world.claude(shop, RETRY, DONE), world.claude(shop, RETRY, "asking")
        monkeypatch.setattr(AGENTS["claude"].caller, "argument", "whose")
        monkeypatch.setattr(AGENTS["claude"].caller, "session_id", lambda one: one.arguments.get("whose"))

        found = answer(world, intent=RETRY, whose=asking)

        assert [hit["session_id"] for hit in found["results"]] == [other]
        assert "whose" in refusal(world, client="codex-mcp-client", intent=RETRY, whose=asking)

    def test_an_unknown_project_is_asked_for_and_never_everything(self, world, shop, monkeypatch):
        world.claude(shop, RETRY, DONE)
        monkeypatch.chdir("/")

        assert "project_path is required" in refusal(world, intent=RETRY)
        assert "project_path is required" in refusal(world, "list_sessions")
        assert answer(world, intent=RETRY, project_path=str(shop))["count"] == 1

    @pytest.mark.parametrize("tool", ["find_sessions", "list_sessions"])
    def test_a_server_whose_directory_was_deleted_asks_for_another(self, world, shop, monkeypatch, tmp_path, tool):
        """An example is the removed worktree in which the agent was started."""
        world.claude(shop, RETRY, DONE)
        gone = tmp_path / "gone"
        gone.mkdir()
        monkeypatch.chdir(gone)
        gone.rmdir()
        intent = {"intent": RETRY} if tool == "find_sessions" else {}

        assert "names no directory, or it was deleted" in refusal(world, tool, **intent)
        found = answer(world, tool, **intent, project_path=str(shop))
        assert len(found.get("results") or found["sessions"]) == 1

    def test_a_relative_path_is_the_callers(self, world, shop, monkeypatch):
        (shop / "api").mkdir()
        monkeypatch.chdir(world.home)
        monkeypatch.setenv("CLAUDE_PROJECT_DIR", str(shop))

        assert answer(world, intent=RETRY, project_path="api")["project_path"] == str(shop / "api")
