"""What a service says of itself when it is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from indexer.values import Value, spread, value


@value
class IndexingStatus(Value):
    """How indexing goes, as a service of this version or another says it (see `indexer.runs.Freshness`)."""

    said: Mapping[str, Any] = spread()

    @property
    def state(self) -> str:
        """``off`` where it only indexes when it is asked."""
        return str(self.said.get("state"))

    @property
    def doing(self) -> str:
        """What it is at."""
        return str(self.said.get("doing") or "")

    @property
    def next_run(self) -> str:
        """When it looks at all logs next."""
        return str(self.said.get("next_run") or "")

    @property
    def last_error(self) -> str:
        """What went wrong last."""
        return str(self.said.get("last_error") or "")

    @property
    def last_error_at(self) -> str:
        """And when."""
        return str(self.said.get("last_error_at") or "")


@value
class ServiceStatus(Value):
    """What a service says of itself. `restart` is ``from`` which version ``to`` which one it is going to change."""

    version: str
    indexing: IndexingStatus
    restart: Mapping[str, str] | None = None

    @property
    def change(self) -> str:
        """The change of version in words; empty where none is pending."""
        return "{from} -> {to}".format_map(self.restart) if self.restart else ""


@value
class WayIn(Value):
    """The `file` to be opened in a browser, or the `code` to be entered at `page`, and for how long that is so."""

    file: str
    page: str
    code: str
    seconds: float
