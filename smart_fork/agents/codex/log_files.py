"""Codex's logs: ``<home>/sessions/YYYY/MM/DD/rollout-<local time>-<thread>.jsonl``, called rollouts.

Each line has a JSON object with a record in its field ``payload`` (old versions: only the record). A rewind
(``thread/revert``, Esc Esc in the terminal) begins another rollout of the thread, ``rollout-<local
time>-<thread>_<rollout>.jsonl``, which continues from a record of an earlier one. A session is a thread: its log is
the rollout that Codex loads. Modules needed only for reading are imported when a log is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from indexer.json_values import text_in
from indexer.transcripts.base import LogFile, regular_file
from indexer.transcripts.lines import decode_line, last_lines
from smart_fork.agents.codex import rollouts
from smart_fork.agents.log_adapters import LogAdapter, newest_first
from smart_fork.agents.storage import Storage


class CodexAdapter(LogAdapter):
    """The adapter that finds and reads Codex's rollouts (logs), as seen from 2025 to version 0.169."""

    name = "codex"
    endings = rollouts.ENDINGS
    mixed = True
    resumes = ("codex", "resume")
    fold = "codex.session_reader:CodexFold"

    def folders(self) -> tuple[tuple[Path, int], ...]:
        return rollouts.folders()

    def discover(self) -> Iterator[LogFile]:
        return iter(self._loaded(rollouts.rollouts()))

    def logs_of(self, changed: str) -> Iterable[LogFile]:
        found = self.log_at(changed)
        session_id = rollouts.id_in(Path(changed)) if found else ""
        return self._loaded(self._of_session(session_id)) if session_id else filter(None, (found,))

    def has_lost(self, location: str) -> bool:
        """Return True if the file at `location` is no session's log, such as a rollout that a rewind has replaced."""
        loaded = self.locate(rollouts.id_in(Path(location))) if self.log_at(location) else ()
        return super().has_lost(location) or (bool(loaded) and Path(location) not in loaded)

    def log_at(self, location: str) -> LogFile | None:
        file = regular_file(location, self.name, self.folders(), "rollout-", rollouts.ENDINGS)
        is_both = file and rollouts.is_compressed(file.path) and file.path.with_suffix("").exists()
        return None if is_both else file

    def locate(self, session_id: str) -> tuple[Path, ...]:
        return newest_first(self._loaded(self._of_session(session_id)) if rollouts.is_uuid(session_id) else ())

    def _of_session(self, session_id: str) -> list[LogFile]:
        return [file for file in rollouts.rollouts(session_id) if rollouts.id_in(file.path) == session_id]

    def _loaded(self, files: list[LogFile]) -> list[LogFile]:
        """Return the rollouts that Codex loads, one for each session: the one in Codex's database, else the newest."""
        rewound = {rollouts.id_in(file.path) for file in files if "_" in file.location.rpartition("/")[2]}
        if not rewound:
            return files
        known = {one: thread for home in reversed(self.homes()) for one, thread in threads(home).items()}
        named = [(file, file.path.name, rollouts.id_in(file.path)) for file in files]
        there = sorted((session_id, name) for _, name, session_id in named if session_id in rewound)
        loaded = dict(there) | {one: name for one, name in there if one in known and known[one].rollout == name}
        return [file for file, name, session_id in named if name == loaded.get(session_id, name)]

    def is_composed(self, file: LogFile) -> bool:
        return rollouts.rollout_in(file.path) != rollouts.id_in(file.path) or rollouts.is_compressed(file.path)

    def as_file(self, path: Path) -> AbstractContextManager[Path]:
        """Return a context with the whole session as one file, with the rollouts before a rewind."""
        from smart_fork.agents.codex.ancestry import merged_rollouts, unpacked

        if rollouts.rollout_in(path) != rollouts.id_in(path):
            return merged_rollouts(path)
        return unpacked(path) if rollouts.is_compressed(path) else nullcontext(path)

    def is_copy(self, path: Path) -> bool:
        return rollouts.is_moved(path)

    def id_of(self, path: Path) -> str:
        return rollouts.id_in(path) or path.name.partition(".")[0]


