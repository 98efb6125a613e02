"""Tests that a dry run prints the complete equivalent command."""

from __future__ import annotations

import json
import shlex

import pytest

from smart_fork.agents.request_fields import Options
from smart_fork.forking.fork_points import ForkPoint
from smart_fork.forking.plan import same_command
from smart_fork.forking.request import Budget, ForkRequest
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.forks import SESSION
from tests.smart_fork.world import World
from tests.support.cases import parametrize_subtests

RETRY = "add retry with backoff to the uploader"


def command(sessions: list[str], options: Options, **given: object) -> str:
    point = ForkPoint(int(str(given["at"])), "m") if "at" in given else None
    return same_command(sessions, ForkRequest(sessions[0], options, **given), point)  # type: ignore[arg-type]


@parametrize_subtests(
    ("given", "words"),
    [
        ({}, ""),
        ({"at": 5}, " --at 5"),
        ({"budget": Budget.parse("30k"), "intent": "go on"}, " --budget 30000"),
        ({"budget": Budget.parse("match", "3,5-7", "1"), "intent": "retries", "also": ("again", "more")},
         " --budget match --keep 3,5,6,7 --drop 1 --intent retries --also again --also more"),
        ({"at": 0, "as_agent": "codex", "cwd": "/a b"}, " --at 0 --as codex --cwd '/a b'"),
    ],
)  # fmt: skip
def test_it_has_all_that_was_asked_for(given, words):
    assert f"smart-fork fork {SESSION}{words} 'go on'" == command([SESSION], Options("go on"), **given)


@parametrize_subtests(
    ("options", "words"),
    [
        (Options("go on", worktree=True, place="process", name="a b", brief=False), " --in process --name 'a b' --worktree --no-brief 'go on'"),
        (Options("go on", worktree="aside", with_changes=True), " --worktree-name aside --with-changes 'go on'"),
        (Options("-x", worktree=False), " -- -x"),
        (Options(SESSION), f" -- {SESSION}"),
        (Options(), ""),
    ],
)  # fmt: skip
def test_it_has_the_options_of_the_worker(options, words):
    assert f"smart-fork fork {SESSION}{words}" == command([SESSION], options)


def test_several_are_merged():
    assert "smart-fork fork a b --merge --budget 40000 'go on'" == command(
        ["a", "b"], Options("go on"), budget=Budget.parse("40k")
    )


@pytest.mark.parametrize("options", [("--at", "1"), ("--budget", "4k", "--keep", "1"), ("--at", "3", "--budget", "2k")])
def test_what_a_dry_run_says_forks_the_same(run, world: World, shop, options):  # noqa: F811
    turns = [text for number in range(6) for text in (f"{RETRY} {number}", "done " * 600)]
    session = world.claude(shop, *turns)
    first = json.loads(run("fork", session, "go on", *options, "--in", "process", "--dry-run", "--json").out)
    (said,) = [one for one in first["warnings"] if one.startswith("The command needs")]
    _, *words = shlex.split(said.partition(": ")[2])

    again = json.loads(run(*words, "--dry-run", "--json").out)

    assert (first["price"], first.get("selection")) == (again["price"], again.get("selection"))
