"""Tests of all places to run, with real processes and a real, private tmux."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from smart_fork.errors import NotFound, ProgramFailed, ProgramMissing, Usage
from smart_fork.system.processes import Machine, Processes
from smart_fork.workers.registry import Registry, WorkerRecord
from smart_fork.workers.terminals import PLACES, TmuxPlace, choose_place, session_name
from smart_fork.workers.worker_place import ProcessPlace, WorkerLocation
from tests.smart_fork.forks import SESSION, FakeProcesses, eventually, plan_of, python

PROCESSES = Processes()
MACHINE = Machine(PROCESSES)
REPORT = (
    "import json, os, sys; from pathlib import Path\n"
    "done = Path(sys.argv[1]); part = done.with_suffix('.part')\n"
    "part.write_text(json.dumps([sys.argv[2:], os.getcwd(), dict(os.environ)])); part.rename(done)"
)
HOSTILE = [
    "--help", "-", "it's \"quoted\"", "$HOME $(touch pwned) `touch pwned`", "a; touch pwned;", ";", "\\;", "a\\;", "a\\\\;",
    "two\nlines", "#(touch pwned) #{pane_id} ##", "%d %%", "ü 😀", "", " lead and trail ", "~", "*", "{end}", "=", "\x1b[31m",
]  # fmt: skip


@pytest.fixture
def worker(home: Path, repo: Path) -> WorkerRecord:
    with Registry() as registry:
        return registry.add("claude", name="fix: a.b #(touch pwned)", source_session_id=SESSION, place="x", cwd=repo)


def start(place, plan, worker) -> WorkerLocation:
    if place.name != "here":
        return place.start(plan, worker, Machine(PROCESSES, plan.environment(os.environ)))
    # Replaces whoever calls it.
    code = (
        "import os, sys; from pathlib import Path; from tests.smart_fork.forks import plan_of\n"
        "from smart_fork.workers.worker_place import HerePlace\n"
        "from smart_fork.system.processes import Machine, Processes\n"
        "plan = plan_of(sys.argv[2:], Path(sys.argv[1]), env={'SMART_FORK_WORKER_ID': 'w-1'})\n"
        "HerePlace().start(plan, None, Machine(Processes(), plan.environment(os.environ)))"
    )
    env = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[3])}
    subprocess.run([sys.executable, "-c", code, str(plan.cwd), *plan.argv], env=env, check=True)
    return WorkerLocation()


ANYWHERE = [place for place in PLACES if place.name != "iterm2" and not place.agent]


@pytest.mark.parametrize("place", ANYWHERE, ids=lambda place: place.name)
def test_every_place_gives_the_agent_exactly_the_plan(place, worker, private_tmux, repo, monkeypatch):
    """F-104, X-002: its arguments, directory and environment; nothing is read by a shell or by tmux."""
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", "/some/where;")
    monkeypatch.setenv("CLAUDECODE", "1")
    report = repo.parent / "report.json"
    odd = repo / "a b;#(touch pwned) %d #{pane_id} ü;"
    odd.mkdir()
    before = {path.name for path in repo.parent.iterdir()}
    plan = plan_of(python(REPORT, str(report), *HOSTILE), odd, env={"SMART_FORK_WORKER_ID": "w-1"})

    start(place, plan, worker)

    eventually(report.exists)
    arguments, cwd, env = json.loads(report.read_text())
    assert HOSTILE == arguments
    assert str(odd) == cwd
    assert ("w-1", "/some/where;", os.environ["PATH"]) == (
        env["SMART_FORK_WORKER_ID"], env["CLAUDE_CONFIG_DIR"], env["PATH"],
    )  # fmt: skip
    assert "CLAUDECODE" not in env
    assert [] == list(odd.iterdir())
    assert before | {"report.json"} == {path.name for path in repo.parent.iterdir()}


running = pytest.mark.parametrize("place", [TmuxPlace(), ProcessPlace()], ids=["tmux", "process"])


@running
def test_a_place_knows_whether_its_worker_runs_and_what_it_said_last(place, worker, private_tmux, repo):
    os.mkfifo(repo / "end")
    code = "print('No conversation found', flush=True); open('end').read()"
    plan = plan_of(python(code), repo, env={"SMART_FORK_WORKER_ID": worker.id})
    started = place.start(plan, worker, Machine(PROCESSES, plan.environment(os.environ)))

    with (repo / "end").open("w"):  # it has spoken and waits
        assert place.ended(started, MACHINE) is None
        assert PROCESSES.alive(started.pid)
    assert "No conversation found" == eventually(lambda: place.ended(started, MACHINE))


@running
def test_a_directory_that_is_gone_is_an_error(place, worker, private_tmux, repo):
    """Without the check, tmux would silently take the home directory."""
    with pytest.raises(NotFound, match="No such directory"):
        place.start(plan_of(python(""), repo / "gone"), worker, MACHINE)


@running
def test_a_long_prompt_arrives(place, worker, private_tmux, repo):
    """One message to tmux has at most 16 KiB."""
    prompt = "ü;\n" * 30_000
    report = repo / "report.json"

    place.start(plan_of(python(REPORT, str(report), prompt), repo), worker, MACHINE)

    eventually(report.exists)
    assert [prompt] == json.loads(report.read_text())[0]


def test_a_long_command_leaves_no_file_behind(worker, private_tmux, repo, home):
    report = repo / "report.json"
    (repo / "json.py").write_text("raise SystemExit('the repository was imported')")
    os.environ["PYTHONPATH"] = str(repo)
    try:
        TmuxPlace().start(plan_of(python(REPORT, str(report), "x" * 9000), repo), worker, MACHINE)
    finally:
        del os.environ["PYTHONPATH"]

    eventually(report.exists)
    assert [] == list((home / ".smart-fork/logs/workers").iterdir())


def test_windows_are_named_after_workers_in_a_session_of_the_project(worker, private_tmux, repo):
    (repo / "src").mkdir()
    for directory in (repo, repo / "src"):
        started = TmuxPlace().start(plan_of(python("input()"), directory), worker, MACHINE)

    listed = private_tmux(
        "list-windows", "-t", "=smart-fork-shop", "-F", "#{window_name}|#{remain-on-exit}"
    ).splitlines()
    assert [f"{worker.name}|on"] * 2 == listed
    assert "smart-fork-shop" in started.attach
    assert started.terminal_id in private_tmux("list-panes", "-s", "-t", "=smart-fork-shop", "-F", "#{pane_id}").split()


def test_a_window_stays_when_the_agent_ends_at_once(worker, private_tmux, repo):
    started = [
        TmuxPlace().start(plan_of(["sh", "-c", "echo first $0; exit 3", str(i)], repo), worker, MACHINE)
        for i in range(3)
    ]

    said = [eventually(lambda one=one: TmuxPlace().ended(one, MACHINE)) for one in started]

    # tmux may drop what a program wrote just before its end; that it has ended, and how, is always known.
    for i, last_words in enumerate(said):
        assert last_words in {f"first {i}", "It ended with status 3."}


def test_a_window_that_was_closed_has_ended(worker, private_tmux, repo):
    started = TmuxPlace().start(plan_of(python("input()"), repo), worker, MACHINE)

    private_tmux("kill-pane", "-t", started.terminal_id)

    assert "Its window was closed." == eventually(lambda: TmuxPlace().ended(started, MACHINE))


def test_the_windows_of_others_are_left_as_they_are(worker, private_tmux, repo):
    """X-003."""
    before = private_tmux("show-options", "-g") + private_tmux("show-options", "-gw")
    active = private_tmux("display-message", "-p", "-t", "=first:", "#{window_id}")

    TmuxPlace().start(plan_of(python("input()"), repo), worker, MACHINE)

    assert before == private_tmux("show-options", "-g") + private_tmux("show-options", "-gw")
    assert "first" in private_tmux("list-sessions")
    assert active == private_tmux("display-message", "-p", "-t", "=first:", "#{window_id}")
    assert "off" == private_tmux("display-message", "-p", "-t", "=first:", "#{remain-on-exit}").strip()


@pytest.mark.parametrize("name", ["a.b:c", "ü", "#(touch pwned)", "--", "x" * 200, " "])
def test_any_project_makes_a_session_name(home, name):
    made = session_name(home / name)

    assert made.startswith("smart-fork-")
    assert len(made) <= 51
    assert not set(made) - set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


def test_tmux_that_opens_no_window_is_a_failure(worker, repo):
    with pytest.raises(ProgramFailed, match="could not open a window"):
        TmuxPlace().start(plan_of(["a", "b"], repo), worker, Machine(FakeProcesses({"tmux": (1, "")}), os.environ))


def test_another_process_may_make_the_session_first(worker, repo):
    asked = []

    def tmux(argv):
        asked.append(argv[1])
        known = asked.count("has-session") > 1
        if argv[1] == "has-session":
            return (0, "") if known else (1, "")
        return (0, "%7 9") if argv[1] == "new-window" else (1, "")

    started = TmuxPlace().start(plan_of(["a", "b"], repo), worker, Machine(FakeProcesses({"tmux": tmux}), {"PATH": ""}))

    assert ["has-session", "new-session", "has-session", "new-window"] == asked
    assert ("%7", 9) == (started.terminal_id, started.pid)


def test_a_process_keeps_its_output_in_a_private_file(worker, repo, home):
    place = ProcessPlace()
    started = place.start(plan_of(python("print('{}')"), repo, headless=True), worker, MACHINE)

    assert "{}" == eventually(lambda: place.ended(started, MACHINE))
    assert home / ".smart-fork/logs/workers" / f"{worker.id}.log" == started.log
    assert 0o600 == stat.S_IMODE(started.log.stat().st_mode)


def test_a_place_is_chosen_by_name_or_by_what_is_installed(monkeypatch, home):
    """R-071."""
    (home / "bin").mkdir()
    env = {"PATH": str(home / "bin")}
    assert "process" == choose_place(None, Machine(PROCESSES, env)).name
    with pytest.raises(ProgramMissing, match="tmux is not installed"):
        choose_place("tmux", Machine(PROCESSES, env))
    with pytest.raises(Usage, match="Unknown place to run: moon"):
        choose_place("moon", Machine(PROCESSES, env))
    (home / "bin/tmux").write_text("")
    (home / "bin/tmux").chmod(0o755)
    assert "tmux" == choose_place(None, Machine(PROCESSES, env)).name
    assert ["tmux", "process", "here"] == [choose_place(place.name, Machine(PROCESSES, env)).name for place in ANYWHERE]


@pytest.mark.parametrize("said", ["", "%7", "no window", "%7 x"])
def test_tmux_that_does_not_say_which_window_it_opened_is_a_failure(worker, repo, said):
    """F-119: nothing is taken for a window that is none."""
    with pytest.raises(ProgramFailed, match="did not name the new window"):
        TmuxPlace().start(plan_of(["a", "b"], repo), worker, Machine(FakeProcesses({"tmux": (0, said)}), os.environ))
