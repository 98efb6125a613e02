"""Tests of resuming: which session is resumed, and that no other process has it open."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from smart_fork.agents import AGENTS
from smart_fork.agents.claude.log_files import folder_of
from smart_fork.agents.request_fields import Options
from smart_fork.agents.storage import Storage
from smart_fork.errors import ForkRefused, NotFound, SmartForkError, Usage
from smart_fork.forking.resume import check_free, newest_session, session_to_resume
from smart_fork.forking.session_use import FRESH_SECONDS, AlreadyRuns
from smart_fork.forking.start import start
from smart_fork.forking.worker_spec import WorkerSpec
from smart_fork.system.processes import Machine
from smart_fork.workers.registry import Registry
from tests.smart_fork.forks import NEW, SESSION, FakeClock, FakeProcesses, said, write_log
from tests.support.cases import thorough_except_first

agents = pytest.mark.parametrize("agent", thorough_except_first(["claude", "codex"]))


@pytest.fixture
def old(request, agent):
    """Return a session with an old log."""
    path = request.getfixturevalue(f"{agent}_session")
    os.utime(path, (0, 0))
    return path


@pytest.fixture
def running(home, marked):
    """Register a worker with a running process that has its mark."""

    def start_one(session_id: str | None, **more) -> str:
        with Registry() as registry:
            more = {"source_session_id": ""} | more
            worker = registry.add("codex", place="process", cwd=home, **more)
            if session_id:
                registry.set_session_id(worker.id, session_id)
            return registry.set_started(worker.id, command=["x"], pid=marked(worker.id), attach="see it").id

    return start_one


@agents
def test_a_session_is_found_by_its_id_and_goes_on_where_it_worked(agent, old, repo):
    """R-061, R-066."""
    for reference in (SESSION, SESSION[:8], SESSION.upper()):
        source = session_to_resume(reference)
        assert (agent, SESSION, old, str(repo)) == (
            source.agent, source.session_id, source.source_path, source.cwd,
        )  # fmt: skip


@agents
def test_a_session_is_found_by_the_id_of_the_worker_that_had_it(agent, old, home):
    """R-005, R-061."""
    with Registry() as registry:
        worker = registry.add(agent, source_session_id="", place="process", cwd=home)
        registry.set_session_id(worker.id, SESSION)
        registry.set_state(worker.id, "ended")

    assert SESSION == session_to_resume(worker.id).session_id


@agents
def test_a_session_that_a_worker_is_in_is_where_to_go(agent, old, home, running):
    """R-065."""
    worker = running(SESSION)

    for reference in (SESSION, SESSION[:8], worker):
        with pytest.raises(AlreadyRuns) as caught:
            session_to_resume(reference, force=True)
        assert worker == caught.value.worker.id
        assert "see it" in caught.value.hint


@pytest.mark.parametrize("kind", ["fork", "resume", "continue"])
def test_the_newest_session_is_free_until_a_worker_is_in_it(codex_session, repo, running, kind):
    """R-065: also one that was only told to go on in it, and whatever `force` says of others."""
    os.utime(codex_session, (0, 0))
    newest = newest_session(repo, "codex")
    check_free(newest)

    own, told = (SESSION, "") if kind == "fork" else (None, SESSION)
    worker = running(own, kind=kind, source_session_id=told)

    for force in (False, True):
        with pytest.raises(AlreadyRuns) as caught:
            check_free(newest, force=force)
        assert worker == caught.value.worker.id
    check_free(replace(newest, session_id=NEW))


def test_a_worker_whose_session_is_not_known_yet_is_where_to_go(home, running):
    """R-041, R-065."""
    worker = running(None)

    with pytest.raises(AlreadyRuns):
        session_to_resume(worker)


def test_a_session_that_does_not_exist_is_said_to_be_missing(home):
    """R-061."""
    for reference in (NEW, "claude-1", "0123456789", "../../etc/passwd", "--continue"):
        with pytest.raises(NotFound, match=f" {reference}$"):
            session_to_resume(reference)


def test_a_named_agent_is_given_the_id_as_it_is(home, repo):
    """R-062, F-104."""
    source = session_to_resume(NEW, agent="codex", cwd=repo)

    assert ("codex", NEW, (), str(repo)) == (source.agent, source.session_id, source.turns, source.cwd)
    for wrong in ("--last", "../x", "a b"):
        with pytest.raises(Usage, match="Invalid"):
            session_to_resume(wrong, agent="codex", cwd=repo)


def test_an_unknown_agent_is_said_to_be_unknown():
    """R-060."""
    assert "codex" == AGENTS.to_start("codex")
    with pytest.raises(SmartForkError, match=r"^Unknown adapter: nobody x$") as caught:
        AGENTS.to_start("nobody\x1b[31m\nx")
    assert 1 == caught.value.exit_code


@agents
def test_a_session_that_is_being_written_to_is_left_alone(agent, old):
    clock = FakeClock()
    world = Machine(FakeProcesses(), clock=clock)
    os.utime(old, (clock.now() - FRESH_SECONDS + 1,) * 2)

    with pytest.raises(ForkRefused, match="seems to be open elsewhere: its log changed just now") as caught:
        session_to_resume(SESSION, machine=world)
    assert "--force" in caught.value.hint
    assert session_to_resume(SESSION, force=True, machine=world)
    clock.time += 2
    assert session_to_resume(SESSION, machine=world)


def test_what_our_own_worker_wrote_last_is_no_sign_of_somebody_else(claude_session, home):
    with Registry() as registry:
        worker = registry.add("claude", source_session_id="", place="process", cwd=home)
        registry.set_session_id(worker.id, SESSION)
        registry.set_state(worker.id, "ended")

    assert session_to_resume(SESSION)


@agents
def test_the_newest_of_a_directory_is_that_of_exactly_this_directory(agent, world, shop):
    """R-064, F-112: not of the project, nor of anybody's."""
    say = getattr(world, agent)
    other = world.repository("other")
    below = shop / "src"
    below.mkdir()
    first, second = say(shop, "one", "done"), say(shop, "two", "done")
    say(below, "three", "done")
    say(other, "four", "done")

    assert second == newest_session(shop, agent).session_id
    assert first == newest_session(shop, agent, apart_from=second).session_id
    with pytest.raises(NotFound, match="to continue in"):
        newest_session(shop.parent, agent)
    with pytest.raises(NotFound):
        newest_session(shop, "claude" if agent == "codex" else "codex")


