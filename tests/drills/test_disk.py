"""A disk that is full, and one that cannot be written."""

from __future__ import annotations

import logging
import os
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from indexer.default_embedder import LightEmbedder
from indexer.refresh import complete
from indexer.safe_files import index_db, state_home
from indexer.store.sqlite import Store
from smart_fork.agents.log_readers import READERS
from smart_fork.cli.service.json_log import log_to_file
from smart_fork.errors import RegistryUnavailable
from smart_fork.workers.registry import Registry
from tests.drills.drill_home import (
    Quick,
    differs,
    eventually,
    found,
    fresh,
    grow,
    records,
    serving,
    smart_fork,
    until_right,
    untouched,
    write_logs,
)

pytestmark = pytest.mark.thorough  # of the real processes; each module has kills of its own

STEP = "Make room on the disk of"


def fill(folder: Path) -> Path:
    """A file that takes all the room that is left."""
    filler = folder / "filler"
    with filler.open("ab", buffering=0) as file:
        for size in (1 << 16, 1 << 12):
            try:
                while file.write(b"\0" * size) == size:
                    pass
            except OSError:
                continue
    return filler


def test_a_full_disk_is_said_and_indexing_goes_on_when_there_is_room(disk, tmp_path):
    """F-188: the service stays up, answers from what it has, and loses no log; exports and index are one."""
    folder = disk("size=8m")
    every = write_logs()
    with untouched(), serving():
        until_right(tmp_path / "before")
    filler = fill(folder)
    for number, path in enumerate(every[1:4]):
        grow(path, f"more about harbour {number}", "what was said then")
    with untouched():
        told = smart_fork("index", "run", "--json", "--no-vectors")
        assert (1, True) == (told.returncode, STEP in told.stdout + told.stderr)
        answer = found("uploader", SMART_FORK_SERVICE="off")
        assert answer["results"]
        assert STEP in answer["index"]["problem"]
    filler.unlink()
    with serving() as service:
        until_right(tmp_path / "after")
        filler = fill(folder)
        for number, path in enumerate(every[1:4]):
            grow(path, f"yet more about harbour {number}", "what was said later")
        with untouched():
            assert STEP in service.until_error(STEP)
            eventually(lambda: service.ask("/healthz")[1]["indexing"] == "failing", "it to be said")
            assert 200 == service.ask("/healthz")[0]
            filler.unlink()
            until_right(tmp_path / "in the end")
            eventually(lambda: "ok" == service.ask("/healthz")[1]["indexing"], "indexing to be well")
        assert service.process.poll() is None
    assert any(STEP in one["message"] for one in records() if one["level"] == "error")
    assert not list((state_home() / "index").rglob("*.tmp"))


def test_what_a_full_disk_did_not_take_is_logged_in_order_when_there_is_room(disk, monkeypatch):
    """What is said first may take the last bytes that the file's block has."""
    monkeypatch.setattr(logging, "raiseExceptions", False)
    folder = disk("size=1m")
    log_to_file()
    (handler,) = logging.getLogger().handlers
    with closing(handler):
        log = logging.getLogger("smart_fork.test")
        log.info("before")
        filler = fill(folder)
        said = [f"{number} {'x' * 2_000}" for number in range(20)]
        for message in said:
            log.error(message)
        filler.unlink()
        log.info("after")
    assert ["before", *said, "after"] == [one["message"] for one in records()]


def test_a_disk_without_a_byte_left_is_searched(disk, tmp_path):
    """Neither the file that connections share nor the write-ahead log can be made."""
    folder = disk("size=8m")
    write_logs()
    with untouched():
        assert 0 == smart_fork("index", "run", "--no-vectors").returncode
        assert not list(folder.glob("index.db-*"))
        fill(folder)
        for _ in range(2):
            assert found("uploader", SMART_FORK_SERVICE="off")["results"]


