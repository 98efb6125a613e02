"""Background indexing in a process that stays."""

import logging
import os
import queue
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from apscheduler.triggers.interval import IntervalTrigger

import indexer
from indexer import background_indexer
from indexer.background_indexer import BackgroundIndexer, Batch
from indexer.embedder import ModelUnavailableError
from indexer.locks import NICE, only_writer
from indexer.refresh import complete
from indexer.safe_files import index_db, index_root, state_home
from indexer.store.sqlite import Store
from smart_fork.agents.log_readers import READERS
from tests.indexer.index_inputs import HashEmbedder, append, claude_log, claude_records, codex_log, content, lines
from tests.support import forkserver

ROOT = Path(indexer.__file__).parent.parent
SECONDS = 90
HOUR = IntervalTrigger(hours=1)
OVER = -1.0  # the time of a piece of work that is over before it begins


def identity(number: int) -> str:
    return f"{number:08}-1111-4111-8111-111111111111"


@pytest.fixture
def runs(monkeypatch):
    """Yield every run when it has ended."""
    ended: queue.Queue = queue.Queue()
    real = BackgroundIndexer._run

    def run(self, job):
        real(self, job)
        ended.put((self._last_run if job.paths is None else self._last_change, job))

    monkeypatch.setattr(BackgroundIndexer, "_run", run)
    return ended


@pytest.fixture
def fresh(runs, monkeypatch):
    for module in ("background_indexer", "refresh"):
        monkeypatch.setattr(f"indexer.{module}.LOCK_SECONDS", 0.0)
    started = []

    def start(embedder=None, trigger=HOUR, **options):
        options = {"batch": Batch(0.0, 0.0)} | options
        started.append(BackgroundIndexer(READERS, embedder or HashEmbedder(), trigger, **options))
        started[-1].start()
        return started[-1]

    yield start
    for one in started:
        assert one.stop(SECONDS)


def until(look, runs):
    """Wait for runs until `look` is true."""
    while not look():
        runs.get(timeout=SECONDS)


def holds():
    store = Store(index_db())
    try:
        counts = store.counts()
        return counts.sessions, counts.chunks, counts.embedded
    finally:
        store.close()


def test_everything_is_indexed_at_the_start(fresh, runs, caplog):
    """F-186, F-188, F-189, F-194."""
    caplog.set_level(logging.INFO)
    for number in range(3):
        claude_log(identity(number), "/work/a", f"question {number}")
    one = fresh()
    while not runs.get(timeout=SECONDS)[1].scheduled:  # the watcher may have had everything looked at before
        pass
    assert (3, 3, 3) == holds()

    state = one.status().as_json()
    assert ("completed", 3, None) == (state["last_run"]["outcome"], state["last_run"]["logs"], state["last_error"])
    assert state["next_run"] > state["last_run"]["started_at"]
    assert one.stop(SECONDS)  # what it says of its last run, it has said by then
    said = [record.message for record in caplog.records if record.name == "indexer.background_indexer"]
    assert any(line.startswith("Indexing run started") for line in said)
    assert any(line.startswith("Indexing run completed: ") for line in said)
    assert ("stopped", None) == (one.status().state, one.status().next_run)


@pytest.mark.skipif(sys.platform != "linux", reason="the priority of one thread can only be read on Linux")
def test_it_steps_back_and_the_rest_of_its_process_does_not(fresh, runs):
    """F-201: programs that the process starts keep the normal priority."""
    seen = []

    class Model(HashEmbedder):
        def embed(self, texts):
            seen.append(os.getpriority(os.PRIO_PROCESS, 0))
            return super().embed(texts)

    before = os.getpriority(os.PRIO_PROCESS, 0)
    claude_log(identity(1), "/work/a", "question")
    fresh(Model())
    until(lambda: holds() == (1, 1, 1), runs)

    assert {max(NICE, before)} == set(seen)
    assert before == os.getpriority(os.PRIO_PROCESS, 0)


def test_a_new_log_and_a_growing_one_are_indexed_as_they_change(fresh, runs):
    log = claude_log(identity(1), "/work/a", "question", "answer")
    claude_log(identity(2), "/work/a", "another question")
    fresh()
    until(lambda: holds()[0] == 2, runs)
    codex_log(identity(3), "/work/a", "a new question")  # in folders that are new as well
    until(lambda: holds()[0] == 3, runs)

    for number in range(2, 100):  # while folders that have just come begin to be watched, everything is looked at
        append(log, lines(claude_records(identity(1), "/work/a", [f"and {number}"], number)))
        run, job = runs.get(timeout=SECONDS)
        if job.paths and set(job.paths) == {str(log)} and run.sessions:
            break

    assert (1, 1) == (run.logs, run.resumed)
    assert run.bytes_read < log.stat().st_size
    assert 3 == holds()[0]
    assert holds()[1] == holds()[2]


