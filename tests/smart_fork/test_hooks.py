"""Tests of the agents' hooks: which worker an event is about, and how it changes the worker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from itertools import product
from pathlib import Path
from types import MappingProxyType

import psutil
import pytest

from indexer.environment import WORKER_ID
from smart_fork.agents import AGENTS
from smart_fork.agents.agent import Agent
from smart_fork.agents.hooks import Hooks
from smart_fork.errors import Usage
from smart_fork.workers.hook_events import Ancestor, WorkerEvent, ancestors, receive
from smart_fork.workers.registry import Registry
from tests.smart_fork.forks import NEW, SESSION, codex_path, codex_records, write_log
from tests.support import forkserver

ROOT = Path(__file__).resolve().parents[2]
OTHER = "11111111-0000-4000-8000-000000000003"
PID = 4242


@pytest.fixture
def registry(home):
    with Registry() as opened:
        yield opened


def add(registry: Registry, session_id: str | None = NEW, **more):
    values = {"agent": "claude", "source_session_id": SESSION, "place": "tmux", "cwd": Path("/work")}
    worker = registry.add(**values | more)
    if session_id:
        registry.set_session_id(worker.id, session_id)
    return registry.set_started(worker.id, command=["claude"], terminal_id="%1", pid=PID)


def event(name: str, session_id: str = NEW, **more) -> dict:
    return {"hook_event_name": name, "session_id": session_id, "cwd": "/work"} | more


def run_by(*pids: int, words: tuple[str, ...] = ("claude",)) -> tuple[Ancestor, ...]:
    """Return the ancestors of a hook that an agent runs with a shell."""
    return (Ancestor(1000, ("/bin/sh", "-c", "hook")), *(Ancestor(pid, words) for pid in pids))


def hear(registry: Registry, worker, body: dict, chain=None):
    return receive(registry, worker.agent, body, {WORKER_ID: worker.id}, run_by(PID, 1) if chain is None else chain)


def test_the_hook_of_a_prompt_that_comes_late_hides_no_question(registry):
    worker = add(registry, session_id=NEW)
    began = time.time() - 1
    hear(registry, worker, event("PermissionRequest", tool_name="Bash"))

    def prompted(began: float) -> str:
        body = event("UserPromptSubmit")
        return receive(registry, "claude", body, {WORKER_ID: worker.id}, run_by(PID, 1), began=began).status

    assert ["waiting", "working"] == [prompted(began), prompted(time.time() + 1)]


def test_a_workers_status_follows_its_hooks(registry):
    worker = add(registry)
    seen = []
    for body in (
        event("SessionStart", source="startup"),
        event("UserPromptSubmit", prompt="go"),
        event("Notification", notification_type="permission_prompt", message="Claude needs your\x1b[31m permission\n"),
        event("Notification", notification_type="auth_success", message="Hello"),
        event("Stop"),
        event("Notification", notification_type="idle_prompt", message="Claude is waiting for your input"),
        event("SessionEnd", reason="other"),
    ):
        hear(registry, worker, body)
        now = registry.get(worker.id)
        seen.append((now.state, now.status, now.status_note))

    assert [
        ("running", "", ""),
        ("running", "working", ""),
        ("running", "waiting", "Claude needs your permission"),
        ("running", "waiting", "Claude needs your permission"),
        ("running", "idle", ""),
        ("running", "idle", ""),
        ("ended", "", ""),
    ] == seen
    assert registry.get(worker.id).ended_at


@pytest.mark.parametrize(("agent", "processes"), [("claude", 2), ("qwen", 3)])
def test_an_agent_may_be_several_processes_and_one_that_it_has_started_is_another(registry, agent, processes):
    worker = add(registry, agent=agent)
    above = [PID + number for number in range(processes, 0, -1)]

    assert hear(registry, worker, event("Stop"), run_by(*above[1:], PID, 1)) is not None
    assert hear(registry, worker, event("Stop"), run_by(*above, PID, 1)) is None


def test_codex_asks_for_permission_with_what_it_wants_to_do(registry):
    worker = add(registry, agent="codex")
    for asked, note in (
        ({"command": "rm x"}, "Bash: rm x"),
        ({"description": "d", "command": "c"}, "Bash: d"),
        ({"description": ["d"], "command": ["rm", "x"]}, "Bash: rm x"),
        ({"command": {"rm": "x"}}, "Bash"),
        (7, "Bash"),
    ):
        hear(registry, worker, event("PermissionRequest", tool_name="Bash", tool_input=asked))
        assert ("waiting", note) == (registry.get(worker.id).status, registry.get(worker.id).status_note)

    hear(registry, worker, event("Interrupt"))
    assert "idle" == registry.get(worker.id).status


def test_a_key_that_is_not_known_is_passed_over_and_a_value_of_another_type_was_not_said():
    said = event("Stop", new_in_this_version={"x": 1}, prompt=["go"], reason=None, source=7, message="m")

    assert WorkerEvent(session_id=NEW, hook_event_name="Stop", message="m") == WorkerEvent.of(said)


def test_the_same_hook_twice_changes_only_the_time(registry):
    """R-022."""
    worker = add(registry)
    for name in ("SessionStart", "UserPromptSubmit", "Stop", "SessionEnd"):
        once, twice = (hear(registry, worker, event(name)) for _ in range(2))
        assert {"status_at", "ended_at"} >= {f for f in once.__slots__ if getattr(once, f) != getattr(twice, f)}


def test_after_clear_or_resume_old_and_new_session_name_the_worker(registry):
    """R-007: a session that only ends for another session does not end the worker."""
    worker = add(registry)
    hear(registry, worker, event("SessionEnd", reason="clear"))
    assert "running" == registry.get(worker.id).state
    hear(registry, worker, event("SessionStart", OTHER, source="clear"))

    now = registry.get(NEW)
    assert (worker.id, OTHER, "running", "idle") == (now.id, now.session_id, now.state, now.status)
    assert worker.id == registry.get(OTHER).id
    hear(registry, worker, event("SessionEnd", NEW, reason="other"))  # late, of the session before
    assert ("running", OTHER) == (registry.get(worker.id).state, registry.get(worker.id).session_id)


def test_claude_begins_a_fork_in_the_name_of_its_source_which_is_not_the_workers_session(registry):
    """F-105."""
    worker = add(registry, None)
    hear(registry, worker, event("SessionStart", SESSION, source="resume"))
    assert registry.get(worker.id).session_id is None

    hear(registry, worker, event("UserPromptSubmit", NEW))
    assert (NEW, "working") == (registry.get(worker.id).session_id, registry.get(worker.id).status)

    resumed = add(registry, None, kind="resume")
    hear(registry, resumed, event("SessionStart", SESSION, source="resume"))
    assert SESSION == registry.get(resumed.id).session_id


def test_a_hook_from_a_surviving_worker_brings_the_original_id_back(registry):
    """R-040, R-041: also for a worker that was believed to have ended, or with a start that was not stored."""
    worker = add(registry, None)
    registry.set_state(worker.id, "ended")
    hear(registry, worker, event("UserPromptSubmit"))

    now = registry.get(NEW)
    assert (worker.id, "running", None, "working") == (now.id, now.state, now.ended_at, now.status)
    unwritten = registry.add("claude", source_session_id=SESSION, place="tmux", cwd=Path("/work"))
    environment = {WORKER_ID: unwritten.id, "TMUX_PANE": "%7"}
    receive(registry, "claude", event("UserPromptSubmit", OTHER), environment, run_by(7, 8))
    found = registry.get(OTHER)
    assert (unwritten.id, "running", 7, "%7") == (found.id, found.state, found.pid, found.terminal_id)


@pytest.mark.parametrize(
    ("environment", "chain"),
    [
        ({}, run_by(77, 1)),  # a session of a person
        ({WORKER_ID: "claude-1"}, run_by(77, 1)),  # of a registry that is gone
        ("ours", run_by(77, 78, PID)),  # an agent that the worker has started
        ("ours", run_by(77, 1)),  # a process that has inherited the mark of a worker that is no more
        (None, None),  # nothing is known of who says it
    ],
)
@pytest.mark.parametrize("name", ["SessionStart", "UserPromptSubmit", "Stop", "SessionEnd"])
def test_a_foreign_session_changes_nothing(registry, environment, chain, name):
    """R-025, R-026: it never replaces a worker whose session is not known yet."""
    workers = [add(registry, None), add(registry)]
    if environment == "ours":
        environment = {WORKER_ID: workers[0].id}
    before = registry.workers()

    assert receive(registry, "claude", event(name, OTHER), environment, chain) is None
    assert receive(registry, "codex", event(name, OTHER), {WORKER_ID: workers[1].id}, run_by(PID, 1)) is None
    assert before == registry.workers()


def test_a_person_who_goes_on_with_a_workers_session_elsewhere_does_not_speak_for_it(registry):
    worker = add(registry)
    before = registry.get(worker.id)
    for name in ("SessionStart", "UserPromptSubmit", "SessionEnd"):
        assert receive(registry, "claude", event(name), {}, run_by(77, 1)) is None
    assert before == registry.get(worker.id)


def test_where_only_the_session_is_known_it_is_evidence_enough(registry):
    """For callers that pass on an event without its process."""
    worker = add(registry)
    receive(registry, "claude", event("Stop"))
    assert "idle" == registry.get(worker.id).status
    registry.set_state(worker.id, "ended")
    assert receive(registry, "claude", event("UserPromptSubmit")) is None


SERVER = (Ancestor(90, ("/x/codex", "app-server", "--listen", "unix://")), Ancestor(PID, ("node", "codex")))


def codex_fork(registry: Registry, cwd: Path, **more):
    return add(registry, None, **{"agent": "codex", "cwd": cwd, "prompt": "fix it", "now": 1767323045.0} | more)


def written(home: Path, directory: Path, session_id: str = OTHER, prompt: str = "fix it", **meta):
    meta = {"forked_from_id": SESSION} | meta
    return write_log(codex_path(home, session_id), codex_records(session_id, directory, [prompt], **meta))


def test_codex_in_the_background_is_known_by_the_session_and_not_by_the_environment(registry, home):
    """R-025, R-046: its server has the environment of the first terminal."""
    first, second = codex_fork(registry, home, prompt="something else"), codex_fork(registry, home)
    written(home, home)
    environment = {WORKER_ID: first.id}

    receive(registry, "codex", event("UserPromptSubmit", OTHER, prompt="fix it"), environment, SERVER)
    assert (second.id, "working") == (registry.get(OTHER).id, registry.get(OTHER).status)
    assert registry.get(first.id).session_id is None
    receive(registry, "codex", event("Stop", OTHER), environment, SERVER)
    assert "idle" == registry.get(OTHER).status


def test_codex_in_the_background_going_on_with_an_earlier_session_of_a_worker_is_a_person(registry):
    """R-026."""
    worker = add(registry, agent="codex")
    before = registry.set_session_id(worker.id, OTHER)
    assert receive(registry, "codex", event("UserPromptSubmit", NEW), {WORKER_ID: worker.id}, SERVER) is None
    assert before == registry.get(worker.id)


def test_two_workers_that_a_codex_session_could_be_of_leave_it_nobodys(registry, home):
    """R-025, R-046."""
    workers = [codex_fork(registry, home), codex_fork(registry, home)]
    written(home, home)

    assert receive(registry, "codex", event("Stop", OTHER), {}, SERVER) is None
    assert [None, None] == [registry.get(worker.id).session_id for worker in workers]


@pytest.mark.parametrize(
    "other",
    [
        {"forked_from_id": NEW},
        {"cwd": "/elsewhere"},
        {"timestamp": "2026-01-02T03:04:04.000Z"},
        {"prompt": "another"},
        {"forked_from_id": None},
    ],
)
@pytest.mark.parametrize("asked", ["fix it", ""])
def test_a_codex_session_with_another_beginning_is_not_the_workers(registry, home, other, asked):
    """R-046: another source, directory, time or prompt."""
    worker = codex_fork(registry, home, prompt=asked if "prompt" not in other else "fix it")
    written(home, home, **other)

    assert receive(registry, "codex", event("Stop", OTHER), {WORKER_ID: worker.id}, SERVER) is None
    assert registry.get(worker.id).session_id is None


def test_codex_in_its_own_process_is_known_by_the_mark(registry):
    """Npm's starter is between smart-fork and the program."""
    worker = add(registry, None, agent="codex")
    hear(registry, worker, event("SessionStart", OTHER), run_by(77, PID, words=("codex",)))
    assert worker.id == registry.get(OTHER).id


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"session_id": 7},
        {"session_id": "../../x"},
        {"session_id": "-" * 36},
        event("Nothing"),
        event(""),
        {"session_id": NEW},
    ],
)
def test_what_is_no_event_is_ignored(registry, body):
    """R-023."""
    worker = add(registry)
    before = registry.workers()
    hear(registry, worker, body)
    assert before == registry.workers()


