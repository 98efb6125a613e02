"""Tests of starts that are killed at any moment: only listed files remain, and no worker that does not run."""

from __future__ import annotations

import json
import os
import random
import re
import select
import subprocess
import sys
import time
from pathlib import Path
from shutil import which

import pytest

from smart_fork.agents.claude.log_files import folder_of
from smart_fork.agents.storage import Storage
from smart_fork.system.processes import Machine
from smart_fork.workers.liveness import is_alive
from smart_fork.workers.recovery import reconcile, undo_cut_off
from smart_fork.workers.registry import Registry
from smart_fork.workers.worktree_cleanup import prune, remove_copies_of_gone
from tests.smart_fork.forks import SESSION, eventually, said, snapshot
from tests.smart_fork.world import git
from tests.support import forkserver
from tests.support.exhaustive import full_or_sample
from tests.support.mcp_process import McpProcess

ROOT = Path(__file__).resolve().parents[3]
#: Forks a session of an agent that is played. At the given event of the start it is interrupted, or killed by a signal.
START = """
import os, sys
from pathlib import Path
from smart_fork.agents.request_fields import Options
from smart_fork.agents.log_readers import READERS
from smart_fork.forking.fork_points import ForkPoint
from smart_fork.forking.start import prepare
from smart_fork.forking.worker_spec import WorkerSpec
from smart_fork.forking.fork_content import ForkContent
from smart_fork.agents.claude.log_files import folder_of
from smart_fork.agents.storage import Storage
from smart_fork.system.processes import Machine
from tests.smart_fork.forking.conftest import SystemThatHelps, source_of

agent, log, repo, how, moment = sys.argv[1:]
seen = 0

class Played(SystemThatHelps):
    def start(self, argv, **how):
        return super().start(["/bin/sleep", "600"], **how)

def watch(event, args):
    global seen
    if event in ("open", "os.mkdir", "os.link", "os.rename", "os.remove", "subprocess.Popen"):
        seen += 1
        if seen == int(moment):
            if how == "interrupted":
                raise KeyboardInterrupt
            os.kill(os.getpid(), int(how))

source = source_of(agent, Path(log), Path(repo))
options = Options(prompt="go", place="process", worktree="x")
content = ForkContent(point=ForkPoint(0, source.turns[-1].id)) if agent == "codex" else ForkContent()
machine = Machine(Played(), os.environ)
prepared = prepare(WorkerSpec("fork", agent, source, options, content=content), machine)
sys.addaudithook(watch)
prepared.launch(patience=0)
moment = 0
print(seen)
"""


@pytest.fixture
def begin(repo, programs, claude_session, codex_session, tmp_path):
    """Begin a start that ends at an event, or at its n-th call of git, which outlives it."""
    logs = {"claude": claude_session, "codex": codex_session}
    wrapper = tmp_path / "bin/git"
    wrapper.parent.mkdir()
    wrapper.write_text(
        f'#!/bin/sh\necho >> "{tmp_path}/calls"\nif [ "$(wc -l < "{tmp_path}/calls")" = "$KILLING" ]; then kill -9 $PPID; fi\n'
        f'"{which("git")}" "$@"; status=$?; echo >> "{tmp_path}/done"; exit $status\n'
    )
    wrapper.chmod(0o755)

    def run(agent: str, how: str, moment: int) -> subprocess.CompletedProcess:
        for name in ("calls", "done"):
            (tmp_path / name).write_text("")
        outlived = how == "git"
        env = os.environ | {
            "PATH": f"{wrapper.parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "KILLING": str(moment) if outlived else "",
        }
        words = [sys.executable, "-c", START, agent, str(logs[agent]), str(repo), "9" if outlived else how]
        done = forkserver.run([*words, "0" if outlived else str(moment)], capture_output=True, text=True, env=env)
        deadline = time.monotonic() + 60
        while len((tmp_path / "done").read_text()) < len((tmp_path / "calls").read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return done

    return run


def clean_up(repo: Path, logs: dict) -> None:
    """Do the cleanup of the next start and of a person who prunes."""
    around = Machine()
    with Registry() as registry:
        undo_cut_off(registry, around)
        reconcile(registry, around)
        counted = [one for one in registry.workers() if is_alive(one, around)]
        assert [] == [one for one in counted if one.pid is None], "none counts for the limit that does not run"
        started = [one for one in registry.workers() if one.pid is not None]
        for one in counted:
            around.processes.end(one.pid, force=True)
    prune(around.processes, None)
    remove_copies_of_gone(None)
    listed = subprocess.run(["git", "worktree", "list"], cwd=repo, capture_output=True, text=True, check=True).stdout
    branches = subprocess.run(["git", "branch"], cwd=repo, capture_output=True, text=True, check=True).stdout
    assert (1, "* main", []) == (listed.count("\n"), branches.strip(), [*(repo / ".worktrees").glob("*")])
    sessions = {one.session_id for one in started}
    new = {name for name in snapshot(Path.home()) if ".smart-fork" not in name and "shop" not in name} - logs.keys()
    assert [] == [
        name for name in new if not any(one and one in name for one in sessions) and not re.search("log|ran/", name)
    ]
    git(repo, "fsck")


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["9", "15", "interrupted", "git"])
def test_nothing_is_left_of_a_start_that_is_killed_at_any_moment(how, begin, repo):
    before = {name: 0 for name in snapshot(Path.home()) if "shop" not in name}
    draw = random.Random(f"killed {how}")  # noqa: S311 - the same moments each time
    for agent in ("claude", "codex"):
        whole = begin(agent, "9", 0)
        assert 0 == whole.returncode, whole.stderr
        clean_up(repo, before)
        before |= {name: 0 for name in snapshot(Path.home()) if "shop" not in name}
        last = int(whole.stdout) if how != "git" else 12
        for moment in sorted(draw.sample(range(1, last + 1), full_or_sample(8, 4))):
            done = begin(agent, how, moment)
            assert "Traceback" not in done.stderr or how == "interrupted", done.stderr
            clean_up(repo, before)
            before |= {name: 0 for name in snapshot(Path.home()) if "shop" not in name}


