"""Tests of running workers in every place, with a scripted agent, real processes and a real tmux."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from smart_fork.errors import ForkRefused, NotFound, ProgramMissing
from smart_fork.system.processes import Machine, Processes
from smart_fork.workers.registry import Registry, WorkerRecord
from smart_fork.workers.terminals import TmuxPlace, choose_place, place_of, session_name
from smart_fork.workers.worker_place import (
    HerePlace,
    ProcessPlace,
    WorkerLocation,
    WorkerPlace,
    is_running,
    location_of,
)
from tests.smart_fork.forks import SESSION, eventually, plan_of, python
from tests.smart_fork.world import git

PROCESSES = Processes()
MACHINE = Machine(PROCESSES)
#: An agent: asks its terminal for bracketed paste as the real ones do, shows a question, keeps every byte that it hears,
#: and ends when it is told to.
AGENT = """
import os, signal, sys, tty
from pathlib import Path
heard = Path(sys.argv[1])
if os.isatty(0):
    tty.setraw(0)
    os.write(1, b"\\x1b[?2004hDo you trust this folder?\\r\\n")
    while True:
        with heard.open("ab") as file: file.write(os.read(0, 65536))
else:
    print("Do you trust this folder?", flush=True)
    signal.pause()
"""
HOSTILE = "/exit\n!touch pwned; $(touch pwned) #(touch pwned) #{pane_id} ;\n\ttab 'quotes\" \\ ü 日本語 🦊 Enter C-c"


@pytest.fixture(params=[TmuxPlace(), ProcessPlace()], ids=lambda place: place.name)
def place(request, private_tmux) -> WorkerPlace:
    return request.param


@pytest.fixture
def agent(place: WorkerPlace, repo: Path) -> Iterator[SimpleNamespace]:
    """Return a running worker in `place`, as the registry has it."""
    with Registry() as registry:
        worker = registry.add("claude", source_session_id=SESSION, place=place.name, cwd=repo)
        plan = plan_of(python(AGENT, str(repo / "heard")), repo, env={"SMART_FORK_WORKER_ID": worker.id})
        started = place.start(plan, worker, Machine(PROCESSES, plan.environment(os.environ)))
        worker = registry.set_started(
            worker.id, command=plan.argv, terminal_id=started.terminal_id, pid=started.pid, log=started.log
        )
    known = location_of(worker)
    eventually(lambda: "trust this folder" in (started.log.read_text() if started.log else screen(place, known)))
    yield SimpleNamespace(worker=worker, started=known, heard=repo / "heard")
    if is_running(known, PROCESSES):
        PROCESSES.end(known.pid, force=True)


def screen(place: WorkerPlace, started: WorkerLocation) -> str:
    return place.screen(started, MACHINE) or ""


def test_a_worker_of_the_registry_is_the_one_that_was_started(place, agent):
    """R-005: whoever started it, however long ago."""
    assert place_of(agent.worker) == place or place_of(agent.worker).name == place.name
    assert place.ended(agent.started, MACHINE) is None
    assert is_running(agent.started, PROCESSES)


def test_what_is_on_its_screen_can_be_read(place, agent):
    seen = place.screen(agent.started, MACHINE)

    assert (seen is None) == place.headless
    assert place.headless or "Do you trust this folder?" in seen


def test_what_is_pasted_is_heard_byte_for_byte_and_nothing_of_it_is_a_key(place, agent, repo):
    if place.headless:
        with pytest.raises(ForkRefused, match="has no terminal"):
            place.paste(agent.started, HOSTILE, MACHINE)
        with pytest.raises(ForkRefused, match="no terminal"):
            place.press(agent.started, "Enter", MACHINE)
        return
    place.paste(agent.started, HOSTILE, MACHINE)
    wanted = b"\x1b[200~" + HOSTILE.encode() + b"\x1b[201~"
    eventually(lambda: agent.heard.exists() and len(agent.heard.read_bytes()) >= len(wanted))
    place.press(agent.started, "2", MACHINE)
    place.press(agent.started, "Enter", MACHINE)

    eventually(lambda: agent.heard.read_bytes().endswith(b"\r"))
    assert wanted + b"2\r" == agent.heard.read_bytes()
    assert not list(repo.rglob("pwned"))
    with pytest.raises(ForkRefused, match="Unknown key"):
        place.press(agent.started, "C-c", MACHINE)


def test_closing_ends_it_and_nothing_else(place, agent, private_tmux, repo):
    """R-014, X-003."""
    other = place.start(plan_of(python(AGENT, "x"), repo), agent.worker, MACHINE)
    before = private_tmux("list-panes", "-a", "-F", "#{pane_id} #{pane_pid}").splitlines()

    place.close(agent.started, MACHINE)

    eventually(lambda: not is_running(agent.started, PROCESSES))
    assert place.ended(agent.started, MACHINE) is not None
    mine = f"{agent.started.terminal_id} {agent.started.pid}"
    after = private_tmux("list-panes", "-a", "-F", "#{pane_id} #{pane_pid}").splitlines()
    assert [pane for pane in before if pane != mine] == after
    assert PROCESSES.alive(other.pid)
    os.killpg(other.pid, signal.SIGKILL)


def test_what_is_not_ours_is_neither_typed_into_nor_ended(place, agent, repo):
    """X-003: the numbers of processes and windows are given again; the process has to be the worker's own."""
    impostor = replace(agent.started, worker_id="claude-1")

    for act in (
        lambda: place.close(impostor, MACHINE),
        lambda: place.paste(impostor, "x", MACHINE),
        lambda: place.press(impostor, "Enter", MACHINE),
    ):
        with pytest.raises(ForkRefused):
            act()

    assert is_running(agent.started, PROCESSES)
    assert not agent.heard.exists() or agent.heard.read_bytes() == b""


