"""Tests of several workers at once: all are checked before the first starts, and each has its own result."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from smart_fork.agents.claude.log_files import folder_of
from smart_fork.errors import ForkRefused, NotFound, ProgramFailed, ProgramMissing, SmartForkError, Usage
from smart_fork.forking.confirmation import CONFIRM_SECONDS
from smart_fork.forking.spawn import MIN_CONFIRM_SECONDS, spawn
from smart_fork.system.processes import Machine
from smart_fork.workers.registry import Registry
from tests.smart_fork.forks import NEW, SESSION, FakeClock, FakeProcesses, snapshot, write_log
from tests.support.cases import thorough_except_first

agents = pytest.mark.parametrize("agent", thorough_except_first(["claude", "codex"]))


@pytest.fixture
def played(programs) -> FakeProcesses:
    """Use programs without output, and a clock in which time passes only by waiting."""
    return FakeProcesses()


@pytest.fixture
def order(repo):
    """Return the request for one worker."""

    def say(**more: object) -> dict:
        return {"project_path": str(repo), "prompt": "fix the race", "run_in": "process", "worktree": False} | more

    return say


def run(played, *orders, **more) -> list[dict]:
    return [one.as_json() for one in spawn(orders, machine=Machine(played, clock=FakeClock()), **more).workers]


REFUSED = {
    "missing required 'project_path'": ({"project_path": None}, Usage),
    ": resume_session_id and continue_session are mutually exclusive": (
        {"resume_session_id": SESSION, "continue_session": True},
        Usage,
    ),
    ": fork_from and resume_session_id are mutually exclusive": (
        {"fork_from": SESSION, "resume_session_id": SESSION},
        Usage,
    ),
    ": fork_from and continue_session are mutually exclusive": (
        {"fork_from": SESSION, "continue_session": True},
        Usage,
    ),
    ": fork_session needs fork_from, resume_session_id or continue_session": (
        {"fork_session": True, "agent_type": "codex"},
        Usage,
    ),
    ": Unknown adapter: nobody": ({"agent_type": "nobody"}, SmartForkError),
    ": unknown key 'projekt'": ({"projekt": "x"}, Usage),
    ": 'prompt' must be a string": ({"prompt": 3}, Usage),
    ": 'at' must be a number": ({"at": True}, Usage),
    ": 'worktree' must be true or false or a string": ({"worktree": 1}, Usage),
    ": 'at' needs a session to fork": ({"at": 1}, Usage),
    ": run_in cannot be 'here'": ({"run_in": "here"}, Usage),
    ": Unknown place to run: moon": ({"run_in": "moon"}, Usage),
    ": A worker without a terminal needs a prompt": ({"prompt": None}, Usage),
    ": prompt is empty": ({"prompt": " "}, Usage),
    ": name is empty": ({"name": ""}, Usage),
    ": No such directory: /no/where": ({"project_path": "/no/where"}, NotFound),
    ": Session not found: 0000000000": ({"fork_from": "0000000000"}, NotFound),
    ": No claude session to continue in": ({"continue_session": True}, NotFound),
    ": Only a fork can have a worktree": ({"resume_session_id": SESSION, "worktree": True, "force": None}, Usage),
    ": A claude session cannot be resumed by codex": (
        {"resume_session_id": SESSION, "agent_type": "codex"},
        ForkRefused,
    ),
    ": No message 99": ({"fork_from": SESSION, "at": 99}, NotFound),
}


@pytest.mark.parametrize("text", REFUSED)
def test_one_that_cannot_be_had_keeps_all_from_starting(text, played, order, home, claude_session):
    """F-096, F-113 to F-116, F-118."""
    said, error = REFUSED[text]
    os.utime(claude_session, (0, 0))
    wrong = order(**{key: value for key, value in said.items() if key != "force"})
    if "continue_session" in said and len(said) == 1:
        wrong["project_path"] = str(home)

    with pytest.raises(error) as caught:
        run(played, order(), wrong)

    assert caught.value.message.startswith("Worker 1" + (" " if text[0] != ":" else "") + text)
    assert caught.value.message == str(caught.value)
    assert [] == played.started
    with Registry() as registry:
        assert [] == registry.workers()


def test_there_are_one_to_four(played, order):
    """F-118."""
    with pytest.raises(Usage, match=r"^At least one worker is required$"):
        run(played)
    with pytest.raises(Usage, match=r"^Maximum 4 workers per spawn$"):
        run(played, *[order()] * 5)
    with pytest.raises(Usage, match=r'^Worker 0 must be an object, not "claude"$'):
        run(played, "claude")


def test_each_has_a_result_of_its_own(played, order, repo):
    """F-110, F-117, R-001, R-002: two equal ones are two."""
    results = run(played, order(), order(), order(agent_type="codex", name="third"), caller_session_id="caller")

    assert [0, 1, 2] == [one["index"] for one in results]
    with Registry() as registry:
        rows = {worker.id: worker for worker in registry.workers()}
    assert set(rows) == {one["worker_id"] for one in results}
    assert 3 == len(rows)
    assert ["claude", "claude", "codex"] == [one["agent_type"] for one in results]
    assert ["new"] * 3 == [one["kind"] for one in results]
    assert {"caller"} == {row.caller_session_id for row in rows.values()}
    assert {1} == {row.depth for row in rows.values()}
    assert ("third", None, str(repo)) == tuple(results[2][key] for key in ("name", "session_id", "cwd"))
    first, second, third = (call["argv"][1:] for call in played.started)
    assert ["--session-id", results[0]["session_id"], "-p"] == list(first[:3])
    assert first[1] != second[1]
    assert ("exec", "-C", str(repo), "--", "fix the race") == third
    assert json.dumps(results)


@agents
def test_one_that_fails_does_not_keep_the_others_from_starting(agent, played, order):
    failures = iter([None, ProgramFailed("boom", "Try again."), OSError("disk full"), None])

    def start(call: dict) -> None:
        if error := next(failures):
            raise error

    played.on_start = start
    spawned = spawn([order(agent_type=agent)] * 4, machine=Machine(played, clock=FakeClock()))

    results = [one.as_json() for one in spawned.workers]
    assert [None, "program_failed", "unexpected", None] == [one.get("error") for one in results]
    assert ("boom", "Try again.") == (results[1]["message"], results[1]["hint"])
    assert {"started": 2, "failed": 2, "workers": results} == spawned.as_json()
    with Registry() as registry:
        assert ["running", "failed", "failed", "running"] == [worker.state for worker in registry.workers()]


@agents
@pytest.mark.slow
def test_what_begins_anew_in_a_repository_has_a_worktree_unless_it_is_told_otherwise(agent, played, order, repo):
    """F-120."""
    said = order(agent_type=agent, name="retry")
    del said["worktree"]
    unnamed = {name: value for name, value in said.items() if name != "name"}
    retry, plain, docs = {"worktree": "retry"}, {"worktree": False}, {"worktree": "docs"}
    first, second, plain, named = run(played, said, unnamed | retry, unnamed | plain, unnamed | docs)

    tree = repo / ".worktrees"
    assert [str(tree / "retry"), str(tree / "retry-1"), str(repo), str(tree / "docs")] == [
        one["cwd"] for one in (first, second, plain, named)
    ]
    assert ("smart-fork/retry", str(tree / "retry")) == (first["branch"], first["worktree"])
    assert (None, None) == (plain["branch"], plain["worktree"])
    with Registry() as registry:
        worker = registry.get(second["worker_id"])
    assert (str(tree / "retry-1"), "smart-fork/retry-1") == (worker.worktree, worker.branch)
    assert str(tree / "retry-1") == worker.cwd == str(played.started[1]["cwd"])


def test_where_no_worktree_can_be_made_it_works_in_the_directory_and_says_so(played, order, repo):
    """F-120: but not where one was asked for."""
    (repo / ".worktrees").symlink_to(repo)
    said = order()
    del said["worktree"]

    (result,) = run(played, said)

    assert str(repo) == result["cwd"]
    assert any(text.startswith("It works in the directory itself: ") for text in result["warnings"])
    with pytest.raises(ForkRefused, match=r"^Worker 0: .*is a symbolic link"):
        run(played, said | {"worktree": True})


def test_outside_git_there_is_no_worktree_and_no_word_about_it(played, order, home):
    said = order(project_path=str(home))
    del said["worktree"]

    (result,) = run(played, said)

    assert (str(home), None) == (result["cwd"], result["worktree"])
    assert not any("works in" in text for text in result["warnings"])


@agents
def test_a_session_is_forked_by_either_way_to_say_so(agent, played, order, request):
    """F-111, F-112, F-115."""
    path = request.getfixturevalue(f"{agent}_session")
    os.utime(path, (0, 0))
    before = snapshot(path.parent)

    results = run(
        played,
        order(fork_from=SESSION),
        order(resume_session_id=SESSION, fork_session=True),
        order(continue_session=True, fork_session=True, agent_type=agent),
        order(fork_from=SESSION[:8], at=0),
    )

    assert ["fork"] * 4 == [one["kind"] for one in results]
    assert {SESSION} == {one["source_session_id"] for one in results}
    native = ("--resume", SESSION, "--fork-session") if agent == "claude" else ("fork", SESSION)
    for call in played.started[:3]:
        assert " ".join(native) in " ".join(call["argv"])
    shortened = played.started[3]["argv"]
    assert results[3]["session_id"] in shortened
    assert SESSION not in shortened
    assert before.items() <= snapshot(path.parent).items()


@agents
def test_a_session_is_gone_on_with_where_it_worked(agent, played, order, request, repo):
    """F-111, F-112, R-063, R-066."""
    os.utime(request.getfixturevalue(f"{agent}_session"), (0, 0))
    below = repo / "src"
    below.mkdir()

    (result,) = run(played, order(project_path=str(below), resume_session_id=SESSION, skip_permissions=True))

    (call,) = played.started
    assert ("resume", SESSION, SESSION, str(repo)) == tuple(
        result[key] for key in ("kind", "session_id", "source_session_id", "cwd")
    )
    form = {
        "claude": ("--resume", SESSION, "--dangerously-skip-permissions", "-p", "--output-format", "json"),
        "codex": ("exec", "-C", str(repo), "resume", SESSION, "--dangerously-bypass-approvals-and-sandbox"),
    }
    assert (*form[agent], "--", "fix the race") == call["argv"][1:]
    with Registry() as registry:
        assert "bypassPermissions" == registry.get(SESSION).permission_mode


def test_a_session_of_another_project_is_only_forked(played, order, claude_session, home):
    os.utime(claude_session, (0, 0))
    with pytest.raises(ForkRefused, match="of another project"):
        run(played, order(project_path=str(home), resume_session_id=SESSION))

    (result,) = run(played, order(project_path=str(home), fork_from=SESSION))

    assert str(home) == result["cwd"]


def test_claude_forks_nothing_where_no_session_is_named(played, order):
    """F-111."""
    (result,) = run(played, order(fork_session=True))

    assert "new" == result["kind"]
    assert "fork_session is ignored without resume_session_id or continue_session" == result["warnings"][0]
    assert "--fork-session" not in played.started[0]["argv"]


def test_the_caller_does_not_go_on_in_its_own_session(played, order, claude_session, repo):
    os.utime(claude_session, (0, 0))
    with pytest.raises(ForkRefused, match="calling session itself"):
        run(played, order(resume_session_id=SESSION), caller_session_id=SESSION)
    with pytest.raises(NotFound, match="No claude session to continue"):
        run(played, order(continue_session=True), caller_session_id=SESSION)


def test_all_together_are_waited_for_hardly_longer_than_one_fork_is(played, order):
    """R-024: but one that dies at once is noticed, however long the one before took."""
    clock = FakeClock()

    results = [
        one.as_json()
        for one in spawn([order(), order(agent_type="codex"), order()], machine=Machine(played, clock=clock)).workers
    ]

    least = CONFIRM_SECONDS + 2 * MIN_CONFIRM_SECONDS
    assert least <= clock.slept < least + 1
    assert all(any("did not take the prompt within 20 seconds" in text for text in one["warnings"]) for one in results)
    assert [False] * 3 == [one["confirmed"] for one in results]


@agents
def test_without_a_prompt_a_line_to_type_in_is_enough(agent, programs, order, private_tmux, scripted):
    """R-024, R-041: Codex tells its id with the first prompt."""
    (result,) = (one.as_json() for one in spawn([order(agent_type=agent, prompt=None, run_in="tmux")]).workers)

    assert (True, []) == (result["confirmed"], result["warnings"])
    assert (result["session_id"] is None) == (agent == "codex")
    assert result["worker_id"] in private_tmux("list-windows", "-a", "-F", "#{window_name}")
    assert "--" not in scripted.call(result["worker_id"])[1]


def test_a_codex_session_is_recognised_by_its_prompt(played, order, repo, home):
    """R-025, R-046: not another's that began meanwhile in the same directory."""
    from tests.smart_fork.forks import codex_path, codex_records

    clock = FakeClock()
    other = "7a1c0000-0000-4000-8000-000000000001"

    def play(call: dict) -> None:
        moment = {"timestamp": "2999-01-01T00:00:00Z"}
        for identity, asked in ((other, "something else"), (NEW, "fix the race")):
            records = codex_records(identity, repo, [asked], **moment)
            write_log(codex_path(home, identity), [record | moment for record in records])

    played.on_start = play
    (result,) = (
        one.as_json() for one in spawn([order(agent_type="codex")], machine=Machine(played, clock=clock)).workers
    )

    assert (NEW, 0) == (result["session_id"], clock.slept)


