"""An agent that keeps all sessions in one file: each session is a log, and only changed ones are read."""

import queue
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest

from indexer import kept_logs, log_changes
from indexer.log_changes import Report, named_logs
from indexer.refresh import complete, read_named
from indexer.run_triggers import Watcher
from indexer.safe_files import index_db, state_home
from indexer.session_export import export_path
from indexer.store.sqlite import Store
from indexer.transcripts.base import AgentAdapter, Agents, Checkpoint, LogFile, ReadResult
from indexer.transcripts.model import Session, Turn
from smart_fork.agents.claude.log_files import ClaudeAdapter
from tests.indexer.index_inputs import claude_log

CLAUDES = "00000001-1111-4111-8111-111111111111"


class Shelf(AgentAdapter):
    """An agent with all sessions in ``shelf.db``: a JSON object of ids, each with its time and its messages."""

    name = "shelf"
    variable = "SHELF_HOME"
    endings = (".db", ".db-wal")

    def __init__(self) -> None:
        self.read_keys: list[str] = []

    def homes(self) -> tuple[Path, ...]:
        return (Path.home() / "shelf",)

    @property
    def file(self) -> Path:
        return self.home() / "shelf.db"

    def folders(self) -> tuple[tuple[Path, int], ...]:
        return ((self.home(), 0),)

    def _all(self) -> dict[str, tuple[int, list[str]]]:
        try:
            return orjson.loads(self.file.read_bytes())
        except (OSError, ValueError):
            return {}

    def write(self, **sessions: tuple[int, list[str]]) -> None:
        self.home().mkdir(exist_ok=True)
        self.file.write_bytes(orjson.dumps(self._all() | sessions))

    def discover(self) -> Iterator[LogFile]:
        for key, (changed, said) in self._all().items():
            yield LogFile(self.name, f"{self.file}/{key}", len(said), changed, 1, str(self.file))

    def log_at(self, location: str) -> LogFile | None:
        return next((log for log in self.discover() if log.location == location), None)

    def logs_of(self, changed: str) -> Iterator[LogFile]:
        return self.discover() if changed.removesuffix("-wal") == str(self.file) else iter(())

    def has_lost(self, location: str) -> bool:
        return Path(location).parent == self.file and bool(known := self._all()) and Path(location).name not in known

    def as_file(self, path: Path):
        @contextmanager
        def copied():
            with tempfile.TemporaryDirectory() as folder:
                copy = Path(folder) / path.name
                copy.write_bytes(orjson.dumps(self._all()[path.name][1]))
                yield copy

        return copied()

    def locate(self, session_id: str) -> tuple[Path, ...]:
        return tuple(log.path for log in self.discover() if log.path.name == session_id)

    def id_of(self, path: Path) -> str:
        return path.name

    def is_copy(self, path: Path) -> bool:
        return False

    def read(self, path: Path, checkpoint: Checkpoint | None = None, *, keep_raw: bool = False) -> ReadResult:
        self.read_keys.append(path.name)
        said = orjson.loads(path.read_bytes()) if path.is_file() else self._all()[path.name][1]
        turns = tuple(
            Turn(f"t{i}", None, "user", "2026-01-02T03:04:05Z", text, prompt=True) for i, text in enumerate(said)
        )
        session = Session("shelf", path.name, path, turns, cwd="/work/a", title=said[0], root_id=path.name)
        return ReadResult(session, "", Checkpoint(0, 0, "", b""), (), 0)

    def glance(self, path: Path) -> Session | None:
        return self.read(path).session

    def place_of(self, directory: str) -> str:
        return ""

    def resume_command(self, session_id: str) -> tuple[str, ...]:
        return ()


@pytest.fixture
def store():
    store = Store(index_db())
    yield store
    store.close()


@pytest.fixture
def shelf():
    shelf = Shelf()
    shelf.write(one=(1, ["add a retry"]), two=(2, ["parse the table"]))
    return shelf


def index(store, *readers) -> Report:
    return complete(store, Agents(*readers), None, patience=0)


def paths(store) -> dict[str, str]:
    return {row.session_id: row.path for row in store.find_sessions("")}


def test_each_session_is_a_log_and_only_the_one_that_changed_is_read_again(store, shelf):
    index(store, shelf)
    assert {"one": f"{shelf.file}/one", "two": f"{shelf.file}/two"} == paths(store)
    shelf.write(two=(3, ["parse the table", "and its head"]))
    report = index(store, shelf)

    assert ["two", "one", "two"] == shelf.read_keys
    assert (2, 1, 1) == (report.files, report.unchanged, report.read)
    assert "and its head" in export_path("shelf", "two").read_text()


