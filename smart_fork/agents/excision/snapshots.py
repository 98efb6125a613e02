"""Private, compressed snapshots of transcripts from before each cut (removal of turns), and the log of all cuts."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson

from indexer.json_values import json_in, list_in
from indexer.lazy_compilation import dataclass
from indexer.safe_files import DISK, Disk, private_dir, replace_file, state_home
from smart_fork.agents.excision.cutter import Files, pieces
from smart_fork.agents.excision.transcript import Transcript
from smart_fork.errors import NotFound, Usage

KEPT = timedelta(days=30)
#: The commands noted for an undone cut, and for a cut that failed.
ROLLBACK, FAILED = "rollback", "failed"
FILES = Files()
_NAME = re.compile(r"\d{8}T\d{6}\.\d{6}Z(?:-\d{1,4})?")
_SUFFIX = ".jsonl.gz"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A compressed copy of a transcript from before a cut. The command ``rollback`` undoes a cut by its `id`."""

    id: str
    session_id: str
    path: Path
    size: int

    @property
    def taken_at(self) -> str:
        """The time of the snapshot, from its file name."""
        return self.path.name.removesuffix(_SUFFIX)


@dataclass(frozen=True, slots=True)
class NotedChange:
    """One change of one file, as logged by `note`. Fields that the log entry lacks are empty.

    `keys` name the removed records in all copies, `masked` the records with masked secrets. Three fields keep the
    session's relations, which the remaining records may not show: `below` are sessions made from it, `above` its
    ancestors, and `unclear` share records with it, but it is unknown which session copied them. `beside` marks a change
    of a file beside the transcript, such as the stored result of a removed call.
    """

    ts: str = ""
    session_id: str = ""
    source_path: str = ""
    snapshot: str = ""
    command: str = ""
    tool: str = ""
    change: str = ""
    restored: str = ""
    removed_ids: tuple[str, ...] = ()
    orphaned: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    masked: tuple[str, ...] = ()
    below: tuple[str, ...] = ()
    above: tuple[str, ...] = ()
    unclear: tuple[str, ...] = ()
    beside: bool = False
    size_after: int | None = None


def root() -> Path:
    """Return the folder of all snapshots."""
    return state_home() / "snapshots"


def folder_of(session_id: str) -> Path:
    """Return the folder of a session's snapshots."""
    return root() / _plain(session_id)


def save(source: Path, session_id: str, now: datetime, *, disk: Disk = DISK, files: Files = FILES) -> Snapshot | None:
    """Save the transcript `source` as a snapshot, from which a cut can be undone; `None` without a transcript.

    Raises:
        OSError: The snapshot cannot be written.
    """
    if not files.has(source):
        return None
    folder = private_dir(folder_of(session_id))
    target = _free(folder, now)
    replace_file(target, _compressed(files.content(source)), disk=disk)
    return _snapshot(target)


def prune(now: datetime) -> None:
    """Delete snapshots older than 30 days, temporary files of killed processes, and empty folders."""
    oldest = f"{now.astimezone(UTC) - KEPT:%Y%m%dT%H%M%S}"
    for snapshot in snapshots():
        if snapshot.taken_at < oldest:
            snapshot.path.unlink(missing_ok=True)
    for left in root().glob("*/.*.tmp"):
        if left.stat().st_mtime < (now - timedelta(days=1)).timestamp():
            left.unlink(missing_ok=True)
    for folder in root().glob("*/"):
        if not any(folder.iterdir()):
            folder.rmdir()


def forget(session_id: str) -> None:
    """Delete all snapshots of a session."""
    with suppress(FileNotFoundError):
        shutil.rmtree(folder_of(session_id))


def discard(identities: Sequence[str]) -> list[Snapshot]:
    """Delete and return the snapshots with these ids; none if one id is wrong. Their cuts can no longer be undone."""
    found = list({one.path: one for one in map(find, identities)}.values())
    for one in found:
        one.path.unlink(missing_ok=True)
        with suppress(OSError):  # others are in it
            one.path.parent.rmdir()
    return found


def snapshots(session_id: str = "") -> list[Snapshot]:
    """Return the snapshots (copies from before a cut) of one session or of all, newest first."""
    below = _plain(session_id) if session_id else "*"
    found = [path for path in root().glob(f"{below}/*{_SUFFIX}") if _NAME.fullmatch(path.name.removesuffix(_SUFFIX))]
    return [_snapshot(path) for path in sorted(found, key=lambda path: path.name, reverse=True)]


def of_session(reference: str) -> list[Snapshot]:
    """Return the snapshots of the session with an id that begins with `reference`; its log need not exist.

    Raises:
        Usage: Several sessions match.
    """
    found = [one for one in snapshots() if one.session_id.startswith(reference)]
    if len({one.session_id for one in found}) > 1:
        raise Usage(f"{reference} matches several sessions", "`smart-fork excise rollback --list` lists them.")
    return found


