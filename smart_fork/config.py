"""``<SMART_FORK_HOME>/config.toml``: what a person has settled once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from indexer.paths import state_home
from smart_fork.errors import Usage


def allowed_projects() -> list[str]:
    """The directories of projects that every client of the service may ask about: ``[service] projects``.

    Raises:
        Usage: the file is no TOML, or that is no list of paths.
    """
    service = _settings().get("service", {})
    projects = service.get("projects", []) if isinstance(service, dict) else None
    if not isinstance(projects, list) or not all(isinstance(one, str) and one for one in projects):
        raise Usage(f"{_file()}: projects is no list of paths", 'Such as: [service] projects = ["~/code/shop"].')
    return projects


def engine() -> str:
    """The name of the engine that answers, in lower case: ``engine``. Empty where none is named.

    Raises:
        Usage: the file is no TOML, or that is no name.
    """
    name = _settings().get("engine", "")
    if not isinstance(name, str):
        raise Usage(f"{_file()}: engine is no name", 'Such as: engine = "qmd", above the first [section].')
    return name.strip().lower()


def section(name: str) -> dict[str, Any]:
    """What stands under ``[name]``; empty where there is no such section.

    Raises:
        Usage: the file is no TOML, or that is no section.
    """
    found = _settings().get(name, {})
    if not isinstance(found, dict):
        raise Usage(f"{_file()}: {name} is no section", f"Write it as [{name}], and what belongs to it below.")
    return found


def _file() -> Path:
    return state_home() / "config.toml"


def _settings() -> dict[str, Any]:
    try:
        written = _file().read_text("utf-8")
        import tomllib  # most people have no such file

        return tomllib.loads(written)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        raise Usage(f"{_file()} cannot be read: {error}", "Mend it, or take it away.") from error
