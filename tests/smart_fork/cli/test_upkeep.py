"""The commands ``index``, ``doctor`` and ``demo``."""

from __future__ import annotations

import json
import os
import re
import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest

from indexer.locks import only_writer
from indexer.store.sqlite import Store
from smart_fork.finding.index_access import opened
from tests.smart_fork.world import BrokenModel

RETRY = "add retry with backoff to the uploader"
DONE = "The uploader retries five times"


def _refused(*_: object, **__: object) -> None:
    raise OSError("the disk refuses")


class TestIndex:
    def break_lines(self, world, shop, number: int) -> Path:
        log = world.log_of(world.claude(shop, RETRY, DONE))
        with log.open("a") as file:
            file.write("{broken\n" * number)
        return log

    def test_broken_lines_are_one_line_and_only_of_what_was_read(self, run, world, shop):
        self.break_lines(world, shop, 3)
        first = self.break_lines(world, shop, 4)

        done = run("index", "run")
        assert done.err == "7 broken lines in 2 logs; `smart-fork index status --json` lists them\n"
        assert run("index", "run").err == ""

        with first.open("a") as file:
            file.write("{more\n")
        assert run("index", "run").err.startswith("1 broken lines in 1 logs;")
        assert [one["lines"] for one in json.loads(run("index", "status", "--json").out)["broken_logs"]] == [5, 3]

    def test_a_report_for_people_and_for_programs(self, run, world, shop):
        world.claude(shop, RETRY, DONE)
        (world.log_of(world.claude(shop, "x", "y"))).write_text('{"type": "mode"}\n')

        done = run("index", "run")
        assert "2 logs: 2 read" in done.out
        assert "The index holds 1 sessions, 1 passages, 1 with their meaning." in done.out
        assert "skipped 1: no conversation" in done.out
        again = json.loads(run("index", "run", "--json").out)
        assert (again["read"], again["unchanged"], again["index"]["sessions"]) == (0, 2, 1)

    def test_the_project_that_is_named_comes_first_else_that_of_the_directory(self, run, world, shop, monkeypatch):
        other = world.repository("other")
        scopes, waiting = [], Store.waiting
        monkeypatch.setattr(
            Store, "waiting", lambda store, first, *more: scopes.append(first) or waiting(store, first, *more)
        )
        for folder, arguments in ((shop, ["--project", str(shop)]), (other, []), (shop, ["--project", "/gone"])):
            world.claude(folder, f"{RETRY} in {folder.name}", DONE)
            monkeypatch.chdir(other)
            assert 0 == run("index", "run", *arguments).code
        with opened() as store:
            first = [store.find_sessions(world.ids(RETRY, folder)[0])[0].part for folder in (shop, other)]

        assert [(first[0],), (first[1],), ()] == list(dict.fromkeys(scopes))

    def test_the_last_run_is_told_of_by_everything_that_tells_of_the_index(self, run, world, shop):
        assert "next update with the next search" in run("index", "status").out
        world.claude(shop, RETRY, DONE)
        run("index", "run")

        told = json.loads(run("index", "status", "--json").out)["last_run"]
        assert ("completed", 1, 1, 1, 0) == tuple(
            told[key] for key in ("outcome", "logs", "read", "embedded", "failed_logs")
        )
        assert "completed after" in run("index", "status").out
        assert "1 of 1 logs read, 1 passages embedded" in run("index", "status").out
        assert told == json.loads(run("status", "--json").out)["index"]["last_run"]

    def test_a_run_that_failed_is_told_of_with_its_reason(self, run, world, shop, monkeypatch):
        monkeypatch.setattr("indexer.default_embedder.configured_embedder", lambda **_: BrokenModel())
        world.claude(shop, RETRY, DONE)
        assert 1 == run("index", "run").code

        told = json.loads(run("index", "status", "--json").out)["last_run"]
        assert "failed" == told["outcome"]
        assert told["error"] in run("index", "status").out

    def test_a_log_that_could_not_be_read_is_named(self, run, world, shop, monkeypatch):
        log = world.log_of(world.claude(shop, RETRY, DONE))
        monkeypatch.setattr("smart_fork.agents.claude.log_files.ClaudeAdapter.read", _refused)
        run("index", "run")

        assert f"could not be read: {log}: " in run("index", "status").out

    def test_words_alone(self, run, world, shop):
        world.claude(shop, RETRY, DONE)

        assert json.loads(run("index", "run", "--no-vectors", "--json").out)["index"]["embedded"] == 0
        assert "searchable by words only" in run("index", "status").out

    def test_without_a_model_words_are_indexed_and_the_reason_is_told(self, run, world, shop, monkeypatch):
        monkeypatch.setattr("indexer.default_embedder.configured_embedder", lambda **_: BrokenModel())
        world.claude(shop, RETRY, DONE)

        done = run("index", "run", "--json")

        assert done.code == 1
        assert json.loads(done.out)["error"] == "Words are indexed, embeddings are not: no weights"

    def test_another_process_is_at_it(self, run, world, shop, monkeypatch):
        from indexer.locks import only_writer

        back: list[int] = []
        monkeypatch.setattr(
            "smart_fork.cli.index.step_back", lambda: back.append(1)
        )  # this process cannot step forward
        monkeypatch.setattr("smart_fork.cli.index.PATIENCE", 0.0)
        with only_writer(0):
            assert run("index", "run", "--if-idle").code == 0
            assert json.loads(run("index", "run", "--if-idle", "--json").out) == {"busy": True}
            assert [1, 1] == back
            assert run("index", "run").code == 1
            assert [1, 1] == back  # a person waits for this one

    @pytest.mark.parametrize("name", ["index", "embedding"])
    def test_a_run_beside_another_says_so_follows_it_and_does_what_is_left(self, run, world, shop, monkeypatch, name):
        run("index", "run")
        world.claude(shop, RETRY, DONE)
        monkeypatch.setattr("indexer.locks.LOOK_SECONDS", 0.0)
        said = []

        def say(text: str) -> None:
            said.append(text)
            if len(said) == 2:
                other.close()

        monkeypatch.setattr("smart_fork.cli.index.say", say)
        with ExitStack() as other:
            other.enter_context(only_writer(0, name))
            done = run("index", "run")

        assert "Another process is indexing" in said[0]
        assert re.fullmatch(r"It has \d sessions, \d of \d passages with their meaning\.", said[1])
        assert (0, 2) == (done.code, len(said))
        assert json.loads(run("index", "status", "--json").out)["complete"]

    def test_new_logs_are_counted_by_the_status(self, run, world, shop):
        run("index", "run")
        world.claude(shop, RETRY, DONE)

        status = json.loads(run("index", "status", "--json").out)

        assert (status["unread_logs"], status["complete"]) == (1, False)

    def test_places(self, run, world):
        state = world.home / ".smart-fork"
        assert run("index", "path").out.splitlines() == [str(state / "index.db"), str(state / "index")]
        assert json.loads(run("index", "path", "--json").out) == {
            "index": str(state / "index.db"),
            "exports": str(state / "index"),
        }


