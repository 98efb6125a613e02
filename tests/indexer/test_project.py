"""The project of a directory, in real repositories."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.project import is_within, project_of, resolve


def git(*arguments, cwd: Path) -> None:
    subprocess.run(["git", *map(str, arguments)], cwd=cwd, check=True, capture_output=True)


@pytest.fixture
def repo(tmp_path) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    git("init", "-q", cwd=folder)
    git("commit", "-q", "--allow-empty", "-m", "first", cwd=folder)
    return folder


def test_a_folder_of_a_repository_is_in_its_project(repo):
    (repo / "src/deep").mkdir(parents=True)

    assert project_of(repo) == project_of(repo / "src/deep")
    assert (str(repo), True) == (project_of(repo).root, project_of(repo).git)


@pytest.mark.parametrize("place", ["repo/.worktrees/inside", "outside"])
def test_a_linked_worktree_is_the_same_project_wherever_it_is(repo, tmp_path, place):
    git("worktree", "add", "-q", tmp_path / place, cwd=repo)
    (tmp_path / place / "src").mkdir()

    assert project_of(repo) == project_of(tmp_path / place / "src")


def test_a_removed_folder_of_a_repository_is_still_in_its_project(repo):
    assert project_of(repo) == project_of(repo / ".worktrees/removed/src")


def test_worktrees_of_a_bare_repository_are_one_project(repo, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    git("clone", "-q", "--bare", repo, home / ".bare", cwd=tmp_path)
    (home / ".git").write_text("gitdir: ./.bare\n")
    git("worktree", "add", "-q", home / "one", "-b", "one", cwd=home)
    git("worktree", "add", "-q", tmp_path / "two", "-b", "two", cwd=home)

    assert {str(home / ".bare")} == {project_of(folder).key for folder in (home, home / "one", tmp_path / "two")}


def test_a_submodule_is_a_project_of_its_own_inside_the_other(repo, tmp_path):
    git("clone", "-q", repo, tmp_path / "library", cwd=tmp_path)
    git("-c", "protocol.file.allow=always", "submodule", "add", "-q", tmp_path / "library", "vendor", cwd=repo)

    assert project_of(repo).key != project_of(repo / "vendor").key
    assert str(repo / "vendor") == project_of(repo / "vendor").root


def test_outside_git_a_directory_is_its_own_project(tmp_path):
    (tmp_path / "notes/sub").mkdir(parents=True)

    assert str(tmp_path / "notes") == project_of(tmp_path / "notes").root
    assert project_of(tmp_path / "notes") != project_of(tmp_path / "notes/sub")
    assert not project_of(tmp_path / "notes").git


def test_a_repository_of_a_similar_name_is_another_project(repo, tmp_path):
    shutil.copytree(repo, tmp_path / "repo-other")

    assert project_of(repo).key != project_of(tmp_path / "repo-other").key
    assert not is_within(tmp_path / "repo-other", repo)


def test_a_symbolic_link_counts_as_what_it_leads_to(repo, tmp_path):
    (tmp_path / "link").symlink_to(repo)
    (tmp_path / "elsewhere").mkdir()
    (repo / "out").symlink_to(tmp_path / "elsewhere")

    assert project_of(repo) == project_of(tmp_path / "link")
    assert str(tmp_path / "elsewhere") == project_of(repo / "out").key  # leaves the repository (F-072)
    assert not is_within(resolve(repo / "out"), resolve(repo))


def test_a_home_of_nobody_is_taken_literally():
    assert "~nobody-of-this-name" in str(resolve("~nobody-of-this-name/x"))
    assert resolve("~/x") == Path(os.path.realpath(Path.home())) / "x"


@given(
    st.lists(st.sampled_from(["a", "ab", "..", ".", "b"]), max_size=6),
    st.lists(st.sampled_from(["a", "ab", "b"]), max_size=3),
)
def test_containment_is_by_components(directory, root):
    inside, outside = resolve("/nowhere/" + "/".join(directory)), resolve("/nowhere/" + "/".join(root))

    assert is_within(inside, outside) == (inside.parts[: len(outside.parts)] == outside.parts)
