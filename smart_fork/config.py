"""``<SMART_FORK_HOME>/config.toml``: what a person has settled once."""

from __future__ import annotations

import tomllib
from typing import Any

from indexer.paths import state_home
from smart_fork.errors import Usage


def allowed_projects() -> list[str]:
    """The directories of projects that every client of the service may ask about: ``[service] projects``.

    Raises:
        Usage: the file is no TOML, or that is no list of paths.
    """
    path = state_home() / "config.toml"
    try:
        settings: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise Usage(f"{path} cannot be read: {error}", "Mend it, or take it away.") from error
    service = settings.get("service", {})
    projects = service.get("projects", []) if isinstance(service, dict) else None
    if not isinstance(projects, list) or not all(isinstance(one, str) and one for one in projects):
        raise Usage(f"{path}: projects is no list of paths", 'Such as: [service] projects = ["~/code/shop"].')
    return projects
