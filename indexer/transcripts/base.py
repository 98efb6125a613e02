"""The interface of the agents' adapters, which find and read logs, and functions that find logs by listing folders."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple, Protocol

from indexer.errors import IndexerError
from indexer.lazy_compilation import dataclass
from indexer.transcripts.commands import naming_sessions
from indexer.transcripts.model import AgentName, BrokenLine, Session


class LogFile(NamedTuple):
    """A session's log: its location, and its size and times as of one `stat`.

    There are thousands of logs, nearly all unchanged, so nothing else is computed early. If one file (`within`) has
    many sessions, `location` is ``<within>/<key>``, which no file can have as its path. `size` (an estimate) and
    `mtime_ns` are then this session's, so that its change does not cause the others to be read again.
    """

    agent: AgentName
    location: str
    size: int
    mtime_ns: int
    inode: int
    within: str = ""

    @property
    def stamp(self) -> tuple[int, int, int]:
        """Return size, time and inode, which are equal as long as the log is unchanged."""
        return self[2:5]

    @property
    def path(self) -> Path:
        """Return the log's `location` as a path."""
        return Path(self.location)


#: The maximum number of days after which an agent deletes logs. More means that it deletes none.
MAX_DAYS = 1_000_000


class Retention(NamedTuple):
    """An agent's rule: at its start, it deletes logs without a new record for `days`. `setting` decides this."""

    days: float
    setting: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The position at which reading a log ended, and the reader's `state` to continue.

    The digest `probe` shows if the log has only grown.
    """

    offset: int
    lines: int
    probe: str
    state: bytes


#: The reason to skip the log of a known session: a person rewound it to its start.
REWOUND = "rewound to its start"
#: The checkpoint of a log that is read from its start.
UNREAD = Checkpoint(0, 0, "", b"")


@dataclass(frozen=True, slots=True)
class ReadResult:
    """The result of reading a log: its session, or `None` with the reason, and a `checkpoint` from which to continue.

    If the reading began at a checkpoint (`resumed`), `broken` and `bytes_read` cover only what was read. Of all
    `records`, `unknown` counts those of unknown type; both are 0 for agents that do not count. `masked` is True if the
    session's texts are masked.
    """

    session: Session | None
    skipped: str
    checkpoint: Checkpoint
    broken: tuple[BrokenLine, ...]
    bytes_read: int
    resumed: bool = False
    records: int = 0
    unknown: int = 0
    masked: bool = False


class AgentAdapter(Protocol):
    """The interface to one agent's logs: where they are, and how they are read. It never writes."""

    name: AgentName
    #: The environment variable with the path of the agent's folder.
    variable: str
    #: The endings of files whose changes are changes of logs.
    endings: tuple[str, ...] = (".jsonl",)
    #: The usual folders of the agent's logs, below a home, such as ``.agent/sessions``.
    places: tuple[str, ...] = ()
    #: True if the path of a log contains the session's id. Most of many logs are skipped by this.
    named_by_id: bool = True
    #: True if only the records of a log show whether it is a sub-agent's.
    mixed: bool = False
    #: The command before a session's id that resumes it. If empty, this is the agent's name and ``--resume``.
    resumes: tuple[str, ...] = ()

    def homes(self) -> tuple[Path, ...]:
        """Return the agent's own folder (such as ``~/.claude``), then those of further accounts. Some may not exist."""

    def home(self) -> Path:
        """Return the agent's own folder: the first of `homes`."""
        return self.homes()[0]

    def folders(self) -> tuple[tuple[Path, int], ...]:
        """Return the folders with logs, each with the number of levels below it to search. Some may not exist."""

    def odd_files(self) -> Iterator[tuple[str, str]]:
        """Yield (path, reason) for files in the agent's folders that are named like logs but are none."""
        return (found for folder, depth in self.folders() for found in odd_files(folder, self.endings, depth))

    def discover(self) -> Iterator[LogFile]:
        """Yield all session logs of the agent, by directory listing and `stat` alone, without files of sub-agents."""

    def log_at(self, location: str) -> LogFile | None:
        """Return the log at exactly this location, as `discover` would yield it, or `None`."""

    def logs_of(self, changed: str) -> Iterable[LogFile]:
        """Return the logs that may have changed because the file `changed` has changed."""
        found = self.log_at(changed)
        return () if found is None else (found,)

    def has_lost(self, location: str) -> bool:
        """Return True if a log that is a part of a file is gone: the file can be read, and has no log at `location`."""
        return False

    def unread(self) -> str:
        """Return why none of the agent's logs can be read, and what a person can do; empty if nothing is wrong."""
        for folder, _ in self.folders():
            try:
                os.scandir(folder).close()
            except PermissionError:
                return f"{folder} cannot be read; give yourself permission to read it"
            except OSError:  # there is none
                continue
        return ""

    def retention(self) -> Retention | None:
        """Return which logs the agent deletes, according to its settings; `None` if it deletes none."""
        return None

    def is_composed(self, file: LogFile) -> bool:
        """Return True if `as_file` must write a file for this log, because it is no plain file of its own.

        The log may be a part of a file, compressed, or in several files. The written file differs from it in size.
        """
        return bool(file.within)

    def as_file(self, path: Path) -> AbstractContextManager[Path]:
        """Provide the log at `path` as one file that `read` accepts, with everything that the session needs."""
        return nullcontext(path)

    def locate(self, session_id: str) -> tuple[Path, ...]:
        """Return the paths of the logs of the session with this id, newest first."""

    def id_of(self, path: Path) -> str:
        """Return the session id that the log's file name contains."""

    def is_copy(self, path: Path) -> bool:
        """Return True if the log at `path` is a copy: its first records say that the session began in another place."""

    def read(self, path: Path, checkpoint: Checkpoint | None = None, *, keep_raw: bool = False) -> ReadResult:
        """Read the session in the log at `path`. `keep_raw` keeps the verbatim line of each record.

        With a `checkpoint` (the position at which an earlier reading ended), the result is masked for the index, and
        reading continues there if the log has only grown. `UNREAD` is the checkpoint of a log's start.

        Raises:
            OSError: the file cannot be opened, or is not a regular file.
        """

    def glance(self, path: Path) -> Session | None:
        """Read the first and last records of a log, for a list of sessions: title, directory, origin, last time.

        Raises:
            OSError: the file cannot be opened, is not a regular file, or has no record.
        """

    def twins(self, path: Path) -> tuple[Path, ...]:
        """Return other logs of the session at `path`, which was moved or copied and may continue in any of them."""
        return ()

    def time_of(self, file: LogFile) -> str:
        """Return the time of a session's last record. File times are not reliable after a copy, sync or restore."""
        session = self.glance(file.path)
        return session.last_activity if session else ""

    def said_at(self, file: LogFile) -> str:
        """Return the time of a log's last record; empty if it is unknown or the log cannot be read."""
        with suppress(Exception):  # what is wrong with a log is told where it is read
            return self.time_of(file)
        return ""

    def worked_at(self, file: LogFile) -> str:
        """Return when a session was last worked on: at its last record, or at `mtime_ns` if that is unknown."""
        from indexer.transcripts.reader_state import utc

        return ("" if file.within else self.said_at(file)) or utc(file.mtime_ns / 1e9)

    def newest_log(self) -> Path | None:
        """Return the log of the session that was last worked on, or `None` if the agent has no logs."""
        newest = max(self.discover(), key=lambda file: (self.worked_at(file), file.mtime_ns), default=None)
        return newest and newest.path

    def place_of(self, directory: str) -> str:
        """Return the common beginning of the locations of all logs of sessions in or below `directory`, or ""."""
        return ""

    def resume_command(self, session_id: str) -> tuple[str, ...]:
        """Return the command, as its words, with which a person resumes the session."""
        return (*(self.resumes or (self.name, "--resume")), session_id)


