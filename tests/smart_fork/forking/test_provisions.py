"""Tests of the environment variables that a worker gets, and of the errors if some are missing."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from indexer.environment import Setting
from smart_fork.agents import AGENTS
from smart_fork.errors import ProgramFailed
from smart_fork.forking.worker_preconditions import NotLoggedIn, provisions
from smart_fork.system.processes import Machine, Processes
from smart_fork.workers.registry import Registry
from smart_fork.workers.terminals import TmuxPlace
from smart_fork.workers.worker_place import HerePlace, ProcessPlace, command_through_file
from tests.smart_fork.forks import SESSION, FakeProcesses, eventually, plan_of, python

LISTED = "  --fork-session  Fork\n  auth  Manage authentication"
SECRET = "the-persons-own-key"
#: Says what it has, and stays.
AGENT = """
import json, os, signal, sys
from pathlib import Path
Path(sys.argv[1]).write_text(json.dumps(dict(os.environ)))
signal.pause()
"""


class Asked(Processes):
    """Real processes, except that the agent's login check is scripted."""

    def __init__(self) -> None:
        super().__init__()
        self.logged_in = False
        self.shells = 0

    def run(self, argv, **options):
        if Path(argv[0]).name == "claude":
            answer = LISTED if argv[-1] == "--help" else json.dumps({"loggedIn": self.logged_in})
            return FakeProcesses({"claude": (0, answer)}).run(argv, timeout=1)
        self.shells += "-i" in argv
        return super().run(argv, **options)


@pytest.fixture
def asked(monkeypatch) -> Asked:
    monkeypatch.setattr(sys, "platform", "linux")
    return Asked()


@pytest.fixture
def env(home) -> dict[str, str]:
    """Return the environment that Codex gives its MCP servers."""
    return {"HOME": str(home), "SHELL": "/bin/sh", "PATH": "/usr/bin:/bin"}


@pytest.fixture
def given(programs, asked, env):
    def run(agent="claude", place=None, **more):
        return provisions(agent, str(programs / agent), place or ProcessPlace(), Machine(asked, env | more))

    return run


def profile(home: Path, **variables: str) -> None:
    lines = [f"export {name}={value}\n" for name, value in variables.items()]
    (home / ".profile").write_text("".join(lines))


def test_what_a_person_has_set_is_read_from_the_login_shell(given, home):
    AGENTS.note_login_variables({"ANTHROPIC_API_KEY": "x", "ANTHROPIC_BASE_URL": "x"})
    profile(home, ANTHROPIC_API_KEY=SECRET, ANTHROPIC_BASE_URL="http://127.0.0.1:1", ANTHROPIC_MODEL="not-asked-for")

    found = given()

    assert {"ANTHROPIC_API_KEY": SECRET, "ANTHROPIC_BASE_URL": "http://127.0.0.1:1"} == found.variables
    assert () == found.notes
    assert SECRET not in repr(found)


def test_who_has_it_asks_nobody(given, asked):
    AGENTS.note_login_variables({"ANTHROPIC_API_KEY": "x"})

    assert {} == given(ANTHROPIC_API_KEY="x").variables
    assert 0 == asked.shells


def test_without_a_login_nothing_starts_and_what_is_missing_is_named(given, home):
    AGENTS.note_login_variables({"ANTHROPIC_API_KEY": "x", "ANTHROPIC_BASE_URL": "x"})
    profile(home, ANTHROPIC_BASE_URL="http://127.0.0.1:1")

    with pytest.raises(NotLoggedIn) as refused:
        given()

    assert (
        "Nothing was started: Claude Code is not logged in here: ANTHROPIC_API_KEY, which your environment had, "
        "is not set, and your login shell (sh) does not set it"
    ) == refused.value.message
    assert "claude auth login" in refused.value.hint
    assert Setting.CHECK_LOGIN in refused.value.hint


def test_without_a_login_that_was_ever_seen_nothing_starts_either(given):
    with pytest.raises(NotLoggedIn) as refused:
        given()

    assert "Nothing was started: Claude Code is not logged in here" == refused.value.message


def test_a_variable_that_codex_settings_name_is_asked_for_without_having_been_seen(given, home):
    (home / ".codex").mkdir()
    (home / ".codex/config.toml").write_text('model_provider = "m"\n[model_providers.m]\nenv_key = "MOCK_KEY"\n')
    with pytest.raises(NotLoggedIn, match="MOCK_KEY, which its settings name, is not set"):
        given("codex")

    profile(home, MOCK_KEY=SECRET)
    assert {"MOCK_KEY": SECRET} == given("codex").variables