def test_one_that_has_ended_hears_nothing(place, agent):
    PROCESSES.end(agent.started.pid, force=True)
    eventually(lambda: place.ended(agent.started, MACHINE) is not None)

    with pytest.raises(ForkRefused):
        place.paste(agent.started, "x", MACHINE)
    with pytest.raises(ForkRefused):
        place.press(agent.started, "Enter", MACHINE)


def test_the_window_of_one_that_has_ended_is_closed_too(agent, place, private_tmux):
    if place.headless:
        pytest.skip("it has none")
    PROCESSES.end(agent.started.pid, force=True)
    eventually(lambda: place.ended(agent.started, MACHINE) is not None)

    place.close(agent.started, MACHINE)

    assert agent.started.terminal_id not in private_tmux("list-panes", "-a", "-F", "#{pane_id}").split()
    place.close(agent.started, MACHINE)  # there is nothing left to do


def tmux_agent(repo: Path) -> tuple[TmuxPlace, WorkerRecord, WorkerLocation]:
    with Registry() as registry:
        worker = registry.add("codex", source_session_id=SESSION, place="tmux", cwd=repo)
    plan = plan_of(python(AGENT, str(repo / "heard")), repo, env={"SMART_FORK_WORKER_ID": worker.id})
    started = TmuxPlace().start(plan, worker, Machine(PROCESSES, plan.environment(os.environ)))
    eventually(lambda: "trust" in screen(TmuxPlace(), started))
    return TmuxPlace(), worker, started


def test_somebody_scrolling_in_its_window_does_not_swallow_what_is_typed(private_tmux, repo):
    place, _, started = tmux_agent(repo)
    private_tmux("copy-mode", "-t", started.terminal_id)

    place.paste(started, "hello", MACHINE)
    place.press(started, "Enter", MACHINE)

    assert eventually(lambda: (repo / "heard").read_bytes().endswith(b"hello\x1b[201~\r"))


def test_detaching_a_client_ends_no_worker(private_tmux, repo):
    """R-047."""
    place, _, started = tmux_agent(repo)
    attach = f"TMUX= tmux -L {os.environ['SMART_FORK_TMUX_SOCKET']} attach -t =smart-fork-shop"
    private_tmux("new-window", "-d", "-t", "=first:", attach)
    eventually(lambda: private_tmux("list-clients", "-F", "#{client_session}").strip() == "smart-fork-shop")

    private_tmux("detach-client", "-s", "=smart-fork-shop")

    eventually(lambda: not private_tmux("list-clients").strip())
    assert place.ended(started, MACHINE) is None