def test_the_program_is_the_one_that_is_configured(played, order, home, monkeypatch):
    """F-121."""
    program = home / "my claude"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("SMART_FORK_CLAUDE", str(program))

    run(played, order())

    assert str(program) == played.started[0]["argv"][0]
    monkeypatch.setenv("SMART_FORK_CLAUDE", str(home / "gone"))
    with pytest.raises(ProgramMissing, match=r"Worker 0: .*gone was not found"):
        run(played, order())


@pytest.mark.parametrize(("starts", "said"), [(False, "boom"), (True, "claude ended before it took its prompt")])
def test_a_resumed_session_of_a_fork_that_failed_stays_that_of_its_worker(played, order, claude_session, starts, said):
    os.utime(claude_session, (0, 0))
    with Registry() as registry:
        before = registry.add("claude", source_session_id="", place="process", cwd=claude_session.parent)
        registry.set_session_id(before.id, SESSION)
        registry.set_state(before.id, "ended")

    def fail(call: dict) -> None:
        raise ProgramFailed("boom")

    played.living = False
    if not starts:
        played.on_start = fail
    (result,) = run(played, order(resume_session_id=SESSION))

    assert result["message"].startswith(said)
    with Registry() as registry:
        assert before.id == registry.get(SESSION).id


def test_a_folder_without_a_commit_has_no_worktree(played, order, home):
    """F-120."""
    empty = home / "empty"
    empty.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=empty, check=True)
    said = order(project_path=str(empty))
    del said["worktree"]

    (result,) = run(played, said)

    assert str(empty) == result["cwd"]
    assert not folder_of(empty / ".worktrees/fork").exists()
