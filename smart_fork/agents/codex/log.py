"""Codex: ``<home>/sessions/YYYY/MM/DD/rollout-<local time>-<thread>.jsonl``, one envelope a line (old: bare items).

A rewind (``thread/revert``, Esc Esc in the terminal) begins another rollout of the same thread, which is named
``rollout-<local time>-<thread>_<rollout>.jsonl`` and goes on from a record of an earlier one. A session is a thread:
its log is the rollout that Codex loads, the others are read where that goes on from them.

Where its sessions are is told here; what is needed to read one is imported where one is read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path, PurePosixPath

from indexer.transcripts.base import LogFile
from indexer.transcripts.files import regular_file
from smart_fork.agents.agent import Storage
from smart_fork.agents.codex.rollouts import day_of, folders, id_in, is_id, is_moved, rollout_in, rollouts
from smart_fork.agents.own_logs import LogAdapter


class CodexAdapter(LogAdapter):
    """Reads Codex's rollouts; no-envelope files of 2025 to 0.169 seen."""

    name = "codex"
    resumes = ("codex", "resume")
    fold = "codex.fold:CodexFold"

    def folders(self) -> tuple[tuple[Path, int], ...]:
        return folders()

    def discover(self) -> Iterator[LogFile]:
        return iter(self._loaded(rollouts()))

    def logs_of(self, changed: str) -> Iterable[LogFile]:
        found = self.log_at(changed)
        session_id = id_in(Path(changed)) if found else ""
        return self._loaded(self._of_session(session_id)) if session_id else filter(None, (found,))

    def has_lost(self, location: str) -> bool:
        """See `AgentAdapter.has_lost`. What a rewind has replaced is no log any more."""
        loaded = self.locate(id_in(Path(location))) if self.log_at(location) else ()
        return bool(loaded) and Path(location) not in loaded

    def log_at(self, location: str) -> LogFile | None:
        return regular_file(location, self.name, self.folders(), prefix="rollout-")

    def locate(self, session_id: str) -> tuple[Path, ...]:
        found = self._loaded(self._of_session(session_id)) if is_id(session_id) else ()
        return tuple(file.path for file in sorted(found, key=lambda file: file.mtime_ns, reverse=True))

    def _of_session(self, session_id: str) -> list[LogFile]:
        return [file for file in rollouts(session_id) if id_in(file.path) == session_id]

    def _loaded(self, files: list[LogFile]) -> list[LogFile]:
        """Those rollouts that Codex loads: of a thread with several the one in its database, else the newest."""
        rewound = {id_in(file.path) for file in files if "_" in file.location.rpartition("/")[2]}
        if not rewound:
            return files
        named = [(file, file.path.name, id_in(file.path)) for file in files]
        there = sorted((session_id, name) for _, name, session_id in named if session_id in rewound)
        loaded = dict(there) | dict(set(_recorded(self.home(), rewound)).intersection(there))
        return [file for file, name, session_id in named if name == loaded.get(session_id, name)]

    def is_composed(self, file: LogFile) -> bool:
        return rollout_in(file.path) != id_in(file.path)

    def as_file(self, path: Path) -> AbstractContextManager[Path]:
        """See `AgentAdapter.as_file`. What follows a rewind needs the rollouts before it."""
        from smart_fork.agents.codex.history import as_one

        return nullcontext(path) if rollout_in(path) == id_in(path) else as_one(path)

    def is_copy(self, path: Path) -> bool:
        return is_moved(path)

    def id_of(self, path: Path) -> str:
        return id_in(path) or path.stem

    def place_of(self, directory: str) -> str:
        return ""


def _recorded(home: Path, session_ids: Collection[str]) -> list[tuple[str, str]]:
    """The names of the rollouts that Codex' database says it loads for these threads, each after its thread."""
    import apsw

    from smart_fork.agents.foreign_database import read_only

    query = f"SELECT id, rollout_path FROM threads WHERE id IN ({', '.join('?' * len(session_ids))})"  # noqa: S608
    for path in sorted(home.glob("state_*.sqlite"), reverse=True):
        with suppress(OSError, apsw.Error, UnicodeDecodeError), read_only(path, locked=True) as db:
            rows = db.execute(query, tuple(session_ids)).fetchall()
            return [(str(one), PurePosixPath(str(where)).name) for one, where in rows]
    return []


class CodexStorage(Storage):
    """The files of Codex."""

    def restored(self, place: str, session_id: str) -> str:
        """See `Storage.restored`. Its archive is not where it looks for sessions to fork."""
        name = PurePosixPath(place).name
        day = day_of(name)
        return f"sessions/{'/'.join(day)}/{name}" if day else place
