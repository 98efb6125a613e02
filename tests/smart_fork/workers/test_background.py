"""Tests of an agent's own background sessions as a place to run, with a scripted program."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from smart_fork.agents.fork_plan import ForkPlan
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.request_fields import Options
from smart_fork.agents.start_command import LaunchRequest
from smart_fork.errors import ForkRefused, ProgramFailed, Usage
from smart_fork.forking.start import prepare
from smart_fork.forking.worker_spec import WorkerSpec
from smart_fork.system.processes import Machine
from smart_fork.workers.liveness import is_alive
from smart_fork.workers.observation import WorkerReader
from smart_fork.workers.registry import Registry
from smart_fork.workers.terminals import PLACES, choose_place
from smart_fork.workers.worker_place import BackgroundPlace, WorkerLocation
from tests.smart_fork.forks import NEW, SESSION, FakeProcesses, plan_of

HELP = "--fork-session --session-id\n  stop|kill <id>    Stop a background session."
BEGUN = "backgrounded · 7c32b72a · a name\n  claude agents             list sessions\n"
ID = "7c32b72a"


class Owner(FakeProcesses):
    """The program of an agent with background sessions. `row` is its list entry for the started session."""

    def __init__(self, help_text: str = HELP, begun: tuple[int, str] = (0, BEGUN), **row: object) -> None:
        super().__init__({"claude": self.asked})
        self.help, self.begun, self.code = help_text, begun, 0
        self.row = {"id": ID, "sessionId": NEW, "pid": 7, "state": "working", "status": "idle"} | row

    def asked(self, argv: tuple[str, ...]) -> tuple[int, str]:
        if argv[1] == "agents":
            return self.code, json.dumps([{"id": "other"}, {key: one for key, one in self.row.items() if one}])
        if argv[1] == "stop":
            return self.code, "Not now"
        return (0, self.help) if argv[1] == "--help" else self.begun


@pytest.fixture(autouse=True)
def listed_again(monkeypatch) -> None:
    """Let the list of sessions expire immediately; normally it is reused for half a second."""
    monkeypatch.setattr("smart_fork.workers.worker_place._KNOWN_SECONDS", 0.0)


@pytest.fixture
def place(programs: Path) -> BackgroundPlace:
    return BackgroundPlace("claude", "claude")


@pytest.fixture
def worker(home: Path, repo: Path):
    with Registry() as registry:
        one = registry.add("claude", source_session_id=SESSION, session_id=NEW, place="claude", cwd=repo)
        yield registry.set_started(one.id, command=["claude"], terminal_id=ID)


def started(place: BackgroundPlace, owner: Owner, repo: Path, worker) -> WorkerLocation:
    plan = plan_of(["claude", "--bg"], repo, new_session_id=None, env={"SMART_FORK_WORKER_ID": "w-1"})
    return place.start(plan, worker, Machine(owner, plan.environment(os.environ)))


def looked(place: BackgroundPlace, what: str, owner: Owner):
    return getattr(place, what)(WorkerLocation(ID, session_id=NEW), Machine(owner))


def test_each_agent_with_background_sessions_is_a_place_that_can_be_named():
    assert ["claude"] == [place.name for place in PLACES if place.agent] == [Options.PLACES[-1]]


def test_a_start_tells_the_ids_and_how_to_see_it(place, worker, repo):
    assert WorkerLocation(ID, attach=f"claude attach {ID}", worker_id=worker.id, session_id=NEW) == started(
        place, Owner(), repo, worker
    )


def test_its_hooks_get_the_marks_and_the_supervisor_does_not(place, worker, repo, monkeypatch):
    """Later sessions inherit the environment that the supervisor was started with."""
    seen = {}
    owner = Owner()
    monkeypatch.setattr(owner, "run", lambda argv, **how: seen.update(how["env"]) or Owner.run(owner, argv, **how))
    launch = LaunchRequest("claude", SESSION, repo, "/bin/claude", NEW, "go on now", background=True, worker_id="w-1")

    plan = ForkPlan.of(launch)
    started(place, owner, repo, worker)

    assert ("/bin/claude", "--bg", "--settings", '{"env":{"SMART_FORK_DEPTH":"1","SMART_FORK_WORKER_ID":"w-1"}}') == (
        plan.argv[:4]
    )
    assert ("--resume", SESSION, "--fork-session", "--", "go on now") == plan.argv[4:]
    assert {"PATH"} == {"PATH", "SMART_FORK_WORKER_ID", "SMART_FORK_DEPTH"} & seen.keys()


def test_a_session_that_goes_on_keeps_the_options_that_it_has(repo):
    """With other options, its agent would start a copy of the session."""
    launch = LaunchRequest("claude", SESSION, repo, "/bin/claude", NEW, "go on now", background=True, form="resume")

    assert ("/bin/claude", "--bg", "--resume", SESSION, "--", "go on now") == ForkPlan.of(launch).argv


@pytest.mark.parametrize(("prompt", "said"), [("/clear it", "Prompt: /clear it"), ("stop", "Prompt: stop")])
def test_a_prompt_is_no_command_of_its_agent(repo, prompt, said):
    launch = LaunchRequest("claude", SESSION, repo, "/bin/claude", NEW, prompt, background=True)

    assert said == ForkPlan.of(launch).argv[-1]


@pytest.mark.parametrize("begun", [(1, "Workspace not trusted."), (0, "something else")])
def test_what_the_agent_says_instead_of_starting_is_told(place, worker, repo, begun):
    with pytest.raises(ProgramFailed, match=f"Claude Code started no session: {begun[1]}"):
        started(place, Owner(begun=begun), repo, worker)


def test_a_start_that_cannot_be_followed_leaves_no_session(place, worker, repo):
    owner = Owner()
    owner.code = 1

    with pytest.raises(ProgramFailed, match="does not list its sessions"):
        started(place, owner, repo, worker)
    assert ("stop", ID) == owner.ran[-1][1:]


def test_one_that_has_ended_says_why(place, home):
    note = home / ".claude/jobs" / ID / "state.json"
    note.parent.mkdir(parents=True)
    note.write_text(json.dumps({"detail": "exit 1 before init"}))

    assert looked(place, "ended", Owner()) is None
    assert "exit 1 before init" == looked(BackgroundPlace("claude", "claude"), "ended", Owner(pid=None, state="failed"))


def test_one_that_was_removed_from_the_list_has_ended(place, home):
    assert "It ended." == looked(place, "ended", Owner(id="another"))


def test_a_list_that_cannot_be_had_ends_no_worker(place, worker):
    owner = Owner()
    owner.code = 1

    assert is_alive(worker, Machine(owner))
    with pytest.raises(ProgramFailed, match="does not list its sessions"):
        looked(place, "runs", owner)


def test_what_it_waits_for_is_what_its_agent_lists(worker, repo, programs):
    watch = WorkerReader(Machine(Owner(status="waiting", waitingFor="permission prompt"), os.environ))

    with Registry() as registry:
        seen = watch.look(registry.get(worker.id), registry)

    assert ("running", "waiting", "permission prompt") == (seen.state, seen.status, seen.waiting_for)


def test_one_that_cannot_be_stopped_is_told(place, worker):
    owner = Owner()
    owner.code = 1

    with pytest.raises(ForkRefused, match="Claude Code did not stop it: Not now"):
        looked(place, "close", owner)


def test_an_agent_without_the_verbs_runs_as_a_process_and_says_so(claude_session, repo, programs):
    owner = Owner("--fork-session --session-id")
    source = replace(READERS["claude"].read(claude_session).session, cwd=str(repo))
    spec = WorkerSpec("fork", "claude", source, Options(prompt="go on now", place="claude"))

    fork = prepare(spec, Machine(owner), dry_run=True).preview().as_fork()

    assert "process" == fork.place == choose_place("claude", Machine(owner)).name
    assert "This Claude Code has no background sessions of its own: it runs as a process" in fork.warnings


def test_another_agent_does_not_run_there(codex_session, repo, programs):
    source = replace(READERS["codex"].read(codex_session).session, cwd=str(repo))
    spec = WorkerSpec("fork", "codex", source, Options(prompt="go on now", place="claude"))

    with pytest.raises(Usage, match="Codex does not run in claude"):
        prepare(spec, Machine(Owner(), os.environ), dry_run=True)
