"""The file of the register of workers. Whoever has started nothing has none, and none is made by looking."""

from __future__ import annotations

from pathlib import Path

from indexer.files import state_home


def registry_file() -> Path:
    """``<SMART_FORK_HOME>/workers.db``."""
    return state_home() / "workers.db"


def has_registry() -> bool:
    """Whether anything was ever started from here, known without opening a database."""
    return registry_file().exists()
