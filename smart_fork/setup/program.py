"""The command that the agents will start: by its absolute path, where it will still be tomorrow."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution

from smart_fork.errors import ProgramMissing, SmartForkError
from smart_fork.service.units.search_path import own_program

_NAME = "smart-fork"


def lasting_program(env: Mapping[str, str]) -> str:
    """The absolute path of our command.

    Raises:
        SmartForkError: there is none, or it lies in a cache that is emptied, as after ``uvx``.
    """
    try:
        return own_program(env)
    except ProgramMissing as error:
        raise ProgramMissing("No installed smart-fork command was found", _step()) from error
    except SmartForkError as error:
        raise SmartForkError("This smart-fork runs from a temporary folder (uvx)", _step()) from error


def _step() -> str:
    return f"Install it permanently, then set up again:\n  uv tool install {shlex.quote(_source())}\n  smart-fork setup"


def _source() -> str:
    """Where this smart-fork was installed from, as uv takes it: the index, a folder, or a repository."""
    try:
        origin = json.loads(distribution(_NAME).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return _NAME
    url = str(origin.get("url", ""))
    if "vcs_info" in origin:
        return f"{origin['vcs_info'].get('vcs', 'git')}+{url}"
    return url.removeprefix("file://") or _NAME