class _OtherWords(Hooks):
    def path(self):
        return Path("/nowhere")

    def event(self, said):
        named = {"begun": "SessionStart", "asked": "UserPromptSubmit", "done": "Stop"}
        return {"session_id": said.get("sessionId"), "hook_event_name": named.get(said.get("kind"))}


class _Newcomer(Agent):
    name, title, starter = "newcomer", "Newcomer", AGENTS["claude"].starter
    facets = MappingProxyType({"hooks": f"{__name__}:_OtherWords"})


def test_an_agent_that_speaks_otherwise_is_understood_by_its_own_translation(registry, monkeypatch):
    monkeypatch.setitem(AGENTS._by_name, "newcomer", _Newcomer())
    worker = add(registry, None, agent="newcomer")

    for kind, status in (("begun", worker.status), ("asked", "working"), ("done", "idle"), ("else", "idle")):
        hear(registry, worker, {"kind": kind, "sessionId": NEW})
        assert status == registry.get(NEW).status


@pytest.mark.parametrize("agent", [agent.name for agent in AGENTS if not agent.hooks])
def test_an_agent_without_hooks_has_said_nothing(registry, agent):
    with pytest.raises(Usage):
        receive(registry, agent, event("Stop"), {}, run_by(PID))


def run_hook(agent: str, body: bytes, home: Path, **env: str) -> subprocess.CompletedProcess:
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)} | env
    command = [sys.executable, "-P", "-m", "smart_fork.hooks", agent]
    return forkserver.run(command, input=body, env=environment, cwd=home, capture_output=True, timeout=60)


