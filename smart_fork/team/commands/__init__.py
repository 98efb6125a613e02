"""``team``: sessions that people share. One module a group of verbs, each of which adds its own to `app`."""

from __future__ import annotations

from smart_fork.team.commands import hosting, listing, push, session
from smart_fork.team.commands.team_group import TeamPlace, app

__all__ = ["TeamPlace", "app", "hosting", "listing", "push", "session"]
