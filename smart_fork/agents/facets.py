"""What one agent's folder has of something that not every agent has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

from indexer.transcripts.model import Agent
from smart_fork.errors import Usage


class Facet(Protocol):
    """Something that is one agent's."""

    @property
    def name(self) -> Agent:
        """The agent."""
        ...


F = TypeVar("F", bound=Facet)


def facet_of(agent: str, facets: Iterable[F], refusal: str) -> F:
    """The agent's own one.

    Raises:
        Usage: it has none, which is said as `refusal`.
    """
    if found := next((one for one in facets if one.name == agent), None):
        return found
    raise Usage(refusal)
