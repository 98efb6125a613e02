"""Tests that a directory which only looks like a project has none of the project's sessions."""

from __future__ import annotations

import shutil

import pytest

from tests.smart_fork.moved_repositories import (
    URL,
    a_fork_of_one_that_is_gone,
    a_fork_on_a_hosting_site,
    a_submodule,
    commit,
    from_another_machine,
    head_of,
    moves,
    work_of_claude_on_another_machine,
)
from tests.smart_fork.world import Did, git
from tests.support.cases import thorough_except

__all__ = ["moves"]


def a_folder_of_its_name(moves):
    shop = moves.repository("shop", "")
    session = moves.worked(shop)
    shutil.rmtree(shop)
    return session, moves.repository("other/shop", "")


def without_git(moves):
    shop = moves.repository("shop", "")
    session = moves.worked(shop)
    shutil.rmtree(shop)
    (moves.home / "other/shop").mkdir(parents=True)
    return session, moves.home / "other/shop"


def a_fork_that_names_it_upstream(moves):
    session, fork = a_fork_on_a_hosting_site(moves)
    git(fork, "remote", "add", "upstream", URL)
    return session, fork


def a_template_with_its_first_commit(moves):
    shop = moves.repository("template")
    session = moves.worked(shop)
    commit(shop, "later.txt")
    return session, moves.clone(shop, "app", "git@example.org:people/app.git")


def a_template_cloned_without_remote(moves):
    shop = moves.repository("template", "")
    session = moves.worked(shop)
    new = moves.clone(shop, "app")
    git(new, "remote", "remove", "origin")
    return session, new


def a_template_begun_anew(moves):
    shop = moves.repository("template")
    session = moves.worked(shop)
    new = moves.clone(shop, "app")
    shutil.rmtree(new / ".git")
    git(new, "init", "-q", "-b", "main")
    commit(new, "app.txt")
    return session, new


def a_copy_beside_it(moves):
    shop = moves.repository("shop", "")
    session = moves.worked(shop)
    shutil.copytree(shop, moves.home / "copy", symlinks=True)
    return session, moves.home / "copy"


def another_history_with_its_remote(moves):
    shop = moves.repository("shop")
    session = moves.worked(shop)
    return session, moves.repository("other")


def another_history_with_the_remote_of_one_that_is_gone(moves):
    session, other = another_history_with_its_remote(moves)
    shutil.rmtree(moves.home / "shop")
    return session, other


def nothing_but_its_remote(moves):
    shop = moves.repository("shop")
    session = moves.worked(shop)
    shutil.rmtree(shop)
    other = moves.home / "other"
    other.mkdir()
    git(other, "init", "-q")
    git(other, "remote", "add", "origin", URL)
    return session, other


def its_superproject(moves):
    session, part = a_submodule(moves)
    return session, part.parent


def another_submodule(moves):
    session, part = a_submodule(moves)
    other = moves.repository("fresh", "git@example.org:people/fresh.git")
    git(part.parent, "-c", "protocol.file.allow=always", "submodule", "add", "-q", f"file://{other}", "fresh")
    return session, part.parent / "fresh"


def one_part_of_it_in_a_repository_of_its_own(moves):
    shop = moves.repository("mono")
    (shop / "web").mkdir()
    session = moves.worked(shop / "web")
    new = moves.clone(shop, "web", "git@example.org:people/web.git")
    git(new, "checkout", "-q", "--orphan", "alone")
    git(new, "commit", "-q", "-m", "Alone")
    return session, new


def a_neighbour_whose_name_goes_on(moves):
    shop = moves.repository("shop", "")
    session = moves.worked(shop)
    shop.rename(moves.home / "gone")
    return session, moves.repository("shop-two", "")


def a_remote_whose_name_goes_on(moves):
    shop = moves.repository("shop")
    session = moves.worked(shop)
    return session, moves.clone(shop, "fork", "git@example.org:people/shop-two.git")


def a_remote_of_another_host(moves):
    shop = moves.repository("shop")
    session = moves.worked(shop)
    return session, moves.clone(shop, "fork", "git@example.com:people/shop.git")


def one_that_points_to_it_without_proof(moves):
    shop = moves.repository("shop")
    session = moves.worked(shop)
    (moves.home / "other").mkdir()
    (moves.home / "other/.git").write_text(f"gitdir: {shop}/.git\n")
    return session, moves.home / "other"


def one_that_merged_it(moves):
    shop, other = moves.repository("shop"), moves.repository("other", "git@example.org:people/all.git")
    session = moves.worked(shop)
    git(other, "fetch", "-q", str(shop), "main")
    git(other, "merge", "-q", "--allow-unrelated-histories", "-m", "Join", "FETCH_HEAD")
    return session, other


def another_machines_fork(moves):
    shop = moves.repository("shop")
    session = from_another_machine(moves, "https://example.org/somebody/shop", head_of(shop))
    moves.read(shop)
    return session, shop


def another_machines_repository_of_its_remote(moves):
    shop = moves.repository("shop")
    session = from_another_machine(moves, URL, "0" * 40)
    moves.read(shop)
    return session, shop


def another_machines_fork_with_the_commits_that_it_pushed(moves):
    shop = moves.repository("shop")
    commit(shop, "more.txt")
    pushed = "To git@example.org:somebody/shop.git\n   1f0c1a2..83b1d5e  main -> main\n"
    session = work_of_claude_on_another_machine(moves, output=pushed)
    moves.read(shop)
    return session, shop


def another_machines_template(moves):
    shop = moves.repository("shop", "")
    session = work_of_claude_on_another_machine(moves, first=True)
    moves.read(shop)
    return session, shop


def another_machine_that_read_of_its_commits(moves):
    shop = moves.repository("shop", "")
    commit(shop, "more.txt")
    read = Did("Bash", {"command": "cat notes.txt"}, f"[main {head_of(shop)[:7]}] Add more.txt\n")
    session = moves.world.worked("claude", "/Users/ann/code/shop", "> Why does the upload fail?", read, "No limit")
    moves.read(shop)
    return session, shop


APART = [
    another_machines_fork_with_the_commits_that_it_pushed, another_machines_template,
    another_machine_that_read_of_its_commits,
    another_machines_fork, another_machines_repository_of_its_remote,
    a_folder_of_its_name, without_git, a_fork_on_a_hosting_site, a_fork_of_one_that_is_gone,
    a_fork_that_names_it_upstream, a_template_with_its_first_commit, a_template_cloned_without_remote,
    a_template_begun_anew, a_copy_beside_it, another_history_with_its_remote,
    another_history_with_the_remote_of_one_that_is_gone, nothing_but_its_remote, its_superproject, another_submodule,
    one_part_of_it_in_a_repository_of_its_own, a_neighbour_whose_name_goes_on, a_remote_whose_name_goes_on,
    a_remote_of_another_host, one_that_points_to_it_without_proof, one_that_merged_it,
]  # fmt: skip


@pytest.mark.parametrize(
    "case",
    thorough_except(
        APART,
        another_machines_template,
        a_folder_of_its_name,
        without_git,
        a_fork_on_a_hosting_site,
        a_copy_beside_it,
        nothing_but_its_remote,
        a_neighbour_whose_name_goes_on,
    ),
    ids=lambda one: one.__name__,
)
def test_a_look_alike_has_none_of_its_sessions(moves, case):
    session, folder = case(moves)

    listed, found = moves.sessions(folder)

    assert session not in listed | found
