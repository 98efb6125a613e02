"""Which `.git` is believed: real repositories of every kind, and forged ones."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from indexer.project import Project, project_of
from tests.support.cases import thorough_except, thorough_except_first

SOMEBODY = 4242


def git(folder: Path, *words: object) -> None:
    command = ["git", "-c", "protocol.file.allow=always", *map(str, words)]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


def repository(folder: Path) -> Path:
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    return folder


@pytest.fixture
def secret(tmp_path) -> Path:
    """A foreign repository with a linked worktree and a submodule, of which no session may be found."""
    folder = repository(tmp_path / "secret")
    git(folder, "submodule", "add", "-q", repository(tmp_path / "library"), "vendor")
    git(folder, "worktree", "add", "-q", tmp_path / "linked")
    return folder


@pytest.fixture
def forged(tmp_path) -> Path:
    folder = tmp_path / "forged"
    folder.mkdir()
    return folder


def pointer(folder: Path, target: object) -> None:
    (folder / ".git").write_text(f"gitdir: {target}\n")


def own_index(folder: Path, **files: str) -> Path:
    """A directory that looks like git's own folder for a worktree."""
    folder.mkdir(parents=True)
    (folder / "HEAD").write_text("ref: refs/heads/main\n")
    for name, text in files.items():
        (folder / name).write_text(text + "\n")
    return folder


