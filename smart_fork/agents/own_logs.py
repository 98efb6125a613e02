"""Readers of logs in an agent's own folder."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from indexer.transcripts.base import AgentAdapter, Checkpoint, LogFile, ReadResult, is_name
from indexer.transcripts.model import Session
from smart_fork.agents import AGENTS

if TYPE_CHECKING:
    from indexer.transcripts.fold import LineFold


class OwnLogs(AgentAdapter):
    """Reads logs in the folder that its agent's description names."""

    def __init__(self) -> None:
        self.own = AGENTS[self.name].home
        self.variable, self.places = self.own.variable, self.own.places

    def homes(self) -> tuple[Path, ...]:
        return self.own.folders()


class LogAdapter(OwnLogs):
    """Reads logs with one record a line. Modules that only reading needs are imported there."""

    #: The class that reads a log, as "module:name" below this package.
    fold: ClassVar[str]

    @property
    def tree(self) -> Callable[..., Any]:
        """The class that reads a log."""
        module, _, name = self.fold.partition(":")
        return cast("Callable[..., Any]", getattr(import_module(f"smart_fork.agents.{module}"), name))

    def has_lost(self, location: str) -> bool:
        """See `AgentAdapter.has_lost`. Older versions took what a sync program leaves for a log."""
        name = location.rpartition("/")[2].removesuffix(".zst").rpartition(".")[0]
        return not is_name(name) and any(location.startswith(f"{folder}/") for folder, _ in self.folders())

    def begun(self, path: Path) -> LineFold:
        """Return what a session is collected in, for whoever reads the lines of its log."""
        from indexer.transcripts.lines import current_bound

        fold: LineFold = self.tree(path, None, keep_raw=False)
        fold.doings.names_code = current_bound.get() is None
        return fold

    def read(self, path: Path, checkpoint: Checkpoint | None = None, *, keep_raw: bool = False) -> ReadResult:
        from indexer.transcripts import fold

        return fold.read(self.tree, path, checkpoint, keep_raw=keep_raw)

    def glance(self, path: Path) -> Session | None:
        from indexer.transcripts import fold

        return fold.glance(self.tree, path)

    def time_of(self, file: LogFile) -> str:
        moment: str = self.tree(file.path, None, keep_raw=False).note_end()
        return moment
