"""The process of which programs in tests are forks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.smart_fork.forks import eventually
from tests.support import forkserver
from tests.support.processes import is_running

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere programs are no forks")
ROOT = Path(__file__).resolve().parents[2]
#: A process of a run that starts a program, says whose fork it is, and waits.
ASKS = (
    "import sys; from tests.support import forkserver; words = [sys.executable, '-c', 'import os; print(os.getppid(), flush=True)']\n"
    "forkserver.run(words); sys.stdin.read()"
)


@pytest.mark.thorough  # each test of a program of ours has such a fork; without the sharing they are only slower
def test_processes_of_a_run_share_it_until_the_last_of_them_is_gone_also_when_the_first_is_killed():
    env = os.environ | {"PYTEST_XDIST_TESTRUNUID": f"test-{os.getpid()}", "PYTHONPATH": str(ROOT)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with (
        subprocess.Popen([sys.executable, "-c", ASKS], env=env, **pipes) as one,
        subprocess.Popen([sys.executable, "-c", ASKS], env=env, **pipes) as other,
    ):
        (shared,) = {int(process.stdout.readline()) for process in (one, other)}
        parent = psutil.Process(shared)
        starter, left = (one, other) if parent.ppid() == one.pid else (other, one)
        home = parent.environ()["HOME"]
        starter.kill()
        starter.wait()
        assert is_running(parent)
        left.stdin.close()
        left.wait()
        eventually(lambda: not is_running(parent))
    assert not Path(home).exists()


def test_a_program_has_what_it_was_started_with(tmp_path):
    words = [
        sys.executable,
        "-c",
        "import os, sys; print(os.getcwd(), os.environ['OF_THE_TEST'], sys.stdin.read()); sys.exit(3)",
    ]

    done = forkserver.run(
        words, cwd=tmp_path, env=os.environ | {"OF_THE_TEST": "here"}, input="said", capture_output=True, text=True
    )

    assert (3, f"{tmp_path} here said\n", "") == (done.returncode, done.stdout, done.stderr)