FORGERIES = {
    "the repository itself": lambda forged, secret: pointer(forged, secret / ".git"),
    "the same, relative": lambda forged, _: pointer(forged, "../secret/.git"),
    "the same, in a roundabout way": lambda forged, _: pointer(forged, "./../forged/../secret/./.git/"),
    "a worktree of it": lambda forged, secret: pointer(forged, secret / ".git/worktrees/linked"),
    "one that it does not have": lambda forged, secret: pointer(forged, secret / ".git/worktrees/new"),
    "a submodule of it": lambda forged, secret: pointer(forged, secret / ".git/modules/vendor"),
    "what is not a repository": lambda forged, secret: pointer(forged, secret / ".git/refs"),
    "a commondir of its own": lambda forged, secret: pointer(
        forged,
        own_index(forged / "x/worktrees/y", commondir=str(secret / ".git"), gitdir=str(forged / ".git")),
    ),
    "a commondir beside no worktrees": lambda forged, secret: pointer(
        forged, own_index(forged / "own", commondir=str(secret / ".git"), gitdir=str(forged / ".git"))
    ),
    "a commondir in a whole repository": lambda forged, secret: (
        git(forged, "init", "-q"),
        (forged / ".git/commondir").write_text(f"{secret}/.git\n"),
    ),
    "a symbolic link to the repository": lambda forged, secret: (forged / ".git").symlink_to(secret / ".git"),
    "a symbolic link to a worktree's": lambda forged, secret: (forged / ".git").symlink_to(secret.parent / "linked/.git"),
    "a symbolic link on the way": lambda forged, secret: (
        (forged / "way").symlink_to(secret / ".git"),
        pointer(forged, "way/worktrees/linked"),
    ),
    "a bare repository inside that is a link": lambda forged, secret: (
        (forged / ".bare").symlink_to(secret / ".git"),
        pointer(forged, "./.bare"),
    ),
    "a bare repository inside with another's working directory": lambda forged, secret: (
        git(forged, "init", "-q", "--bare", ".bare"),
        git(forged / ".bare", "config", "core.bare", "false"),
        git(forged / ".bare", "config", "core.worktree", secret),
        pointer(forged, "./.bare"),
    ),
    "a repository that another holds": lambda forged, secret: (
        shutil.copytree(secret, forged / "secret"),
        pointer(forged, "./secret/.git"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "kind", thorough_except(FORGERIES, "the repository itself", "a worktree of it", "a symbolic link on the way")
)
def test_a_git_that_leads_into_a_repository_which_does_not_point_back_is_not_believed(kind, forged, secret):
    FORGERIES[kind](forged, secret)
    (forged / "sub").mkdir()

    for folder in (forged, forged / "sub"):
        found = project_of(folder)
        assert Project(str(folder), str(folder), git=False) == found
        assert str(forged) in found.doubt
    assert project_of(secret).key not in {project_of(forged).key, project_of(forged / "sub").key}


@pytest.mark.parametrize("text", ["", "gitdir:", "gitdir: ", "gitdir: /nowhere/at/all", "gitdir: \0", "no pointer",
                                  "gitdir: .git", "\udcff", "gitdir: " + "x/" * 5000, "gitdir:/etc"])  # fmt: skip
def test_a_git_file_that_leads_nowhere_is_not_believed(forged, text):
    (forged / ".git").write_bytes(os.fsencode(text))

    assert not project_of(forged).git
    assert project_of(forged).doubt


@pytest.mark.parametrize("what", ["pipe", "socket", "huge", "unreadable target"])
def test_a_git_that_is_no_ordinary_file_is_neither_believed_nor_waited_for(forged, what):
    """A directory that somebody names is looked at whoever made it."""
    if what == "pipe":
        os.mkfifo(forged / ".git")
    elif what == "socket":
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(os.path.relpath(forged / ".git"))
    elif what == "huge":
        with (forged / ".git").open("wb") as file:
            file.truncate(1 << 40)
    else:
        own = own_index(forged / "x/worktrees/y")
        for name in ("commondir", "gitdir"):
            os.mkfifo(own / name)
        pointer(forged, own)

    assert not project_of(forged).git


@pytest.mark.parametrize("kind", thorough_except_first(["absolute", "relative", "in the repository"]))
def test_a_worktree_that_its_repository_lists_is_of_it(kind, secret, tmp_path):
    folder = secret / ".worktrees/x" if kind == "in the repository" else tmp_path / "x"
    git(secret, "worktree", "add", "-q", "-b", "x", folder)
    if kind == "relative":
        own = secret / ".git/worktrees/x"
        (folder / ".git").write_text("gitdir: ../secret/.git/worktrees/x\n")
        (own / "gitdir").write_text(f"{os.path.relpath(folder, own)}/.git\n")

    assert project_of(secret) == project_of(folder)


def test_a_worktree_that_its_repository_has_forgotten_is_not_of_it(secret, tmp_path):
    shutil.rmtree(secret / ".git/worktrees")

    assert not project_of(tmp_path / "linked").git


def test_a_moved_worktree_is_of_its_repository_once_that_knows(secret, tmp_path):
    (tmp_path / "linked").rename(tmp_path / "moved")

    assert "git worktree repair" in project_of(tmp_path / "moved").doubt
    git(tmp_path / "moved", "worktree", "repair")
    assert project_of(secret) == project_of(tmp_path / "moved")


def test_a_removed_worktree_is_a_place_of_its_repository_as_long_as_that_lists_it(secret, tmp_path):
    assert (str(secret),) == project_of(secret).all_places

    shutil.rmtree(tmp_path / "linked")
    assert (str(secret), str(tmp_path / "linked")) == project_of(secret).all_places

    git(secret, "worktree", "prune")
    assert (str(secret),) == project_of(secret).all_places


def test_submodules_are_believed_also_in_a_worktree(secret, tmp_path):
    git(tmp_path / "linked", "reset", "-q", "--hard")
    git(secret, "commit", "-q", "-m", "vendor")
    git(secret, "worktree", "add", "-q", "-b", "x", tmp_path / "x")
    git(tmp_path / "x", "submodule", "update", "-q", "--init")

    assert secret / ".git/modules/vendor" == Path(project_of(secret / "vendor").key)
    assert secret / ".git/worktrees/x/modules/vendor" == Path(project_of(tmp_path / "x/vendor").key)


def test_a_repository_that_is_kept_elsewhere_speaks_for_its_directory_only(tmp_path, forged):
    """Nothing that git makes with --separate-git-dir points back, so a forged pointer to it reveals nothing."""
    git(tmp_path, "init", "-q", "--separate-git-dir", tmp_path / "kept", tmp_path / "work")
    (tmp_path / "work/src").mkdir()
    pointer(forged, tmp_path / "kept")

    assert project_of(tmp_path / "work") == project_of(tmp_path / "work/src")
    assert str(tmp_path / "work") == project_of(tmp_path / "work").root
    assert project_of(tmp_path / "work").git
    assert project_of(tmp_path / "work").key != project_of(forged).key

    git(tmp_path / "work", "config", "core.worktree", tmp_path / "work")
    assert str(tmp_path / "kept") == project_of(tmp_path / "work").key
    assert not project_of(forged).git


@pytest.mark.parametrize(
    ("said", "believed"),
    [
        ("[core]\n\tworktree = {}\n", True),
        ("[CORE] WorkTree={} ; why not\n", True),
        ('[core]\n\tworktree = "{}" # quoted\n', True),
        ("[core]\n\tworktree = \\\n{}\n", True),
        ("[core]\n\tworktree = /elsewhere\n\tworktree = {}\n", True),
        ("[core]\n\tworktree = {}\n\tworktree = /elsewhere\n", False),
        ('[core "x"]\n\tworktree = {}\n', False),
        ("[core]\n\t# worktree = {}\n\tbare\n", False),
        ("[core]\n\tworktree = {}/..\n", False),
        ("[core\n\tworktree = {}\n\tbare = true\n", False),
    ],
)
def test_a_repository_points_back_as_git_reads_its_configuration(said, believed, tmp_path, forged):
    bare = tmp_path / "bare"
    git(tmp_path, "init", "-q", "--bare", bare)
    (bare / "config").write_text(said.format(forged))
    pointer(forged, bare)

    assert believed == (str(bare) == project_of(forged).key)


root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to somebody else")


@root_only
@pytest.mark.parametrize("what", thorough_except_first([".", ".git"]))
def test_a_repository_of_somebody_else_is_not_believed(secret, what, tmp_path, monkeypatch):
    """Git has this rule as well. A person who became root with sudo still owns their files."""
    os.chown(secret / what, SOMEBODY, -1)
    for folder in (secret, *([tmp_path / "linked"] if what == ".git" else [])):
        assert not project_of(folder).git
        assert "safe.directory" in project_of(folder).doubt

    monkeypatch.setenv("SUDO_UID", str(SOMEBODY))
    assert project_of(secret).git
    monkeypatch.setenv("SUDO_UID", str(SOMEBODY + 1))
    assert not project_of(secret).git


@root_only
def test_a_repository_of_which_all_is_somebody_else_s_is_not_believed(tmp_path):
    top = repository(tmp_path / "theirs")
    for path in (top, *top.rglob("*")):
        os.lchown(path, SOMEBODY, -1)

    assert not project_of(top).git


@root_only
@pytest.mark.parametrize("what", thorough_except_first([".", ".git"]))
def test_a_worktree_of_somebody_else_is_not_believed(secret, tmp_path, what):
    os.lchown(tmp_path / "linked" / what, SOMEBODY, -1)

    assert not project_of(tmp_path / "linked").git
    assert project_of(secret).git


@root_only
def test_a_git_of_somebody_else_above_does_not_make_one_project_of_all_below(tmp_path):
    git(tmp_path, "init", "-q")
    os.chown(tmp_path / ".git", SOMEBODY, -1)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()

    assert str(tmp_path / "one") == project_of(tmp_path / "one").root
    assert project_of(tmp_path / "one") != project_of(tmp_path / "two")


@root_only
@pytest.mark.parametrize(
    ("said", "safe"),
    [
        ("*", True), ("{}", True), ("{}/..", False), ("{}/*", False), ("{}-other", False),
        ("{}\n\tdirectory = ", False), ("\n\tdirectory = {}", True), ("relative", False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("where", thorough_except_first(["home", "xdg", "named", "included", "system"]))
def test_what_the_person_has_declared_safe_is_believed(said, safe, where, tmp_path, home, monkeypatch):  # noqa: PLR0917
    top = repository(tmp_path / "theirs")
    os.chown(top / ".git", SOMEBODY, -1)
    text = "[user]\n\tname = x\n[safe]\n\tdirectory = " + said.format(top) + "\n"
    config = home / ".gitconfig"
    monkeypatch.delenv("GIT_CONFIG_GLOBAL")
    if where == "xdg":
        monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "xdg"))
        config = home / "xdg/git/config"
        config.parent.mkdir(parents=True)
    elif where == "named":
        config = home / "named"
        monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    elif where == "included":
        (home / ".gitconfig").write_text("[include]\n\tpath = more\n")
        config = home / "more"
    elif where == "system":
        config = home / "system"
        monkeypatch.setenv("GIT_CONFIG_SYSTEM", str(config))
        monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "0")
    config.write_text(text)

    assert safe == project_of(top).git


@root_only
def test_a_repository_cannot_declare_itself_safe(tmp_path):
    top = repository(tmp_path / "theirs")
    git(top, "config", "safe.directory", "*")
    os.chown(top / ".git", SOMEBODY, -1)

    assert not project_of(top).git
