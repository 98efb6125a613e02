"""Whose model makes the vectors of a question: the service's, where one runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from indexer.paths import state_home

if TYPE_CHECKING:
    from indexer.embedder import Embedder


def embedder() -> Embedder | None:
    """What asks the service for vectors; `None` where none has been announced."""
    if not (state_home() / "service.json").exists():  # nothing is imported for nothing
        return None
    from indexer.models import configured_embedder
    from smart_fork.service.client import SharedEmbedder

    return SharedEmbedder(configured_embedder())
