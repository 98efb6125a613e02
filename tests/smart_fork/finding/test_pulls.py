"""Tests of the commits of a pull request, with real git. Only gh is replaced: its output is text from elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from smart_fork.errors import NotFound, ProgramFailed, ProgramMissing
from smart_fork.finding.index_refresh import Engine
from smart_fork.finding.request import FindRequest
from smart_fork.system.processes import Completed, Processes
from tests.smart_fork.finding.test_authorship import BODY, LATER, commit, git, wrote
from tests.smart_fork.searches import find
from tests.support.cases import thorough_except


class WithGh(Processes):
    """A runner of all programs except gh, for which it returns this output, exit status or error."""

    def __init__(self, answer: object, status: int = 0) -> None:
        self._answer, self._status = answer, status
        self.asked: list[tuple[list[str], Path | None]] = []

    def run(self, argv, *, cwd=None, env=None, timeout, input=b"", whom=""):  # noqa: A002
        if argv[0] != "gh":
            return super().run(argv, cwd=cwd, env=env, timeout=timeout, input=input)
        self.asked.append((list(argv), cwd))
        if isinstance(self._answer, Exception):
            raise self._answer
        said = self._answer if isinstance(self._answer, bytes) else json.dumps(self._answer).encode()
        return Completed(tuple(argv), self._status, said, b"")


def sessions(world, shop: Path, gh: WithGh, number: int = 7) -> list[str]:
    request = FindRequest("", agent_type="all", pull=number)
    return [hit.session_id for hit in find(request, Engine(world.model, processes=gh), shop).results]


@pytest.fixture
def hosted(shop):
    git(shop, "remote", "add", "origin", "git@github.com:ada/shop.git")
    return shop


def test_gh_tells_the_commits_of_a_branch_that_is_here(world, hosted):
    session = wrote(world, hosted)
    git(hosted, "checkout", "-q", "-b", "topic")
    name = commit(hosted, "upload.py", BODY)
    git(hosted, "checkout", "-q", "main")
    gh = WithGh({"commits": [{"oid": "f" * 40}, {"oid": name}], "mergeCommit": None})

    assert sessions(world, hosted, gh) == [session]
    asked = ["gh", "pr", "view", "7", "--repo", "github.com/ada/shop", "--json", "commits,mergeCommit"]
    assert gh.asked == [(asked, Path("/"))], "outside of the repository"


def test_of_a_squash_whose_branch_is_gone_the_squash_counts(world, hosted):
    session = wrote(world, hosted)
    name = commit(hosted, "upload.py", BODY)

    assert sessions(world, hosted, WithGh({"commits": [{"oid": "f" * 40}], "mergeCommit": {"oid": name}})) == [session]


def test_the_request_of_a_fork_is_at_the_repository_that_it_is_from(world, hosted):
    git(hosted, "remote", "add", "upstream", "https://github.example.org/team/shop")
    wrote(world, hosted)
    name = commit(hosted, "upload.py", BODY)
    gh = WithGh({"commits": [{"oid": name}]})

    sessions(world, hosted, gh)

    assert gh.asked[0][0][5] == "github.example.org/team/shop"


#: What gh answers that is of no help.
GH = {
    "none": WithGh(ProgramMissing("gh is not installed")),
    "slow": WithGh(ProgramFailed("gh did not answer within 20 seconds")),
    "not logged in": WithGh(b"", 4),
    "no json": WithGh(b"not json"),
    "deep": WithGh(b"[" * 100_000),
    "a list": WithGh([1]),
    "no lists": WithGh({"commits": "all of them", "mergeCommit": 5}),
    "no names": WithGh(
        {"commits": [{"oid": "--output=x"}, {"oid": "HEAD"}, {"oid": None}, 7], "mergeCommit": {"oid": "HEAD"}}
    ),
    "not here": WithGh({"commits": [{"oid": "f" * 40}], "mergeCommit": {"oid": "e" * 40}}),
}


@pytest.mark.parametrize("answer", thorough_except(GH, "none", "no names"))
def test_where_gh_helps_nothing_the_fetched_ref_counts_or_the_next_step_is_named(world, hosted, answer):
    session, gh = wrote(world, hosted), GH[answer]
    git(hosted, "checkout", "-q", "-b", "topic")
    commit(hosted, "upload.py", BODY)
    git(hosted, "update-ref", "refs/pull/7/head", "HEAD")
    git(hosted, "checkout", "-q", "main")

    assert sessions(world, hosted, gh) == [session]
    with pytest.raises(NotFound, match="pull request 8 is not in this repository") as refused:
        sessions(world, hosted, gh, 8)
    assert refused.value.hint.endswith("etch it: git fetch origin refs/pull/8/head:refs/pull/8/head")
    assert ("gh auth login" in refused.value.hint) == (gh._status == 4)
    assert not (hosted / "x").exists()


@pytest.mark.parametrize("url", ["", "/srv/git/shop.git", "--upload-pack=x", "https://-x/a/b", "https://host/only"])
def test_a_remote_that_is_at_no_host_is_not_asked_about(world, shop, url):
    if url:
        git(shop, "config", "remote.origin.url", url)
    wrote(world, shop)
    commit(shop, "upload.py", BODY, at=LATER)
    gh = WithGh({"commits": []})

    with pytest.raises(NotFound):
        sessions(world, shop, gh)
    assert gh.asked == []