def test_a_window_that_another_tmux_gives_the_same_name_is_not_its_own(private_tmux, repo):
    place, _, started = tmux_agent(repo)
    somebody = private_tmux("display-message", "-p", "-t", "=first:", "#{pane_id}").strip()

    elsewhere = replace(started, terminal_id=somebody)
    assert place.ended(elsewhere, MACHINE) is None, "its process runs, wherever its window is"
    PROCESSES.end(started.pid, force=True)
    assert "Its window was closed." == eventually(lambda: place.ended(elsewhere, MACHINE))
    assert place.ended(WorkerLocation(somebody), MACHINE) is None, "which process it was is not known"
    place.close(replace(started, terminal_id=somebody), MACHINE)
    assert somebody in private_tmux("list-panes", "-a", "-F", "#{pane_id}").split()


def test_windows_that_somebody_else_opened_in_our_sessions_are_known(private_tmux, repo):
    """R-069."""
    place, _, started = tmux_agent(repo)
    opened = ("new-window", "-d", "-t", "=smart-fork-shop:", "-c", str(repo))
    try:
        private_tmux(*opened, "-n", "mine\t", "sleep", "600")
    except subprocess.CalledProcessError:  # tmux 3.8 takes no such name
        private_tmux(*opened, "-n", "mine", "sleep", "600")

    found = place.windows(MACHINE)

    assert {started.pid} < {window.pid for window in found}
    assert {str(repo)} == {window.cwd for window in found}
    assert {"smart-fork-shop"} == {window.session for window in found}


def test_the_windows_of_another_home_that_shares_the_tmux_server_are_not_ours(private_tmux, repo, home, monkeypatch):
    """Neither the windows of its workers, dead ones included, nor windows that a person opened in its sessions."""
    other, mine = home / "other", os.environ["SMART_FORK_HOME"]
    monkeypatch.setenv("SMART_FORK_HOME", str(other))
    place, _, theirs = tmux_agent(repo)
    private_tmux("new-window", "-d", "-t", "=smart-fork-shop:", "sleep", "600")
    PROCESSES.end(theirs.pid, force=True)
    monkeypatch.setenv("SMART_FORK_HOME", mine)
    assert [] == place.windows(MACHINE)

    _, _, started = tmux_agent(repo)
    assert [started.pid] == [window.pid for window in place.windows(MACHINE)]
    monkeypatch.setenv("SMART_FORK_HOME", str(other))
    assert {theirs.pid} < {window.pid for window in place.windows(MACHINE)}


