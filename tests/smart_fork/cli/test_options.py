"""The options of a worker on the command line, which are made from the fields of a request."""

from __future__ import annotations

from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from smart_fork.agents.request_fields import Options, takes
from smart_fork.cli.command import CommandApp
from smart_fork.cli.options import NOTHING_SAID


def given(*words: str, **how: object) -> tuple[Options | None, str]:
    """Run a command and return its parameters and its output."""
    seen: list[Options] = []
    application = CommandApp()

    @application.command("run")
    @takes(**how)
    def run(session: str, options: Options = NOTHING_SAID, force: bool = False) -> None:
        seen.append(options)

    done = CliRunner().invoke(application, words)
    return (seen[0] if seen else None), done.output + str(done.exception or "")


def test_what_nobody_has_said_is_as_if_there_were_no_options():
    assert (Options(worktree=False), "") == given("s")
    assert Options(worktree=False) == given("s", "--force")[0]


def test_each_option_is_read_by_its_flag():
    words = ("s", "--in", "tmux", "-w", "--with-changes", "--name", "fixer", "--skip-permissions")

    assert Options(None, True, True, "tmux", "fixer", True) == given(*words)[0]


def test_a_worktree_has_a_name_or_is_one_of_two():
    either = typer.Option("--worktree/--no-worktree")

    assert "retry" == given("s", "--worktree-name", "retry")[0].worktree
    assert given("s", worktree=Annotated[bool | None, either])[0].worktree is None
    options, said = given("s", "--no-worktree", "--worktree-name", "x", worktree=Annotated[bool | None, either])
    assert (None, True) == (options, "--no-worktree goes with neither" in said)


@pytest.mark.parametrize("name", ["place", "skip_permissions"])
def test_a_command_may_do_without_some(name):
    flag = {"place": "--in=tmux", "skip_permissions": "--skip-permissions"}[name]

    assert given("s", flag)[0] is not None
    assert given("s", flag, without=(name,))[0] is None


def test_they_are_shown_in_the_order_of_the_command():
    shown = given("--help", order="name session force place")[1]

    assert shown.index("--name") < shown.index("--force") < shown.index("--in ")


def test_a_command_that_is_alike_is_suggested_once():
    application = CommandApp()
    for name in ("resume", "show"):
        application.command(name)(lambda: None)

    said = CliRunner().invoke(application, ["resum"]).exception.hint

    assert (1, 0) == (said.count("resume`"), said.count("show`")), said
