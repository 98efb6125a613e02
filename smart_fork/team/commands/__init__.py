"""The commands of ``smart-fork team``: each module adds its commands to `app`."""

from __future__ import annotations

from smart_fork.team.commands import account_and_aliases, administration, reading, sharing
from smart_fork.team.commands.team_group import TeamPlace, app

__all__ = ["TeamPlace", "account_and_aliases", "administration", "app", "reading", "sharing"]