def test_a_log_that_does_not_fit_is_not_taken_for_odd(tmp_path):
    """The next run reads it. SQLite's own limit stands for the disk's."""
    every = write_logs(3)
    with closing(Store(index_db())) as store:
        complete(store, READERS, Quick(), patience=0)
        pages = store.db.execute("PRAGMA page_count").get
        grow(every[1], "more about harbour", " ".join(f"word{number}" for number in range(6_000)))
        store.db.execute(f"PRAGMA max_page_count = {pages + 8}").fetchall()
        with pytest.raises(apsw.FullError):
            complete(store, READERS, None, patience=0)
        store.db.execute("PRAGMA max_page_count = 1000000").fetchall()
        assert 1 == complete(store, READERS, Quick(), patience=0).read
    assert "" == differs(fresh(tmp_path / "fresh"))


def test_a_worker_that_does_not_fit_into_the_register_is_refused_and_the_rest_stays(tmp_path):
    with Registry() as registry:
        kept = registry.add("claude", source_session_id="", place="tmux", cwd=tmp_path)
        pages = registry._db.pragma("page_count")
    with pytest.raises(RegistryUnavailable, match="full") as told, _small(pages) as registry:
        registry.add("claude", source_session_id="", place="tmux", cwd=tmp_path, prompt="x" * 1_000_000)
    assert STEP in told.value.hint
    with Registry() as registry:
        assert [kept.id] == [worker.id for worker in registry.workers()]


def _small(pages: int) -> Registry:
    """The register, which may not grow beyond so many pages."""
    registry = Registry()
    registry._db.pragma("max_page_count", pages)
    return registry


def test_copies_that_do_not_fit_keep_no_log_out_of_the_index_and_are_made_when_there_is_room(disk, tmp_path):
    """D17."""
    folder = disk("size=6m")
    every = write_logs()
    big = every[1]
    big.with_suffix("").mkdir()
    (big.with_suffix("") / "tool-result.bin").write_bytes(os.urandom(8 << 20))
    with untouched():
        done = smart_fork("index", "run", "--json", SMART_FORK_KEEP_TRANSCRIPTS="true")
        assert 0 == done.returncode, done.stderr
        assert STEP in done.stdout
        assert "" == differs(fresh(tmp_path / "fresh", LightEmbedder()))
        disk("size=60m")
        done = smart_fork("index", "run", "--json", SMART_FORK_KEEP_TRANSCRIPTS="true")
        assert STEP not in done.stdout
    assert 7 == len(list((folder / "kept").glob("*/*/copy.json")))
    assert not list((folder / "kept").rglob("*.tmp"))


def test_a_state_folder_that_becomes_read_only_is_said_and_indexing_goes_on_when_it_is_not(disk, tmp_path):
    """F-181."""
    disk("size=20m")
    every = write_logs()
    with serving() as service:
        until_right(tmp_path / "before")
        eventually(lambda: service.indexing["last_run"], "the first run")
        disk("ro")
        grow(every[1], "more about harbour", "yes")
        with untouched():
            assert "SMART_FORK_HOME" in service.until_error("ead-only")
            eventually(lambda: "failing" == service.ask("/healthz")[1]["indexing"], "it to be said")
            assert service.process.poll() is None
            answer = found("uploader", SMART_FORK_SERVICE="off")
            assert "Read-only file system" in answer["index"]["problem"]
            assert not answer["index"]["complete"]
            assert answer["results"]
            disk("rw")
            until_right(tmp_path / "after")
    assert index_db().exists()


def test_a_service_that_cannot_write_at_all_says_so_and_does_not_start(disk):
    disk("size=1m")
    disk("ro")
    refused = smart_fork("serve", SMART_FORK_PORT="0")

    assert 1 == refused.returncode
    assert "The service cannot write its files" in refused.stderr
    assert "SMART_FORK_HOME" in refused.stderr
    assert "Traceback" not in refused.stderr
