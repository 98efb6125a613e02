"""``new``, ``resume``, ``continue`` and ``spawn`` in this process, with made-up programs as agents."""

from __future__ import annotations

import io
import json
import os

import pytest

from smart_fork.errors import ForkRefused
from smart_fork.workers.registry import Registry
from tests.smart_fork.forking.test_lost_matches import worked
from tests.smart_fork.forks import NEW
from tests.support.cases import thorough_except_first

agents = pytest.mark.parametrize("agent", thorough_except_first(["claude", "codex"]))
HEADLESS = ("--in", "process")


def becomes(*_: object, **__: object) -> None:
    raise ForkRefused("It becomes the agent")


def past(world, agent: str, *where_and_what) -> str:
    return getattr(world, agent)(*where_and_what)


@agents
@pytest.mark.parametrize("option", thorough_except_first(["--agent", "--adapter"]))
def test_new_starts_an_agent(run, scripted, shop, agent, option):
    """R-001, R-060."""
    done = run("new", "fix the race", option, agent, *HEADLESS, "--json")

    worker = json.loads(done.out)
    assert (0, agent, "new", str(shop), False) == (
        done.code, worker["agent_type"], worker["kind"], worker["cwd"], worker["already_running"],
    )  # fmt: skip
    assert worker["name"] == worker["worker_id"]
    name, words, cwd, _ = scripted.call(worker["worker_id"])
    assert (agent, "fix the race", str(shop)) == (name, words[-1], cwd)


def test_new_is_claude_in_a_window_named_after_it(run, scripted, private_tmux):
    """R-060."""
    done = run("new")

    assert 0 == done.code
    worker = done.out.split()[1].rstrip(",")
    assert worker.startswith("claude-")
    assert "watch it: tmux -L " in done.out
    assert worker in private_tmux("list-windows", "-a", "-F", "#{window_name}").split()


def test_new_in_a_worktree_says_so(run, scripted, shop):
    done = run("new", "fix the race", *HEADLESS, "--worktree-name", "race")

    assert f"directory {shop / '.worktrees/race'}" in done.out
    assert "on branch smart-fork/race" in done.out
    assert "its output: " in done.out


@pytest.mark.parametrize("command", [("new", "x y"), ("resume", NEW), ("continue",), ("spawn", "--prompt", "x y")])
def test_an_unknown_agent_is_an_error(run, world, command):
    """R-060."""
    done = run(*command, "--adapter", "nobody")

    assert 1 == done.code
    assert "Unknown adapter: nobody" in done.err
    assert 2 == run(*command, "--adapter").code


def test_without_tmux_it_is_said_what_to_do(run, programs, scripted, monkeypatch):
    """R-071."""
    monkeypatch.setenv("PATH", str(programs))

    done = run("new", "fix the race", "--in", "tmux")

    assert (1, "") == (done.code, done.out)
    assert "tmux is not installed" in done.err
    assert "as a process" in done.err
    assert 0 == run("new", "fix the race").code


@agents
def test_resume_goes_on_where_the_session_worked(run, world, scripted, shop, agent, tmp_path, monkeypatch):  # noqa: PLR0917
    """R-061, R-063, R-066."""
    session = past(world, agent, shop, "add retry", "done")
    os.utime(world.log_of(session), (0, 0))
    monkeypatch.chdir(tmp_path)

    worker = json.loads(run("resume", session[:12], "go on with it", *HEADLESS, "--json").out)

    assert ("resume", session, str(shop)) == (worker["kind"], worker["session_id"], worker["cwd"])
    _, words, cwd, _ = scripted.call(worker["worker_id"])
    assert str(shop) == cwd
    assert session == words[words.index("--resume" if agent == "claude" else "resume") + 1]


@pytest.mark.parametrize("command", ["resume", "continue"])
@pytest.mark.parametrize(
    ("why", "said"),
    [
        ("gap", "Its agent loads 4 of 8 messages: a record was never written"),
        ("compaction", "Its agent loads 5 of 9 messages: the session was compacted"),
    ],
)
def test_what_a_resumed_session_does_not_load_is_said(  # noqa: PLR0917
    run, world, scripted, shop, why, said, command, monkeypatch
):
    session = worked(world, shop, why)
    os.utime(world.log_of(session), (0, 0))
    monkeypatch.chdir(shop)
    words = ("resume", session) if command == "resume" else ("continue", "--agent", "claude")

    with monkeypatch.context() as patch:
        patch.setattr("smart_fork.cli.start_agents.start", becomes)
        before = run(*words, "go on with it", "--in", "here").err
    worker = json.loads(run(*words, "go on with it", *HEADLESS, "--json").out)

    assert [f"note: {said}", "error: It becomes the agent"] == before.splitlines()
    assert [said] == worker["warnings"]


