"""``smart-fork welcome``: what a plugin's SessionStart hook puts before the model. One line at most, never an error."""

from __future__ import annotations

import os
import sys

from indexer.project import project_of
from indexer.safe_files import index_db
from smart_fork.cli import index_queries


def main() -> None:
    """Print the line, if there is anything to say. Does not return: an agent's start must not fail for it."""
    try:
        sys.stdout.write(line())
        sys.stdout.flush()
    except BaseException:  # noqa: BLE001, S110 - see above
        pass
    os._exit(0)


def line() -> str:
    """Return the welcome line for a new session in the current directory; empty for a worker or without news.

    Titles stay out of it: what stands in a log must not get before a model unasked.
    """
    if os.environ.get("SMART_FORK_WORKER_ID"):
        return ""
    known = index_queries.count(index_db(), project_of(os.getcwd()).key)  # noqa: PTH109
    if not known:
        return ""
    sessions = "1 past session" if known == 1 else f"{known:,} past sessions"
    return (
        f"smart-fork: {sessions} of this repository can be searched and forked. Before work that resembles something"
        " done earlier, ask its tools for a session that knows how.\n"
    )
