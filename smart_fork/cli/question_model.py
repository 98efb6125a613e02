"""What answers for a command, and whose model makes the vectors of its question: the service's, where one runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from indexer.paths import index_db, state_home

if TYPE_CHECKING:
    from indexer.changes import Progress
    from indexer.embedder import Embedder
    from indexer.transcripts.model import Session
    from smart_fork.retrieval.exchange_evidence import ExchangeEvidence
    from smart_fork.retrieval.upkeep import Engine


def embedder() -> Embedder | None:
    """What asks the service for vectors; `None` where none has been announced."""
    if not _announced():  # nothing is imported for nothing
        return None
    from indexer.models import configured_embedder
    from smart_fork.service.client import SharedEmbedder

    return SharedEmbedder(configured_embedder())


def engine(progress: Progress | None = None) -> Engine:
    """What answers for a command that forks: a fork waits for no model that the service has loaded already."""
    from smart_fork.retrieval.background import engine as with_model

    return with_model(progress, embedder())


def told(session: str | None, intent: str, also: Sequence[str]) -> Callable[[Session], ExchangeEvidence | None] | None:
    """What asks the service what answers in a session; `None` where there is no service, nothing to ask or no index."""
    if session is None or not intent.strip() or not _announced() or not index_db().exists():
        return None
    from smart_fork.service.evidence import ServiceEvidence

    return ServiceEvidence(session, intent, also).of


def _announced() -> bool:
    return (state_home() / "service.json").exists()