class TestDoctor:
    def test_it_ends_well_or_not(self, run, world):
        state = world.home / ".smart-fork"
        state.mkdir(mode=0o700)
        assert json.loads(run("doctor", "--json").out)["ok"] is True
        assert "ok  index" in run("doctor").out

        (state / "index.db").write_bytes(b"this is no database" * 100)
        for name in ("-wal", "-shm"):
            (state / f"index.db{name}").unlink(missing_ok=True)
        done = run("doctor")
        assert done.code == 1
        assert "NO  index" in done.out
        assert "it was damaged, and is kept as" in done.out.replace("\n", " ")
        assert json.loads(run("doctor", "--json").out)["ok"] is True  # a new one is there


class TestDemo:
    @pytest.mark.slow
    def test_it_ends_with_the_commands_that_would_fork_the_best(self, run, world, monkeypatch):
        monkeypatch.setenv("SMART_FORK_INDEXING", "false")
        before = dict(os.environ)

        done = run("demo")

        assert done.code == 0, done.err
        assert re.search(
            r"^Next: smart-fork fork [0-9a-f-]+ \"PROMPT\"  # continue in a copy: \S+ tokens$", done.err, re.MULTILINE
        )
        assert dict(os.environ) == before
        assert not (world.home / ".smart-fork").exists()

    @pytest.mark.thorough
    def test_whoever_has_seen_it_is_told_how_to_go_on_with_their_own_sessions(self, run):
        done = run("demo")

        assert "The example sessions are deleted. Try your own," in done.err
        assert re.findall(r"^  (smart-fork \w+)", done.err, re.MULTILINE) == ["smart-fork find", "smart-fork setup"]

    @pytest.mark.slow
    def test_it_can_be_kept_and_read_by_programs(self, run):
        done = run("demo", "--keep", "--json")

        folder = Path(re.search(r"Kept: (\S+)", done.err)[1])
        try:
            assert json.loads(done.out)["results"]
            assert folder.is_dir()
            assert "gone" not in done.err
        finally:
            shutil.rmtree(folder)
