"""Options and arguments are checked before a command runs: empty, out of range, or contradictory values are refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from smart_fork.cli.command_table import COMMANDS
from smart_fork.cli.main import command_line
from smart_fork.errors import Usage
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.support.cases import thorough_except_first


def with_values() -> Iterator[tuple[list[str], Any]]:
    """Return every option and argument of every command that takes a value."""

    def below(command: Any, path: list[str]) -> Iterator[tuple[list[str], Any]]:
        yield from ((path, one) for one in command.params if not getattr(one, "is_flag", False))
        for name, one in getattr(command, "commands", {}).items():
            yield from below(one, [*path, name])

    for name in COMMANDS:
        command: Any = command_line(name)
        yield from below(getattr(command, "commands", {name: command})[name], [name])


def given(*words: str) -> str:
    """Return the error for a command line that is refused before the command runs."""
    with pytest.raises(Usage) as refused, command_line(words[0]).make_context("smart-fork", [*words]) as ctx:
        ctx.command.invoke(ctx)
    return refused.value.message


@pytest.mark.parametrize("value", thorough_except_first(["", " \t"]))
@pytest.mark.slow
def test_an_empty_option_is_refused_by_every_command(value):
    options = [(path, one) for path, one in with_values() if one.param_type_name == "option"]

    said = [given(*path, one.opts[0], value) for path, one in options]

    assert len(options) > 190
    assert [f"{one.opts[0]} is empty" for _, one in options] == said


def test_a_second_value_of_an_option_that_takes_one_is_refused_by_every_command():
    """Click takes the last value: `spawn --prompt A --prompt B` would start one worker and lose A silently."""
    options = [(path, one) for path, one in with_values() if one.param_type_name == "option" and not one.multiple]

    said = [given(*path, one.opts[0], "1", one.opts[-1], "2") for path, one in options]

    assert len(options) > 180
    assert [f"{one.opts[0]} is given 2 times" for _, one in options] == said
    assert given("fork", "70f1a07f", "go", "--worktree", "--no-worktree") == "--worktree is given 2 times"


def test_an_empty_argument_is_refused_by_every_command():
    """Without a session, a command often takes the newest one: a cut would hit the wrong session."""
    first = {tuple(path): one for path, one in reversed([*with_values()]) if one.param_type_name == "argument"}

    said = [given(*path, "--", "") for path in first]

    assert [f"{one.metavar or one.name.upper()} is empty" for one in first.values()] == said
    assert given("excise", "cut", "1", "") == "SESSION is empty"


@pytest.mark.parametrize(
    ("words", "pair"),
    [
        ("find x --project . --all-projects", "--project and --all-projects"),
        ("list -p . -A", "--project and --all-projects"),
        ("active --project . --all-projects", "--project and --all-projects"),
        ("active --here --all-projects", "--here and --all-projects"),
        ("stop --project . --all", "--project and --all"),
        ("worktrees --project . -A", "--project and --all-projects"),
        ("list --team --all-projects", "--team and --all-projects"),
        ("find x --team --explain", "--team and --explain"),
        ("find x --team --agent codex", "--agent and --team"),
        ("excise list 60309e1e --session 60309e1f", "SESSION and --session"),
        ("excise cut 1 60309e1e --session 60309e1f", "SESSION and --session"),
        ("excise rollback 20260101 --list", "SNAPSHOT and --list"),
        ("team list --mine --owner ann", "--mine and --owner"),
        ("team privacy 60309e1e --public --private", "--public and --private"),
        ("team jobs --server https://x.example --data .", "--server and --data"),
        ("team user list --data . --dsn postgresql:///x", "--data and --dsn"),
        ("setup --remove --recall", "--remove and --recall"),
        ("setup hooks --remove --print", "--remove and --print"),
    ],
)
def test_what_contradicts_something_else_is_refused(run, words, pair):  # noqa: F811
    done = run(*words.split())

    assert 2 == done.code
    assert f"{pair} are mutually exclusive" in done.err


@pytest.mark.parametrize("words", ["excise rollback --list", "excise list --session 60309e1e", "find x --no-team -A"])
def test_what_goes_together_is_not(run, words):  # noqa: F811
    assert "mutually exclusive" not in run(*words.split()).err


def test_more_results_than_there_ever_are_is_refused(run):  # noqa: F811
    done = run("find", "retry", "--limit", "51")

    assert 2 == done.code
    assert "limit must be at most 50, not 51" in done.err


def test_more_shared_sessions_than_the_server_lists_are_refused(run):  # noqa: F811
    done = run("list", "--team", "--limit", "101")

    assert 2 == done.code
    assert "--limit is at most 100 with --team, not 101" in done.err
