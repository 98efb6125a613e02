"""Tests of a fork from the request to a running worker. Only the agents' programs are scripted."""

from __future__ import annotations

import json
import os
import shlex
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from filelock import FileLock, Timeout

from smart_fork.agents import AGENTS
from smart_fork.agents.claude.log_files import folder_of
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.request_fields import Options
from smart_fork.errors import ForkRefused, NotFound, ProgramFailed, ProgramMissing, Usage
from smart_fork.forking.confirmation import CONFIRM_SECONDS
from smart_fork.forking.plan import fork_session
from smart_fork.forking.request import ForkRequest
from smart_fork.system.processes import Clock, Processes
from smart_fork.workers.registry import Registry
from tests.smart_fork.forking.conftest import SystemThatHelps, playing, source_of
from tests.smart_fork.forks import NEW, SESSION, FakeProcesses, codex_path, codex_records, snapshot, write_log
from tests.support.cases import thorough_except_first

agents = pytest.mark.parametrize("agent", thorough_except_first(["claude", "codex"]))


@agents
def test_a_fork_runs_and_is_remembered(launch, source, played, clock, repo):
    """F-093, F-094, F-095, F-098."""
    before = snapshot(source.source_path.parent)

    forked = launch(source, played, caller_session_id="caller", name="fixer")

    (call,) = played.started
    assert (str(repo), repo) == (forked.cwd, call["cwd"])
    assert ("fixer", SESSION, "process", ()) == (
        forked.session_name,
        forked.resume_session_id,
        forked.place,
        forked.warnings,
    )
    assert forked.new_session_id == (
        NEW if source.agent == "codex" else call["argv"][call["argv"].index("--session-id") + 1]
    )
    assert {"SMART_FORK_DEPTH": "1", "SMART_FORK_WORKER_ID": forked.worker_id}.items() <= call["env"].items()
    with Registry() as registry:
        worker = registry.get(forked.new_session_id)
    assert (forked.worker_id, "caller", "running", call["argv"], 4242, forked.log) == (
        worker.id, worker.caller_session_id, worker.state, worker.command, worker.pid, worker.log_path,
    )  # fmt: skip
    assert before.items() <= snapshot(source.source_path.parent).items()
    assert 0 == clock.slept
    assert json.dumps(forked.as_json())


@agents
def test_a_fork_into_a_worktree_works_there(launch, source, played, repo):
    """F-099, F-106."""
    forked = launch(source, played, worktree="retry")

    (call,) = played.started
    assert repo / ".worktrees/retry" == call["cwd"] == Path(forked.cwd)
    staged = folder_of(call["cwd"]) / f"{SESSION}.jsonl"
    with Registry() as registry:
        copies = [*map(str, registry.staged_copies())]
    if source.agent == "claude":
        assert source.source_path.read_bytes() == staged.read_bytes()
        assert [str(staged)] == copies
    else:
        assert str(call["cwd"]) == call["argv"][call["argv"].index("-C") + 1]
        assert [] == copies


@agents
@pytest.mark.parametrize(
    ("prompt", "name", "named"),
    [
        ("Write the changelog entry, please", None, "write-the-changelog-entry"),
        ("use ghp_0123456789abcdefghij0123456789abcdef", None, "use-redacted-github-token"),
        ("write it", "fixer", "fixer"),
    ],
)
def test_a_fork_its_worktree_and_its_branch_are_called_by_its_own_prompt(  # noqa: PLR0917
    launch, source, played, repo, prompt, name, named
):
    shown = launch(source, played, prompt=prompt, name=name, worktree=True, dry_run=True)
    forked = launch(source, played, prompt=prompt, name=name, worktree=True)

    (call,) = played.started
    with Registry() as registry:
        worker = registry.get(forked.worker_id)
    assert [named] * 3 == [shown.session_name, forked.session_name, worker.name]
    assert repo / f".worktrees/{named}" == call["cwd"] == Path(shown.cwd)
    assert f"smart-fork/{named}" == worker.branch
    assert bool(name and source.agent == "claude") == any(word.startswith("--name") for word in call["argv"])