def test_the_command_writes_into_the_registry_without_any_server(registry, home):
    """R-020, R-027: the agent here is this process."""
    worker = add(registry)
    registry.set_started(worker.id, command=[], pid=os.getpid())
    body = json.dumps(event("UserPromptSubmit", prompt="x" * 300_000)).encode()

    done = run_hook("claude", body, home, **{WORKER_ID: worker.id})

    assert (0, b"", b"") == (done.returncode, done.stdout, done.stderr)
    assert "working" == registry.get(worker.id).status


STOP = json.dumps(event("Stop")).encode()
ALL = [
    *product(
        ("claude", "codex", "nobody", ""), (b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000, STOP), ("missing", "broken")
    )
]


def differs_in_one(agent: str, body: bytes, state: str) -> bool:
    """Return True if at most one of the values is not normal. Of invalid bodies, one is always tried."""
    in_order = ("claude", STOP, "missing")
    return body in (STOP, b"{") and in_order in (
        (agent, body, "missing"),
        (agent, STOP, state),
        ("claude", body, state),
    )


@pytest.mark.parametrize(
    ("agent", "body", "state"),
    [pytest.param(*one, marks=() if differs_in_one(*one) else pytest.mark.thorough) for one in ALL],
)
def test_the_command_is_silent_whatever_happens(home, agent, body, state):
    """R-023, R-027."""
    database = home / ".smart-fork" / "workers.db"
    if state == "broken":
        database.parent.mkdir()
        database.write_bytes(b"not a database" * 1000)

    done = run_hook(agent, body, home, **{WORKER_ID: "claude-1"})

    assert (0, b"", b"") == (done.returncode, done.stdout, done.stderr)
    assert (state == "broken") == (home / ".smart-fork").exists()