@agents
def test_a_session_that_is_running_is_not_started_twice(run, world, scripted, shop, agent):
    """R-065."""
    session = past(world, agent, shop, "add retry", "done")
    os.utime(world.log_of(session), (0, 0))
    first = json.loads(run("resume", session, "go on with it", *HEADLESS, "--json").out)
    scripted.call(first["worker_id"])

    for command in (("resume", session), ("resume", first["worker_id"])):
        again = json.loads(run(*command, *HEADLESS, "--json").out)
        assert (first["worker_id"], True) == (again["worker_id"], again["already_running"])
    shown = run("resume", session)
    assert (0, f"{first['attach']}\n") == (shown.code, shown.out)
    assert f"is running already, as worker {first['worker_id']}" in shown.err
    for command in (("resume", session), ("resume", first["worker_id"]), ("continue", "--agent", agent)):
        refused = run(*command, "and on", *HEADLESS)
        assert (1, "") == (refused.code, refused.out)
        assert "The prompt was not sent" in refused.err
        assert "takes no message before it ends" in refused.err
    assert 1 == len(scripted.ran())


def test_a_prompt_for_a_session_that_is_running_is_said_to_its_worker(run, world, scripted, shop, private_tmux):
    session = world.claude(shop, "add retry", "done")
    os.utime(world.log_of(session), (0, 0))
    first = json.loads(run("resume", session, "--in", "tmux", "--json").out)

    told = json.loads(run("resume", session, "and the docs", "--in", "tmux", "--json").out)

    assert (first["worker_id"], True, "typed") == (told["worker_id"], told["already_running"], told["how"])
    assert "and the docs" in private_tmux("capture-pane", "-p", "-t", first["terminal_id"])


@agents
@pytest.mark.slow
def test_each_worker_that_went_on_in_a_session_leads_to_it(run, world, scripted, shop, agent):
    """Ids of earlier workers work, too. A message to one of them reaches the worker that is in the session now."""
    session = past(world, agent, shop, "add retry", "done")
    ids = []
    for _ in range(3):
        os.utime(world.log_of(session), (0, 0))
        worker = json.loads(run("resume", session, "go on with it", *HEADLESS, "--json").out)
        ids.append(worker["worker_id"])
        scripted.call(ids[-1])
        if len(ids) < 3:
            scripted.end()

    for worker_id in ids:
        assert f" {session} " in run("show", worker_id).out
        again = json.loads(run("resume", worker_id, *HEADLESS, "--json").out)
        assert (ids[-1], session, True) == (again["worker_id"], again["session_id"], again["already_running"])
        refused = run("message", worker_id, "more")
        assert f"{ids[-1]} has no terminal" in refused.err
    listed = json.loads(run("active", "--include-closed", "--json").out)["workers"]
    assert {session} == {one["session_id"] for one in listed}


@agents
def test_a_session_stays_that_of_its_worker_where_the_next_one_dies_at_once(run, world, scripted, shop, agent):
    session = past(world, agent, shop, "add retry", "done")
    os.utime(world.log_of(session), (0, 0))
    first = json.loads(run("resume", session, "go on with it", *HEADLESS, "--json").out)
    scripted.call(first["worker_id"])
    scripted.end()
    os.utime(world.log_of(session), (0, 0))
    (world.home / "bin" / agent).write_text("#!/bin/sh\necho 'usage: nothing of that'\nexit 2\n")

    failed = run("resume", session, "and on", *HEADLESS, "--json")

    assert 1 == failed.code
    assert "(exit status 2): usage: nothing of that" in json.loads(failed.out)["error"]
    with Registry() as registry:
        assert first["worker_id"] == registry.of_session(session).id


def test_a_person_at_a_terminal_is_taken_to_the_running_session(run, world, scripted, shop, private_tmux, monkeypatch):  # noqa: PLR0917
    """R-065."""
    session = world.claude(shop, "add retry", "done")
    os.utime(world.log_of(session), (0, 0))
    first = json.loads(run("resume", session, "--in", "tmux", "--json").out)
    became: list[list[str]] = []
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setattr(
        "smart_fork.system.processes.Processes.replace", lambda _self, argv, **_how: became.append(list(argv))
    )

    run("resume", session)
    monkeypatch.setenv("TMUX", "inside")
    run("resume", session)

    assert ["tmux -L", "attach"] == [" ".join(became[0][:2]), became[0][3]]
    assert 1 == len(became)
    assert first["attach"].startswith("tmux")


def test_a_session_that_seems_open_elsewhere_needs_force(run, world, scripted, shop):
    session = world.claude(shop, "add retry", "done")
    os.utime(world.log_of(session))

    refused = run("resume", session, "go on with it", *HEADLESS)
    forced = run("resume", session, "go on with it", *HEADLESS, "--force")

    assert (1, 0) == (refused.code, forced.code)
    assert "seems to be open elsewhere" in refused.err
    assert "--force" in refused.err


def test_resume_of_nothing_is_not_found(run, world):
    """R-061."""
    done = run("resume", NEW)

    assert 3 == done.code
    assert NEW in done.err


