"""What answers for a command, and whose model makes the vectors of its question: the service's, where one runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from indexer.paths import state_home

if TYPE_CHECKING:
    from indexer.changes import Progress
    from indexer.embedder import Embedder
    from smart_fork.retrieval.upkeep import Engine


def embedder() -> Embedder | None:
    """What asks the service for vectors; `None` where none has been announced."""
    if not (state_home() / "service.json").exists():  # nothing is imported for nothing
        return None
    from indexer.models import configured_embedder
    from smart_fork.service.client import SharedEmbedder

    return SharedEmbedder(configured_embedder())


def engine(progress: Progress | None = None) -> Engine:
    """What answers for a command that forks: a fork waits for no model that the service has loaded already."""
    from smart_fork.retrieval.background import engine as with_model

    return with_model(progress, embedder())
