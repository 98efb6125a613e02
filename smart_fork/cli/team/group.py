"""The group that the verbs are added to."""

from __future__ import annotations

from smart_fork.cli.command import Commands

app = Commands(
    help="Share sessions with a team, and fork the sessions of others.",
    no_args_is_help=True,
)