def test_resume_with_an_agent_passes_the_id_on(run, scripted, shop):
    """R-062."""
    worker = json.loads(run("resume", NEW, "go on with it", "--adapter", "codex", *HEADLESS, "--json").out)

    assert ["exec", "-C", str(shop), "resume", NEW, "--", "go on with it"] == scripted.call(worker["worker_id"])[1]


@pytest.mark.usefixtures("no_waiting")
@pytest.mark.parametrize("name", [NEW[:8], "retry-the-uploader"])
def test_resume_with_an_agent_passes_a_name_on_as_it_is(run, scripted, shop, name):
    worker = json.loads(run("resume", name, "go on with it", "--adapter", "codex", *HEADLESS, "--json").out)

    assert ["exec", "-C", str(shop), "resume", name, "--", "go on with it"] == scripted.call(worker["worker_id"])[1]
    assert worker["session_id"] != name


@pytest.mark.parametrize("name", ["--yolo", "two\nlines"])
def test_resume_passes_no_option_on_as_a_name(run, scripted, name):
    done = run("resume", "--adapter", "codex", *HEADLESS, "--", name, "go on with it")

    assert 2 == done.code
    assert "Invalid source sessionId" in done.err


@agents
def test_continue_takes_the_newest_of_the_directory(run, world, scripted, shop, agent):
    """R-064."""
    past(world, agent, shop, "one", "done")
    newest = past(world, agent, shop, "two", "done")
    past(world, agent, world.repository("other"), "three", "done")
    for log in world.home.glob(".c*/**/*.jsonl"):
        os.utime(log, (log.stat().st_mtime - 1e9,) * 2)

    worker = json.loads(run("continue", "go on with it", "--agent", agent, *HEADLESS, "--json").out)

    assert ("continue", newest) == (worker["kind"], worker["session_id"])
    assert newest in scripted.call(worker["worker_id"])[1]
    with Registry() as registry:
        assert "continue" == registry.get(newest).kind


def test_continue_of_nothing_is_not_found(run, world):
    assert 3 == run("continue").code


def test_spawn_of_one_worker_by_options(run, scripted, shop):
    done = run("spawn", "--prompt", "fix the race", "--agent", "codex", "--no-worktree", *HEADLESS, "--json")

    answer = json.loads(done.out)
    assert (0, 1, 0) == (done.code, answer["started"], answer["failed"])
    assert str(shop) == answer["workers"][0]["cwd"]
    assert "fix the race" == scripted.call(answer["workers"][0]["worker_id"])[1][-1]


@pytest.mark.parametrize("wrapped", [False, pytest.param(True, marks=pytest.mark.thorough)])
@pytest.mark.slow
def test_spawn_of_several_from_a_file_or_from_stdin(run, scripted, shop, tmp_path, wrapped, monkeypatch):  # noqa: PLR0917
    workers = [
        {"project_path": str(shop), "prompt": "one of two", "run_in": "process", "name": "one"},
        {"project_path": str(shop), "prompt": "two of two", "run_in": "process", "agent_type": "codex"},
    ]
    text = json.dumps({"workers": workers} if wrapped else workers)
    (tmp_path / "workers.json").write_text(text)

    done = run("spawn", str(tmp_path / "workers.json"))
    monkeypatch.setattr("sys.stdin", io.StringIO(text.replace('"one"', '"more"')))
    again = run("spawn", "-", "--json")

    assert 0 == done.code
    assert f"directory {shop / '.worktrees/one'}" in done.out
    assert 2 == done.out.count("Started ")
    assert 2 == json.loads(again.out)["started"]


def test_spawn_ends_with_an_error_where_one_fails(run, scripted, shop, monkeypatch, tmp_path):
    monkeypatch.setenv("SMART_FORK_MAX_WORKERS", "1")
    one = {"project_path": str(shop), "prompt": "fix the race", "run_in": "process"}
    (tmp_path / "workers.json").write_text(json.dumps([one, one]))

    done = run("spawn", str(tmp_path / "workers.json"))

    assert 1 == done.code
    assert 1 == done.out.count("Started ")
    assert "error: worker 1: 1 workers are running" in done.err


@pytest.mark.parametrize(
    ("words", "text", "code"),
    [
        (["no such file"], "No such file", 3),
        (["-"], "The workers cannot be read", 2),
        (["-", "--prompt", "x"], "cannot have options too", 2),
        ([], "At least one worker is required", 2),
        (["--prompt", "x y", "--resume", NEW, "--continue"], "mutually exclusive", 2),
    ],
)
def test_spawn_says_what_is_wrong(run, world, words, text, code, monkeypatch):  # noqa: PLR0917
    monkeypatch.setattr("sys.stdin", io.StringIO("{broken"))

    done = run("spawn", *words, "--json")

    assert code == done.code
    assert text in json.loads(done.out)["error"]
    monkeypatch.setattr("sys.stdin", io.StringIO('{"a": 1}'))
    assert "not a JSON list" in run("spawn", "-").err
    monkeypatch.setattr("sys.stdin", io.StringIO('[{"prompt": "first", "prompt": "second", "project_path": "."}]'))
    assert "prompt is there twice" in run("spawn", "-").err
