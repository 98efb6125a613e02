"""The first index, with bars that may be left: what is missing then is indexed in the background."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from smart_fork.cli.output import say, wants_json
from smart_fork.cli.progress import progress_bar
from smart_fork.errors import SmartForkError

if TYPE_CHECKING:
    from smart_fork.setup.plan import SetupPlan

#: Another process that is indexing is not waited for: it does the same.
_PATIENCE = 0.0


def first_index(plan: SetupPlan) -> tuple[bool, str]:
    """Index everything, the newest first: whether it is whole, and what a person should know.

    Raises:
        SmartForkError: the index or the model is not available.
    """
    from indexer.embedder import ModelUnavailableError
    from indexer.store.extension import VectorsUnavailableError
    from indexer.writer import IndexBusyError

    if not wants_json():
        say("Indexing. Ctrl-C continues in the background.")
    try:
        return True, _indexed()
    except KeyboardInterrupt:
        return False, _later(plan)
    except IndexBusyError:
        return False, "Another process is indexing in the background."
    except (ModelUnavailableError, VectorsUnavailableError) as error:
        step = "`smart-fork doctor` checks the model and the vector store."
        raise SmartForkError(f"Words are indexed, embeddings are not: {error}", step) from error


def _indexed() -> str:
    from indexer.freshness import complete
    from indexer.models import configured_embedder
    from smart_fork.agents import READERS
    from smart_fork.retrieval.index_access import opened
    from smart_fork.retrieval.renewal import renewed

    with opened() as store, progress_bar() as progress:
        with renewed(store, _PATIENCE, progress, vectors=True):
            complete(store, READERS, configured_embedder(), None, patience=_PATIENCE, progress=progress)
        counts = store.counts()
    return f"{counts.sessions:,} sessions, {counts.embedded:,} of {counts.chunks:,} passages with their meaning"


def _later(plan: SetupPlan) -> str:
    """Leave the rest to the service, where one is or is about to be; else to a process of its own."""
    from indexer.paths import private_dir, state_home
    from smart_fork.system.processes import Processes

    if any(step.what == "service" and step.state != "left" for step in plan.steps):
        return "The service does the rest. `smart-fork index status` shows the progress."
    log = private_dir(state_home() / "logs") / "first-index.log"
    argv = [plan.program, "index", "run", "--if-idle"]
    Processes().start(argv, cwd=state_home(), env=os.environ, log=log)
    return "Indexing continues in the background. `smart-fork index status` shows the progress."
