"""The model's files, the clock, and the system's watches."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import wait
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path

import pytest

from indexer import run_triggers
from indexer.background_indexer import BackgroundIndexer
from indexer.embedder import ModelUnavailableError
from indexer.run_triggers import Schedule
from indexer.shared_embedder import RETRY_SECONDS, SharedEmbedder
from smart_fork.agents.log_readers import READERS
from smart_fork.cli.service.app import trigger_of
from smart_fork.finding.index_status import index_status
from tests.drills.drill_home import Quick, differs, eventually, found, fresh, grow, serving, untouched, write_logs

pytestmark = pytest.mark.thorough  # of the real processes; each module has kills of its own

MODEL = Path(find_spec("smart_fork_minilm").origin).parent


@pytest.fixture
def package(tmp_path, monkeypatch) -> Path:
    """A copy of the packaged model, which our processes find before the installed one."""
    shutil.copytree(
        MODEL, tmp_path / "site/smart_fork_minilm", copy_function=os.link if _links(tmp_path) else shutil.copy
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    return tmp_path / "site/smart_fork_minilm/model"


def _links(folder: Path) -> bool:
    return MODEL.stat().st_dev == folder.stat().st_dev


@pytest.mark.parametrize("harm", ["missing", "corrupted"])
def test_without_its_model_the_service_finds_by_words_and_says_what_to_do(package, harm, tmp_path):
    """F-021…F-026, D14: words are indexed, health is well because questions are answered, the status says why."""
    weights = package / "model.safetensors"
    weights.rename(tmp_path / "weights")
    if harm == "corrupted":
        weights.write_bytes(b"\0" * 4096)
    every = write_logs()
    with serving() as service:
        assert "reinstall smart-fork" in service.until_error("reinstall")
        grow(every[1], "more about harbour", "yes")
        with untouched():
            answer = found("harbour")
            assert ("lexical", True) == (answer["search_mode"], bool(answer["results"]))
            status, health = service.ask("/healthz")
            assert (200, "failing") == (status, health["indexing"])
    (tmp_path / "weights").rename(weights)


def test_a_model_that_could_not_be_loaded_is_tried_again():
    """Somebody has mended it meanwhile: no restart is needed."""
    now = [0.0]

    class Mended(Quick):
        broken = True

        def embed(self, texts):
            if self.broken:
                raise ModelUnavailableError("no weights")
            return super().embed(texts)

    inner = Mended()
    background = SharedEmbedder(inner, 60, clock=lambda: now[0])
    wait([background.start()])
    inner.broken = False
    with pytest.raises(ModelUnavailableError):
        background.embed(["x"])
    now[0] += RETRY_SECONDS

    assert (1, inner.dimensions) == background.embed(["x"]).shape


@contextmanager
def freshener(**options):
    started = BackgroundIndexer(READERS, Quick(), trigger_of("1h"), **options)
    started.start()
    try:
        yield started
    finally:
        assert started.stop(20)


@pytest.mark.parametrize("jump", [timedelta(days=400), timedelta(days=-400)], ids=["forward", "backward"])
def test_a_clock_that_jumps_neither_stops_the_schedule_nor_makes_it_spin(jump):
    """F-188."""
    now, called = [datetime.now(UTC)], []
    schedule = Schedule(lambda: called.append(1), trigger_of("1h"), now=lambda: now[0])
    schedule.start()
    eventually(lambda: called, "the first call")
    now[0] += jump
    for _ in range(3):
        schedule.mend()
    after = schedule.next_run
    schedule.stop()
    assert after is not None
    assert after <= max(now[0], datetime.now(UTC)) + timedelta(hours=1)
    assert 1 == len(called)


@pytest.mark.parametrize("jump", [timedelta(days=400), timedelta(days=-400)], ids=["forward", "backward"])
def test_what_is_written_after_a_jump_of_the_clock_is_indexed(jump, tmp_path):
    now = [datetime.now(UTC)]
    every = write_logs(3)
    with freshener(now=lambda: now[0]) as running:
        eventually(lambda: running.status().last_run, "the first run")
        now[0] += jump
        grow(every[1], "more about harbour", "yes")
        os.utime(every[1], (now[0].timestamp(), now[0].timestamp()))
        running.look({str(every[1])})
        eventually(lambda: index_status().complete, "everything to be read")
    assert "" == differs(fresh(tmp_path / "fresh"))


def test_without_watches_the_schedule_goes_on_and_logs_are_looked_at(monkeypatch, caplog, tmp_path):
    """The limit of inotify is reached: it is said once."""

    def no_watches(folders):
        raise OSError("OS file watch limit reached")

    monkeypatch.setattr(run_triggers, "_watching", no_watches)
    monkeypatch.setattr(run_triggers.Watcher.__init__, "__kwdefaults__", {"poll_seconds": 0.05})
    every = write_logs(3)
    with freshener() as running:
        eventually(lambda: running.status().last_run, "the first run")
        grow(every[1], "more about harbour", "yes")
        eventually(lambda: index_status().complete, "everything to be read")
        assert running.status().next_run
    assert "" == differs(fresh(tmp_path / "fresh"))
    assert 1 == caplog.text.count("OS file watch limit reached")


def test_while_the_disk_is_full_each_run_fails_and_none_is_repeated_without_pause():
    """A failing run is tried again some seconds later, not immediately: here time stands still."""
    opened = []

    @contextmanager
    def full():
        opened.append(1)
        raise OSError(28, "No space left on device")
        yield

    with freshener(opened=full, clock=lambda: 0.0) as running:
        eventually(lambda: running.status().failing, "it to be said")
        assert "Make room on the disk of" in running.status().last_error
        eventually(lambda: "idle" == running.status().state, "the run to end")
    assert len(opened) <= 4  # the first run, and what the watcher had seen before it; each is recorded as well