class Thread(NamedTuple):
    """A thread (session) in Codex's database: the name of the rollout (log) that Codex loads, and its title."""

    rollout: str
    name: str


#: Limits: rows of the database, and characters of a text.
_MAX_THREADS, _MAX_TEXT = 100_000, 2_000
#: The limit of steps of SQLite's virtual machine: an odd database must not keep a list waiting.
_MAX_STEPS = 50_000_000
_TEXTS = ("id", "rollout_path", "name", "title", "first_user_message", "preview")


def threads(home: Path) -> Mapping[str, Thread]:
    """Return the threads in Codex's newest database in the folder `home`, by id; empty if none can be read."""
    found = list[tuple[int, Path]]()
    with suppress(OSError):  # a server's user may not look into the home of whoever started it
        found += [(int(one.stem[6:]), one) for one in home.glob("state_*.sqlite") if one.stem[6:].isdecimal()]
    for _, path in sorted(found, reverse=True):
        with suppress(OSError, ValueError):
            stamps = (one.stat() for one in (path, path.with_name(f"{path.name}-wal")) if one.exists())
            if said := _threads(path, tuple((one.st_size, one.st_mtime_ns, one.st_ino) for one in stamps)):
                return said
    return {}


@lru_cache(maxsize=4)
def _threads(path: Path, _stamps: tuple[tuple[int, ...], ...]) -> Mapping[str, Thread]:
    """Return the threads in Codex's database by id; empty if it is unreadable. Cached until the file changes."""
    import apsw

    from smart_fork.agents.foreign_database import columns, read_only

    try:
        with read_only(path, locked=True) as db:
            db.set_progress_handler(lambda: True, _MAX_STEPS)
            is_table = "SELECT 1 FROM sqlite_schema WHERE name = 'threads' AND type = 'table'"
            there = columns(db, "threads") if db.execute(is_table).get else ()
            wanted = ", ".join(f"substr({one}, 1, {_MAX_TEXT})" if one in there else "''" for one in _TEXTS)
            rows = db.execute(f"SELECT {wanted} FROM threads LIMIT {_MAX_THREADS}").fetchall()  # noqa: S608 - constants
    except (OSError, apsw.Error, UnicodeDecodeError):
        return {}
    found = [dict(zip(_TEXTS, map(text_in, row), strict=True)) for row in rows]
    return {row["id"]: Thread(PurePosixPath(row["rollout_path"]).name, _name_of(row)) for row in found}


def _name_of(row: Mapping[str, str]) -> str:
    """Return the name that a person or Codex gave a thread; empty if it only repeats the first prompt."""
    shown, name = (row["first_user_message"], row["preview"]), row["name"].strip() or row["title"].strip()
    return "" if any(name and name in (one.strip(), one.strip()[: len(name)]) for one in shown) else name


class CodexStorage(Storage):
    """The rules for where Codex stores sessions. Each session can be resumed in every directory."""

    def restored(self, place: str, session_id: str) -> str:
        """Return the path, outside the archive, for a restored log: Codex forks no archived session."""
        name = PurePosixPath(place).name
        day = rollouts.day_of(name)
        return f"sessions/{'/'.join(day)}/{name}" if day else place


#: The file with names that people gave to threads.
_FILE = "session_index.jsonl"
#: The bytes at the file's end that are read, where the newest names are.
_MAX_BYTES = 4 << 20


def thread_name(home: Path, session_id: str) -> str:
    """Return the name of a thread (session) in Codex's index of names; empty if it has none."""
    path = home / _FILE
    with suppress(OSError):
        info = path.stat()
        return _names(path, info.st_size, info.st_mtime_ns, info.st_ino).get(session_id, "")
    return ""


@lru_cache(maxsize=1)
def _names(path: Path, *_state: int) -> Mapping[str, str]:
    """Return the names of threads by id, from Codex's index of names. Cached until the file changes."""
    names = {}
    for line in reversed([*last_lines(path, _MAX_BYTES)]):
        for _, record in decode_line(line)[0] if line else ():
            if isinstance(known := record.get("id"), str) and isinstance(name := record.get("thread_name"), str):
                names[known] = name
    return names
