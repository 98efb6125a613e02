"""After `kill -9` at any moment, the next run completes the index to equal content."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import indexer
from indexer import pipeline
from indexer.refresh import complete
from indexer.safe_files import index_db
from indexer.session_export import export_path, is_export
from indexer.store.sqlite import Store
from smart_fork.agents.log_readers import READERS
from tests.indexer.index_inputs import HashEmbedder, claude_log, codex_log, content, lost_passages, same_vectors
from tests.support import forkserver
from tests.support.exhaustive import full_or_sample

ROOT = Path(indexer.__file__).parent.parent
#: Each takes two thirds of a second.
KILLS = full_or_sample(20, 3)
WORDS = [f"word{number}" for number in range(40)]

#: Indexes, and counts the moments: every statement, and every file that is opened or renamed. At moment N it kills itself.
INDEX = """
import os, signal, sys
from indexer import pipeline
from indexer.refresh import complete
from indexer.session_export import export_path, is_export
from indexer.safe_files import index_db
from indexer.store.sqlite import Store
from smart_fork.agents.log_readers import READERS
from tests.indexer.index_inputs import HashEmbedder

moments, last = 0, int(sys.argv[1])
def moment(*_):
    global moments
    moments += 1
    if moments == last:
        os.kill(os.getpid(), signal.SIGKILL)
    return True

pipeline.EMBED_ROWS = 32
store = Store(index_db())
store.db.exec_trace = moment
sys.addaudithook(lambda event, _: moment() if event in ("open", "os.rename") else None)
complete(store, READERS, HashEmbedder(), patience=0)
print(moments)
"""


@pytest.fixture
def logs():
    """Sixty logs of two agents in seven projects, with forks, staged copies, torn and broken lines."""
    random.seed(20260102)
    for number in range(60):
        identity = f"{number:08}-1111-4111-8111-111111111111"
        texts = [f"the shared question {number // 3}", "the shared answer"]
        texts += [" ".join(random.choices(WORDS, k=random.randrange(5, 300))) for _ in range(random.randrange(5))]  # noqa: S311
        cwd = f"/work/project{number % 7}"
        if number % 5 == 0:
            codex_log(identity, cwd, *texts)
        else:
            claude_log(identity, cwd, *texts, tail=b'broken\n{"torn' if number % 4 == 0 else b"")
        if number % 11 == 3 and number % 5:
            claude_log(identity, cwd, *texts, folder="-a-worktree")


#: Kills itself at the first statement after an export has got its name.
BETWEEN = INDEX.replace("moments == last:", "renamed:").replace(
    "complete(store,",
    """renamed = False
def note(event, given):
    global renamed
    renamed = renamed or event == "os.rename" and str(given[1]).endswith(".md")
sys.addaudithook(note)
complete(store,""",
)


def run(last: int, script: str = INDEX) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", script, str(last)]
    return forkserver.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.mark.thorough
def test_kills_at_any_moment_change_nothing(logs, tmp_path, monkeypatch):
    monkeypatch.setattr(pipeline, "EMBED_ROWS", 32)
    monkeypatch.setenv("SMART_FORK_HOME", str(tmp_path / "undisturbed"))
    undisturbed = run(-1)
    moments = int(undisturbed.stdout)
    expected = content(index_db())
    assert len(expected["sessions"]) == len(expected["exports"]) == 60
    vectors = expected.pop("vectors")
    assert len(vectors) == len(expected["chunks"]) > 100

    for number, last in enumerate(random.Random(42).sample(range(1, moments), KILLS)):  # noqa: S311
        monkeypatch.setenv("SMART_FORK_HOME", str(tmp_path / f"killed {number}"))
        assert -signal.SIGKILL == run(last).returncode, f"moment {last} of {moments}"
        store = Store(index_db())
        assert [("ok",)] == store.db.execute("PRAGMA integrity_check").fetchall()
        assert [] == lost_passages(store.db), f"moment {last} of {moments}"
        complete(store, READERS, HashEmbedder(), patience=0)
        assert (60, 0) == (store.counts().sessions, store.counts().chunks - store.counts().embedded)
        assert [] == lost_passages(store.db), f"moment {last} of {moments}"
        store.close()

        actual = content(index_db())
        assert same_vectors(vectors, actual.pop("vectors")), f"moment {last} of {moments}"
        assert expected == actual, f"moment {last} of {moments}"


@pytest.mark.thorough
def test_kills_upon_kills_are_survived(logs, tmp_path, monkeypatch):
    monkeypatch.setenv("SMART_FORK_HOME", str(tmp_path / "undisturbed"))
    moments = int(run(-1).stdout)
    expected = content(index_db())
    monkeypatch.setenv("SMART_FORK_HOME", str(tmp_path / "killed"))
    killed = 0
    while run(moments // 6).returncode == -signal.SIGKILL:
        killed += 1
    actual = content(index_db())

    assert killed > 3
    assert same_vectors(expected.pop("vectors"), actual.pop("vectors"))
    assert expected == actual


def test_a_kill_between_an_export_and_its_transaction_leaves_no_lines_of_another_file():
    identity = "11111111-1111-4111-8111-111111111111"
    claude_log(identity, "/work/a", "the question", "the answer")
    run(-1)
    log = claude_log(identity, "/work/a", "the question", "one line\n" * 50, "more", "the answer")
    os.utime(log, (1, 1))

    assert -signal.SIGKILL == run(-1, BETWEEN).returncode
    store = Store(index_db())
    (row,) = store.find_sessions(identity)
    (place,) = store.placements_of(row.row)
    export = export_path("claude", identity)
    assert "one line" in export.read_text()
    assert not is_export(export, store.lines(place).export)

    complete(store, READERS, HashEmbedder(), patience=0)
    assert all(is_export(export, store.lines(place).export) for place in store.placements_of(row.row))
    assert [] == lost_passages(store.db)
    store.close()