def test_an_agent_that_is_logged_in_starts_and_what_is_missing_is_said(given, asked):
    asked.logged_in = True
    AGENTS.note_login_variables({"ANTHROPIC_BASE_URL": "x", "CLAUDE_CONFIG_DIR": "x"})

    (said,) = given().notes

    assert "starts with the login that it finds: ANTHROPIC_BASE_URL and CLAUDE_CONFIG_DIR, which your" in said
    assert said.endswith("does not set them")


def test_a_folder_is_never_another_than_the_one_that_is_searched(given, asked, home):
    asked.logged_in = True
    AGENTS.note_login_variables({"CLAUDE_CONFIG_DIR": "x"})
    profile(home, CLAUDE_CONFIG_DIR="/elsewhere")

    assert {} == given().variables


def test_what_the_agents_settings_set_is_not_missing(given, asked, home):
    asked.logged_in = True
    AGENTS.note_login_variables({"ANTHROPIC_BASE_URL": "x"})
    (home / ".claude").mkdir()
    (home / ".claude/settings.json").write_text('{"env": {"ANTHROPIC_BASE_URL": "x"}}')

    assert ({}, ()) == (given().variables, given().notes)


def test_a_check_that_is_wrong_can_be_left_out(given):
    assert () == given(SMART_FORK_CHECK_LOGIN="false").notes


def test_a_login_that_a_keychain_may_hold_is_only_doubted(given, monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")

    assert ("Claude Code says that it is not logged in here",) == given().notes


def test_at_a_persons_own_terminal_the_agent_asks_that_person(given, asked):
    AGENTS.note_login_variables({"ANTHROPIC_API_KEY": "x"})

    assert {} == given(place=HerePlace()).variables
    assert 0 == asked.shells


@pytest.fixture
def worker(repo):
    with Registry() as registry:
        yield registry.add("claude", source_session_id=SESSION, place="tmux", cwd=repo)


def test_a_window_has_the_key_and_no_list_of_processes_or_server_does(private_tmux, worker, repo, env, monkeypatch):
    private_tmux("kill-server")  # so that ours starts one
    place, processes = TmuxPlace(), Processes()
    seen: list[tuple[str, ...]] = []
    run = processes.run
    monkeypatch.setattr(processes, "run", lambda argv, **options: seen.append(tuple(argv)) or run(argv, **options))
    env = dict(os.environ) | {"ANTHROPIC_API_KEY": SECRET}
    plan = plan_of(python(AGENT, str(repo / "has")), repo, env={"SMART_FORK_WORKER_ID": worker.id})

    started = place.start(plan, worker, Machine(processes, env | plan.env))

    eventually(lambda: (repo / "has").is_file() and (repo / "has").stat().st_size)
    has = json.loads((repo / "has").read_text())
    assert (SECRET, worker.id) == (has["ANTHROPIC_API_KEY"], has["SMART_FORK_WORKER_ID"])
    assert SECRET not in private_tmux("show-environment", "-g")
    assert SECRET not in private_tmux("show-environment", "-t", "smart-fork-" + repo.name)
    assert SECRET not in json.dumps(seen)
    assert [] == [
        path
        for path in Path(env["SMART_FORK_HOME"]).rglob("*")
        if path.is_file() and SECRET.encode() in path.read_bytes()
    ]
    processes.end(started.pid, force=True)


def test_what_was_handed_over_goes_where_no_window_opens(worker, repo, env, monkeypatch, home):
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    plan = plan_of(["agent", "go"], repo)
    with pytest.raises(ProgramFailed):
        TmuxPlace().start(
            plan, worker, Machine(FakeProcesses({"tmux": (1, "no server")}), {"ANTHROPIC_API_KEY": SECRET})
        )

    assert [] == [*(home / ".smart-fork" / "logs").rglob("*.json")]


def test_what_nobody_came_for_goes_with_the_next(worker, home, monkeypatch):
    left = Path(command_through_file(worker, {"argv": ["x"]})[-1])
    monkeypatch.setattr("time.time", lambda: left.stat().st_mtime + 7200)

    assert left != Path(command_through_file(worker, {"argv": ["y"]})[-1])
    assert not left.exists()


def test_a_window_of_a_persons_own_server_has_what_that_server_has(private_tmux, given):
    AGENTS.note_login_variables({"ANTHROPIC_API_KEY": "x"})
    private_tmux("new-session", "-d", "sleep 60")
    private_tmux("set-environment", "-g", "ANTHROPIC_API_KEY", SECRET)
    found = given(place=TmuxPlace(), **{name: os.environ[name] for name in os.environ if "TMUX" in name})

    assert ({}, ()) == (found.variables, found.notes)