@pytest.mark.parametrize("agent", thorough_except_first(["claude"]))
def test_a_fork_whose_prompt_gives_no_name_is_called_by_its_id(launch, source, played):
    forked = launch(source, played, prompt="\u4fee\u590d")

    assert forked.worker_id == forked.session_name


@agents
def test_a_worktree_is_remembered_with_what_its_worker_began_with(launch, source, played, repo):
    """F-099, R-004: with the uncommitted changes where they are asked for, which says that there is a worktree."""
    (repo / "README.md").write_text("changed")

    plain = launch(source, played, worktree="plain")
    changed = launch(source, played, with_changes=True, name="changed")

    with Registry() as registry:
        (second, first) = registry.workers()
    head = (repo / ".git/refs/heads/main").read_text().strip()
    assert (plain.cwd, "smart-fork/plain", head) == (first.worktree, first.branch, first.base_commit)
    assert (changed.cwd, "smart-fork/changed") == (second.worktree, second.branch)
    assert second.base_commit not in (None, head)
    assert "changed" == Path(changed.cwd, "README.md").read_text()


@agents
def test_changes_that_cannot_be_carried_over_are_known_beforehand(launch, source, repo):
    (repo / "inner/.git/objects").mkdir(parents=True)
    (repo / "inner/.git/refs").mkdir()
    (repo / "inner/.git/HEAD").write_text("ref: refs/heads/main\n")

    for dry in (True, False):
        with pytest.raises(ForkRefused, match="separate repository"):
            launch(source, FakeProcesses(), with_changes=True, dry_run=dry)

    assert not (repo / ".worktrees").exists()


@agents
def test_a_dry_run_says_what_would_be_done_and_does_nothing(launch, source, agent, repo, home):
    """F-107."""
    before = snapshot(home)
    processes = FakeProcesses()

    forked = launch(source, processes, worktree=True, name="my fork", dry_run=True)

    assert forked.command.startswith(f"cd {shlex.quote(f'{repo}/.worktrees/my-fork')} && ")
    assert ("", None, [], before) == (forked.worker_id, forked.terminal_id, processes.started, snapshot(home))
    assert ("The command needs the worktree, which a real run makes first",) == forked.warnings


@agents
def test_a_start_that_fails_leaves_nothing_but_a_note(launch, source, agent, repo, home):
    """B-059, B-073."""
    processes = FakeProcesses()
    before = snapshot(home / ".claude") if agent == "claude" else {}

    def fail(call: dict) -> None:
        raise ProgramFailed("boom")

    processes.on_start = fail
    with pytest.raises(ProgramFailed, match="boom"):
        launch(source, processes, worktree="retry")

    assert not (repo / ".worktrees/retry").exists()
    assert "" == Processes().run(["git", "-C", str(repo), "branch", "--list", "smart-fork/*"], timeout=30).text
    assert before == (snapshot(home / ".claude") if agent == "claude" else {})
    with Registry() as registry:
        assert ["failed"] == [worker.state for worker in registry.workers()]
        assert {} == registry.staged_copies()


@agents
def test_what_cannot_work_is_refused_before_anything_is_made(launch, source, home):
    """F-096, F-097, F-102, F-104."""
    agent = source.agent
    bad = {
        "gone": (replace(source, session_id=NEW, source_path=home / "no.jsonl"), {}, NotFound, "gone"),
        "no directory": (source, {"cwd": home / "no"}, NotFound, "No such directory"),
        "no cwd": (
            replace(source, cwd=""),
            {},
            ForkRefused,
            "its directory is unknown",
        ),
        "no prompt": (source, {"prompt": None}, Usage, "needs a prompt"),
        "place": (source, {"place": "moon"}, Usage, "Unknown place"),
        "id": (replace(source, session_id="../x"), {}, Usage, "Invalid source"),
        "deep": (source, {"env": os.environ | {"SMART_FORK_DEPTH": "3"}}, ForkRefused, "deep"),
    }
    before = snapshot(home)
    for forked, more, error, words in bad.values():
        processes = FakeProcesses()
        with pytest.raises(error, match=words):
            launch(forked, processes, worktree=True, **more)
        assert [] == processes.started
    old = FakeProcesses({agent: (0, "nothing")})
    os.utime(home / "bin" / agent, ns=(1, 1))  # another version
    with pytest.raises(ProgramMissing, match="cannot fork"):
        launch(source, old, worktree=True)
    assert {name: content for name, (content, _) in before.items()} == {n: c for n, (c, _) in snapshot(home).items()}


