"""Tests of programs planted in a repository: real git, and a file that each planted program would write."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from indexer.session_work import Edits
from smart_fork.errors import SmartForkError
from smart_fork.finding.fork_suitability import drifts
from smart_fork.finding.git import Repository
from smart_fork.system.processes import Processes
from smart_fork.workers.comparison import compare
from smart_fork.workers.registry import Registry
from smart_fork.workers.uncommitted import difference
from smart_fork.workers.worktree import Worktree
from smart_fork.workers.worktree_cleanup import prune, worktrees
from tests.attacks.forged_repositories import forge
from tests.attacks.planted_programs import ATTRIBUTES, plant, program, settings
from tests.support.cases import thorough_except, thorough_except_first
from tests.support.exhaustive import full_or_sample

pytestmark = pytest.mark.slow

PROCESSES = Processes()
LONG_AGO = "1970-01-01T00:00:00Z"


def git(folder: Path, *words: object) -> str:
    command = ["git", "-c", "protocol.file.allow=always", *map(str, words)]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def canary(home) -> Path:
    return program(home)


@pytest.fixture
def quiet(home):
    """Check that no planted program has run."""
    yield
    assert not (home / "CANARY").exists(), (home / "CANARY").read_text()


def everything(made: Worktree) -> None:
    """Do everything that smart-fork does with a worktree, whether it works or is refused."""
    with Registry() as registry:
        worker = registry.add(
            "claude",
            source_session_id="",
            place="process",
            cwd=made.path,
            worktree=made.path,
            branch=made.branch,
            base_commit=made.base,
        )
        registry.set_state(worker.id, "ended")
    doings: list[Callable[[], object]] = [
        lambda: difference(made.path, made.base, PROCESSES, patch=True),
        lambda: drifts(
            Repository.open_to_look_back(made.path, PROCESSES), {0: Edits((str(made.path / "README.md"),), LONG_AGO)}
        ),
        lambda: made.what_would_be_lost(PROCESSES),
        lambda: compare([worker.id], PROCESSES, patch=True),
        lambda: worktrees(PROCESSES, None),
        lambda: Worktree.create(made.path, "inner", PROCESSES, with_changes=True),
        lambda: Worktree.create(made.repository, "beside", PROCESSES, with_changes=True),
        lambda: prune(PROCESSES, None),
        lambda: made.remove_if_saved(PROCESSES),
        lambda: made.remove(PROCESSES),
    ]
    for do in doings:
        try:
            do()
        except SmartForkError:
            continue


def change(folder: Path) -> None:
    """Make a change of each kind, also one that only the content shows."""
    (folder / "README.md").write_text("# SHOP\n")
    os.utime(folder / "README.md", (0, 0))
    (folder / "new.txt").write_text("new\n")
    (folder / ".gitattributes").write_text(ATTRIBUTES)


@pytest.fixture
def made(repo) -> Worktree:
    return Worktree.create(repo, "x", PROCESSES)


def test_the_planted_programs_would_run(repo, canary, home):
    """Without this, the other tests would prove nothing."""
    plant(repo / ".git", canary)
    change(repo)
    subprocess.run(["git", "add", "--all"], cwd=repo, check=False, capture_output=True)

    assert "bad-program" in (home / "CANARY").read_text()


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("when", thorough_except_first(["after", "before"]))
def test_nothing_that_the_repository_configures_runs(repo, canary, when):
    if when == "before":
        plant(repo / ".git", canary)
        change(repo)
    made = Worktree.create(repo, "x", PROCESSES, with_changes=True)
    if when == "after":
        plant(repo / ".git", canary)
    change(made.path)

    files, patch = difference(made.path, made.base, PROCESSES, patch=True)
    assert {"README.md"} <= {file.path for file in files} or when == "before"
    assert b"+# SHOP" in patch or when == "before"
    everything(made)


@pytest.mark.thorough
@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("condition", ["onbranch:smart-fork/**", "gitdir:**/worktrees/**", "gitdir:**"])
def test_what_is_configured_only_for_a_workers_worktree_does_not_run_either(repo, canary, home, condition):
    (home / "more").write_text(settings(canary))
    (repo / ".gitattributes").write_text(ATTRIBUTES)
    git(repo, "add", ".")
    git(repo, "commit", "-qm", "Attributes")
    git(repo, "config", f"includeIf.{condition}.path", home / "more")

    made = Worktree.create(repo, "x", PROCESSES, with_changes=True)
    assert "# shop\n" == (made.path / "README.md").read_text()
    change(made.path)
    everything(made)


@pytest.mark.thorough
@pytest.mark.usefixtures("quiet")
def test_what_a_worktree_configures_for_itself_does_not_run(repo, made, canary):
    git(repo, "config", "extensions.worktreeConfig", "true")
    (repo / ".git/worktrees/x/config.worktree").write_text(settings(canary))
    change(made.path)

    assert difference(made.path, made.base, PROCESSES)[0]
    everything(made)


def forged_repository(folder: Path, canary: Path) -> Path:
    git(folder.parent, "init", "-q", folder)
    plant(folder / ".git", canary)
    (folder / "README.md").write_text("# other\n")
    return folder / ".git"


FORGERIES: dict[str, Callable[[Path, Path, Path], object]] = {
    "a repository of its own": lambda tree, own, _: (
        (tree / ".git").unlink(),
        own.rename(tree / ".git"),
    ),
    "a pointer to one inside": lambda tree, own, _: (
        own.rename(tree / "own"),
        (tree / ".git").write_text("gitdir: ./own\n"),
    ),
    "a pointer to one inside that points back": lambda tree, own, _: (
        own.rename(tree / "own"),
        (tree / "own/config").write_text((tree / "own/config").read_text() + f"[core]\n\tworktree = {tree}\n"),
        (tree / ".git").write_text("gitdir: ./own\n"),
    ),
    "what looks like a worktree of the real one": lambda tree, own, repo: (
        own.rename(tree / "own"),
        (tree / "own/worktrees/x").mkdir(parents=True),
        (tree / "own/worktrees/x/HEAD").write_text("ref: refs/heads/smart-fork/x\n"),
        (tree / "own/worktrees/x/gitdir").write_text(f"{tree}/.git\n"),
        (tree / "own/worktrees/x/commondir").write_text("../..\n"),
        (tree / ".git").write_text("gitdir: ./own/worktrees/x\n"),
    ),
    "a symbolic link to one": lambda tree, own, _: (
        own.rename(tree / "own"),
        (tree / ".git").unlink(),
        (tree / ".git").symlink_to("own"),
    ),
    "none, but a bare one in the middle": lambda tree, own, _: (
        (tree / ".git").unlink(),
        [path.rename(tree / path.name) for path in own.iterdir()],
    ),
    "a pipe": lambda tree, _own, _repo: (
        (tree / ".git").unlink(),
        os.mkfifo(tree / ".git"),
    ),
    "one inside that git adds as a submodule": lambda tree, own, _: (
        (tree / "part").mkdir(),
        own.rename(tree / "part/.git"),
        (tree / "part/x").write_text("x\n"),
        (tree / "part/.gitattributes").write_text(ATTRIBUTES),
        git(tree / "part", "-c", "user.name=x", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false",
            "-c", "filter.bad.clean=", "-c", "filter.bad.required=false", "-c", "commit.gpgSign=false",
            "-c", "filter.a.b=c", "commit", "-q", "--allow-empty", "-m", "x"),
        git(tree, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},part"),
        (tree / ".gitmodules").write_text('[submodule "part"]\n\tpath = part\n\turl = ./x\n\tignore = none\n'),
    ),
}  # fmt: skip


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("kind", thorough_except(FORGERIES, "a pointer to one inside that points back", "a pipe"))
def test_nothing_that_a_worker_puts_into_its_worktree_runs(repo, made, canary, home, kind):
    change(made.path)
    own = forged_repository(home / "elsewhere", canary)
    FORGERIES[kind](made.path, own, repo)
    (home / "CANARY").unlink(missing_ok=True)

    everything(made)


@pytest.mark.usefixtures("quiet")
def test_a_worktree_that_now_leads_to_another_repository_is_not_compared(repo, made, canary, home):
    """Otherwise content of that repository would be reported as the worker's changes."""
    other = forged_repository(home / "elsewhere", canary)
    (made.path / ".git").unlink()
    (made.path / ".git").symlink_to(other)

    for _ in range(2):
        with pytest.raises(SmartForkError, match="smart-fork does not run git in"):
            difference(made.path, made.base, PROCESSES)
        (made.path / ".git").unlink(missing_ok=True)  # without any it would be taken for the repository around it


