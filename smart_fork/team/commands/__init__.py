"""``team``: sessions that people share. One module a group of verbs, each of which adds its own to `app`."""

from __future__ import annotations

from smart_fork.team.commands import account, alias, hosting, look, push, session, withdraw
from smart_fork.team.commands.words import TeamPlace, app

__all__ = ["TeamPlace", "account", "alias", "app", "hosting", "look", "push", "session", "withdraw"]