def test_the_command_takes_in_what_is_too_long_for_an_event(registry, home):
    """R-027: the writer must not be cut off."""
    worker = add(registry)
    body = json.dumps(event("Stop", padding="x" * (20 << 20))).encode()
    environment = os.environ | {"PYTHONPATH": str(ROOT), WORKER_ID: worker.id}
    command = [sys.executable, "-P", "-m", "smart_fork.hooks", "claude"]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE) as process:
        process.stdin.write(body)
    assert (0, "") == (process.returncode, registry.get(worker.id).status)


def test_the_command_imports_nothing_from_the_project_it_is_run_in(registry, home):
    for name in ("json.py", "orjson.py", "smart_fork.py"):
        (home / name).write_text("open('HACKED', 'w')")
    run_hook("claude", b"{}", home, **{WORKER_ID: "claude-1"})
    assert not (home / "HACKED").exists()


def test_a_process_knows_what_started_it():
    found = ancestors()
    assert found
    assert os.getppid() == found[0].pid
    assert [True, True, False, False] == [Ancestor(1, (w,)).is_shell for w in ("/bin/sh", "-zsh", "claude", "")]
    assert not Ancestor(1, ()).is_shell


def test_of_processes_that_the_system_does_not_tell_of_nothing_is_known(monkeypatch):
    monkeypatch.setattr(psutil.Process, "cmdline", lambda one: (_ for _ in ()).throw(psutil.AccessDenied(one.pid)))
    assert ancestors() is None


@pytest.mark.parametrize("agent", ["claude", "codex"])
@pytest.mark.parametrize(
    ("event_name", "mark", "noted"),
    [("SessionStart", {}, True), ("Stop", {}, False), ("SessionStart", {WORKER_ID: "claude-1"}, False)],
)
def test_where_a_persons_session_begins_the_names_of_its_variables_are_noted(agent, event_name, mark, noted, home):
    body = json.dumps(event(event_name)).encode()
    env = dict(os.environ) | {"ANTHROPIC_API_KEY": "a-secret", "CODEX_API_KEY": "a-secret", "CLAUDECODE": "1"} | mark

    forkserver.run([sys.executable, "-P", "-m", "smart_fork.hooks", agent], input=body, env=env, cwd=ROOT, check=True)

    file = home / ".smart-fork/variables.json"
    key = {"claude": "ANTHROPIC_API_KEY", "codex": "CODEX_API_KEY"}[agent]
    assert noted == file.exists()
    assert not noted or {agent: [key]} == json.loads(file.read_text())
