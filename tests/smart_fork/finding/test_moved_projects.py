"""Tests that a repository keeps its sessions when it is moved, and in a further clone."""

from __future__ import annotations

import shlex
import shutil

import pytest

from smart_fork.errors import NotFound, Usage
from smart_fork.finding.project_index import adopt
from smart_fork.finding.project_places import ProjectPlace
from smart_fork.finding.recent import list_recent
from smart_fork.finding.request import current_project
from smart_fork.forking.plan import fork_session
from smart_fork.forking.request import ForkRequest
from tests.smart_fork.moved_repositories import (
    URL,
    a_fork_of_one_that_is_gone,
    commit,
    from_another_machine,
    head_of,
    moves,
    work_of_claude_on_another_machine,
)
from tests.smart_fork.world import Did, git
from tests.support.cases import thorough_except

__all__ = ["moves"]


def renamed(moves):
    shop = moves.repository("shop", "")
    session = moves.worked(shop)
    return session, shop.rename(moves.home / "shop2")


def renamed_with_a_remote(moves):
    shop = moves.repository("shop")
    session = moves.worked(shop)
    return session, shop.rename(moves.home / "shop2")


def a_parent_renamed(moves):
    shop = moves.repository("code/shop", "")
    session = moves.worked(shop)
    (moves.home / "code").rename(moves.home / "work")
    return session, moves.home / "work/shop"


def worked_in_a_folder_of_it(moves):
    shop = moves.repository("shop", "")
    (shop / "web").mkdir()
    session = moves.worked(shop / "web")
    return session, shop.rename(moves.home / "shop2")


def renamed_twice(moves):
    shop = moves.repository("shop", "")
    session = moves.worked(shop)
    second = shop.rename(moves.home / "shop2")
    moves.worked(second)
    return session, second.rename(moves.home / "shop3")


def copied_to_another_disk(moves):
    shop = moves.repository("shop", "")
    session = moves.worked(shop)
    shutil.copytree(shop, moves.home / "disk/shop", symlinks=True)
    shutil.rmtree(shop)
    return session, moves.home / "disk/shop"


def committed_after_the_move(moves):
    session, shop = renamed(moves)
    commit(shop, "later.txt")
    return session, shop


def cloned_again(moves):
    shop = moves.repository("shop")
    session = moves.worked(shop)
    new = moves.clone(shop, "again")
    shutil.rmtree(shop)
    return session, new


def cloned_again_over_https(moves):
    shop = moves.repository("shop")
    session = moves.worked(shop)
    new = moves.clone(shop, "again", "https://somebody:secret@example.org:443/people/shop/")
    shutil.rmtree(shop)
    return session, new


def cloned_again_with_little_history(moves):
    shop = moves.repository("shop")
    commit(shop, "more.txt")
    session = moves.worked(shop)
    new = moves.clone(shop, "again", URL, "--depth", "1")
    shutil.rmtree(shop)
    return session, new


def a_clone_beside_it(moves):
    shop = moves.repository("shop")
    session = moves.worked(shop)
    return session, moves.clone(shop, "beside")


def work_not_pushed_before_cloning_again(moves):
    shop = moves.repository("shop")
    new = moves.clone(shop, "again")
    commit(shop, "mine.txt")
    session = moves.worked(shop)
    shutil.rmtree(shop)
    return session, new


def its_clone_from_its_directory(moves):
    shop = moves.repository("shop", "")
    session = moves.worked(shop)
    new = moves.clone(shop, "again", str(shop))
    shutil.rmtree(shop)
    return session, new


def a_worktree_moved(moves):
    shop = moves.repository("shop")
    git(shop, "worktree", "add", "-q", str(moves.home / "tree"), "-b", "other")
    session = moves.worked(moves.home / "tree")
    git(shop, "worktree", "move", str(moves.home / "tree"), str(moves.home / "tree2"))
    return session, moves.home / "tree2"


def a_worktree_of_one_that_moved(moves):
    shop = moves.repository("shop")
    git(shop, "worktree", "add", "-q", str(moves.home / "tree"), "-b", "other")
    session = moves.worked(moves.home / "tree")
    new = shop.rename(moves.home / "shop2")
    git(new, "worktree", "repair", str(moves.home / "tree"))
    return session, new