def test_a_worker_has_the_home_of_whoever_starts_it_and_not_that_of_the_tmux_server(
    private_tmux, repo, home, monkeypatch
):
    private_tmux("kill-server")
    for name in ("SMART_FORK_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "HOME"):
        monkeypatch.setenv(name, str(home / "other"))
    tmux_agent(repo)  # starts the server
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("CODEX_HOME", str(home / "mine"))
    for name in ("SMART_FORK_HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name)
    _, _, started = tmux_agent(repo)

    given = PROCESSES.environment(started.pid)
    assert (str(home), str(home / "mine")) == (given["HOME"], given["CODEX_HOME"])
    assert not {"SMART_FORK_HOME", "CLAUDE_CONFIG_DIR"} & given.keys()


NETWORK = {
    "HTTPS_PROXY": "http://proxy:8080",
    "no_proxy": "localhost",
    "NODE_EXTRA_CA_CERTS": "/etc/company.pem",
    "HTTP_PROXY": "http://ada:secret@proxy:8080",
}


def test_a_worker_reaches_the_network_as_whoever_starts_it_does(private_tmux, repo, monkeypatch):
    """Variables of the tmux server alone are removed, and no password is visible."""
    private_tmux("set-environment", "-g", "SSL_CERT_FILE", "/etc/gone.pem")
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    for name, value in NETWORK.items():
        monkeypatch.setenv(name, value)

    _, _, started = tmux_agent(repo)

    given = PROCESSES.environment(started.pid)
    assert {name: given.get(name) for name in NETWORK} == NETWORK
    assert "SSL_CERT_FILE" not in given
    assert "secret" not in private_tmux("list-panes", "-a", "-F", "#{pane_start_command}")
    later = private_tmux("new-window", "-d", "-P", "-F", "#{pane_pid}", "-t", "=smart-fork-shop:", "sleep", "600")
    assert not NETWORK.items() & eventually(lambda: PROCESSES.environment(int(later))).items()


@pytest.mark.parametrize("option", ["destroy-unattached", "exit-unattached"])
def test_a_worker_lives_on_where_a_person_s_tmux_ends_what_nobody_looks_at(private_tmux, repo, home, option):
    private_tmux("kill-server")
    (home / ".tmux.conf").write_text(f"set -g {option} on\n")

    place, _, started = tmux_agent(repo)

    assert private_tmux("show-options", "-g" if option[0] == "d" else "-s", "-v", option), "its settings are read"
    assert place.ended(started, MACHINE) is None
    assert is_running(started, PROCESSES)


def test_a_tmux_without_an_environment_for_new_sessions_starts_a_worker(private_tmux, repo, tmp_path, monkeypatch):
    """Such as tmux 3.1 and older, of Debian 11, Ubuntu 20.04 and RHEL 8."""
    old = tmp_path / "bin/tmux"
    old.parent.mkdir()
    refused = '[ "$word" = -e ] && { echo "tmux: unknown option -- e" >&2; exit 1; }; [ "$word" = -- ] && break'
    old.write_text(f'#!/bin/sh\nfor word in "$@"; do {refused}; done\nexec {shutil.which("tmux")} "$@"\n')
    old.chmod(0o755)
    monkeypatch.setenv("PATH", str(old.parent), prepend=os.pathsep)

    _, worker, started = tmux_agent(repo)

    assert worker.id == PROCESSES.environment(started.pid)["SMART_FORK_WORKER_ID"]


def test_all_worktrees_of_a_repository_have_one_session_of_tmux(repo, home):
    git(repo, "clone", "-q", "--bare", ".", str(home / "proj/.bare"))
    (home / "proj/.git").write_text("gitdir: ./.bare\n")
    git(home / "proj", "worktree", "add", "-q", "main")
    git(home / "proj", "worktree", "add", "-q", "-b", "feature", "feature")
    git(repo, "clone", "-q", "--bare", ".", str(home / "store.git"))
    git(home / "store.git", "worktree", "add", "-q", str(home / "till"))
    git(repo, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(home / "store.git"), "libs/paint")
    git(repo / "libs/paint", "worktree", "add", "-q", str(home / "blue"))

    names = [session_name(home / one) for one in ("proj", "proj/main", "proj/feature", "till")]

    assert names == [*["smart-fork-proj"] * 3, "smart-fork-store"]
    assert session_name(repo / "libs/paint") == session_name(home / "blue") == "smart-fork-paint"


def test_a_person_s_own_terminal_is_left_to_the_person(home, monkeypatch):
    place, mine = HerePlace(), WorkerLocation(pid=os.getpid(), worker_id="claude-1")

    for act in (place.paste, place.press):
        with pytest.raises(ForkRefused, match="person's own terminal"):
            act(mine, "1", MACHINE)
    with pytest.raises(ForkRefused, match="person's own terminal"):
        place.close(mine, MACHINE)
    assert place.screen(mine, MACHINE) is None
    assert "It ended." == place.ended(mine, MACHINE), "this process is not that worker"
    assert place.ended(replace(mine, worker_id=""), MACHINE) is None


def test_a_place_that_this_version_does_not_know(home, repo):
    """R-043, R-044."""
    with Registry() as registry, pytest.raises(NotFound, match="unknown to this version: moon"):
        place_of(registry.add("claude", source_session_id=SESSION, place="moon", cwd=repo))


@pytest.mark.skipif(sys.platform == "darwin", reason="it can be driven there")
def test_iterm2_is_for_macos(home):
    with pytest.raises(ProgramMissing, match="is not available") as caught:
        choose_place("iterm2", MACHINE)
    assert "smart-fork[iterm2]" in caught.value.hint


def test_a_prompt_for_the_standard_input_of_a_process_comes_there_byte_by_byte(home, repo):
    said = "add \"a\" retry\nwith 'quotes' \\ ünï"
    with Registry() as registry:
        worker = registry.add("claude", source_session_id=SESSION, place="process", cwd=repo)
    program = python("import sys; sys.stdout.write(sys.stdin.read())")
    plan = plan_of(program, repo, prompt=said, delivery="input", env={"SMART_FORK_WORKER_ID": worker.id})
    started = ProcessPlace().start(plan, worker, Machine(PROCESSES, plan.environment(os.environ)))

    assert said == eventually(lambda: ProcessPlace().ended(started, MACHINE))
    assert said == started.log.read_text()
