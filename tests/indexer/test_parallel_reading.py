"""Several processes that read logs give the results of one process."""

import os
import subprocess
import sys

import psutil
import pytest

from indexer import parallel_reading
from indexer.log_changes import Report, changed_logs
from indexer.parallel_reading import read_ahead
from indexer.pipeline import read_logs
from indexer.safe_files import index_db
from indexer.store.sqlite import Store
from indexer.transcripts.base import UNREAD
from smart_fork.agents.log_readers import READERS
from tests.indexer.index_inputs import append, claude_log, claude_records, codex_log, lines


@pytest.fixture
def logs():
    """Four logs of each agent."""
    for number in range(4):
        claude_log(f"{number:08}-1111-4111-8111-111111111111", "/work/a", f"how is {number} done?", "so it is")
        codex_log(f"{number:08}-2222-4222-8222-222222222222", "/work/b", f"where is {number}?", "there it is")
    return [file for agent in READERS for file in agent.discover()]


def nothing(_):
    return None


def read_here(file):
    return READERS[file.agent].read(file.path)


def started(before):
    return [child for child in psutil.Process().children() if child not in before]


def has_ended(process):
    psutil.wait_procs([process], timeout=60)
    return not process.is_running()


@pytest.mark.slow
def test_each_log_comes_once_and_as_it_would_have_been_read_here(logs):
    got = [(file, result or read_here(file)) for file, result in read_ahead(READERS, logs, nothing, readers=2)]
    assert [(file, read_here(file)) for file in logs] == sorted(got, key=lambda one: logs.index(one[0]))


def test_what_others_have_read_need_not_be_read_again(logs):
    results = dict(read_ahead(READERS, logs[:3], nothing, readers=1))
    assert sum(result is not None for result in results.values()) >= 2
    assert {file: read_here(file) for file, result in results.items() if result} == {
        file: result for file, result in results.items() if result
    }


def test_a_reader_goes_on_where_the_log_was_read_to(logs):
    file = logs[0]
    checkpoint = READERS[file.agent].read(file.path, UNREAD).checkpoint
    append(file.path, lines(claude_records("00000000-1111-4111-8111-111111111111", "/work/a", "and now?")[-1:]))
    ((_, result),) = read_ahead(READERS, [file], lambda _: checkpoint, readers=1)
    assert result.resumed
    assert READERS[file.agent].read(file.path, checkpoint).session == result.session


def test_the_logs_of_a_reader_that_dies_are_left_to_whoever_asks(logs):
    before = psutil.Process().children()
    ahead = read_ahead(READERS, logs, nothing, readers=1)
    got = [next(ahead)]
    for reader in started(before):
        reader.kill()
    got += ahead
    assert sorted(logs) == sorted(file for file, _ in got)


@pytest.mark.thorough
def test_a_log_that_a_reader_cannot_read_is_left_to_whoever_asks(logs):
    logs[0].path.unlink()
    results = dict(read_ahead(READERS, logs[:2], nothing, readers=1))
    assert [None, read_here(logs[1])] == [results[file] for file in logs[:2]]


def test_where_no_process_can_be_started_all_is_read_here(logs, monkeypatch):
    def refused(*_args, **_kwargs):
        raise PermissionError("no processes here")

    monkeypatch.setattr(subprocess, "Popen", refused)
    assert dict.fromkeys(logs) == dict(read_ahead(READERS, logs, nothing, readers=2))


def test_a_reader_ends_when_nobody_asks_any_more(logs):
    before = psutil.Process().children()
    ahead = read_ahead(READERS, logs, nothing, readers=1)
    next(ahead)
    others = started(before)
    ahead.close()
    assert [True] == [has_ended(reader) for reader in others]


def test_a_reader_ends_with_whoever_has_started_it(logs):
    code = """
import os, psutil, signal
from indexer.parallel_reading import read_ahead
from smart_fork.agents.log_readers import READERS
ahead = read_ahead(READERS, [file for agent in READERS for file in agent.discover()], lambda _: None, readers=1)
next(ahead)
print(*(child.pid for child in psutil.Process().children()), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    (reader,) = map(int, done.stdout.split())
    with_it = [process for process in psutil.process_iter() if process.pid == reader]
    assert all(has_ended(process) for process in with_it)


def test_few_logs_start_no_process_and_many_start_one_for_each_further_processor(logs, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert 0 == parallel_reading._wanted(logs)
    many = [file._replace(size=parallel_reading.MIN_BYTES // 4) for file in logs]
    assert 1 == parallel_reading._wanted(many)
    assert 0 == parallel_reading._wanted(many[:1])
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    assert 0 == parallel_reading._wanted(many)


@pytest.mark.thorough
def test_an_index_is_the_same_however_many_have_read_for_it(logs, monkeypatch):
    def index(number):
        monkeypatch.setattr(parallel_reading, "_wanted", lambda _: number)
        store, report = Store(index_db()), Report()
        try:
            read_logs(store, READERS, changed_logs(store, READERS, report), report)
            rows = store.db.execute(
                "SELECT s.agent, s.session_id, s.title, s.turns, c.text FROM sessions s "
                "JOIN placements p ON p.session = s.id JOIN chunks c ON c.id = p.chunk ORDER BY 1, 2, p.position"
            ).fetchall()
        finally:
            store.close()
        index_db().unlink()
        return report.read, report.sessions, report.bytes_read, rows

    assert index(0) == index(2)
