"""What answers here: what a question has no time to index goes on in a detached process."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from indexer.changes import Progress
from indexer.models import configured_embedder
from indexer.paths import private_dir, state_home
from indexer.project import Project
from indexer.settings import BACKGROUND
from smart_fork.caller import caller_session
from smart_fork.errors import SmartForkError
from smart_fork.finding.rerank import configured_reranker
from smart_fork.finding.upkeep import Engine
from smart_fork.system.processes import Processes

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from smart_fork.finding.library import Library
    from smart_fork.finding.shared import Shared

log = logging.getLogger(__name__)

#: How long a question to a process that stays waits for the model, for logs to be read, and for vectors of what is new.
MODEL_SECONDS, READ_SECONDS, EMBED_SECONDS = 12.0, 12.0, 5.0


def library(
    path: str | None = None, progress: Progress | None = None, shared: Shared | None = None, **how: Any
) -> AbstractContextManager[Library]:
    """The sessions that the command line finds, never the one that it is run in; see `Library.open`.

    In a process that stays, which has a `shared` model, those that its callers find.
    """
    from smart_fork.finding.library import Library

    own = engine(progress)
    if shared is None:
        return Library.open(path, own, caller=caller_session(os.environ), **how)
    own = replace(own, embedder=shared, read_seconds=READ_SECONDS, embed_seconds=EMBED_SECONDS)
    return Library.open(path, own, **how)


def engine(progress: Progress | None = None) -> Engine:
    """What answers for the command line."""
    return Engine(
        configured_embedder(),
        progress=progress,
        unfinished=index_in_background if allowed() else None,
        rerank=configured_reranker(),
    )


def allowed() -> bool:
    """Whether a process may be left behind to go on indexing (``SMART_FORK_BACKGROUND``)."""
    return not BACKGROUND.is_off()


def index_in_background(project: Project | None) -> None:
    """Start ``smart-fork index run`` detached, this project first. One at a time: it ends at once where another process
    is indexing.
    """
    argv = [sys.executable, "-m", "smart_fork", "index", "run", "--if-idle"]
    argv += [f"--project={project.root}"] if project else []
    try:
        output = private_dir(state_home() / "logs") / "index.log"
        Processes().start(argv, cwd=state_home(), env=dict(os.environ), log=output)
    except (SmartForkError, OSError) as error:  # the answer is there all the same
        log.warning("indexing does not go on in the background: %s", error)