@pytest.fixture
def called(repo, scripted, claude_session, tmp_path):
    """Let a real MCP server fork into a worktree, and end the call in a given way during its n-th call of git."""
    wrapper, reached, go_on, calls, done = (tmp_path / name for name in ("slow/git", "reached", "go", "calls", "done"))
    wrapper.parent.mkdir()
    wrapper.write_text(
        f'#!/bin/sh\necho >> "{calls}"\nif [ "$(wc -l < "{calls}")" = "$SLOW" ]; then touch "{reached}"; '
        f'until [ -e "{go_on}" ]; do sleep 0.02; done; fi\n"{which("git")}" "$@"; status=$?; echo >> "{done}"; exit $status\n'
    )
    wrapper.chmod(0o755)
    fork = {"intent": "retry", "fork_session_id": SESSION, "prompt": "go", "run_in": "process", "worktree": "x"}

    def run(how: str, moment: int) -> int:
        for one in (reached, go_on):
            one.unlink(missing_ok=True)
        for one in (calls, done):
            one.write_text("")
        env = os.environ | {"PATH": f"{wrapper.parent}{os.pathsep}{os.environ['PATH']}", "SLOW": str(moment)}
        with McpProcess([sys.executable, "-m", "smart_fork", "mcp"], cwd=repo, env=env) as server:
            number = server.ask("tools/call", name="smart_fork", arguments=fork)
            eventually(lambda: reached.exists() or select.select([server.process.stdout], [], [], 0)[0])
            if how == "answered":
                server.answer_to(number)
            elif how == "cancelled":
                server.notify("notifications/cancelled", requestId=number)
                go_on.touch()
            elif how != "closed":
                server.process.send_signal(int(how))
                server.process.wait(60)
            server.end()
        go_on.touch()  # a git outlives the server
        eventually(lambda: len(done.read_text()) == len(calls.read_text()))
        return len(calls.read_text())

    return run


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["closed", "cancelled", "15", "9"])
def test_nothing_is_left_of_a_start_whose_client_goes_while_the_worktree_is_being_made(how, called, repo):
    """The client closes its pipe, cancels the call, or ends the server, during each slow call of git."""
    before = {name: 0 for name in snapshot(Path.home()) if "shop" not in name}
    draw = random.Random(f"gone {how}")  # noqa: S311 - the same moments each time
    last = called("answered", 0)
    clean_up(repo, before)
    moments = range(1, last + 1)
    for moment in full_or_sample(moments, sorted(draw.sample(moments[last // 2 :], 6))):
        before |= {name: 0 for name in snapshot(Path.home()) if "shop" not in name}
        called(how, moment)
        clean_up(repo, before)


def test_a_copy_of_a_killed_start_is_undone_and_one_in_which_somebody_worked_stays(repo, claude_session, home):
    elsewhere = home / "elsewhere"
    target = folder_of(elsewhere) / f"{SESSION}.jsonl"
    with Registry() as registry:
        for work in (False, True):
            worker = registry.add("claude", source_session_id=SESSION, place="process", cwd=repo, maker=2**22 + 1)
            registry.set_copying(worker.id, target)
            registry.add_staged_copy(target, session_id=SESSION, source_path=claude_session)
            Storage.stage(claude_session, SESSION, target.parent)
            (target.parent / f".{target.name}.0123456789abcdef.tmp").write_text("half")
            if work:
                with target.open("a") as file:
                    file.write(
                        json.dumps(said("u9", "a5", "user", "mine", timestamp="2999-01-01T00:00:00.000Z")) + "\n"
                    )

            undo_cut_off(registry, Machine())

            assert work == target.exists() == bool(registry.staged_copies())
            assert "failed" == registry.get(worker.id).state
    assert claude_session.exists()
