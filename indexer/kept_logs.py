"""Compressed copies of logs, which stay when an agent deletes the logs.

``<SMART_FORK_HOME>/kept/<agent>/<session id>/`` has ``copy.json`` and zstd files: one for the log, and one for each
file in the folder beside the log that is named after the session. zstd files have random names and never change.
``copy.json`` is replaced when they are on the disk, so that a `kill -9` leaves the old copy intact. Only the process
with the index's lock writes copies.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import astuple, field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Self

import orjson

from indexer.environment import Setting
from indexer.errors import IndexerError, is_full
from indexer.lazy_compilation import dataclass
from indexer.locks import held
from indexer.safe_files import file_name, new_file, open_regular, private_dir, replace_file, state_home
from indexer.transcripts.base import AgentAdapter, Agents, LogFile, stamp_of
from indexer.transcripts.model import AgentName

if TYPE_CHECKING:
    from indexer.store.sqlite import Store

#: Compression level of zstd. A log is compressed again when it has grown: 3 MB take a hundredth of a second.
LEVEL = 3
_PIECE = 1 << 20
_NAME = re.compile(r"[0-9a-f]{16}\.zst")


class DamagedCopyError(IndexerError, OSError):
    """A kept copy (a compressed copy of a log) has damaged content. It is an `OSError`, as readers of logs expect."""

    code = "damaged_copy"


@dataclass(frozen=True, slots=True)
class CompressedFile:
    """A compressed file of a copy: its `name`, the original's size, time and inode, and its compressed `length`."""

    name: str
    size: int
    mtime_ns: int
    inode: int
    length: int

    @property
    def stamp(self) -> tuple[int, int, int]:
        return self.size, self.mtime_ns, self.inode

    @classmethod
    def from_json(cls, facts: Any) -> Self:
        """Return the compressed file that an entry of ``copy.json`` describes, or raise ValueError or TypeError."""
        made = cls(**facts)
        if not _NAME.fullmatch(made.name) or any(not isinstance(number, int) for number in astuple(made)[1:]):
            raise ValueError("not the facts of a copy")
        return made


def up_to_date(source: Path, folder: Path, before: CompressedFile | None) -> CompressedFile:
    """Return a compressed copy of `source` in `folder`: `before` if `source` is unchanged since, else a new one."""
    import zstandard

    with open_regular(source) as file:
        stamp = stamp_of(os.fstat(file.fileno()))
        if before is not None and before.stamp == stamp:
            return before
        name = f"{secrets.token_hex(8)}.zst"
        with new_file(folder / name) as copy:
            size, length = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).copy_stream(file, copy)
    return CompressedFile(name, size, *stamp[1:], length)


def pieces(folder: Path, copy: CompressedFile) -> Iterator[bytes]:
    """Yield the uncompressed content of `copy` in pieces.

    Raises:
        DamagedCopyError: the content is damaged. This is known only at the end: discard the earlier pieces as well.
    """
    import zstandard

    size = 0
    with open_regular(folder / copy.name) as file:
        stream = zstandard.ZstdDecompressor().stream_reader(file)
        try:
            while size <= copy.size and (piece := stream.read(_PIECE)):
                size += len(piece)
                yield piece
        except zstandard.ZstdError as error:
            raise DamagedCopyError(f"{folder / copy.name} is damaged: {error}") from error
    if size != copy.size:
        raise DamagedCopyError(f"{folder / copy.name} is damaged")


log = logging.getLogger(__name__)

#: The size of all copies is measured when this fraction of the room (1/50) has been written. Copies are then removed
#: until this much is free.
_MEASURED_SHARE = 50
_FACTS = "copy.json"