def a_worktree_asked_after_a_move(moves):
    shop = moves.repository("shop")
    session = moves.worked(shop)
    new = shop.rename(moves.home / "shop2")
    git(new, "worktree", "add", "-q", str(moves.home / "tree"), "-b", "other")
    return session, moves.home / "tree"


def a_home_behind_a_link(moves):
    shop = moves.repository("people/bob/shop")
    session = moves.worked(shop)
    (moves.home / "people").rename(moves.home / "disk")
    (moves.home / "people").symlink_to(moves.home / "disk")
    return session, moves.home / "people/bob/shop"


def a_renamed_remote(moves):
    session, shop = cloned_again(moves)
    git(shop, "remote", "rename", "origin", "hub")
    return session, shop


def one_with_two_beginnings(moves):
    shop, other = moves.repository("shop"), moves.repository("other", "")
    git(shop, "fetch", "-q", str(other), "main")
    git(shop, "merge", "-q", "--allow-unrelated-histories", "-m", "Join", "FETCH_HEAD")
    session = moves.worked(shop)
    new = moves.clone(shop, "again")
    shutil.rmtree(shop)
    return session, new


def another_machine(moves):
    shop = moves.repository("shop")
    session = from_another_machine(moves, "https://example.org/people/shop", head_of(shop))
    moves.read(shop)
    return session, shop


def another_machine_with_its_commits(moves):
    shop = moves.repository("shop", "")
    commit(shop, "more.txt")
    session = work_of_claude_on_another_machine(moves, where="/Users/ann/code/trade/web")
    moves.read(shop)
    return session, shop


def another_machine_that_pushed(moves):
    shop = moves.repository("shop")
    commit(shop, "more.txt")
    said = "To https://somebody:secret@example.org/people/shop.git\n   1f0c1a2..83b1d5e  main -> main\n"
    session = work_of_claude_on_another_machine(moves, output=said)
    moves.read(shop)
    return session, shop


def another_machine_with_packed_commits(moves):
    shop = moves.repository("shop", "")
    commit(shop, "more.txt")
    git(shop, "gc", "-q")
    session = work_of_claude_on_another_machine(moves)
    moves.read(shop)
    return session, shop


SAME = [value for name, value in sorted(globals().items()) if callable(value) and name in {
    "another_machine", "another_machine_with_its_commits", "another_machine_that_pushed",
    "another_machine_with_packed_commits", "renamed", "renamed_with_a_remote", "a_parent_renamed", "worked_in_a_folder_of_it", "renamed_twice",
    "copied_to_another_disk", "committed_after_the_move", "cloned_again", "cloned_again_over_https",
    "cloned_again_with_little_history", "a_clone_beside_it", "work_not_pushed_before_cloning_again",
    "its_clone_from_its_directory", "a_worktree_moved", "a_worktree_of_one_that_moved",
    "a_worktree_asked_after_a_move", "a_submodule", "a_home_behind_a_link", "a_renamed_remote", "one_with_two_beginnings",
}]  # fmt: skip


@pytest.mark.parametrize(
    "case",
    thorough_except(
        SAME, renamed, copied_to_another_disk, cloned_again_over_https, a_worktree_moved, another_machine_that_pushed
    ),
    ids=lambda one: one.__name__,
)
def test_sessions_are_found_where_the_repository_is_now(moves, case):
    session, folder = case(moves)

    listed, found = moves.sessions(folder)

    assert session in listed
    assert session in found


def test_a_fork_works_where_the_repository_is_now(moves, programs):
    (programs / "claude").write_text("#!/bin/sh\necho 2.1.197 --fork-session\n")
    session, folder = worked_in_a_folder_of_it(moves)
    (hit,) = moves.world.find("why does the upload fail", folder)["results"]
    assert str(folder / "web") == hit["working_directory"]

    forked = fork_session(ForkRequest(session, dry_run=True))

    assert str(folder / "web") == forked.cwd


def test_a_session_of_a_moved_worktree_is_gone_on_with_where_git_says_that_the_worktree_is(moves):
    session, tree = a_worktree_moved(moves)

    (hit,) = moves.world.find("why does the upload fail", moves.home / "shop")["results"]

    assert (session, str(tree)) == (hit["session_id"], hit["working_directory"])


