"""Updates of the index, by one process at a time."""

import os
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import pytest
from apscheduler.triggers.interval import IntervalTrigger

from indexer import refresh
from indexer.background_indexer import BackgroundIndexer
from indexer.locks import IndexBusyError, give_way, only_writer
from indexer.log_changes import Report
from indexer.pipeline import embed_waiting
from indexer.project import Project, project_of
from indexer.refresh import complete, embed_first, read_changed, read_changes, read_some
from indexer.safe_files import index_db, state_home
from indexer.store.sqlite import Store
from smart_fork.agents.log_readers import READERS
from tests.indexer.index_inputs import HashEmbedder, claude_log

ROOT = Path(refresh.__file__).parent.parent
HOLD = """
import sys
from indexer.locks import only_writer
with only_writer(5, *sys.argv[1:]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def store():
    store = Store(index_db())
    yield store
    store.close()


@pytest.fixture
def holder():
    """Start a process that holds a lock until the test ends."""
    started = []

    def hold(*name):
        process = subprocess.Popen([sys.executable, "-c", HOLD, *name], cwd=ROOT, stdin=-1, stdout=-1, text=True)
        started.append(process)
        assert "held\n" == process.stdout.readline()
        return process

    yield hold
    for process in started:
        process.communicate()


def logs(count: int, folder: str = "/work/a") -> None:
    for number in range(count):
        claude_log(f"{number:08}-1111-4111-8111-{len(folder):012}", folder, f"question {number} in {folder}")


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(refresh, "LOCK_SECONDS", 0.0)


def test_logs_that_cannot_be_read_keep_no_other_out_however_slowly_they_fail(store, monkeypatch):
    """In batches: each batch continues after the log at which the last one failed."""
    logs(3)
    newest = next(iter(READERS["claude"].discover())).path
    os.utime(newest, (2e9, 2e9))
    real = READERS["claude"].read

    def read(path, *more):
        if path == newest:
            raise OSError(5, "Input/output error")
        return real(path, *more)

    monkeypatch.setattr(type(READERS["claude"]), "read", lambda _, *given: read(*given))
    report = Report()
    assert [2, 1, 0, 0] == [len(read_some(store, READERS, report, -1)) for _ in range(4)]
    assert ([str(newest)], 2) == (list(report.failed), store.counts().sessions)


def test_a_second_process_does_not_index(store, holder):
    logs(1)
    process = holder()
    for attempt in (
        lambda: complete(store, READERS, None, patience=0),
        lambda: read_changes(store, READERS, None, 9),
    ):
        with pytest.raises(IndexBusyError):
            attempt()
    assert 0 == store.counts().sessions

    process.kill()  # the system lets go of the lock
    process.wait()
    assert 1 == complete(store, READERS, None, patience=5).sessions


def test_where_nothing_has_changed_nobody_waits_for_the_process_that_indexes(store, holder):
    logs(1)
    read_changes(store, READERS, None, 9)
    holder()

    report, left = read_changes(store, READERS, None, 9)

    assert (1, 0, []) == (report.unchanged, report.read, left)


def test_while_one_process_embeds_another_reads_what_is_new(store, holder):
    logs(1)
    holder("embedding")

    assert (1, 0) == (read_changes(store, READERS, None, 9)[0].sessions, store.counts().embedded)
    logs(2, "/work/bb")
    with pytest.raises(IndexBusyError):
        complete(store, READERS, HashEmbedder(), patience=0)
    assert 3 == store.counts().sessions
    with pytest.raises(IndexBusyError):
        embed_first(store, HashEmbedder(), store.scope(None, ["claude"], automated=False), 9)


def test_the_lock_is_private_and_let_go_of_after_an_error():
    with pytest.raises(ZeroDivisionError), only_writer(0):
        1 / 0  # noqa: B018
    with only_writer(0), pytest.raises(IndexBusyError), only_writer(0):
        pass

    assert 0o600 == (state_home() / "index.lock").stat().st_mode & 0o777


def test_everything_is_read_and_embedded(store):
    logs(3)
    report = complete(store, READERS, HashEmbedder(), project_of("/work/a"), patience=0)

    assert (3, 3, 0) == (report.sessions, report.embedded, report.waiting)
    assert 3 == complete(store, READERS, HashEmbedder(), patience=0).unchanged


def test_with_no_time_at_all_one_log_is_read_and_the_rest_counted(store):
    logs(4)
    told = []

    assert [3, 2, 1, 0, 0] == [
        len(read_changes(store, READERS, None, 0, lambda *step: told.append(step))[1]) for _ in range(5)
    ]
    assert ("reading", 0, 4) == told[0]
    assert 4 == store.counts().sessions


def test_the_current_project_is_read_first(store):
    logs(3, "/work/other")
    logs(1, "/work/here")
    logs(3, "/work/another")
    read_changes(store, READERS, Project("/work/here", "/work/here", git=False), 0)

    assert ["/work/here"] == [row.cwd for row in store.find_sessions("")]


def test_the_current_project_is_embedded_first(store, monkeypatch):
    monkeypatch.setattr("indexer.pipeline.EMBED_ROWS", 2)
    logs(2, "/work/here")
    logs(5, "/work/other")
    read_changes(store, READERS, None, 9)
    scope = store.scope(Project("/work/here", "/work/here", git=False), ["claude"], automated=False)
    embed_waiting(store, HashEmbedder(), report := Report(), first=scope, deadline=0.0)

    assert (2, 5) == (report.embedded, report.waiting)
    assert (2, 2) == (store.counts(scope).embedded, store.counts(scope).chunks)


def test_the_indexer_of_a_process_embeds_the_project_of_whoever_asked_last_first(store):
    embedder = HashEmbedder()
    indexer = BackgroundIndexer(READERS, embedder, IntervalTrigger(hours=1))  # not started: its work is done here
    for folder in ("here", "other"):
        logs(1, f"/work/{folder}")
    read_changes(store, READERS, None, 9)
    indexer.run_soon(Project("/work/here", "/work/here", git=False))
    indexer.run_soon()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("indexer.pipeline.EMBED_ROWS", 1)
        indexer._embed(store, Report())

    assert ["here", "other"] == [text.rpartition("/")[2] for text in embedder.embedded]


def test_the_indexer_of_a_process_embeds_what_the_words_of_a_question_find_before_all_else(store, monkeypatch):
    monkeypatch.setattr("indexer.pipeline.EMBED_ROWS", 1)
    monkeypatch.setattr("indexer.background_indexer.PIECE_SECONDS", 0.0)
    indexer = BackgroundIndexer(READERS, HashEmbedder(), IntervalTrigger(hours=1))  # not started: its work is done here
    logs(3, "/work/here")
    logs(3, "/work/other")
    read_changes(store, READERS, None, 9)
    last = store.waiting((), 9)[-1][1]
    embedder = indexer._embedder = Asking(lambda: indexer.put_first(None, {store.waiting((), 9)[-1][0]}))
    indexer._embed(store, Report())

    assert last == embedder.embedded[1], "it was asked while the first piece was embedded"


class Asking(HashEmbedder):
    """An embedder during whose first batch a person asks a question."""

    def __init__(self, ask) -> None:
        super().__init__()
        self._ask = ask

    def embed(self, texts):
        if not self.embedded:
            self._ask()
        return super().embed(texts)


def test_with_no_time_at_all_one_batch_is_embedded(store, monkeypatch):
    monkeypatch.setattr("indexer.pipeline.EMBED_ROWS", 2)
    logs(5)
    read_changes(store, READERS, None, 9)
    report, told = Report(), []
    while report.waiting or not told:
        embed_waiting(store, HashEmbedder(), report, deadline=0.0, progress=lambda *step: told.append(step))

    assert [(0, 5), (2, 5), (0, 3), (2, 3), (0, 1), (1, 1)] == [step[1:] for step in told]
    assert (5, 5) == (report.embedded, store.counts().embedded)


def test_a_report_of_nothing_is_empty(store):
    assert Report(seconds={"reading": 0}) == _untimed(complete(store, READERS, HashEmbedder(), patience=0))


def _untimed(report: Report) -> Report:
    report.seconds = dict.fromkeys(report.seconds, 0)
    return report


def test_what_killed_writers_left_of_exports_and_copies_goes_with_the_next_run(store):
    logs(1)
    complete(store, READERS, None, patience=0.0)
    home = state_home()
    left = [home / "index/claude/.a.md.tmp", home / "kept/.written.0123456789abcdef.tmp"]
    for path in left:
        path.parent.mkdir(exist_ok=True)
        path.write_text("half of someth")
    complete(store, READERS, None, patience=0.0)

    assert [] == [path for path in left if path.exists()]


def test_what_its_exchanges_begin_with_is_all_that_somebody_waits_for_where_another_goes_on(store, monkeypatch):
    monkeypatch.setattr("indexer.pipeline.EMBED_ROWS", 2)
    for number in range(4):
        claude_log(f"{number:08}-1111-4111-8111-111111111111", "/work/here", f"asked {number}", "said " * 900)
    logs(5, "/work/other")
    read_changes(store, READERS, None, 9)
    scope, told = store.scope(project_of("/work/here"), ["claude"], automated=False), []

    def wait() -> int:
        return embed_first(
            store, HashEmbedder(), scope, 9, lambda *step: told.append(step[1:]), only_first=True
        ).embedded

    assert (4, [(0, 4), (2, 4), (4, 4)]) == (wait(), told)
    assert ((4, 4), (9, 4)) == (store.first_passages(scope), store.first_passages())
    assert 0 == wait(), "the rest is left to whoever goes on"
    monkeypatch.setattr("indexer.pipeline.EMBED_ROWS", 999)
    assert (store.counts().chunks - 4, 0) == (wait(), store.counts().chunks - store.counts().embedded)


def test_a_run_that_is_interrupted_is_gone_on_with_in_the_same_order(store, monkeypatch):
    monkeypatch.setattr("indexer.pipeline.EMBED_ROWS", 2)
    logs(3, "/work/other")
    for number in range(3):
        claude_log(f"{number + 50:08}-1111-4111-8111-111111111111", "/work/here", f"asked {number}", "said " * 900)
    read_changes(store, READERS, None, 9)
    scope = store.scope(project_of("/work/here"), ["claude"], automated=False)
    undisturbed, embedder = [row for row, _ in store.waiting(scope.parts, 99)], HashEmbedder()
    order = []
    monkeypatch.setattr(store, "add_vectors", lambda rows: order.extend(row for row, _ in rows) or keep(rows))
    keep = Store.add_vectors.__get__(store)

    def interrupted(_: str, done: int, __: int) -> None:
        if done:
            raise KeyboardInterrupt

    while store.counts().embedded + 2 < store.counts().chunks:
        with pytest.raises(KeyboardInterrupt):
            embed_waiting(store, embedder, Report(), first=scope, progress=interrupted)
    embed_waiting(store, embedder, Report(), first=scope)

    assert undisturbed == order


def test_who_indexes_in_the_background_gives_way_to_who_waits_and_not_to_who_asks_for_a_moment():
    give_way()
    begun, done = threading.Event(), threading.Event()

    def wait() -> None:
        with only_writer(3600.0, waiting=begun.set):
            done.set()

    waiter = threading.Thread(target=wait)
    with only_writer(0.0):
        with pytest.raises(IndexBusyError), only_writer(0.0):
            raise AssertionError("another one has it")
        give_way()
        waiter.start()
        assert begun.wait(120)
        with pytest.raises(IndexBusyError, match="another process takes over"):
            give_way()
        assert not done.is_set()
    waiter.join()

    assert done.is_set()
    give_way()


def test_a_background_run_ends_between_two_batches_where_somebody_waits_and_that_one_does_the_rest(store):
    told = []

    def after_three(*stage) -> None:
        told.append(stage)
        if len(told) == 3:
            raise IndexBusyError("another process takes over")

    for number in range(6):
        claude_log(str(uuid.uuid4()), "/work/a", f"question {number}")
    with pytest.raises(IndexBusyError):
        complete(store, READERS, None, patience=0.0, progress=after_three)
    assert 2 == store.counts().sessions
    complete(store, READERS, None, patience=0.0)
    assert 6 == store.counts().sessions


@pytest.fixture
def slow(monkeypatch):
    """Let readers take a second for ten bytes."""
    for name in ("indexer.pipeline", "indexer.refresh"):
        monkeypatch.setattr(f"{name}.LOG_BYTES", 10)


def long_log(bytes_more: int = 5_000) -> str:
    """Write the newest log, which is long."""
    path = claude_log("99999999-1111-4111-8111-000000000001", "/work/a", "a long one")
    with path.open("a") as file:
        file.write(" " * bytes_more + "\n")
    os.utime(path, (2e9, 2e9))
    return str(path)


def test_a_log_that_takes_longer_than_a_question_waits_is_left_and_keeps_no_other_waiting(store, slow):
    logs(3)
    long = long_log()

    report, left = read_changes(store, READERS, None, 300)

    assert (3, [long]) == (report.sessions, [file.location for file in left])
    assert [long] == [file.location for file in read_changes(store, READERS, None, 300)[1]]
    assert 1 == complete(store, READERS, None, patience=0).sessions


def test_a_question_about_one_session_waits_no_longer_for_its_log_either(store, slow):
    long = long_log()

    assert [long] == [file.location for file in read_changed(store, READERS, [long], 300)]
    assert 0 == store.counts().sessions
    assert [] == read_changed(store, READERS, [long], 3_000)
    assert 1 == store.counts().sessions


def test_whoever_reads_everything_reads_a_long_log_last(store, monkeypatch):
    logs(2)
    long = long_log()
    monkeypatch.setattr(refresh, "LARGE_BYTES", 5_000)
    read = []
    real = READERS["claude"].read
    monkeypatch.setattr(
        type(READERS["claude"]), "read", lambda _, path, *more: read.append(str(path)) or real(path, *more)
    )

    complete(store, READERS, None, patience=0)

    assert (3, long) == (len(read), read[-1])


def test_a_log_is_not_begun_where_less_time_is_left_than_it_takes(store, slow, monkeypatch):
    """The first log is read in any case, so that repeated calls come to an end."""
    logs(2)
    size = max(file.size for file in READERS["claude"].discover())

    assert [1, 0] == [len(read_some(store, READERS, Report(), size / 10 - 1)) for _ in range(2)]
