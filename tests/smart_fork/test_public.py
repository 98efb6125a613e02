"""Tests of the public Python functions."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import textwrap
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest

import smart_fork
from indexer.environment import WORKER_ID
from smart_fork import public
from smart_fork.errors import SmartForkError
from smart_fork.system.processes import Machine, Processes
from smart_fork.workers.registry import Registry
from smart_fork.workers.worker_place import ProcessPlace
from tests.smart_fork.answers import a_fork
from tests.smart_fork.forks import SESSION, plan_of, python
from tests.smart_fork.world import WordsModel

PROCESSES = Processes()
RETRY = "add retry with backoff to the uploader"


@pytest.fixture(autouse=True)
def _model(monkeypatch):
    monkeypatch.setattr("indexer.default_embedder.configured_embedder", WordsModel)
    public._embedder.cache_clear()
    yield
    public._embedder.cache_clear()


def test_find_gives_the_sessions_best_first(world, shop, monkeypatch):
    world.claude(shop, "rename the logo", "done")
    knows = world.codex(shop, RETRY, "done")
    monkeypatch.chdir(shop)

    best = smart_fork.find(RETRY)[0]
    assert isinstance(best, smart_fork.Hit)
    assert knows == best.session_id == best.as_json()["session_id"]
    assert len(smart_fork.find(RETRY, project=str(shop), limit=1, agent="claude")) == 1


def test_a_session_is_branched(world, shop):
    session_id = world.claude(shop, RETRY, "done")

    made = smart_fork.branch(session_id, at=1, title="mine")

    assert ("mine (Branch)", session_id) == (made.title, made.parent.session_id)
    assert world.log_of(made.session_id).is_file()


def test_turns_are_cut_when_it_is_said_and_not_before(world, shop):
    session_id = world.claude(shop, RETRY, "zanzibarquokka")
    log = world.log_of(session_id)

    planned = smart_fork.cut(session_id, "1", force=True, dry_run=True)
    assert (session_id, (1,), None) == (planned.session_id, planned.numbers, planned.snapshot)
    assert "zanzibarquokka" in log.read_text()
    done = smart_fork.cut(session_id, "1", force=True)

    assert done.snapshot
    assert done.as_json()["removed"] == list(planned.removed)
    assert "zanzibarquokka" not in log.read_text()


def test_an_answer_cannot_be_changed(world, shop):
    world.claude(shop, RETRY, "done")
    (hit,) = smart_fork.find(RETRY, project=str(shop))

    with pytest.raises(FrozenInstanceError):
        hit.session_id = "another"


def names_of(kind: type) -> set[str]:
    return {*dir(kind), *(one.name for one in fields(kind))}


def test_the_example_for_scripts_is_of_what_there_is():
    text = (Path(smart_fork.__file__).parent.parent / "docs/how-to/script.md").read_text()
    example = ast.parse(textwrap.dedent(text.split("```python\n")[1].split("```")[0]))
    kinds = {"sf": {*smart_fork.__all__}, "hit": names_of(smart_fork.Hit), "worker": names_of(smart_fork.Worker)}
    used = [
        (node.value.id, node.attr)
        for node in ast.walk(example)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    ]

    assert {"sf", "hit", "worker"} == {name for name, _ in used}
    assert [] == [(name, attribute) for name, attribute in used if attribute not in kinds[name]]


def test_the_model_is_loaded_once_for_all_questions(world, shop):
    assert public._embedder() is public._embedder()


def test_what_goes_wrong_is_an_error_of_ours(world, shop, monkeypatch):
    with pytest.raises(smart_fork.Usage, match=r"^intent "):
        smart_fork.find(" ", project=str(shop))
    monkeypatch.setenv("SMART_FORK_INDEXING", "false")
    with pytest.raises(smart_fork.IndexUnavailable, match="switched off") as caught:
        smart_fork.find(RETRY, project=str(shop))
    assert caught.value.hint


def test_every_error_is_public_and_has_an_exit_code():
    errors = [error for error in SmartForkError.__subclasses__() if error.__module__ == "smart_fork.errors"]

    assert {error.__name__ for error in errors} <= set(smart_fork.__all__)
    assert {error.__name__: error.exit_code for error in errors if error.exit_code != 1} == {
        "Usage": 2,
        "NotFound": 3,
        "NotAuthenticated": 4,
        "WrongVerb": 4,
        "Conflict": 9,
    }


def test_an_error_is_caught_without_importing_what_is_called():
    script = "import sys, smart_fork\nsmart_fork.NotFound, smart_fork.IndexerError\nprint(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()

    assert "smart_fork.errors" in loaded
    assert "smart_fork.public" not in loaded


class TestWorker:
    @pytest.fixture
    def worker(self, home, repo):
        """Start a worker with a log that is still empty."""
        with Registry() as registry:
            known = registry.add("claude", source_session_id=SESSION, place="process", cwd=repo)
            plan = plan_of(python("import signal; signal.pause()"), repo, env={WORKER_ID: known.id})
            started = ProcessPlace().start(plan, known, Machine(PROCESSES, plan.environment(os.environ)))
            registry.set_started(known.id, command=plan.argv, terminal_id=None, pid=started.pid, log=started.log)
        yield smart_fork.Worker(a_fork(SESSION, worker_id=known.id, session_name=known.name))
        if PROCESSES.alive(started.pid):
            PROCESSES.end(started.pid, force=True)

    def test_it_knows_its_start(self, worker):
        assert not isinstance(worker, dict)
        assert worker.id == worker.started.worker_id == worker.as_json()["worker_id"]
        assert worker.session_id is None
        assert json.loads(json.dumps(worker.as_json())) == worker.as_json()

    def test_it_is_waited_for_read_and_closed(self, worker):
        assert not worker.wait(0).settled
        assert () == worker.read().messages
        assert worker.close().closed

        seen = worker.wait()
        assert ("ended", True) == (seen.state, seen.settled)

    def test_what_it_does_not_hear_is_said(self, worker):
        with pytest.raises(smart_fork.ForkRefused, match="takes no message before it ends"):
            worker.say("and the docs")

    def test_a_fork_is_one(self, world, shop, launched):
        session_id = world.claude(shop, RETRY, "done")
        forked = smart_fork.fork(session_id, "go on", cwd=str(shop), worktree="retry", name="fixer")

        assert isinstance(forked, smart_fork.Worker)
        assert "claude-1" == forked.id
        ((_, prompt, how),) = launched
        assert ("go on", "retry", "fixer", None) == (prompt, how["worktree"], how["name"], how["place"])

    def test_an_option_that_there_is_not_is_refused(self, world, shop, launched):
        with pytest.raises(TypeError, match="wings"):
            smart_fork.fork("60309e1e", "go on", wings=2)
        assert [] == launched
