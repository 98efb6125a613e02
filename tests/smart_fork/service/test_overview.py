"""``status``: one screen about all parts."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from indexer.safe_files import state_home
from smart_fork.workers.registry import Registry
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.test_docs import assert_documented


def test_it_says_what_there_is_where_nothing_runs(run, world, shop):  # noqa: F811
    world.claude(shop, "add retry", "done")

    text = run("status").out
    state = json.loads(run("status", "--json").out)

    assert "0 sessions" in text
    assert "1 more log to read" in text
    assert "not running: smart-fork serve" in text
    assert_documented("status", state)
    assert [] == state["workers"]


@pytest.fixture
def ours(served):
    """Write the service's address. Its process is never the asking one."""
    served.announce()
    return served


def test_it_shows_the_service_and_the_workers(run, ours, world, shop):  # noqa: F811
    with Registry() as registry:
        registry.add("claude", source_session_id="", place="process", cwd=shop, name="fixer")

    text = run("status").out
    state = json.loads(run("status", "--json").out)

    assert f"http://127.0.0.1:{ours.port}" in text
    assert "fixer" in text
    assert state["service"]["memory_bytes"] > 0
    assert {"state": "idle"} == state["service"]["indexing"]
    assert ["fixer"] == [worker["name"] for worker in state["workers"]]


def test_a_service_that_does_not_answer_is_said_to_run(run, home):  # noqa: F811
    state_home().mkdir()
    code = (
        "import signal; from smart_fork.cli.service import instance; print(instance.hold(), flush=True); signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as hangs:
        hangs.stdout.readline()

        text, state = run("status").out, json.loads(run("status", "--json").out)
        hangs.kill()

    assert f"process {hangs.pid}: It is just starting, or it hangs: smart-fork service stop" in " ".join(text.split())
    assert_documented("status", state)
    assert (True, hangs.pid) == (state["service"]["running"], state["service"]["pid"])


def test_an_index_that_cannot_be_used_is_said_to_be_so(run, world, monkeypatch):  # noqa: F811
    monkeypatch.setenv("SMART_FORK_HOME", "/dev/null/x")
    done = run("status")
    assert "cannot" in done.out + done.err