@dataclass(frozen=True, slots=True)
class KeptLog:
    """The compressed copy of one session's log. `place` is the path of the log below the agent's home.

    `beside` are the copied files from the folder beside the log. Files in `without` are never copied, because a person
    removed text from them.
    """

    agent: AgentName
    session_id: str
    place: str
    log: CompressedFile
    beside: Mapping[str, CompressedFile] = field(default_factory=dict)
    without: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """Return the folder that contains all files of the copy."""
        return folder_of(self.agent, self.session_id)

    @property
    def length(self) -> int:
        """Return the size of the copy on the disk."""
        return self.log.length + sum(part.length for part in self.beside.values())


@dataclass(frozen=True, slots=True)
class RemovedCopy:
    """A record in place of a copy that was removed to save room. The log is copied again when it or `room` changes."""

    stamp: tuple[int, ...]
    room: int


def copies_wanted(reader: AgentAdapter) -> bool:
    """Return True if copies of this agent's logs are to be kept.

    They have unmasked secrets, so a person must ask for them: by ``SMART_FORK_KEEP_TRANSCRIPTS`` for all agents, or by
    the file at `switch_of` for one. Existing copies are used in any case.
    """
    return Setting.KEEP_TRANSCRIPTS.is_on() or (switch_of(reader.name).is_file() and not copies_refused())


def copies_refused() -> bool:
    """Return True if ``SMART_FORK_KEEP_TRANSCRIPTS`` forbids copies."""
    return Setting.KEEP_TRANSCRIPTS.is_off()


def switch_of(agent: AgentName) -> Path:
    """Return the path of the file that exists if a person wants copies of this agent's logs."""
    return _root() / ".wanted" / agent


def room() -> int:
    """Return the maximum size of all copies together, in bytes (``SMART_FORK_KEEP_MEGABYTES``)."""
    return Setting.KEEP_MEGABYTES.number() * 1_000_000


def folder_of(agent: AgentName, session_id: str) -> Path:
    """Return the folder of a session's copy, even if there is no copy."""
    return _root() / agent / file_name(session_id)


def keep(file: LogFile, session_id: str, reader: AgentAdapter) -> bool:
    """Copy a session's log, if it is in a home of its agent, or update the copy. Return True if the copy changed.

    Raises:
        OSError: the log cannot be read, or the copy cannot be written. The old copy is unchanged.
    """
    places = (_below(file.location, home) for home in reader.homes())
    place = next(filter(None, places), "").removesuffix(".zst")  # copies are compressed themselves
    if not place:
        return False
    folder, composed = folder_of(file.agent, session_id), reader.is_composed(file)
    before, stamp = _read_facts(folder), file.stamp[composed:]  # the copy of a composed one has a size of its own
    if isinstance(before, RemovedCopy):
        if before.room == room() and before.stamp[composed:] == stamp:
            return False
        before = None
    if before and composed and before.log.stamp[1:] == stamp:
        return False  # it is composed where it has changed
    without = before.without if before else ()
    try:
        made = KeptLog(
            file.agent, session_id, place, _copied(file, reader, private_dir(folder), before.log if before else None),
            {
                name: up_to_date(path, folder, before.beside.get(name) if before else None)
                for name, path in _beside(file)
                if name not in without
            },
            without,
        )  # fmt: skip
    except OSError:
        _sweep(folder, before)  # half a copy is none, and takes room
        raise
    if made == before:
        return False
    _write(folder / _FACTS, made)
    _sweep(folder, made)
    _write(_root() / "written", _written() + max(0, made.length - (before.length if before else 0)))
    return True


def _copied(file: LogFile, reader: AgentAdapter, folder: Path, before: CompressedFile | None) -> CompressedFile:
    with reader.as_file(file.path) as path:
        made = up_to_date(path, folder, before)
    return made if path == file.path else replace(made, mtime_ns=file.mtime_ns, inode=file.inode)


def find(agent: AgentName, session_id: str) -> KeptLog | None:
    """Return the copy of the session with exactly this id, if any."""
    found = _read_facts(folder_of(agent, session_id))
    return found if isinstance(found, KeptLog) and (found.agent, found.session_id) == (agent, session_id) else None


