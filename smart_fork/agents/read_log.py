"""Where the logs of agents are that smart-fork only reads: one file a session, described by an `ReadCodec`.

What is needed to read one is imported where one is read.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from indexer.transcripts.base import AgentAdapter, Checkpoint, LogFile, ReadResult
from indexer.transcripts.model import Session
from smart_fork.agents.codec import ReadSource
from smart_fork.agents.tree_log import TreeAdapter


class ReadAdapter(TreeAdapter, ReadSource):
    """Reads ``<home>/<logs>/…/<session-id>.jsonl``: a record a line, or one JSON document that is overwritten."""

    #: Whether a log is one JSON document. `ReadCodec.records` says where its records are.
    document: ClassVar[bool] = False

    @property
    def tree(self) -> Callable[..., Any]:
        from smart_fork.agents.read_fold import ReadTree

        return partial(ReadTree, self)

    def is_session(self, location: str, projects: str) -> bool:
        return True

    def locate(self, session_id: str) -> tuple[Path, ...]:
        found = [file for file in self.discover() if self.id_of(file.path) == session_id]
        return tuple(file.path for file in sorted(found, key=lambda file: file.mtime_ns, reverse=True))

    def read(self, path: Path, checkpoint: Checkpoint | None = None, *, keep_raw: bool = False) -> ReadResult:
        if not self.document:
            return super().read(path, checkpoint, keep_raw=keep_raw)
        from smart_fork.agents.read_fold import read_document

        return read_document(self, path, keep_raw=keep_raw)

    def glance(self, path: Path) -> Session | None:
        return self.read(path).session if self.document else super().glance(path)

    def time_of(self, file: LogFile) -> str:
        return AgentAdapter.time_of(self, file) if self.document else super().time_of(file)

    def is_copy(self, path: Path) -> bool:
        if not self.document:
            return super().is_copy(path)
        session = self.read(path).session
        return session is not None and session.copied
