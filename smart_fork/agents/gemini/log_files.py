"""Gemini CLI's logs: ``<home>/.gemini/tmp/<project>/chats/session-<minute>-<id>.jsonl``.

A log has a record on each line. Its name has the first 8 characters of the session's id, or the whole id if smart-fork
named the file. A log with the whole id remains when its session is resumed. Sub-agents' files are one folder deeper.
Old versions wrote one JSON object to a ``.json`` file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from indexer.json_values import dict_in, json_at
from indexer.transcripts.base import MAX_DAYS, Checkpoint, LogFile, ReadResult, Retention, regular_file, regular_files
from indexer.transcripts.lines import first_lines
from indexer.transcripts.model import Session
from indexer.transcripts.reader_state import utc
from smart_fork.agents.gemini.home import BEGINS, CHATS, id_of, is_named_whole, project_for, write_root
from smart_fork.agents.log_adapters import OwnLogs, newest_first
from smart_fork.agents.storage import Storage

_ENDINGS = (".jsonl", ".json")
#: The setting for how long logs are kept, the days of its units, and the default in days.
_AGE, _DAYS, _USUAL_DAYS = re.compile(r"(\d{1,9})([hdwm])"), {"h": 1 / 24, "d": 1.0, "w": 7.0, "m": 30.0}, 30.0
#: The number of an id's characters in the names of logs.
SHORT = 8
_DATED = re.compile(rf"{BEGINS}[\d-]{{10}}T[\d-]{{5}}-")
_NAMED = re.compile(rf"{_DATED.pattern}(?:\w{{{SHORT}}}|\w{{{SHORT}}}(?:-\w{{4}}){{3}}-\w{{12}})\.")


class GeminiAdapter(OwnLogs):
    """The adapter that finds and reads Gemini CLI's sessions; version 0.61.0 seen."""

    name = "gemini"
    named_by_id = False

    def folders(self) -> tuple[tuple[Path, int], ...]:
        return tuple((one / "tmp", 2) for one in self.homes())

    def retention(self) -> Retention | None:
        path = self.home() / "settings.json"
        said = dict_in(dict_in(dict_in(json_at(path)).get("general")).get("sessionRetention"))
        if said.get("enabled") is False:
            return None
        age = _AGE.fullmatch(said["maxAge"]) if isinstance(said.get("maxAge"), str) else None
        days = int(age[1]) * _DAYS[age[2]] if age else _USUAL_DAYS
        return Retention(min(days, MAX_DAYS), f"general.sessionRetention in {path}")

    def discover(self) -> Iterator[LogFile]:
        return self._logs(_ENDINGS)

    def log_at(self, location: str) -> LogFile | None:
        for ending in _ENDINGS:
            file = regular_file(location, self.name, self.folders(), BEGINS, ending)
            if file and _is_session(location) and not _has_another_name(file):
                return file
        return None

    def locate(self, session_id: str) -> tuple[Path, ...]:
        if not session_id:
            return ()
        names = (f"-{name}{ending}" for name in dict.fromkeys((session_id[:SHORT], session_id)) for ending in _ENDINGS)
        found = [file for file in self._logs(tuple(names)) if self.id_of(file.path) == session_id]
        if len(found) > 1:  # of one that was resumed there is a file beside it in which nobody has said anything
            found = [file for file in found if self._is_asked(file.path)] or found
        return newest_first(found)

    def read(self, path: Path, checkpoint: Checkpoint | None = None, *, keep_raw: bool = False) -> ReadResult:
        from smart_fork.agents.gemini import session_reader

        return session_reader.read(path, checkpoint, keep_raw=keep_raw)

    def id_of(self, path: Path) -> str:
        return id_of(path)

    def is_copy(self, path: Path) -> bool:
        from smart_fork.agents.gemini import session_reader

        return session_reader.is_copy(path)

    def glance(self, path: Path) -> Session | None:
        from smart_fork.agents.gemini import session_reader

        return session_reader.glance(path)

    def time_of(self, file: LogFile) -> str:
        if file.path.suffix != _ENDINGS[0]:
            return super().time_of(file)
        from smart_fork.agents.gemini import session_reader

        return session_reader.GeminiFold(file.path, None, keep_raw=False).note_end()

    def resume_command(self, session_id: str) -> tuple[str, ...]:
        """Return Gemini CLI's own command if the log's name has the whole id, else ``smart-fork resume``.

        Gemini CLI would delete a log with only the beginning of the id after it resumed the session.
        """
        safe = any(is_named_whole(path) for path in self.locate(session_id))
        return ("gemini", "--resume", session_id) if safe else ("smart-fork", "resume", session_id)

    def _is_asked(self, path: Path) -> bool:
        try:
            return self.glance(path) is not None
        except OSError:
            return False

    def _logs(self, endings: Iterable[str]) -> Iterator[LogFile]:
        """Yield the session logs with these endings. Of a file with two names, yield only the one with the whole id."""
        found = [
            file
            for ending in endings
            for folder, depth in self.folders()
            for file in regular_files(folder, self.name, ending, depth=depth, prefix=BEGINS)
            if _is_session(file.location)
        ]
        named_whole = {(file.path.parent, file.inode) for file in found if is_named_whole(file.path)}
        for file in found:
            if is_named_whole(file.path) or (file.path.parent, file.inode) not in named_whole:
                yield file


def start_of(log: Path) -> str:
    """Return the time at which a log's session began, from its first record; else empty."""
    try:
        return next((utc(line.record.get("startTime")) for line in first_lines(log)), "")
    except OSError:
        return ""


def whole_name(log: Path, session_id: str) -> str:
    """Return the file name that `log` would have with the whole session id."""
    return f"{log.stem.removesuffix(f'-{session_id[:SHORT]}').removesuffix(f'-{session_id}')}-{session_id}{log.suffix}"


def new_name(session_id: str, moment: datetime) -> str:
    """Return the file name for the log of a new session that began at `moment`, with the whole id."""
    return f"{BEGINS}{moment.astimezone(UTC):%Y-%m-%dT%H-%M}-{session_id}.jsonl"


def _is_session(location: str) -> bool:
    """Return True if a file is the log of a session, not of a sub-agent."""
    _, folder, name = location.rsplit("/", 2)
    return folder == CHATS and (_DATED.match(name) is None or _NAMED.match(name) is not None)


def _has_another_name(file: LogFile) -> bool:
    with suppress(OSError, ValueError):
        if not is_named_whole(file.path):
            return (file.path.parent / whole_name(file.path, id_of(file.path))).stat().st_ino == file.inode
    return False


class GeminiStorage(Storage):
    """The rules for where Gemini CLI stores sessions, and in which directories it can resume them."""

    everywhere = True

    def folder(self, directory: Path) -> Path:
        return project_for(directory) / CHATS

    def restored(self, place: str, session_id: str) -> str:
        """Return the path for a restored log, with the whole id in its name, else Gemini CLI would delete it again."""
        log = PurePosixPath(place)
        return str(log.with_name(whole_name(Path(log.name), session_id)))

    def second_path(self, log: Path, session_id: str, directory: Path) -> Path | None:
        name = self.folder(directory) / whole_name(log, session_id)
        if name.parent == log.parent:
            return None if is_named_whole(log) else name
        write_root(name.parent.parent, directory)
        return name