def copies() -> Iterator[KeptLog]:
    """Yield all kept copies (compressed copies of logs)."""
    for folder in _folders():
        if isinstance(found := _read_facts(folder), KeptLog):
            yield found


def leave_out(copy: KeptLog, names: Collection[str]) -> None:
    """Remove the files `names` from a copy, and never copy them again. The caller holds the index's lock."""
    beside = {name: part for name, part in copy.beside.items() if name not in names}
    made = replace(copy, beside=beside, without=tuple(sorted({*copy.without, *names})))
    _write(copy.folder / _FACTS, made)
    _sweep(copy.folder, made)


def sweep_unused() -> None:
    """Remove zstd files that killed processes left, which no copy uses. The caller holds the index's lock."""
    for copy in copies():
        _sweep(copy.folder, copy)


def remove(agent: AgentName, session_id: str) -> None:
    """Remove the copy of a session, or the record that it was removed for lack of room."""
    with suppress(FileNotFoundError):
        shutil.rmtree(folder_of(agent, session_id))


@contextmanager
def opened(copy: KeptLog) -> Iterator[Path]:
    """Uncompress the log of `copy` into a temporary file with the log's own name, and yield the file's path."""
    with ExitStack() as stack:
        with held(private_dir(_reading()), fcntl.LOCK_SH):
            folder = stack.enter_context(tempfile.TemporaryDirectory(dir=_reading()))
            stack.enter_context(held(Path(folder), fcntl.LOCK_EX))
        path = Path(folder) / PurePosixPath(copy.place).name
        with path.open("xb") as file:
            file.writelines(pieces(copy.folder, copy.log))
        yield path


def sweep_reading() -> None:
    """Remove temporary logs that `opened` left in killed processes. A live process holds a lock on its folder."""
    if not _reading().is_dir():
        return
    with held(_reading(), fcntl.LOCK_EX):
        for folder in _reading().iterdir():
            with suppress(OSError), held(folder, fcntl.LOCK_EX | fcntl.LOCK_NB):
                shutil.rmtree(folder)


def folders() -> list[Path]:
    """Return the folders of all copies, and the folder that contains them."""
    return [_root(), *_folders()]