@agents
def test_the_newest_is_the_one_that_was_worked_on_last_whatever_has_touched_the_others(agent, world, shop):
    say = getattr(world, agent)
    old, new = say(shop, "one", "done"), say(shop, "two", "done")
    os.utime(world.log_of(old), (4e9, 4e9))

    assert new == newest_session(shop, agent).session_id
    assert old == newest_session(shop, agent, apart_from=new).session_id


def test_sessions_of_scripts_go_on_without_a_terminal_only(world, shop):
    person = world.claude(shop, "one", "done")
    script = world.claude(shop, "two", "done", entrypoint="sdk-cli", promptSource="sdk", origin={"kind": "sdk"})

    assert person == newest_session(shop, "claude").session_id
    assert script == newest_session(shop, "claude", automated=True).session_id


def test_a_copy_for_a_fork_is_not_what_is_gone_on_with(claude_session, repo, home):
    """F-103, R-066: although it is newer."""
    os.utime(claude_session, (0, 0))
    elsewhere = home / "elsewhere"
    elsewhere.mkdir()
    Storage.stage(claude_session, SESSION, folder_of(elsewhere))
    assert (folder_of(elsewhere) / claude_session.name).stat().st_mtime > 0

    assert claude_session == newest_session(repo, "claude").source_path
    assert claude_session == session_to_resume(SESSION, force=True).source_path


def test_a_session_whose_directory_is_gone_can_only_be_forked(home, programs):
    """R-066."""
    gone = home / "gone"
    write_log(folder_of(gone) / f"{SESSION}.jsonl", [said("u1", None, "user", "hello", cwd=str(gone))])
    source = session_to_resume(SESSION, force=True)

    with pytest.raises(NotFound, match="No such directory"):
        start(
            WorkerSpec("resume", "claude", source, Options(prompt="go on", place="process")),
            Machine(FakeProcesses()),
        )


def test_a_log_in_another_folder_gets_a_second_name_where_claude_looks(home, programs, claude_session, repo, clock):
    """R-066: it looks in the folder of its directory only; both names are one file, so nothing parts."""
    os.utime(claude_session, (0, 0))
    folder_of(home).mkdir()
    log = claude_session.rename(folder_of(home) / claude_session.name)
    source = session_to_resume(SESSION)

    started = start(
        WorkerSpec("resume", "claude", source, Options(prompt="go on", place="process")),
        Machine(FakeProcesses(), os.environ, clock),
    )

    assert claude_session.samefile(log)
    assert f"Its log is also {claude_session} now: two names of one file" == started.warnings[0]