def test_a_session_of_another_machine_is_gone_on_with_in_the_folder_that_it_worked_in(moves):
    shop = moves.repository("shop")
    (shop / "web").mkdir()
    commit(shop, "more.txt")
    work_of_claude_on_another_machine(moves, where="/Users/ann/code/shop/web")
    moves.read(shop)

    (hit,) = moves.world.find("why does the upload fail", shop)["results"]

    assert str(shop / "web") == hit["working_directory"]


def test_after_a_move_lines_and_files_are_those_of_the_old_path(moves):
    shop = moves.repository("shop", "")
    text = "def upload(path, retries=5):\n    return send_in_parts(path, retries)\n"
    wrote = Did("Write", {"file_path": str(shop / "upload.py"), "content": text})
    session = moves.world.worked("claude", shop, "> Why does the upload fail?", wrote, "The retry has no limit")
    (shop / "upload.py").write_text(text)
    git(shop, "add", ".")
    git(shop, "commit", "-q", "-m", "Retry")
    moves.read(shop)
    new = shop.rename(moves.home / "shop2")
    (new / "upload.py").write_text(text + "\n\ndef download(path):\n    pass\n")
    git(new, "commit", "-q", "-a", "-m", "Download")

    (by_line,) = moves.world.find("", new, lines=["upload.py:2"])["results"]
    (hit,) = moves.world.find("why does the upload fail", new)["results"]

    assert session == by_line["session_id"] == hit["session_id"]
    assert {"files": 1, "changed": 1} == {name: hit["drift"][name] for name in ("files", "changed")}


def test_a_directory_that_is_gone_and_shares_history_is_named(moves):
    _, fork = a_fork_of_one_that_is_gone(moves)

    listing = list_recent("both", str(fork), 50)

    gone = moves.home / "shop"
    command = f"smart-fork project adopt {shlex.quote(str(gone))}"
    assert f"Sessions of {gone}, which is gone, may belong here: {command}" == listing.project_notice
    assert listing.project_notice == moves.world.find("upload", fork)["project_notice"]


def test_a_directory_of_another_machine_with_the_name_of_this_one_is_named(moves):
    shop = moves.repository("shop")
    session = moves.world.claude("/Users/ann/code/shop/web", "Why does the upload fail?", "The retry has no limit")
    moves.read(shop)

    assert "smart-fork project adopt /Users/ann/code/shop" in list_recent("both", str(shop), 50).project_notice
    adopt(current_project(str(shop)), "/Users/ann/code/shop")

    assert ({session}, {session}) == moves.sessions(shop)
    assert "" == list_recent("both", str(shop), 50).project_notice


def test_a_person_gives_sessions_of_another_directory_to_a_project_and_takes_them_back(moves):
    session, fork = a_fork_of_one_that_is_gone(moves)
    gone = str(moves.home / "shop")

    given = adopt(current_project(str(fork)), gone)
    assert [ProjectPlace(gone, "adopted")] == list(given.places)
    assert ({session}, {session}) == moves.sessions(fork)
    assert str(fork) == moves.world.find("upload", fork)["results"][0]["working_directory"]

    adopt(current_project(str(fork)), gone, remove=True)
    assert (set(), set()) == moves.sessions(fork)


@pytest.mark.thorough
def test_sessions_of_a_directory_without_git_are_adopted_by_another_one(moves):
    old, new = moves.home / "notes", moves.home / "papers"
    old.mkdir()
    session = moves.worked(old)
    old.rename(new)
    assert (set(), set()) == moves.sessions(new)

    adopt(current_project(str(new)), str(old))

    assert ({session}, {session}) == moves.sessions(new)


def test_what_cannot_be_adopted_is_refused(moves):
    shop = moves.repository("shop")
    project = current_project(str(shop))

    with pytest.raises(Usage, match="is a directory of this project"):
        adopt(project, str(shop / "web"))
    with pytest.raises(NotFound, match="No session worked in"):
        adopt(project, str(moves.home / "never"))
    with pytest.raises(NotFound, match="was not adopted"):
        adopt(project, str(moves.home / "never"), remove=True)
