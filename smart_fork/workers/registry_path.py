"""The path of the worker registry, a database. These functions never create the file."""

from __future__ import annotations

from pathlib import Path

from indexer.safe_files import state_home


def registry_file() -> Path:
    """Return the path ``<SMART_FORK_HOME>/workers.db``."""
    return state_home() / "workers.db"


def has_registry() -> bool:
    """Return True if the worker registry exists: smart-fork has started a worker before. The database is not opened."""
    return registry_file().exists()
