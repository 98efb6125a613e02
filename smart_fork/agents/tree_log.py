"""Finds the sessions of agents with a folder for each project, one file a session, and records with parents.

Modules that only reading needs are imported there.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import ClassVar

from indexer.transcripts.base import LogFile, regular_file, regular_files
from smart_fork.agents.own_logs import LogAdapter


class TreeAdapter(LogAdapter):
    """Reads ``<home>/projects/<slug>/…/<session-id>.jsonl``."""

    #: The depth of logs below ``projects``.
    depth: ClassVar[int]

    def slug(self, directory: str) -> str:
        """Return the folder name of a directory's sessions; empty if folders do not tell the directory."""
        return ""

    @abstractmethod
    def is_session(self, location: str, projects: str) -> bool:
        """Return whether a file's location is a session's, not a sub-agent's."""

    @property
    def projects(self) -> Path:
        """The folder of all projects."""
        return self.home() / self.own.logs[0]

    def folders(self) -> tuple[tuple[Path, int], ...]:
        return tuple((one / self.own.logs[0], self.depth) for one in self.homes())

    def discover(self) -> Iterator[LogFile]:
        return self._logs(self.endings[0])

    def log_at(self, location: str) -> LogFile | None:
        file = regular_file(location, self.name, self.folders(), suffix=self.endings[0])
        above = (str(folder) for folder, _ in self.folders() if location.startswith(f"{folder}/"))
        return file if file and any(self.is_session(location, one) for one in above) else None

    def locate(self, session_id: str) -> tuple[Path, ...]:
        found = [file for file in self._logs(f"{session_id}.jsonl") if file.path.stem == session_id]
        return tuple(file.path for file in sorted(found, key=lambda file: file.mtime_ns, reverse=True))

    def id_of(self, path: Path) -> str:
        return path.stem

    def is_copy(self, path: Path) -> bool:
        from indexer.transcripts import tree

        return tree.is_copy(self.tree, path)

    def twins(self, path: Path) -> tuple[Path, ...]:
        """See `AgentAdapter.twins`: of the same name in other folders. A second name of the same file is none."""
        folders, own = [str(folder) for folder, _ in self.folders()], str(path)
        within = next((one for one in folders if own.startswith(f"{one}/")), "")
        project, _, rest = own.removeprefix(f"{within}/").partition("/")
        if not within or not rest:
            return ()
        there = (f"{one}/{name}/{rest}" for one in folders for name in self.projects_in(one, project))
        files = [file for one in there if one != own and os.path.exists(one) and (file := self.log_at(one))]  # noqa: PTH110 - as text
        own_file = self.log_at(own)
        known = {own_file.inode} if own_file else set[int]()  # its agent deletes logs at any moment
        return tuple(file.path for file in files if file.inode not in known and not known.add(file.inode))  # type: ignore[func-returns-value]

    def projects_in(self, folder: str, own: str) -> Iterable[str]:
        """Return the names of the projects in a folder in which a log of the project `own` may have another end."""
        return sorted(os.listdir(folder)) if os.path.isdir(folder) else ()  # noqa: PTH112, PTH208 - as text

    def logs_of(self, changed: str) -> Iterable[LogFile]:
        found = self.log_at(changed)
        twins = self.twins(found.path) if found else ()
        return filter(None, (found, *(self.log_at(str(path)) for path in twins)))

    def place_of(self, directory: str) -> str:
        return f"{self.projects}/{slug}" if (slug := self.slug(directory)) else ""

    def _logs(self, suffix: str) -> Iterator[LogFile]:
        for projects, depth in self.folders():
            for file in regular_files(projects, self.name, suffix, depth=depth):
                if self.is_session(file.location, str(projects)):
                    yield file