@agents
def test_forks_of_forks_end_where_the_environment_is_not_passed_on(launch, source, agent):
    """Codex gives its servers almost none of its environment."""
    caller = NEW
    for number in range(3):
        with Registry() as registry:
            worker = registry.get(launch(source, FakeProcesses(), caller_session_id=caller).worker_id)
            caller = NEW.replace("7a1c", f"7a1{number}")
            registry.set_session_id(worker.id, caller)

    with pytest.raises(ForkRefused, match="3 deep"):
        launch(source, FakeProcesses(), caller_session_id=caller)


@agents
def test_a_log_that_has_moved_is_found_again(launch, source, played, home):
    """F-100."""
    moved = replace(source, source_path=home / "before.jsonl")

    assert launch(moved, played).new_session_id
    shortened = launch(moved, FakeProcesses(), at="a4" if source.agent == "claude" else "6")
    assert any(home.rglob(f"*{shortened.new_session_id}.jsonl"))


def test_a_codex_fork_with_a_prompt_waits_for_our_server_where_it_is_set_up(launch, codex_session, repo, home):
    def command() -> str:
        return launch(source_of("codex", codex_session, repo), FakeProcesses(), prompt="go on", dry_run=True).command

    assert "required" not in command()
    registration = AGENTS.registration_of("codex")
    registration.path().write_text(
        registration.put("", {"command": sys.executable, "args": ["-m", "smart_fork", "mcp"]})
    )

    assert "-c mcp_servers.smart-fork.required=true" in command()


def test_a_codex_fork_is_recognised_by_its_own_first_record(launch, codex_session, repo, clock, home):
    """F-098, F-105: not an older fork that is being written, nor another session's, nor one elsewhere, nor an inherited record."""
    now = datetime.fromtimestamp(clock.now(), UTC).isoformat()
    others = {
        "1": {"forked_from_id": SESSION, "timestamp": "2026-01-01T00:00:00Z"},
        "2": {"forked_from_id": NEW, "timestamp": now},
        "3": {"timestamp": now},
        "4": {"forked_from_id": SESSION, "timestamp": now, "cwd": "/elsewhere"},
        "5": {"forked_from_id": SESSION, "timestamp": "not a time"},
        "6": {"forked_from_id": SESSION, "timestamp": now, "id": None},
    }
    for end, meta in others.items():
        session_id = f"60309e1e-0000-4000-8000-00000000010{end}"
        write_log(codex_path(home, session_id), codex_records(session_id, repo, [], **meta))
    header, *rest = codex_records("60309e1e-0000-4000-8000-000000000200", repo, [])
    inherited = codex_records(SESSION, repo, [], forked_from_id=SESSION, timestamp=now)
    write_log(codex_path(home, "60309e1e-0000-4000-8000-000000000200"), [header, *inherited, *rest])
    codex_path(home, "60309e1e-0000-4000-8000-000000000300").write_bytes(b"\xff not json\n")
    source = source_of("codex", codex_session, repo)

    silent = launch(source, FakeProcesses())
    clock.time -= clock.slept
    found = launch(source, playing("codex", clock, home))

    assert (None, NEW) == (silent.new_session_id, found.new_session_id)


