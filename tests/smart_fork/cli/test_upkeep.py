"""``index``, ``doctor`` and ``demo``."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
from pathlib import Path

from rich.console import Console

from smart_fork.cli import output
from tests.smart_fork.world import BrokenModel

RETRY = "add retry with backoff to the uploader"
DONE = "The uploader retries five times"


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
        assert done.err == "7 broken lines in 2 logs; `smart-fork index status --json` says which\n"
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

    def test_words_alone(self, run, world, shop):
        world.claude(shop, RETRY, DONE)

        assert json.loads(run("index", "run", "--no-vectors", "--json").out)["index"]["embedded"] == 0
        assert "complete           False" in run("index", "status").out

    def test_without_a_model_words_are_indexed_and_the_reason_is_told(self, run, world, shop, monkeypatch):
        monkeypatch.setattr("indexer.models.configured_embedder", BrokenModel)
        world.claude(shop, RETRY, DONE)

        done = run("index", "run", "--json")

        assert done.code == 1
        assert json.loads(done.out)["error"] == "Words are indexed, meaning is not: no weights"

    def test_another_process_is_at_it(self, run, world, shop, monkeypatch):
        from indexer.freshness import only_writer

        monkeypatch.setattr("smart_fork.cli.index.PATIENCE", 0.0)
        with only_writer(0):
            assert run("index", "run", "--if-idle").code == 0
            assert json.loads(run("index", "run", "--if-idle", "--json").out) == {"busy": True}
            assert run("index", "run").code == 1

    def test_new_logs_are_counted_by_the_status(self, run, world, shop):
        run("index", "run")
        world.claude(shop, RETRY, DONE)

        status = json.loads(run("index", "status", "--json").out)

        assert (status["unread_logs"], status["complete"]) == (1, False)

    def test_places(self, run, world):
        state = world.home / ".smart-fork"
        assert run("index", "path").out.split() == [str(state / "index.db"), str(state / "index")]
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
    def test_it_ends_with_the_commands_that_would_fork_the_best(self, run, world, monkeypatch):
        monkeypatch.setenv("SMART_FORK_INDEXING", "false")
        before = dict(os.environ)

        done = run("demo")

        assert done.code == 0, done.err
        assert re.search(r"^cd \S+ && (claude --resume|codex fork) ", done.out, re.MULTILINE)
        assert re.search(r"^smart-fork fork [0-9a-f-]+ \"", done.out, re.MULTILINE)
        assert dict(os.environ) == before
        assert not (world.home / ".smart-fork").exists()

    def test_it_can_be_kept_and_read_by_programs(self, run):
        done = run("demo", "--keep", "--json")

        folder = Path(re.search(r"Kept: (\S+)", done.err)[1])
        try:
            assert json.loads(done.out)["results"]
            assert folder.is_dir()
        finally:
            shutil.rmtree(folder)


def test_a_progress_bar_is_shown_only_to_people_and_only_where_there_is_work(monkeypatch):
    with output.progress_bar() as nobody:
        assert nobody is None
    screen = io.StringIO()
    monkeypatch.setattr(output.err, "console", Console(file=screen, force_terminal=True, width=80))
    monkeypatch.setenv("TERM", "xterm")

    with output.progress_bar() as bar:
        bar("reading", 0, 0)
        assert screen.getvalue() == ""
        bar("reading", 1, 2)
        bar("embedding", 1, 2)
    assert "reading" in screen.getvalue()
    with output.progress_bar(quiet=True) as nobody:
        assert nobody is None