class UnknownAgentError(IndexerError, ValueError):
    """smart-fork knows no agent of this name."""

    code = "unknown_agent"
    http_status = 400


class Agents:
    """The agents whose logs are read, by name and in order. The caller provides them."""

    def __init__(self, *agents: AgentAdapter) -> None:
        self._by_name = {agent.name: agent for agent in agents}

    def __iter__(self) -> Iterator[AgentAdapter]:
        return iter(self._by_name.values())

    def __getitem__(self, name: str) -> AgentAdapter:
        """Return the agent of this name, or raise `UnknownAgentError`."""
        if agent := self._by_name.get(name):
            return agent
        raise UnknownAgentError(f"unknown agent {name!r}; known are {', '.join(self.names)}")

    @cached_property
    def _sessions(self) -> re.Pattern[str]:
        return naming_sessions(place for agent in self for place in agent.places)

    def opens_a_session(self, action: str) -> bool:
        """Return True if an action line (the one-line text for a call) names a log of any agent, or an export."""
        return self._sessions.search(action) is not None

    def deleted(self, paths: Iterable[str]) -> list[str]:
        """Return those of `paths` at which there is no log. Logs in an unreadable file count as present."""
        return [path for path in paths if not is_there(path) or any(agent.has_lost(path) for agent in self)]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the agents."""
        return tuple(self._by_name)


_MAX_NUMBER = (1 << 63) - 1
_UUID = "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
#: An id, after a rewind together with another one; below, what agents write before an id, and names without an id.
_ID, _BEFORE = re.compile(rf"{_UUID}(?:_{_UUID})?"), re.compile(r"[a-z]+-\d{4}-[\dT-]+-|\d[\dTZ.:-]*_|T-|")
_PLAIN = re.compile(r"\w[\w-]*")


def is_name(stem: str) -> bool:
    """Return True if a file can be a log by `stem`, its name without ending. Copies by other programs are refused.

    Sync and backup programs leave such copies: ``ID (conflicted copy)``, ``ID.sync-conflict-1``, ``ID-HOST``, ``ID 2``.
    """
    if found := _ID.search(stem):
        return found.end() == len(stem) and _BEFORE.fullmatch(stem, 0, found.start()) is not None
    return _PLAIN.fullmatch(stem) is not None


def regular_files(
    folder: Path | str,
    agent: AgentName,
    suffix: str | tuple[str, ...] = ".jsonl",
    depth: int = 0,
    prefix: str = "",
    *,
    part: str = "",
) -> list[LogFile]:
    """Return the logs in `folder` and `depth` levels below, named `prefix`…`suffix` with `part` inside, sorted by name.

    Unreadable folders, names that are not UTF-8, and names that `is_name` refuses are skipped.
    """
    found: list[LogFile] = []
    for _, _, entries in _walk(str(folder), depth):
        for entry in entries:
            try:
                if _is_log(entry.name, entry.path, (prefix, suffix, part)):
                    found += filter(None, [_seen(agent, entry.path, entry.stat())])
            except OSError:
                continue
    return found


def regular_file(
    location: str,
    agent: AgentName,
    folders: Iterable[tuple[Path, int]],
    prefix: str = "",
    suffix: str | tuple[str, ...] = ".jsonl",
) -> LogFile | None:
    """Return the log at `location` if `regular_files` would find it in one of `folders` (each with its depth)."""
    for folder, depth in folders:
        *above, name = location.removeprefix(f"{folder}/").split("/")
        if f"{folder}/{'/'.join([*above, name])}" == location and len(above) <= depth:
            try:
                is_there = _is_log(name, location, (prefix, suffix, "")) and _is_listed(str(folder), above, depth)
                return _seen(agent, location, os.stat(location)) if is_there else None  # noqa: PTH116 - text is kept
            except (OSError, ValueError):
                return None
    return None


def odd_files(folder: Path | str, suffix: tuple[str, ...], depth: int) -> Iterator[tuple[str, str]]:
    """Yield (path, reason) for files named like logs that are none, and for folders that are not searched."""
    walked = list(_walk(str(folder), depth))
    paths = {path for path, _, _ in walked}
    for path, below, entries in walked:
        if path != str(folder) and not os.access(path, os.R_OK | os.X_OK):
            yield path, "a folder that you may not read"
        for entry in entries:
            if entry.name.endswith(suffix) or (below > 0 and entry.is_symlink() and not entry.is_dir()):
                if kind := _odd(entry):
                    yield entry.path, kind
            elif below > 0 and entry.is_symlink() and entry.path not in paths:
                yield entry.path, "a link to a folder that is listed already, or that these logs are in"


def folders_of(folder: str, depth: int) -> Iterator[str]:
    """Yield the folders that `regular_files` searches: `folder`, and `depth` levels below it."""
    return (path for path, _, _ in _walk(folder, depth))


def _walk(folder: str, depth: int) -> Iterator[tuple[str, int, list[os.DirEntry[str]]]]:
    """Yield `folder` and the folders below it, each with the number of levels to search below it, and its entries.

    Linked folders come last; people move a project to another disk and link to it. A link is skipped if its folder was
    seen (by device and inode), since links can form circles, or if it leads to a parent of `folder`, so that the whole
    disk is not searched.
    """
    links: list[tuple[str, int]] = []
    walked: list[str] = []
    seen: set[tuple[int, int]] = set()

    def listed(path: str, below: int) -> Iterator[tuple[str, int, list[os.DirEntry[str]]]]:
        entries = _entries(path)
        walked.append(path)
        yield path, below, entries
        for entry in entries if below > 0 else ():
            if entry.is_symlink():
                links.append((entry.path, below - 1))
            elif entry.is_dir(follow_symlinks=False) and not (seen and _is_known(entry.path, seen)):
                yield from listed(entry.path, below - 1)

    yield from listed(folder, depth)
    for path in (*walked, *map(str, Path(os.path.realpath(folder)).parents)) if links else ():
        _is_known(path, seen)
    for path, below in links:  # it grows meanwhile
        if os.path.isdir(path) and not _is_known(path, seen):  # noqa: PTH112 - False on any error
            yield from listed(path, below)


def _is_known(path: str, seen: set[tuple[int, int]]) -> bool:
    """Return True if the folder at `path` was visited (is in `seen`). Add it to `seen` if not."""
    try:
        info = os.stat(path)  # noqa: PTH116 - as text
    except OSError:
        return True
    is_new = (one := (info.st_dev, info.st_ino)) not in seen
    seen.add(one)
    return not is_new


def _entries(folder: Path | str) -> list[os.DirEntry[str]]:
    """Return the entries of a folder, sorted by name; none if the folder is unreadable."""
    try:
        with os.scandir(str(folder)) as listing:
            return sorted(listing, key=attrgetter("name"))
    except OSError:
        return []


def _odd(entry: os.DirEntry[str]) -> str:
    """Return why a folder's entry cannot be a log, such as "a FIFO"; empty for a regular file."""
    try:
        if entry.is_file():
            return ""
        mode = entry.stat().st_mode
    except FileNotFoundError:
        return "a broken link" if entry.is_symlink() else ""
    except OSError as error:
        return error.strerror or "unreadable"
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def is_there(location: str) -> bool:
    """Return True if the file that is the log at `location`, or contains it, exists; False on any error."""
    return os.path.exists(location) or os.path.isfile(os.path.dirname(location))  # noqa: PTH110, PTH113, PTH120 - False on any error