def test_deleted_truncated_and_replaced_logs_are_right_afterwards(fresh, runs):
    gone = claude_log(identity(1), "/work/a", "question one", "answer")
    cut = claude_log(identity(2), "/work/a", "question two", "an answer", "question three", "the answer")
    replaced = claude_log(identity(3), "/work/a", "question four", "answer")
    one = fresh()
    until(lambda: holds()[0] == 3, runs)

    gone.unlink()
    cut.write_bytes(lines(claude_records(identity(2), "/work/a", ["question two", "an answer"])))
    fresh_copy = replaced.with_name("copy.tmp")
    fresh_copy.write_bytes(lines(claude_records(identity(3), "/work/a", ["something else", "entirely"])))
    fresh_copy.rename(replaced)

    def right():
        with background_indexer.open_index() as store:
            rows = {row.session_id: row for row in store.find_sessions("")}
            return (rows[identity(1)].path, rows[identity(2)].turns, rows[identity(3)].title) == (
                "",
                2,
                "something else",
            )

    until(right, runs)
    assert one.stop(SECONDS)
    expected = content(index_db())
    with background_indexer.open_index() as store:
        complete(store, READERS, HashEmbedder(), patience=0)
    actual = content(index_db())
    assert expected.keys() == actual.keys()
    assert all(expected[key] == actual[key] for key in expected if key != "vectors")


def test_runs_never_overlap(fresh, runs, monkeypatch):
    """F-188: the schedule, a change and a person ask at the same time."""
    inside, most = [], []
    real = BackgroundIndexer._index

    def index(self, job, report):
        inside.append(1)
        most.append(len(inside))
        for _ in range(5):
            self.run_soon()
            self.look([str(log)])
            self.look(None)
        real(self, job, report)
        inside.pop()

    monkeypatch.setattr(BackgroundIndexer, "_index", index)
    log = claude_log(identity(1), "/work/a", "question")
    one = fresh()
    for _ in range(6):
        one.run_soon()
        runs.get(timeout=SECONDS)

    assert {1} == set(most)


def test_a_failing_run_is_logged_and_the_next_one_works(fresh, runs, caplog):
    """F-188, F-189."""
    state_home().mkdir(mode=0o700)
    index_root().write_text("a file where a folder has to be")
    claude_log(identity(1), "/work/a", "question")
    one = fresh()
    while (run := runs.get(timeout=SECONDS)[0]).outcome != "failed":
        pass
    assert f"cannot write to {index_root()}" in run.error
    assert "SMART_FORK_HOME" in one.status().last_error
    assert one.status().last_error_at
    assert "Indexing run failed: " in caplog.text
    assert "Traceback" not in caplog.text

    index_root().unlink()
    one.run_soon()
    until(lambda: holds()[0] == 1, runs)


def test_an_error_in_a_run_is_logged_with_where_it_happened(fresh, runs, caplog):
    def opened():
        raise RuntimeError("the disk is gone")

    one = fresh(opened=opened)
    while runs.get(timeout=SECONDS)[0].error != "the disk is gone":
        pass
    assert "Traceback" in caplog.text
    assert "the disk is gone" == one.status().last_error


def test_what_fails_at_every_change_is_said_once(fresh, runs, caplog):
    class Broken(HashEmbedder):
        def embed(self, texts):
            raise ModelUnavailableError("no weights")

    log = claude_log(identity(1), "/work/a", "question")
    one = fresh(Broken())
    for _ in range(4):
        one._rest_until = 0.0
        one.look([str(log)])
        runs.get(timeout=SECONDS)
    scheduled = sum(1 for record in caplog.records if record.message == "Indexing run failed: no weights")
    assert 1 <= scheduled <= 2  # the first look at everything, and the first run of the schedule
    assert (1, 1, 0) == holds()


