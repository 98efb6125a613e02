"""What is answered where a part of the search fails, and where all of it does."""

from __future__ import annotations

import errno
import os

import apsw
import pytest

from indexer.locks import only_writer
from indexer.safe_files import index_db
from indexer.store.damage import kept
from smart_fork.finding.index_refresh import Engine
from smart_fork.finding.request import FindRequest
from tests.smart_fork.searches import find
from tests.smart_fork.world import BrokenModel

RETRY = "add retry with backoff to the uploader"
DONE = "The uploader in upload.py retries five times with exponential backoff"
UNAVAILABLE = {"error", "message", "next_steps", "fallback_sessions"}


class TestFallbacks:
    """F-021…F-026."""

    def test_without_a_model_words_answer_and_the_reason_is_told(self, world, shop):
        knows = world.claude(shop, RETRY, DONE)
        world.model = BrokenModel()

        answer = world.find(RETRY, shop)

        assert [hit["session_id"] for hit in answer["results"]] == [knows]
        assert (answer["search_mode"], answer["fallback_used"]) == ("lexical", True)
        assert "vector search failed: no session has been embedded yet" in answer["search_error"]
        assert not answer["index"]["complete"]

    def test_a_model_that_fails_is_asked_once_a_question(self, world, shop):
        world.claude(shop, RETRY, DONE)
        world.find(RETRY, shop)
        world.model = BrokenModel()

        answer = world.find(RETRY, shop)

        assert world.model.asked == [RETRY]
        assert "vector search failed: no weights" in answer["search_error"]

    @pytest.mark.parametrize(
        ("broken", "mode"),
        [({"match_words"}, "vector"), ({"similarities"}, "lexical"), ({"similarities", "match_words"}, "recent")],
    )
    def test_each_way_of_searching_stands_in_for_the_one_before(self, world, shop, monkeypatch, broken, mode):
        knows = world.claude(shop, RETRY, DONE)
        for name in broken:
            monkeypatch.setattr(f"indexer.store.sqlite.Store.{name}", boom)

        answer = world.find(RETRY, shop)

        assert (answer["search_mode"], answer["fallback_used"]) == (mode, True)
        assert "boom" in answer["search_error"]
        shown = answer["results"] or answer["fallback_sessions"]
        assert [one["session_id"] for one in shown] == [knows]
        assert ("fallback_sessions" in answer) == (mode == "recent")

    def test_what_there_was_no_time_for_is_done_by_somebody_else(self, world, shop):
        for number in range(40):
            world.claude(shop, f"{RETRY} {number}", DONE)
        asked = []
        engine = Engine(world.model, read_seconds=0, embed_seconds=0, unfinished=asked.append)

        answer = find(FindRequest(RETRY), engine, shop).as_json()

        assert [str(shop)] == [project.root for project in asked]
        assert answer["index"]["unread_logs"] > 0
        assert not answer["index"]["complete"]


def boom(*_: object) -> None:
    raise OSError("boom")


