"""The group that the verbs are added to."""

from __future__ import annotations

from smart_fork.cli.command import Commands

app = Commands(
    help="Share sessions with a team: push, pull, branch and fork them, and find those of others.",
    no_args_is_help=True,
)
