"""Repositories that are moved, cloned and copied about in a home, and what is found where they are."""

from __future__ import annotations

import shutil
import subprocess
import uuid
from pathlib import Path

import pytest

from smart_fork.finding import project_places
from smart_fork.finding.index_access import opened
from smart_fork.finding.recent import list_recent
from tests.smart_fork.world import Did, git

URL = "git@example.org:people/shop.git"


def commit(folder: Path, name: str) -> None:
    (folder / name).write_text(f"{uuid.uuid4()}\n")  # no two commits are the same
    git(folder, "add", "--", name)
    git(folder, "commit", "-q", "-m", f"Add {name}")


class Moves:
    """A home in which repositories are moved about."""

    def __init__(self, world) -> None:
        self.world, self.home = world, world.home

    def repository(self, name: str, url: str = URL) -> Path:
        folder = self.home / name
        folder.mkdir(parents=True)
        git(folder, "init", "-q", "-b", "main")
        commit(folder, f"{Path(name).name}.txt")
        if url:
            git(folder, "remote", "add", "origin", url)
        return folder

    def clone(self, source: Path, name: str, url: str = URL, *options: str) -> Path:
        folder = self.home / name
        subprocess.run(
            ["git", "clone", "-q", *options, f"file://{source}", str(folder)], check=True, capture_output=True
        )
        git(folder, "remote", "set-url", "origin", url)
        return folder

    def worked(self, folder: Path) -> str:
        """A session in `folder`, read by the indexer."""
        session = self.world.claude(folder, "Why does the upload fail?", "The retry has no limit")
        self.read(folder)
        return session

    def read(self, folder: Path) -> None:
        self.world.find("upload", folder)
        with opened() as store:
            project_places.note(store.directories())

    def sessions(self, folder: Path) -> tuple[set[str], set[str]]:
        """What is listed in `folder`, and what is found there."""
        listed = {one.session_id for one in list_recent("both", str(folder), 50).sessions}
        return listed, set(self.world.ids("why does the upload fail", folder))


def a_submodule(moves):
    part = moves.repository("part")
    shop = moves.repository("shop")
    git(shop, "-c", "protocol.file.allow=always", "submodule", "add", "-q", f"file://{part}", "part")
    git(shop, "commit", "-q", "-m", "Add part")
    session = moves.worked(shop / "part")
    return session, shop.rename(moves.home / "shop2") / "part"


def head_of(folder: Path) -> str:
    return subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


def from_another_machine(moves, url: str, commit: str, where: str = "/Users/ann/code/shop") -> str:
    said = ("Why does the upload fail?", "The retry has no limit")
    facts = {"branch": "main", "commit_hash": commit, "repository_url": url}
    return moves.world.codex(where, *said, git=facts)


def work_of_claude_on_another_machine(
    moves: Moves, *, first: bool = False, output: str = "", where: str = "/Users/ann/code/shop"
) -> str:
    """A session that made the last commit of `shop`, which is its `first` one, and was told so."""
    made = f"[main{' (root-commit)' if first else ''} {head_of(moves.home / 'shop')[:7]}] Add more.txt"
    command = {"command": "git commit -m 'Add more.txt' && git push"}
    did = Did("Bash", command, f"{made}\n 1 file changed, 1 insertion(+)\n{output}")
    return moves.world.worked("claude", where, "> Why does the upload fail?", did, "The retry has no limit")


def a_fork_on_a_hosting_site(moves):
    shop = moves.repository("shop")
    session = moves.worked(shop)
    return session, moves.clone(shop, "fork", "git@example.org:somebody/shop.git")


def a_fork_of_one_that_is_gone(moves):
    session, fork = a_fork_on_a_hosting_site(moves)
    shutil.rmtree(moves.home / "shop")
    return session, fork


@pytest.fixture
def moves(world) -> Moves:
    return Moves(world)