def test_codex_forks_are_started_one_after_the_other(launch, codex_session, repo, clock, home):
    """Two concurrent forks of one session in one directory could not be told apart."""
    processes = FakeProcesses()

    def start(call: dict) -> None:
        with pytest.raises(Timeout):
            FileLock(home / ".smart-fork/codex-start.lock").acquire(timeout=0)

    processes.on_start = start
    launch(source_of("codex", codex_session, repo), processes)

    FileLock(home / ".smart-fork/codex-start.lock").acquire(timeout=0).lock.release()


@agents
def test_a_fork_that_does_not_appear_is_waited_for_in_bounds(launch, source, agent, clock):
    forked = launch(source, FakeProcesses())

    assert CONFIRM_SECONDS <= clock.slept < CONFIRM_SECONDS + 1
    assert agent in forked.warnings[0]
    assert str(forked.log) in forked.warnings[0]


@pytest.mark.slow
def test_claude_without_a_prompt_is_waited_for_until_it_shows_a_line_to_type_in(
    launch, claude_session, clock, private_tmux, programs
):
    """Claude Code writes no log before a person types."""
    (programs / "claude").write_text("#!/bin/sh\nprintf '\u276f '\nread line\n")
    source = source_of("claude", claude_session, programs)

    forked = launch(source, SystemThatHelps(), prompt=None, place="tmux", clock=Clock())
    (programs / "claude").write_text("#!/bin/sh\nread line\n")
    silent = launch(source, SystemThatHelps(), prompt=None, place="tmux")

    assert (True, ()) == (forked.confirmed, forked.warnings)
    assert forked.terminal_id in private_tmux("list-panes", "-a", "-F", "#{pane_id}").split()
    assert forked.worker_id in private_tmux("list-windows", "-a", "-F", "#{window_name}")
    assert not silent.confirmed
    assert "shows no input line yet" in silent.warnings[0]


@agents
def test_here_is_remembered_before_it_replaces_us(launch, source, agent):
    with pytest.raises(SystemExit):
        launch(source, FakeProcesses(), place="here", prompt=None)

    with Registry() as registry:
        (worker,) = registry.workers()
    assert (os.getpid(), agent) == (worker.pid, Path(worker.command[0]).name)


@agents
def test_a_message_number_forks_there(source, programs, no_waiting, monkeypatch):
    """B-074, C-022: and says where, if that is in the middle of an exchange."""
    played = FakeProcesses()
    monkeypatch.setattr("smart_fork.system.processes.Processes", lambda: played)

    forked = fork_session(ForkRequest(SESSION[:8], Options("go on", place="process", name="fixer"), at=0))

    (call,) = played.started
    assert forked.new_session_id in call["argv"]
    assert "resume" in " ".join(call["argv"])
    assert "fork" not in call["argv"][1:]
    assert ["Forked after message", forked.warnings[1][:20]] == [text[:20] for text in forked.warnings][:2]
    shortened = fork_session(ForkRequest(forked.new_session_id, Options("go on", place="process"), dry_run=True))
    assert forked.new_session_id == shortened.resume_session_id
    with pytest.raises(NotFound, match="No message 99"):
        fork_session(ForkRequest(SESSION, Options("go on", place="process"), at=99))


@agents
def test_a_log_is_read_once_for_a_fork_at_a_message(source, programs, no_waiting, monkeypatch):
    reader, read = READERS[source.agent], []
    monkeypatch.setattr("smart_fork.system.processes.Processes", FakeProcesses)
    real = type(reader).read
    monkeypatch.setattr(type(reader), "read", lambda *a, **k: read.append(a[1]) or real(*a, **k))

    fork_session(ForkRequest(SESSION, Options("go on", place="process"), at=1))

    assert [source.source_path] == [path for path in read if path == source.source_path]


@agents
def test_a_shortened_copy_is_removed_when_it_is_not_started(launch, source, agent, home):
    """B-059."""
    before = snapshot(source.source_path.parent)
    processes = FakeProcesses()

    def fail(call: dict) -> None:
        raise ProgramFailed("boom")

    processes.on_start = fail
    at = "a4" if agent == "claude" else "6"
    with pytest.raises(ProgramFailed):
        launch(source, processes, at=at)

    assert before == snapshot(source.source_path.parent)
    logs = [path for path in home.rglob("*.jsonl") if path != source.source_path]
    assert [] == logs


