"""Tests of sessions with a deleted directory: they continue in their repository."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from smart_fork.agents import AGENTS
from smart_fork.agents.claude.log_files import folder_of
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.request_fields import Options
from smart_fork.display_text import quoted
from smart_fork.errors import ForkRefused, NotFound
from smart_fork.finding import project_places
from smart_fork.finding.results import fork_command
from smart_fork.finding.session_place import WorkDirectory
from smart_fork.forking.branch import command_to_resume
from smart_fork.forking.plan import fork_session
from smart_fork.forking.request import ForkRequest
from smart_fork.forking.resume import session_to_resume
from smart_fork.forking.spawn import spawn
from smart_fork.forking.start import prepare, start
from smart_fork.forking.worker_preconditions import place_of_work
from smart_fork.forking.worker_spec import WorkerSpec
from smart_fork.system.processes import Machine
from tests.smart_fork.forks import FakeProcesses
from tests.smart_fork.test_recorded_directories import WRITTEN
from tests.smart_fork.world import git

pytestmark = pytest.mark.usefixtures("no_waiting")
STARTED = [agent for agent in WRITTEN if AGENTS[agent].has("starter")]


@pytest.fixture
def gone(shop) -> Path:
    """Return a removed worktree of the shop."""
    path = shop / ".worktrees/zebra"
    git(shop, "worktree", "add", "-q", str(path))
    git(shop, "worktree", "remove", str(path))
    return path


def session_in(world, directory: Path) -> str:
    session = world.claude(directory, "add retry", "done")
    os.utime(world.log_of(session), (1, 1))
    return session


def resume(session: str, cwd: Path | None = None) -> tuple[str, ...]:
    """Resume a session. Return the warnings."""
    spec = WorkerSpec("resume", "claude", session_to_resume(session), Options("go on", place="process"), cwd=cwd)
    return start(spec, Machine(FakeProcesses())).warnings


@pytest.mark.parametrize("agent", STARTED)
def test_a_session_of_each_agent_goes_on_at_the_top_of_the_repository_that_lost_its_worktree(home, shop, gone, agent):
    WRITTEN[agent](home, str(gone))
    (log,) = (file.path for file in READERS[agent].discover())
    session = READERS[agent].read(log).session
    assert str(gone) == session.cwd

    assert shop == place_of_work(session.cwd)
    assert ["smart-fork", "fork", session.session_id] == fork_command(agent, session.session_id, session.cwd).split()
    assert ["smart-fork", "resume", session.session_id] == command_to_resume(
        agent, session.session_id, session.cwd
    ).split()


@pytest.mark.parametrize("agent", STARTED)
def test_what_an_agent_does_not_find_from_there_is_refused_with_a_fork_as_the_next_step(
    home, shop, gone, agent, monkeypatch
):
    """Qwen Code needs the directory in its records, OpenCode in its database. Copilot CLI takes the directory of its
    start.
    """
    WRITTEN[agent](home, str(gone))
    (log,) = (file.path for file in READERS[agent].discover())
    os.utime(log if log.exists() else log.parent, (1, 1))
    session = READERS[agent].read(log).session
    monkeypatch.setattr("smart_fork.forking.start.Program.find", lambda *_: "/bin/true")
    world = Machine(FakeProcesses())
    source = session_to_resume(session.session_id, machine=world, force=True)
    spec = WorkerSpec("resume", agent, source, Options("go on", place="process"))

    if agent not in ("qwen", "opencode"):
        assert shop == prepare(spec, world, dry_run=True).request.target_cwd
    else:
        with pytest.raises(ForkRefused, match="cannot find this session") as refused:
            prepare(spec, world, dry_run=True)
        assert f"smart-fork fork {session.session_id}" in refused.value.hint


def test_copilot_stays_in_its_own_directory_as_long_as_that_is_there(home, shop, gone):
    storage = AGENTS["copilot"].storage

    assert storage.finds(home / "events.jsonl", str(gone), shop)
    assert not storage.finds(home / "events.jsonl", str(home), shop)
    assert storage.finds(home / "events.jsonl", str(shop), shop)


@pytest.mark.parametrize("options", [Options("go on"), Options("go on", worktree=True)])
def test_a_fork_says_where_it_goes_on(world, shop, gone, options):
    session = session_in(world, gone)

    forked = fork_session(ForkRequest(session, options, dry_run=True))

    assert f"Its directory is gone: {quoted(str(gone))}. It continues in {shop}" in forked.warnings
    assert Path(forked.cwd).is_relative_to(shop)
    assert (forked.cwd == str(shop)) is (options.worktree is None)


def test_a_resumed_session_has_one_log_under_both_names(world, shop, gone, programs):
    session = session_in(world, gone)
    log = world.log_of(session)

    said = resume(session)

    target = folder_of(shop) / log.name
    assert target.samefile(log)
    assert f"Its log is also {target} now: two names of one file" in said
    log.write_text(log.read_text() + log.read_text().replace('"uuid"', '"u"'))
    os.utime(log, (1, 1))
    assert target.read_bytes() == log.read_bytes()


def test_a_copy_that_was_made_for_a_fork_becomes_the_second_name(world, shop, gone, programs):
    session = session_in(world, gone)
    log, target = world.log_of(session), folder_of(shop) / f"{session}.jsonl"
    fork = WorkerSpec("fork", "claude", session_to_resume(session), Options("x", place="process"))
    start(fork, Machine(FakeProcesses({"claude": (0, "--fork-session --session-id")})))
    assert target.is_file()
    assert not target.samefile(log)
    log.write_text(log.read_text() + "{}\n")
    os.utime(log, (1, 1))

    resume(session)

    assert target.samefile(log)


def test_another_version_of_the_session_is_not_touched(world, shop, gone, programs):
    session = session_in(world, gone)
    target = folder_of(shop) / f"{session}.jsonl"
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(world.log_of(session), target)
    target.write_text(target.read_text() + "{}\n")
    os.utime(target, (1, 1))
    before = target.read_bytes()

    with pytest.raises(ForkRefused, match="Another version of this session is already there"):
        resume(session)
    assert before == target.read_bytes()


def test_a_session_is_resumed_in_the_directory_that_is_given(world, shop, programs):
    session, other = session_in(world, shop), world.repository("other")

    resume(session, cwd=other)

    assert (folder_of(other) / f"{session}.jsonl").samefile(world.log_of(session))


def test_a_worker_that_goes_on_in_a_session_without_its_directory_works_where_it_is_told(world, shop, gone, programs):
    session = session_in(world, gone)

    (worker,) = spawn(
        [{"project_path": str(shop), "resume_session_id": session, "prompt": "go on", "run_in": "process"}],
        machine=Machine(FakeProcesses()),
    ).workers

    assert str(shop) == worker.cwd


def test_a_directory_without_a_repository_is_asked_for(world, home, programs):
    session = session_in(world, home / "plain/gone")

    with pytest.raises(NotFound, match="No such directory") as refused:
        resume(session)
    assert "--cwd DIR" in refused.value.hint
    with pytest.raises(ForkRefused, match=r"its directory no longer exists: .*gone.*; give one: .*--cwd DIR"):
        fork_session(ForkRequest(session, Options("go on"), dry_run=True))
    (home / "plain").mkdir()
    resume(session, cwd=home / "plain")


def outside(shop: Path) -> Path:
    """Return a worktree beside the shop, with a folder."""
    path = shop.parent / "tree"
    git(shop, "worktree", "add", "-q", str(path))
    (path / "src").mkdir()
    return path


def test_a_worktree_beside_the_repository_that_was_deleted_by_hand_is_still_listed(shop, monkeypatch):
    tree = outside(shop)
    shutil.rmtree(tree)
    assert str(tree) == WorkDirectory(str(tree)).now

    monkeypatch.chdir(shop)
    assert str(shop) == WorkDirectory(str(tree / "src")).now


def test_a_worktree_that_git_removed_is_known_by_what_was_noted(shop, home, monkeypatch):
    tree = outside(shop)
    project_places.note([str(tree), str(shop)])
    (tree / "src").rmdir()
    git(shop, "worktree", "remove", str(tree))
    (shop / "src").mkdir()
    monkeypatch.chdir(home)

    assert str(shop) == WorkDirectory(str(tree)).now
    assert str(shop / "src") == WorkDirectory(str(tree / "src")).now


@pytest.mark.parametrize("how", ["git", "by hand"])
def test_a_worktree_that_was_moved_is_where_it_is_now(shop, how):
    tree, moved = outside(shop), shop.parent / "moved"
    project_places.note([str(tree), str(shop)])
    if how == "git":
        git(shop, "worktree", "move", str(tree), str(moved))
    else:
        tree.rename(moved)
        git(moved, "worktree", "repair")

    assert str(moved / "src") == WorkDirectory(str(tree / "src")).now


def test_in_a_bare_layout_it_goes_on_in_a_worktree_that_is_there(shop, home):
    project = home / "project"
    project.mkdir()
    git(home, "clone", "-q", "--bare", str(shop), str(project / ".bare"))
    (project / ".git").write_text("gitdir: ./.bare\n")
    git(project, "worktree", "add", "-q", str(project / "main"), "main")
    git(project, "worktree", "add", "-q", "-b", "feature", str(project / "feature"))
    git(project, "worktree", "remove", str(project / "feature"))

    assert str(project / "main") == WorkDirectory(str(project / "feature")).now


def test_a_removed_folder_of_a_repository_is_its_top_and_a_directory_that_is_there_is_itself(shop, home):
    assert str(shop) == WorkDirectory(str(shop / "src/old")).now
    assert (str(shop), str(home)) == (WorkDirectory(str(shop)).now, WorkDirectory(str(home)).now)
    assert ["", "C:\\x", "src"] == [WorkDirectory(one).now for one in ("", "C:\\x", "src")]
