"""An option with an empty value is refused: it is a variable of a shell that was not set."""

from __future__ import annotations

import pytest

from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (("fork", "60309e1e", "go on", "--worktree-name="), "--worktree-name"),
        (("fork", "60309e1e", "go on", "--worktree", "--worktree-name", ""), "--worktree-name"),
        (("fork", "60309e1e", "go on", "--cwd="), "--cwd"),
        (("fork", "60309e1e", "go on", "--name="), "--name"),
        (("fork", "60309e1e", "go on", "--keep="), "--keep"),
        (("new", "go on", "--project="), "--project"),
        (("resume", "60309e1e", "--name="), "--name"),
        (("find", "retry", "--project="), "--project"),
        (("list", "--project="), "--project"),
    ],
)
def test_it_is_said_which(run, command, option):  # noqa: F811
    done = run(*command)

    assert 2 == done.code
    assert f"{option} is empty" in done.err


def test_more_results_than_there_ever_are_is_refused(run):  # noqa: F811
    done = run("find", "retry", "--limit", "51")

    assert 2 == done.code
    assert "limit must be at most 50, not 51" in done.err