def test_what_cannot_be_taken_away_again_does_not_hide_why_nothing_was_started(
    launch, codex_session, repo, home, caplog
):
    """B-053, B-054: it is logged, and the session that was to be forked is as it was."""
    before = codex_session.read_bytes()
    processes = FakeProcesses()

    def fail(call: dict) -> None:
        (copy,) = (path for path in home.rglob("rollout-*.jsonl") if path != codex_session)
        copy.unlink()
        copy.parent.rmdir()
        copy.parent.write_text("a file, where the folder was")
        raise ProgramFailed("boom")

    processes.on_start = fail
    with pytest.raises(ProgramFailed, match="boom"):
        launch(source_of("codex", codex_session, repo), processes, at="6")

    assert "something that was made for a worker is left" in caplog.text
    assert before == codex_session.read_bytes()
    with Registry() as registry:
        assert ["failed"] == [worker.state for worker in registry.workers()]


@agents
def test_what_was_started_stands_whatever_cannot_be_noted_of_it(launch, source, agent, clock, home):
    """B-055, B-062, B-065: its copy stays, it is no failure, and the answer says what went wrong."""
    with Registry() as registry:
        registry._db.execute(
            "CREATE TRIGGER full BEFORE UPDATE OF pid ON workers BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"
        )
    processes = FakeProcesses()

    forked = launch(source, processes, at="a4" if agent == "claude" else "6")

    assert 1 == len(processes.started)
    assert any(home.rglob(f"*{forked.new_session_id}.jsonl"))
    assert ["It was started, but the register of workers failed: the disk is full"] == [
        one for one in forked.warnings if "Forked after" not in one
    ]
    with Registry() as registry:
        assert "starting" == registry.get(forked.worker_id).state, "what finds it after a crash finds it now"


@agents
def test_an_old_program_can_resume_a_shortened_copy(launch, source, agent, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a-key")  # nobody has to ask whether it is logged in
    monkeypatch.setenv("CODEX_API_KEY", "a-key")
    processes = FakeProcesses({agent: (0, "nothing")})

    assert launch(source, processes, at="a4" if agent == "claude" else "6").new_session_id
    assert {"git"} == {ran[0] for ran in processes.ran}


class TestDelivery:
    """Tests that the way a prompt reaches an agent decides the possible places."""

    @pytest.fixture
    def typing(self, source, monkeypatch):
        """Let the source's agent take its prompt only by typing, or only on its standard input."""

        class Typed(type(AGENTS[source.agent].starter)):
            delivery = "typed"

            def line(self, request):
                line = super().line(replace(request, prompt=""))
                return line._replace(delivery=self.delivery)

        starter = Typed()
        monkeypatch.setitem(AGENTS[source.agent].__dict__, "starter", starter)
        return starter

    @agents
    @pytest.mark.parametrize("how", ["here typed", "process typed", "here input"])
    def test_a_prompt_that_does_not_get_there_is_refused_before_anything_is_made(
        self, launch, source, typing, how, home
    ):
        place, typing.delivery = how.split()
        before, played = snapshot(home), FakeProcesses()

        with pytest.raises(ForkRefused, match=f"cannot be done in {place}") as caught:
            launch(source, played, place=place)

        assert "tmux" in caught.value.hint
        assert before == snapshot(home)
        assert [] == played.started

    @agents
    def test_without_a_prompt_nothing_has_to_be_typed(self, launch, source, played, typing):
        with pytest.raises(SystemExit):
            launch(source, played, place="here", prompt=None)

        assert played.started

    @agents
    def test_a_process_is_given_it_on_its_standard_input(self, launch, source, played, typing, no_waiting):
        typing.delivery = "input"
        played.on_start = lambda _call: None
        launch(source, played)

        (call,) = played.started
        assert b"fix the race" == call["input"]
        assert "fix the race" not in call["argv"]
