"""Which engine answers: ``SMART_FORK_ENGINE``, else ``engine`` in ``config.toml``, else the own index."""

from __future__ import annotations

import os
from collections.abc import Mapping

from indexer.settings import ENGINE
from smart_fork import config
from smart_fork.engines.base import SearchEngine
from smart_fork.errors import Usage
from smart_fork.text.snippets import shown

OWN = ENGINE.default


def configured_engine(environment: Mapping[str, str] | None = None) -> SearchEngine | None:
    """The search program that answers in the place of the own index; `None` where none does.

    Raises:
        Usage: there is no such engine, or ``config.toml`` cannot be read.
    """
    environment = os.environ if environment is None else environment
    name = ENGINE.text(environment).lower() or config.engine()
    if name in ("", OWN):
        return None
    if name == "qmd":
        from smart_fork.engines.qmd import Qmd

        return Qmd(environment=environment)
    raise Usage(f"engine must be '{OWN}' or 'qmd', not {shown(name)}", f"Set {ENGINE}, or `engine` in config.toml.")


def erased_by_engines() -> bool:
    """Whether no search program, configured or not, has anything left of what has been taken out of the exports."""
    from smart_fork.engines.qmd import Qmd

    return Qmd().erase()
