"""Many requests at once, from several processes, against the limit: with real processes, windows and worktrees."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from smart_fork.forking.spawn import spawn
from smart_fork.workers.registry import Registry
from tests.smart_fork.forks import eventually
from tests.support import forkserver
from tests.support.exhaustive import full_or_sample

pytestmark = pytest.mark.slow

CAP, PROCESSES, THREADS = 6, full_or_sample(5, 2), 10
#: Waits for a line, then asks for a worker from many threads at once.
ASKING = """
import json, sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from smart_fork.forking.spawn import spawn
project, number, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
together = Barrier(threads)
def ask(one):
    which = number * threads + one
    order = {"project_path": project, "prompt": f"piece number {which}", "name": f"piece-{which}",
             "agent_type": ["claude", "codex"][which % 2], "run_in": ["process", "tmux"][which // 2 % 2]}
    together.wait()
    return spawn([order]).workers[0].as_json()
print("ready", flush=True)
sys.stdin.readline()
with ThreadPoolExecutor(threads) as pool:
    print(json.dumps(list(pool.map(ask, range(threads)))))
"""


def listed(home: Path, repo: Path, tmux) -> dict[str, set[str]]:
    """Everything that a start could leave behind."""
    git = ["git", "-C", str(repo)]
    branches = subprocess.run([*git, "branch", "--format=%(refname:short)"], check=True, capture_output=True, text=True)
    trees = subprocess.run([*git, "worktree", "list", "--porcelain"], check=True, capture_output=True, text=True)
    with Registry() as registry:
        rows = {worker.id for worker in registry.workers()}
    return {
        "rows": rows,
        "panes": set(tmux("list-panes", "-a", "-F", "#{pane_id}").split()),
        "branches": set(branches.stdout.split()),
        "worktrees": {line for line in trees.stdout.splitlines() if line.startswith("worktree ")},
        "folders": {str(path) for path in (repo / ".worktrees").glob("*")},
        "files": {str(path) for path in (home / ".smart-fork/logs").rglob("*") if path.is_file()},
    }


@pytest.fixture
def asked(repo, scripted, private_tmux, monkeypatch):
    """The answers to requests at once: twenty, or fifty."""
    monkeypatch.setenv("SMART_FORK_MAX_WORKERS", str(CAP))
    env = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}

    def ask() -> list[dict]:
        askers = [
            forkserver.Popen(
                [sys.executable, "-c", ASKING, str(repo), str(number), str(THREADS)],
                env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )
            for number in range(PROCESSES)
        ]  # fmt: skip
        for asker in askers:
            assert "ready\n" == asker.stdout.readline()
        for asker in askers:
            asker.stdin.write("go\n")
            asker.stdin.flush()
        return [answer for asker in askers for answer in json.loads(asker.communicate(timeout=120)[0])]

    return ask


def test_exactly_as_many_run_as_may_and_nothing_is_left_of_the_others(asked, scripted, home, repo, private_tmux):
    before = listed(home, repo, private_tmux)

    answers = asked()

    started = [one for one in answers if "error" not in one]
    refused = [one for one in answers if "error" in one]
    assert (CAP, PROCESSES * THREADS - CAP) == (len(started), len(refused))
    for one in refused:
        assert "worker_limit" == one["error"]
        assert f"{CAP} workers are running, and SMART_FORK_MAX_WORKERS allows no more" == one["message"]
        assert "end one" in one["hint"]
    ids = {one["worker_id"] for one in started}
    eventually(lambda: ids <= set(scripted.ran()))
    assert ids == set(scripted.ran())
    after = {what: now - before[what] for what, now in listed(home, repo, private_tmux).items()}
    assert {
        "rows": ids,
        "panes": {one["terminal_id"] for one in started if one["place"] == "tmux"},
        "branches": {one["branch"] for one in started},
        "worktrees": {f"worktree {one['worktree']}" for one in started},
        "folders": {one["worktree"] for one in started},
        "files": {one["log"] for one in started if one["place"] == "process"},
    } == after


@pytest.mark.thorough
def test_places_become_free_as_workers_end(asked, scripted, repo):
    """Nobody has told the registry: that their processes are gone is enough."""
    asked()
    order = {"project_path": str(repo), "prompt": "one more", "run_in": "process"}
    (full,) = (one.as_json() for one in spawn([order]).workers)
    with Registry() as registry:
        assert CAP == len(registry.workers(states=("running",)))
    scripted.end()

    (free,) = (one.as_json() for one in spawn([order]).workers)

    assert "worker_limit" == full["error"]
    assert scripted.call(free["worker_id"])[1][-1] == "one more"