def _remove_oldest(forked: Collection[tuple[AgentName, str]]) -> int:
    """Remove the oldest copies, those of `forked` sessions last, until the rest fits into `room`. Return the number."""
    every = sorted(copies(), key=lambda copy: ((copy.agent, copy.session_id) in forked, copy.log.mtime_ns))
    sweep_unused()
    limit = room()
    used, gone = sum(copy.length for copy in every), 0
    for copy in every if used > limit else ():
        if used <= limit - limit // _MEASURED_SHARE:
            break
        remove(copy.agent, copy.session_id)
        _write(private_dir(copy.folder) / _FACTS, {"let_go": [*copy.log.stamp, limit]})
        used, gone = used - copy.length, gone + 1
    if gone:
        log.info("%d kept copies were removed: all together may take %d MB", gone, limit // 1_000_000)
    _write(_root() / "written", 0)
    return gone


def _root() -> Path:
    return state_home() / "kept"


def _reading() -> Path:
    return _root() / ".reading"


def _folders() -> Iterator[Path]:
    for of_agent in _listed(_root()):
        if not of_agent.name.startswith("."):
            yield from _listed(of_agent)


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _below(location: str, home: Path) -> str:
    """Return the path of the log at `location` relative to the agent's `home`; empty if the log is elsewhere."""
    place = location.removeprefix(f"{home}/")
    return place if place != location and _is_plain(place) else ""


def _is_plain(place: object) -> bool:
    """Return True if `place` is a relative path that cannot leave its folder."""
    if not isinstance(place, str) or "\0" in place:
        return False
    return all(part not in ("", ".", "..") for part in place.split("/"))


def _beside(file: LogFile) -> Iterator[tuple[str, Path]]:
    """Yield name and path of each file, but no link, in the folder beside a log that is named after the session."""
    folder = file.path.with_suffix("")
    if file.within or folder.is_symlink():
        return
    for root, _, names in os.walk(folder, followlinks=False):
        for name in sorted(names):
            path = Path(root, name)
            below = str(path.relative_to(folder))
            with suppress(OSError, UnicodeEncodeError):
                if below.encode() and path.is_file() and not path.is_symlink():
                    yield below, path


def _read_facts(folder: Path) -> KeptLog | RemovedCopy | None:
    """Read the ``copy.json`` of a folder. Return `None` if it is missing or invalid."""
    try:
        facts = orjson.loads((folder / _FACTS).read_bytes())
        if "let_go" in facts:
            *stamp, limit = facts["let_go"]
            return RemovedCopy(tuple(stamp), limit)
        beside = {name: CompressedFile.from_json(part) for name, part in facts["beside"].items()}
        copied = CompressedFile.from_json(facts["log"])
        without = tuple(map(str, facts.get("without", ())))
        made = KeptLog(facts["agent"], str(facts["session_id"]), facts["place"], copied, beside, without)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    is_plain = made.agent == folder.parent.name and all(map(_is_plain, (made.place, *beside)))
    return made if is_plain and folder == folder_of(made.agent, made.session_id) else None


def _write(path: Path, value: object) -> None:
    replace_file(path, [orjson.dumps(value)])


def _sweep(folder: Path, copy: KeptLog | None) -> None:
    """Remove zstd files from the folder that `copy` does not use."""
    used = {part.name for part in (copy.log, *copy.beside.values())} if copy else set()
    for path in folder.glob("*.zst"):
        if path.name not in used:
            path.unlink(missing_ok=True)


def _written() -> int:
    """Return the bytes of copies written since all were last measured; `room` if unknown, to have all measured."""
    try:
        return int((_root() / "written").read_bytes())
    except FileNotFoundError:
        return 0
    except (OSError, ValueError):
        return room()


# Keeping copies of indexed logs. One that cannot be made keeps no log out of the index.


def keep_copy(file: LogFile, session_id: str, reader: AgentAdapter, *, others_wait: bool = False) -> bool:
    """Update the copy of a session's log, if copies are wanted. Return True if it changed. A failure is only logged.

    Raises:
        OSError: the disk is full, and more copies are to follow (`others_wait`), which would fail, too.
    """
    try:
        return copies_wanted(reader) and keep(file, session_id, reader)
    except OSError as error:
        if others_wait and is_full(error):
            raise
        log.warning("no copy is kept of %s: %s", file.path, error)
        return False


def make_room(store: Store) -> None:
    """Remove the oldest copies if all copies together may have become larger than `room`."""
    if _written() < room() / _MEASURED_SHARE:
        return
    try:
        _remove_oldest(store.forked())
    except OSError as error:
        log.warning("no kept copy could be removed: %s", error)


def keep_all(
    store: Store, agents: Agents, done: set[str], progress: Callable[[str, int, int], None] | None = None,
    deadline: float | None = None,
) -> bool:  # fmt: skip
    """Update the wanted copies of indexed logs, newest first. Return True if all was done before `deadline`.

    The deadline is of `time.monotonic`. The caller holds the index's lock. Logs in `done` are skipped. At least one log
    is handled and added to `done`, so that repeated calls come to an end on a slow disk.

    Raises:
        OSError: the disk is full.
    """
    kept = {agent.name for agent in agents if copies_wanted(agent)}
    logs = [one for one in store.sources() if one[0] in kept] if kept else []
    left = [one for one in logs if one[2] not in done]
    for number, (agent, session_id, path) in enumerate(left):
        if number and deadline is not None and time.monotonic() >= deadline:
            return False
        if progress:
            progress("copying", len(logs) - len(left) + number, len(logs))
        done.add(path)
        file = agents[agent].log_at(path)
        if file and keep_copy(file, session_id, agents[agent], others_wait=True):
            make_room(store)
    return True