@pytest.mark.thorough
@pytest.mark.usefixtures("quiet")
def test_a_changed_submodule_is_told_without_running_what_it_configures(repo, canary, home):
    git(home, "init", "-q", "part")
    (home / "part/x").write_text("x\n")
    git(home / "part", "add", ".")
    git(home / "part", "commit", "-qm", "Part")
    git(repo, "submodule", "--quiet", "add", home / "part", "part")
    git(repo, "commit", "-qm", "Part")
    made = Worktree.create(repo, "x", PROCESSES)
    git(made.path, "submodule", "--quiet", "update", "--init")
    before = git(made.path / "part", "rev-parse", "HEAD").strip()
    git(made.path / "part", "commit", "-q", "--allow-empty", "-m", "more")
    after = git(made.path / "part", "rev-parse", "HEAD").strip()
    plant(repo / ".git/worktrees/x/modules/part", canary)
    (made.path / "part/.gitattributes").write_text(ATTRIBUTES)

    _, patch = difference(made.path, made.base, PROCESSES, patch=True)
    assert f"-Subproject commit {before}\n+Subproject commit {after}" in patch.decode()
    assert made.what_would_be_lost(PROCESSES)
    everything(made)


@pytest.mark.usefixtures("quiet")
def test_nothing_from_the_environment_runs(repo, canary, monkeypatch):
    for name in ("GIT_EXTERNAL_DIFF", "GIT_EDITOR", "GIT_PAGER", "GIT_SSH_COMMAND", "GIT_ASKPASS", "GIT_PROXY_COMMAND"):
        monkeypatch.setenv(name, str(canary))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.fsmonitor")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", str(canary))
    monkeypatch.setenv("GIT_CONFIG_PARAMETERS", f"'core.fsmonitor={canary}'")
    made = Worktree.create(repo, "x", PROCESSES, with_changes=True)
    change(made.path)

    assert difference(made.path, made.base, PROCESSES, patch=True)[0]
    everything(made)


@pytest.mark.usefixtures("quiet")
def test_the_list_of_what_git_passes_over_is_never_written_through_a_link(repo, home):
    (home / "precious").write_text("as it was\n")
    (repo / ".git/info/exclude").unlink()
    (repo / ".git/info/exclude").symlink_to(home / "precious")

    Worktree.create(repo, "x", PROCESSES)

    assert "as it was\n" == (home / "precious").read_text()


@pytest.mark.thorough
def test_forged_repositories_open_no_session_and_run_nothing(home):
    report = forge(home, full_or_sample(25, 10), seed=3).as_json()

    assert [] == report["violations"]
    assert len(report["tricks"]) > 8
    assert report["outcomes"]["believed"]
    assert report["outcomes"]["not believed"]
