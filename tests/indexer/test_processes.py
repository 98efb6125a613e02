"""Several real processes that use one index."""

import sys
from pathlib import Path

import pytest

import indexer
from indexer.safe_files import index_db
from indexer.store.sqlite import Store
from tests.support import forkserver
from tests.support.exhaustive import full_or_sample

pytestmark = pytest.mark.slow

ROOT = Path(indexer.__file__).parent.parent
PROCESSES = full_or_sample(6, 4)

#: Each process opens the same new index in every round, all at once: the barrier is a line on standard input.
OPEN = """
import sys
from pathlib import Path
from indexer.store.sqlite import Store
print("ready", flush=True)
for line in sys.stdin:
    store = Store(Path(line.strip()))
    store.set_meta("opened", "1")
    store.close()
    print("opened", flush=True)
"""

WRITE = """
import sys
from indexer.safe_files import index_db
from indexer.store.sqlite import Store
from tests.indexer.index_inputs import save, session_of
me = sys.argv[1]
print("ready", flush=True)
sys.stdin.readline()
store = Store(index_db())
for round in range(12):
    save(store, session_of("shared beginning", "yes", f"round {round} of {me} " * 60, session_id=me))
store.close()
print("done", flush=True)
"""

#: A session is rewritten again and again, always as ten chunks that say the same number; a reader sees all ten or none.
REWRITE = """
import sys
from indexer.safe_files import index_db
from indexer.store.sqlite import Store
from tests.indexer.index_inputs import save, session_of
store = Store(index_db())
print("ready", flush=True)
for round in range(100):
    texts = [text for number in range(10) for text in (f"round{round} part{number}", "ok")]
    save(store, session_of(*texts, title=f"round{round}"))
print("done", flush=True)
"""


@pytest.fixture
def start():
    """Start a script, and wait until it prints that it is ready."""
    started = []

    def start(script, *arguments):
        command = [sys.executable, "-c", script, *map(str, arguments)]
        process = forkserver.Popen(command, cwd=ROOT, stdin=-1, stdout=-1, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def tell(process, line: str) -> None:
    process.stdin.write(line + "\n")
    process.stdin.flush()


def answers(processes) -> list[str]:
    return [process.stdout.readline().strip() for process in processes]


def test_a_cold_index_may_be_opened_by_many_at_once(start, tmp_path):
    processes = [start(OPEN) for _ in range(PROCESSES)]
    assert ["ready"] * PROCESSES == answers(processes)
    for number in range(full_or_sample(60, 20)):
        for process in processes:
            tell(process, str(tmp_path / str(number) / "index.db"))
        assert ["opened"] * PROCESSES == answers(processes), f"round {number}"

    store = Store(tmp_path / "0" / "index.db")
    assert ("1", "wal") == (store.meta("opened"), store.db.execute("PRAGMA journal_mode").get)
    store.close()


def test_many_may_write_at_once(start):
    processes = [start(WRITE, number) for number in range(PROCESSES)]
    answers(processes)
    for process in processes:
        tell(process, "go")
    assert ["done"] * PROCESSES == answers(processes)

    store = Store(index_db())
    scope = store.scope(None, ("claude",), automated=True)
    for number in range(PROCESSES):
        row = store.session("claude", str(number))
        texts = store.texts([place.chunk for place in store.placements_of(row.row)])
        assert all(f"round 11 of {number}" in text for text in texts.values() if "shared" not in text)
    assert PROCESSES == store.counts().sessions
    assert 1 == len(store.match_words("chunks", ['"beginning"'], scope, 99))  # stored once
    assert [] == store.match_words("chunks", ['"round 5"'], scope, 99)
    assert [("ok",)] == store.db.execute("PRAGMA integrity_check").fetchall()
    store.close()


def test_a_reader_never_sees_half_a_session(start):
    writer = start(REWRITE)
    store = Store(index_db())
    seen = set()
    while writer.poll() is None:
        rows = store.db.execute(
            "SELECT title, position, text FROM placements JOIN sessions ON sessions.id = session JOIN chunks ON chunks.id = chunk"
        ).fetchall()
        titles = {title for title, _, _ in rows}
        assert len(rows) in (0, 10)
        assert len(titles) <= 1
        assert all(f"User: {title} part" in text for title, _, text in rows)
        seen |= titles

    assert len(seen) > 1
    store.close()