def test_while_another_process_indexes_a_run_is_skipped_and_made_up_for(fresh, runs, monkeypatch, caplog):
    """F-192."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(background_indexer, "BUSY_SECONDS", 0.01)
    claude_log(identity(1), "/work/a", "question")
    with only_writer(0):
        one = fresh()
        while runs.get(timeout=SECONDS)[1].scheduled is False:
            pass
        assert "skipped" == one.status().last_run.outcome
        assert (0, 0, 0) == holds()
    until(lambda: holds() == (1, 1, 1), runs)
    assert "Indexing run skipped: another process is indexing" in caplog.text


@pytest.mark.slow
def test_a_log_that_is_written_while_much_is_embedded_is_found_by_its_words(fresh, runs, monkeypatch):
    """The first embedding of everything takes long. New messages do not wait for it."""
    monkeypatch.setattr(background_indexer, "PIECE_SECONDS", OVER)
    monkeypatch.setattr("indexer.pipeline.EMBED_ROWS", 1)
    seen: list = []
    batch = Batch(0.0, 0.0)

    class Model(HashEmbedder):
        def embed(self, texts):
            if not seen:
                batch.add([str(claude_log(identity(99), "/work/a", "a brand new question"))], 0.0)
            seen.append(holds())
            return super().embed(texts)

    for number in range(30):
        claude_log(identity(number), "/work/a", f"question {number}")
    fresh(Model(), batch=batch)
    until(lambda: holds() == (31, 31, 31), runs)

    assert [(30, 30, 0), (31, 31, 1)] == seen[:2]


@pytest.mark.thorough
def test_the_flag_to_stop_is_looked_at_between_pieces_that_are_over_before_they_begin(fresh, runs, monkeypatch):
    monkeypatch.setattr(background_indexer, "PIECE_SECONDS", OVER)
    monkeypatch.setattr("indexer.pipeline.EMBED_ROWS", 1)
    embedding, go_on = threading.Event(), threading.Event()

    class Model(HashEmbedder):
        def embed(self, texts):
            embedding.set()
            go_on.wait(SECONDS)
            return super().embed(texts)

    for number in range(30):
        claude_log(identity(number), "/work/a", f"question {number}")
    one = fresh(Model())
    assert embedding.wait(SECONDS)
    assert not one.stop(0.0)
    go_on.set()
    assert one.stop(SECONDS)

    run = one.status().last_run or one.status().last_change
    assert ("cancelled", 1) == (run.outcome, run.embedded)
    assert (30, 30, 1) == holds()


def test_a_run_whose_embedding_is_ended_with_the_process_is_cancelled_and_keeps_what_it_had(
    fresh, runs, monkeypatch, caplog
):
    monkeypatch.setattr("indexer.pipeline.EMBED_ROWS", 1)
    embedding, ended = threading.Event(), threading.Event()

    class Model(HashEmbedder):
        def embed(self, texts):
            if embedding.is_set():
                ended.wait(SECONDS)
                raise ModelUnavailableError("the embedding process was ended")
            embedding.set()
            return super().embed(texts)

    for number in range(9):
        claude_log(identity(number), "/work/a", f"question {number}")
    one = fresh(Model())
    assert embedding.wait(SECONDS)
    assert not one.stop(0.0)
    ended.set()

    assert one.stop(SECONDS)
    run = one.status().last_run or one.status().last_change
    assert ("cancelled", (9, 9, 1)) == (run.outcome, holds())
    assert "failed" not in caplog.text


@pytest.mark.thorough
def test_pieces_that_are_over_before_they_begin_bring_everything_in(fresh, runs, monkeypatch):
    """Each batch has one log, one copy or one vector, however slow the machine is."""
    monkeypatch.setenv("SMART_FORK_KEEP_TRANSCRIPTS", "true")
    monkeypatch.setattr(background_indexer, "PIECE_SECONDS", OVER)
    monkeypatch.setattr("indexer.pipeline.EMBED_ROWS", 1)
    for number in range(9):
        claude_log(identity(number), "/work/a", f"question {number}")
    fresh()
    until(lambda: holds() == (9, 9, 9), runs)


def test_stopping_ends_a_run_between_two_logs(fresh, runs, monkeypatch, caplog):
    """F-189, F-193."""
    caplog.set_level(logging.INFO)
    reading, go_on = threading.Event(), threading.Event()
    real = indexer.pipeline._read_log

    def slow(*what, **more):
        real(*what, **more)
        reading.set()
        go_on.wait(SECONDS)

    monkeypatch.setattr(indexer.pipeline, "_read_log", slow)
    for number in range(5):
        claude_log(identity(number), "/work/a", f"question {number}")
    one = fresh()
    assert reading.wait(SECONDS)
    assert "indexing" == one.status().state
    stopper = threading.Thread(target=one.stop, args=(SECONDS,))
    stopper.start()
    assert one._stop.wait(SECONDS)
    go_on.set()
    stopper.join(SECONDS)

    assert "cancelled" == one.status().last_run.outcome
    assert "Indexing run cancelled" in caplog.text
    assert (1, 1, 0) == holds()
    with only_writer(0):  # nothing is left locked
        assert [] == [path for path in index_root().rglob("*") if path.name.startswith(".")]


def test_a_run_that_does_not_end_is_not_waited_for(fresh, runs, monkeypatch):
    """F-193."""
    stuck, go_on = threading.Event(), threading.Event()

    def index(self, job, report):
        stuck.set()
        go_on.wait(SECONDS)

    monkeypatch.setattr(BackgroundIndexer, "_index", index)
    one = fresh()
    assert stuck.wait(SECONDS)
    assert not one.stop(0.01)
    go_on.set()


def test_after_a_run_for_changes_the_processor_rests(monkeypatch):
    time_ = [100.0]
    one = BackgroundIndexer(READERS, HashEmbedder(), HOUR, clock=lambda: time_[0])

    def index(self, job, report):
        time_[0] += 2

    monkeypatch.setattr(BackgroundIndexer, "_index", index)
    one.look(["/a.jsonl"])
    assert 1.0 == one._seconds_to_wait()
    time_[0] += 1
    one._run(one._due())
    one.look(["/a.jsonl"])
    time_[0] += 3.9
    assert one._due() is None
    assert 0.1 == pytest.approx(one._seconds_to_wait())
    time_[0] += 0.2
    assert {"/a.jsonl"} == one._due().paths
    one.run_soon()
    assert one._due().scheduled  # a scheduled run does not wait for the rest


def test_after_vectors_were_made_new_words_do_not_wait(home, monkeypatch):
    """F-195: a first run may embed for minutes. Later messages are read immediately."""
    time_ = [100.0]
    one = BackgroundIndexer(READERS, HashEmbedder(), HOUR, clock=lambda: time_[0])

    def embed(self, store, report):
        time_[0] += 600

    monkeypatch.setattr(BackgroundIndexer, "_embed", embed)
    one.look(["/a.jsonl"])
    time_[0] += 1
    one._run(one._due())
    one.look(["/b.jsonl"])
    time_[0] += 1
    assert {"/b.jsonl"} == one._due().paths


FRESHEN = """
import sys
from apscheduler.triggers.interval import IntervalTrigger
from indexer.background_indexer import Batch
from indexer.background_indexer import BackgroundIndexer
from smart_fork.agents.log_readers import READERS
from tests.indexer.index_inputs import HashEmbedder
BackgroundIndexer(READERS, HashEmbedder(), IntervalTrigger(hours=1), batch=Batch(0.0, 0.0)).start()
print("started", flush=True)
sys.stdin.read()
"""


@pytest.mark.thorough
def test_a_killed_process_leaves_an_index_that_the_next_one_completes(runs, fresh, tmp_path, monkeypatch):
    """F-193: killed while logs come and grow."""
    for number in range(40):
        claude_log(identity(number), f"/work/{number % 3}", *(f"question {number} {part}" for part in range(10)))
    for attempt in range(2):
        process = forkserver.Popen([sys.executable, "-c", FRESHEN], cwd=ROOT, stdin=-1, stdout=-1, text=True)
        assert "started\n" == process.stdout.readline()
        append(claude_log(identity(50 + attempt), "/work/new", f"attempt {attempt}"), b'{"torn')
        deadline = time.monotonic() + SECONDS
        while not (index_db().exists() and _sessions() > 10 * attempt):
            assert time.monotonic() < deadline
            threading.Event().wait(0.02)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        store = Store(index_db())
        assert [("ok",)] == store.db.execute("PRAGMA integrity_check").fetchall()
        store.close()
    one = fresh()
    until(lambda: holds()[0] == 42 and holds()[1] == holds()[2], runs)
    assert one.stop(SECONDS), "it would index in the new home as well"
    actual = content(index_db())
    monkeypatch.setenv("SMART_FORK_HOME", str(tmp_path / "undisturbed"))
    with background_indexer.open_index() as store:
        complete(store, READERS, HashEmbedder(), patience=0)
    expected = content(index_db())
    assert all(expected[key] == actual[key] for key in expected if key != "vectors")


def _sessions() -> int:
    try:
        return holds()[0]
    except Exception:  # noqa: BLE001 - it is just being made
        return -1