def _is_listed(folder: str, below: Sequence[str], depth: int) -> bool:
    """Return True if `regular_files` searches the folder that the names `below` lead to from `folder`."""
    path, linked = folder, False
    for name in below:
        path = f"{path}/{name}"
        mode = os.lstat(path).st_mode
        linked |= stat.S_ISLNK(mode)
        if name in ("", ".", "..") or not (stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
            return False
    return not linked or path in folders_of(folder, depth)


def _is_log(name: str, path: str, named: tuple[str, str | tuple[str, ...], str]) -> bool:
    prefix, suffix, part = named
    is_so = name.startswith(prefix) and name.endswith(suffix) and part in name
    return is_so and is_name(name.removesuffix(".zst").rpartition(".")[0]) and _is_text(path)


def _seen(agent: AgentName, path: str, info: os.stat_result) -> LogFile | None:
    if not stat.S_ISREG(info.st_mode):
        return None
    return LogFile(agent, path, *stamp_of(info))


def stamp_of(info: os.stat_result) -> tuple[int, int, int]:
    """Return size, time and inode of a file, limited to numbers that the index can store."""
    size, mtime_ns, inode = info.st_size, info.st_mtime_ns, info.st_ino
    if mtime_ns > _MAX_NUMBER or inode > _MAX_NUMBER:
        return size, mtime_ns & _MAX_NUMBER, inode & _MAX_NUMBER
    return size, mtime_ns, inode


def _is_text(name: str) -> bool:
    """Return True if a file name is UTF-8. No agent writes other names, and the index cannot store them."""
    try:
        return name.isascii() or bool(name.encode())
    except UnicodeEncodeError:
        return False