def test_what_is_written_beside_the_file_makes_its_changed_sessions_be_read(store, shelf):
    index(store, shelf)
    shelf.write(one=(5, ["add a retry", "twice"]), three=(6, ["a new one"]))
    report = Report()
    read_named(store, Agents(shelf, ClaudeAdapter()), {f"{shelf.file}-wal"}, report)

    assert ["three", "one"] == shelf.read_keys[2:]
    assert (3, 1, 2) == (report.files, report.unchanged, report.read)
    assert [] == named_logs(store, Agents(shelf), {str(shelf.home() / "other.db")}, Report())


def test_a_session_that_was_deleted_is_known_as_one_whose_log_has_gone(store, shelf):
    index(store, shelf)
    shelf.file.write_bytes(orjson.dumps({"one": (1, ["add a retry"])}))

    assert 1 == index(store, shelf).removed
    assert {"one": f"{shelf.file}/one", "two": ""} == paths(store)


def test_nothing_is_forgotten_while_the_file_cannot_be_read(store, shelf):
    index(store, shelf)
    before, data = paths(store), shelf.file.read_bytes()
    shelf.file.write_bytes(b"half a file")
    assert 0 == index(store, shelf).removed
    assert 0 == index(store, ClaudeAdapter()).removed  # and by whoever does not know this agent
    assert before == paths(store)

    shelf.file.write_bytes(data)
    assert 2 == index(store, shelf).unchanged
    shelf.file.unlink()
    assert 2 == index(store, shelf).removed


def test_an_index_that_has_plain_paths_reads_none_of_them_again(store, shelf):
    log = claude_log(CLAUDES, "/work/a", "question", "answer")
    index(store, ClaudeAdapter())
    report = index(store, ClaudeAdapter(), shelf)

    assert (3, 1, 2) == (report.files, report.unchanged, report.read)
    assert str(log) == paths(store)[CLAUDES]


def test_a_forgotten_session_does_not_come_back_and_the_others_stay(store, shelf):
    log_changes.add_forgotten("shelf", "one", "2026-01-02T03:04:05Z")
    index(store, shelf)
    index(store, shelf)

    assert ["two"] == shelf.read_keys
    assert ["two"] == list(paths(store))


@pytest.fixture
def _keeping(monkeypatch):
    monkeypatch.setenv("SMART_FORK_KEEP_TRANSCRIPTS", "yes")


@pytest.mark.usefixtures("_keeping")
def test_a_copy_is_kept_of_each_and_made_again_only_of_what_changed(store, shelf, monkeypatch):
    made = []
    as_file = shelf.as_file
    monkeypatch.setattr(shelf, "as_file", lambda path: made.append(path.name) or as_file(path))
    index(store, shelf)
    index(store, shelf)
    shelf.write(one=(7, ["add a retry", "twice"]))
    index(store, shelf)

    assert ["two", "one", "one"] == made
    copy = kept_logs.find("shelf", "one")
    assert "shelf.db/one" == copy.place
    with kept_logs.opened(copy) as path:
        assert ("one", ["add a retry", "twice"]) == (path.name, orjson.loads(path.read_bytes()))


@pytest.mark.usefixtures("_keeping")
def test_a_session_is_found_again_from_its_copy_when_file_and_index_are_gone(store, shelf):
    index(store, shelf)
    shelf.file.unlink()
    store.close()
    for path in state_home().glob("index.db*"):
        path.unlink()
    again = Store(index_db())
    index(again, shelf)
    found = paths(again)
    again.close()

    assert {"one": "", "two": ""} == found


@pytest.mark.usefixtures("_keeping")
def test_a_copy_that_was_let_go_of_is_not_made_again_before_its_session_changes(store, shelf, monkeypatch):
    monkeypatch.setenv("SMART_FORK_KEEP_MEGABYTES", "0")
    index(store, shelf)
    kept_logs._remove_oldest(())
    as_file = []
    monkeypatch.setattr(shelf, "as_file", as_file.append)
    index(store, shelf)

    assert ([], None) == (as_file, kept_logs.find("shelf", "one"))


def test_the_watcher_tells_of_the_file_and_of_what_is_written_beside_it(shelf):
    told: queue.Queue = queue.Queue()
    stop = threading.Event()
    thread = threading.Thread(target=Watcher([shelf], told.put).run, args=(stop,))
    thread.start()
    try:
        assert told.get(timeout=90) is None
        Path(f"{shelf.file}-shm").write_bytes(b"1")
        Path(f"{shelf.file}-wal").write_bytes(b"1")
        assert {f"{shelf.file}-wal"} == told.get(timeout=90)
    finally:
        stop.set()
        thread.join(90)