class TestNotAvailable:
    """F-130…F-136."""

    def assert_unavailable(self, answer: dict, *shown: str) -> None:
        assert set(answer) == UNAVAILABLE
        assert answer["error"] == "index_not_available"
        assert len(answer["next_steps"]) == 3
        assert [one["session_id"] for one in answer["fallback_sessions"]] == list(shown)
        for one in answer["fallback_sessions"]:
            assert {"session_id", "project_path", "last_modified", "agent_type"} <= set(one)

    def test_a_damaged_index(self, world, shop):
        world.claude(world.repository("elsewhere"), RETRY, DONE)
        knows = world.claude(shop, RETRY, DONE)
        index_db().parent.mkdir()
        index_db().write_bytes(b"this is no database" * 1000)

        answer = world.find(RETRY, shop)

        assert [hit["session_id"] for hit in answer["results"]] == [knows]
        (aside,) = kept(index_db())
        assert aside.read_bytes() == b"this is no database" * 1000

    def test_an_index_that_turns_out_to_be_damaged(self, world, shop, monkeypatch):
        knows = world.claude(shop, RETRY, DONE)
        monkeypatch.setattr("indexer.store.sqlite.Store.counts", corrupt)

        self.assert_unavailable(world.find(RETRY, shop), knows)

    def test_an_index_that_is_damaged_where_it_is_written(self, world, shop, monkeypatch):
        knows = world.claude(shop, RETRY, DONE)
        world.find(RETRY, shop)
        monkeypatch.setattr("smart_fork.finding.index_refresh.read_changes", corrupt)

        self.assert_unavailable(world.find(RETRY, shop), knows)

    def test_logs_that_cannot_be_read_leave_what_is_indexed(self, world, shop, monkeypatch):
        knows = world.claude(shop, RETRY, DONE)
        world.find(RETRY, shop)
        monkeypatch.setattr("smart_fork.finding.index_refresh.read_changes", boom)

        answer = world.find(RETRY, shop)

        assert [hit["session_id"] for hit in answer["results"]] == [knows]
        assert answer["index"]["problem"] == "The index could not be updated: boom"

    def test_an_index_of_a_newer_version(self, world, shop):
        knows = world.claude(shop, RETRY, DONE)
        world.find(RETRY, shop)
        db = apsw.Connection(str(index_db()))
        db.execute("PRAGMA user_version = 999")
        db.close()

        answer = world.find(RETRY, shop)

        self.assert_unavailable(answer, knows)
        assert "a newer smart-fork wrote the index" in answer["message"]

    def test_a_folder_that_cannot_be_written(self, world, shop, monkeypatch):
        knows = world.claude(shop, RETRY, DONE)
        (world.home / "file").write_text("")
        monkeypatch.setenv("SMART_FORK_HOME", str(world.home / "file/state"))

        self.assert_unavailable(world.find(RETRY, shop), knows)

    def test_a_complete_index_on_a_read_only_file_system_is_searched(self, world, shop, monkeypatch):
        knows = world.claude(shop, RETRY, DONE)
        assert world.find(RETRY, shop)["index"]["complete"]
        really = os.open

        def read_only(path, flags, *more, **how):
            if flags & (os.O_WRONLY | os.O_RDWR):
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
            return really(path, flags, *more, **how)

        monkeypatch.setattr(os, "open", read_only)
        answer = world.find(RETRY, shop)

        assert [knows] == [hit["session_id"] for hit in answer["results"]]
        assert answer["search_mode"] == "hybrid"

    def test_indexing_that_is_not_switched_off_is_no_hint(self, world, shop, monkeypatch):
        world.claude(shop, RETRY, DONE)
        (world.home / "file").write_text("")
        monkeypatch.setenv("SMART_FORK_HOME", str(world.home / "file/state"))

        assert "SMART_FORK_INDEXING" not in str(world.find(RETRY, shop)["next_steps"])
        monkeypatch.setenv("SMART_FORK_INDEXING", "false")
        monkeypatch.setenv("SMART_FORK_HOME", str(world.home / "new"))
        assert "SMART_FORK_INDEXING" in str(world.find(RETRY, shop)["next_steps"])

    def test_indexing_switched_off_without_an_index(self, world, shop, monkeypatch, caplog):
        knows = world.claude(shop, RETRY, DONE)
        monkeypatch.setenv("SMART_FORK_INDEXING", "false")

        with caplog.at_level("WARNING", logger="smart_fork"):
            answer = world.find(RETRY, shop, limit=1)

        self.assert_unavailable(answer, knows)
        assert "SMART_FORK_INDEXING" in answer["message"]
        assert "not available" in caplog.text

    def test_indexing_switched_off_with_an_index_searches_it_as_it_is(self, world, shop, monkeypatch):
        knows = world.claude(shop, RETRY, DONE)
        world.find(RETRY, shop)
        monkeypatch.setenv("SMART_FORK_INDEXING", "False")
        world.claude(shop, RETRY, DONE)

        answer = world.find(RETRY, shop)

        assert [hit["session_id"] for hit in answer["results"]] == [knows]
        assert answer["index"]["complete"] is False
        assert answer["index"]["unread_logs"] is None
        assert "switched off" in answer["index"]["problem"]

    def test_somebody_else_is_indexing(self, world, shop, monkeypatch):
        monkeypatch.setattr("indexer.refresh.LOCK_SECONDS", 0.0)
        knows = world.claude(shop, RETRY, DONE)
        with only_writer(0):
            self.assert_unavailable(world.find(RETRY, shop), knows)
        world.find(RETRY, shop)
        world.claude(shop, RETRY, DONE)
        with only_writer(0):
            answer = world.find(RETRY, shop)

        assert [hit["session_id"] for hit in answer["results"]] == [knows]
        assert not answer["index"]["complete"]

    def test_nobody_has_to_wait_where_nothing_is_to_be_read(self, world, shop):
        knows = world.claude(shop, RETRY, DONE)
        world.find(RETRY, shop)
        with only_writer(0):
            answer = world.find(RETRY, shop)

        assert [hit["session_id"] for hit in answer["results"]] == [knows]
        assert answer["index"]["complete"]

    def test_the_fallback_leaves_out_the_caller_sub_agents_and_what_cannot_be_read(self, world, shop, monkeypatch):
        monkeypatch.setenv("SMART_FORK_INDEXING", "false")
        older, newer = world.claude(shop, RETRY, DONE), world.codex(shop, RETRY, DONE)
        asking = world.claude(shop, RETRY, DONE)
        folder = world.log_of(older).parent
        (folder / "agent-1.jsonl").write_bytes(world.log_of(older).read_bytes())
        (folder / "empty.jsonl").write_text("")
        (folder / "folder.jsonl").mkdir()
        os.mkfifo(folder / "fifo.jsonl")
        world.codex(shop, RETRY, DONE, thread_source="subagent")
        world.claude(shop, RETRY, DONE, isSidechain=True)

        answer = world.find(RETRY, shop, caller_session_id=asking)

        self.assert_unavailable(answer, newer, older)


def corrupt(*_: object) -> None:
    raise apsw.CorruptError("malformed")
