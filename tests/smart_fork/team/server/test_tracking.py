"""The file ``.smart-fork/tracking.json``: content that smart-fork cannot have written is refused."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from smart_fork.errors import SmartForkError, Usage
from smart_fork.sharing.tracking import Alias, ProjectFolder, Tracking
from smart_fork.team.project import last_part
from tests.smart_fork.team.server.test_two_people import ANSWER, MORE, MORE_ANSWER, PROMPT, assert_refused, session_of
from tests.smart_fork.world import git

ID = "0197f2c7-1a2b-7000-8000-000000000000"
ALIAS = {"sessionId": ID, "baseCount": 2, "files": ["/nowhere/log.jsonl"], "platform": "claude"}


@pytest.fixture
def clone(tmp_path):
    git(tmp_path, "init", "-q")
    git(tmp_path, "remote", "add", "origin", "git@github.com:acme/shop.git")
    (tmp_path / ".smart-fork").mkdir()
    return tmp_path


def tracked(clone, said, server=""):
    path = clone / ".smart-fork/tracking.json"
    path.write_text(json.dumps({"version": 1, "aliases": {"main": ALIAS}} | said))
    return Tracking(ProjectFolder.of(directory=clone), server)


@pytest.mark.parametrize(
    "said",
    [
        {"version": 2},
        {"aliases": []},
        {"aliases": {"a/b": ALIAS}},
        {"aliases": {"main": []}},
        {"aliases": {"main": ALIAS | {"sessionId": "../../projects"}}},
        {"aliases": {"main": ALIAS | {"parentId": "x"}}},
        {"aliases": {"main": ALIAS | {"baseCount": True}}},
        {"aliases": {"main": ALIAS | {"localCount": -1}}},
        {"aliases": {"main": ALIAS | {"files": "one"}}},
        {"server": 7},
    ],
)
def test_what_is_not_as_it_is_written_names_the_file(clone, said):
    """C-044."""
    with pytest.raises(SmartForkError, match=r"tracking\.json") as refused:
        tracked(clone, said).read()
    assert refused.value.hint
    assert not isinstance(refused.value, Usage)


@pytest.mark.thorough
def test_of_many_who_change_it_at_once_nobody_loses_what_another_has_written(clone):
    """C-044."""
    tracking = tracked(clone, {"aliases": {}})

    def change(number):
        tracking.change(lambda now: now.with_alias(f"a{number}", Alias(base_count=number)))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(change, range(24)))
    assert {f"a{number}": number for number in range(24)} == {
        name: one.base_count for name, one in tracking.read().aliases.items()
    }


def test_a_link_in_its_place_is_not_followed(clone):
    """A repository can contain a link to any file."""
    elsewhere = clone / "elsewhere"
    (clone / ".smart-fork").rename(elsewhere)
    (clone / ".smart-fork").symlink_to("elsewhere")
    with pytest.raises(SmartForkError, match="points to another place"):
        tracked(clone, {}).read()


@pytest.mark.parametrize(
    ("said", "server", "named"),
    [
        ({"project": "github.com/acme/other"}, "", "--project github.com/acme/other"),
        ({"server": "https://one.example.org"}, "https://two.example.org", "--server https://one.example.org"),
    ],
)
def test_what_is_tracked_of_another_project_or_server_is_not_taken_for_this_one(clone, said, server, named):
    here = tracked(clone, said, server)

    with pytest.raises(SmartForkError, match="tracks sessions of") as refused:
        here.read()
    with pytest.raises(SmartForkError, match="tracks sessions of"):
        here.change(lambda now: now)
    assert named in refused.value.hint
    assert {} == here.ours().aliases


def test_a_server_of_which_there_is_no_token_here_is_not_exchanged_for_another(alice):
    """Later pushes would go to another server than the earlier ones."""
    pushed = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes")
    path = alice.repository / ".smart-fork/tracking.json"
    path.write_text(path.read_text().replace(pushed["server"], "https://gone.example.org"))

    refused = alice.do("team", "push", "--yes")

    assert (4, True) == (refused.code, "https://gone.example.org" in refused.err)
    assert_refused(
        alice, 9,
        f"{path} tracks sessions of https://gone.example.org, not of {pushed['server']}.",
        "push", "--yes", "--server", pushed["server"],
    )  # fmt: skip


def test_the_first_address_of_origin_names_the_project_and_git_s_short_names_are_read_out(clone):
    assert "github.com/acme/shop" == ProjectFolder.of(directory=clone).key
    git(clone, "config", "--add", "remote.origin.url", "git@github.com:mirror/shop.git")
    assert "github.com/acme/shop" == ProjectFolder.of(directory=clone).key
    git(clone, "config", "--replace-all", "remote.origin.url", "gh:acme/shop")
    git(clone, "config", "url.git@github.com:.insteadOf", "gh:")
    assert "github.com/acme/shop" == ProjectFolder.of(directory=clone).key


def test_without_origin_another_remote_is_proposed(clone):
    git(clone, "remote", "rename", "origin", "upstream")
    with pytest.raises(Usage, match="no remote `origin`") as refused:
        ProjectFolder.of(directory=clone)
    assert "--project github.com/acme/shop" in refused.value.hint


@pytest.mark.parametrize("text", ["github.com/acme/shop", "GitHub.com/acme/shop", "https://github.com/acme/shop.git"])
def test_a_project_is_named_by_its_key_or_its_address(tmp_path, text):
    assert "github.com/acme/shop" == ProjectFolder.of(text, tmp_path).key


def test_what_is_neither_a_directory_nor_a_key_is_said_to_be_neither(tmp_path):
    with pytest.raises(Usage, match=r"No directory ../nowhere, and it is not a project key"):
        ProjectFolder.of(f"..{os.sep}nowhere", tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        ID, f" {ID}\n", f"https://forks.example.org/v1/sessions/{ID}?project=github.com%2Facme%2Fshop", f"{ID}/",
        f"{ID}?project=a/b", f"{ID}#1", f"forks.example.org/v1/sessions/{ID}//?x#y/z",
    ],
)  # fmt: skip
def test_an_address_means_its_last_part(text):
    """C-024."""
    assert ID == last_part(text)


@pytest.mark.slow
def test_of_two_that_a_session_goes_on_from_the_one_with_more_of_it_is_its_parent(alice):
    older = session_of(alice, "claude", PROMPT, ANSWER)
    root = alice.team("push", older, "--yes")
    with alice.here():
        fork = alice.world.fork_claude(older, alice.repository, MORE, MORE_ANSWER)
    nearer = alice.team("push", fork, "--yes")
    with alice.here():
        last = alice.world.fork_claude(fork, alice.repository, "and the tests", "They pass.")
        beside = alice.world.fork_claude(older, alice.repository, "and the changelog", "It is there.")

    made, other = (alice.team("push", one, "--yes") for one in (last, beside))

    assert (nearer["session_id"], root["session_id"]) == (made["parent_id"], nearer["parent_id"])
    assert (root["session_id"], 2, 2) == (other["parent_id"], other["base_count"], other["pushed_records"])


def test_a_fork_that_is_pushed_has_its_own_title_and_not_that_of_what_it_goes_on_from(alice):
    older = session_of(alice, "claude", PROMPT, ANSWER)
    alice.team("push", older, "--yes", "--title", "The first")
    with alice.here():
        fork = alice.world.fork_claude(older, alice.repository, MORE, MORE_ANSWER)
        title = [{"type": "ai-title", "aiTitle": "Something else", "sessionId": fork}]
        alice.world.write_claude(fork, alice.repository, title, "a")

    pushed = alice.team("push", fork, "--yes")

    titles = {one["id"]: one["title"] for one in alice.team("list")["sessions"]}
    assert "Something else" == titles[pushed["session_id"]]
