"""`kill -9` of the real processes, at chosen moments, while logs grow."""

from __future__ import annotations

import signal
import subprocess

import psutil
import pytest

from indexer.default_embedder import FEW_TEXTS, LightEmbedder
from indexer.safe_files import index_db, state_home
from tests.drills.drill_home import (
    ROOT,
    SECONDS,
    SMART_FORK,
    Service,
    differs,
    environment,
    eventually,
    fresh,
    grow,
    serving,
    smart_fork,
    until_holds,
    until_right,
    untouched,
    write_logs,
)
from tests.support.exhaustive import full_or_sample
from tests.support.processes import command_line, is_running

pytestmark = pytest.mark.thorough  # of the real processes; each module has kills of its own

#: Read by Python at its start: counts the files of this home that are opened or renamed, and kills itself at one of them.
KILLER = """
import os, signal, sys
last, home, seen = int(os.environ.get("DRILL_KILL_AT", "0")), os.environ["HOME"], 0
def moment(event, args):
    global seen
    if event in ("open", "os.rename") and str(args[0]).startswith(home):
        seen += 1
        if seen == last:
            os.kill(os.getpid(), signal.SIGKILL)
if last:
    sys.addaudithook(moment)
"""
#: For a process that nobody kills.
SPARED = {"PYTHONPATH": str(ROOT)}


@pytest.fixture
def killer(tmp_path, monkeypatch):
    folder = tmp_path / "killer"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(KILLER)
    monkeypatch.setenv("PYTHONPATH", str(folder))


def test_a_service_that_is_killed_again_and_again_while_logs_grow_completes_what_it_had_begun(killer, tmp_path):
    """F-192, F-193. At most three times: after five crashes in ten minutes it gives up, as it should."""
    every = write_logs()
    for number, last in enumerate(full_or_sample((20, 34, 48), (34,))):
        grow(every[1 + number], f"more about harbour {number}", "yes")
        with untouched(), serving(wait=False, DRILL_KILL_AT=str(last)) as service:
            assert -signal.SIGKILL == service.process.wait(SECONDS), f"moment {last}"
    with untouched(), serving(**SPARED) as service:
        eventually(lambda: service.indexing["last_run"], "a run")
        assert "completed" == service.indexing["last_run"]["outcome"]
        until_right(tmp_path / "fresh")
    assert not list((state_home() / "index").rglob("*.tmp"))


def test_an_indexing_process_that_is_killed_leaves_what_the_next_one_completes(killer, tmp_path):
    """F-192, F-193: the detached one that a question has left behind."""
    every = write_logs()
    killed = 0
    for last in full_or_sample((5, 17, 31), (17, 31)):
        grow(every[2], f"more about ledger {last}", "yes")
        with untouched():
            command = [*SMART_FORK, "index", "run", "--if-idle"]
            done = subprocess.run(command, env=environment(DRILL_KILL_AT=str(last)), capture_output=True, check=False)
            killed += done.returncode == -signal.SIGKILL
    assert killed >= full_or_sample(2, 1)
    assert index_db().exists()
    with untouched():
        assert 0 == smart_fork("index", "run", **SPARED).returncode
    assert "" == differs(fresh(tmp_path / "fresh", LightEmbedder()))


def embedding(service: Service) -> list[psutil.Process]:
    """The processes of a service that embed."""
    children = psutil.Process(service.process.pid).children()
    return [one for one in children if "indexer.default_embedder" in " ".join(command_line(one))]


@pytest.mark.full
def test_a_killed_process_that_embeds_is_started_again_and_does_not_outlive_its_service(tmp_path):
    """D13, F-193: many passages are embedded in a process of their own."""
    write_logs(3 * FEW_TEXTS)
    with untouched(), serving() as service:
        (first,) = eventually(lambda: embedding(service), "a process that embeds")
        first.kill()
        (second,) = eventually(lambda: [one for one in embedding(service) if one != first], "another one")
        service.process.kill()
        service.process.wait(SECONDS)
        eventually(lambda: not is_running(second), "its end")
    with untouched(), serving():
        until_holds(fresh(tmp_path / "fresh", LightEmbedder()), apart=8)