def find(identity: str) -> Snapshot:
    """Return the snapshot with this id ("SESSION/TIME"), or with this time if only one snapshot has it.

    Raises:
        Usage: The text is no snapshot id, or the time matches several snapshots.
        NotFound: There is no such snapshot.
    """
    folder, _, name = identity.rpartition("/")
    if not _NAME.fullmatch(name) or (folder and folder != _plain(folder)):
        raise Usage(f"{identity!r} is not a snapshot id", "`smart-fork excise rollback --list` lists them.")
    found = [one for one in snapshots() if one.taken_at == name and folder in ("", one.path.parent.name)]
    if not found:
        where = root() / (folder or "*") / f"{name}{_SUFFIX}"
        raise NotFound(f"snapshot {identity} not found at {where}", "`smart-fork excise rollback --list` lists them.")
    if len(found) > 1:
        raise Usage(f"{identity} matches {len(found)} snapshots", "Put the session's id before it.")
    return found[0]


def content(snapshot: Snapshot) -> Iterator[bytes]:
    """Yield the bytes of the transcript in a snapshot, in pieces."""
    with gzip.open(snapshot.path, "rb") as file:
        yield from pieces(file.read)


def lines(snapshot: Snapshot) -> Iterator[bytes]:
    """Yield the lines of the transcript in a snapshot, one at a time because a session may exceed the memory."""
    with gzip.open(snapshot.path, "rb") as file:
        yield from (line.removesuffix(b"\n") for line in file)


def note(
    session: Transcript, command: str, snapshot: Snapshot | None, target: Path, now: datetime, *,
    size_after: int, change: str = "", **more: list[str] | str,
) -> None:  # fmt: skip
    """Log one change of the file `target` before it is made, so that an interrupted change can be finished or undone.

    Changes made together have the same `change`. For a cut, `more` has the ids that the caller named (`seed_ids`), all
    removed ids (`removed_ids`), kept calls that lose their results (`orphaned`), and the keys, valid in every copy, of
    removed and masked records (`keys`, `masked`). For a rollback (undoing a cut), `more` has the `restored` snapshot.
    """
    entry = {
        "ts": now.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "session_id": session.session_id,
        "source_path": str(target),
        "snapshot": snapshot.id if snapshot else None,
        "removed_ids": [],
        "seed_ids": [],
        "command": command,
        "tool": session.tool,
        "size_after": size_after,
        "change": change,
        **more,
    }
    path = private_dir(state_home()) / "excise.jsonl"
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE))
    finally:
        os.close(descriptor)


def noted_changes(source: Path | None = None) -> list[NotedChange]:
    """Return all logged changes, or those of one file, oldest first."""
    path = state_home() / "excise.jsonl"
    lines = path.read_bytes().splitlines() if path.is_file() else ()
    entries = [entry for line in lines if (entry := _noted(line)) is not None]
    return [entry for entry in entries if source is None or entry.source_path == str(source)]


def cuts(source: Path) -> list[NotedChange]:
    """Return the successful cuts of the transcript `source` that were not undone, oldest first."""
    entries = noted_changes(source)
    failed = {one.change for one in entries if one.command == FAILED}
    standing: list[NotedChange] = []
    before: dict[str, list[NotedChange]] = {}
    for entry in entries:
        if entry.change and entry.change in failed:
            continue
        before[entry.snapshot] = standing
        standing = before.get(entry.restored, standing) if entry.command == ROLLBACK else [*standing, entry]
    return standing


def _noted(line: bytes) -> NotedChange | None:
    if not isinstance(entry := json_in(line), dict):
        return None
    return NotedChange(**{one.name: _like(one.default, entry.get(one.name)) for one in fields(NotedChange)})


def _like(default: object, said: object) -> Any:
    """Return the value `said` in a log entry with the type that its field's `default` has."""
    if isinstance(default, tuple):
        return tuple(map(str, list_in(said)))
    if isinstance(default, bool):
        return bool(said)
    return str(said or "") if default is not None else said if isinstance(said, int) else None


def _plain(session_id: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", session_id)[:120] or "_"


def _free(folder: Path, now: datetime) -> Path:
    """Return an unused path for a snapshot taken `now`, even if another one has the same time."""
    name = f"{now.astimezone(UTC):%Y%m%dT%H%M%S.%fZ}"
    number = 1
    while (path := folder / f"{name}{f'-{number}' if number > 1 else ''}{_SUFFIX}").exists():
        number += 1
    return path


def _snapshot(path: Path) -> Snapshot:
    name = path.name.removesuffix(_SUFFIX)
    return Snapshot(f"{path.parent.name}/{name}", path.parent.name, path, path.stat().st_size)


def _compressed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    packer = zlib.compressobj(level=1, wbits=31)  # a gzip file
    for piece in pieces:
        yield packer.compress(piece)
    yield packer.flush()
