"""Lists of the sessions that repositories keep: Entire's checkpoints (git objects), SpecStory's Markdown histories.

The file ``<SMART_FORK_HOME>/checkpoints/<digest>.json`` lists the sessions of one clone, and each session counts as a
log within that file. The list is made again when a ref or a history file changes. Git is only asked for objects by id;
nothing is fetched, or written into the repository. All text in the sessions is untrusted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from indexer.environment import Setting
from indexer.project import Checkout, Unproven, top_of
from indexer.safe_files import checkpoints_dir, private_dir, replace_file
from indexer.transcripts.base import LogFile
from indexer.transcripts.model import AgentName, Session

if TYPE_CHECKING:
    from smart_fork.agents.repository_session_sources import StoredSession

#: The command that fetches both kinds of refs. A missing ref is no error.
_FETCH = "git fetch origin '+refs/heads/entire/*:refs/remotes/origin/entire/*' '+refs/entire/*:refs/entire/*'"
#: Limits: bytes of the file of packed refs, and entries of a folder.
_MAX_REFS, _MAX_NAMES = 64 << 20, 1_100
#: The folder of SpecStory's histories.
HISTORIES = ".specstory/history"


class RepositorySessions(NamedTuple):
    """The listed sessions of one clone: `common` is its git directory, `top` its root.

    `stamp` (the versions of files) and `refs` (a digest of the refs) show if the repository has changed since.
    """

    common: str
    top: str
    stamp: list[list[Any]]
    refs: str
    sessions: dict[str, StoredSession]


def is_within(location: str) -> bool:
    """Return True if `location` is a session that a repository keeps; False if it is the path of a log."""
    return "/checkpoints/" in location and location.startswith(f"{checkpoints_dir()}/")


def are_listed() -> bool:
    """Return True if sessions of any repository are listed on this machine."""
    return os.path.isdir(checkpoints_dir())  # noqa: PTH112 - as text


def note(directory: Path) -> bool:
    """List the sessions that a directory's repository keeps, such as checkpoints, unless smart-fork has their list.

    Return True if a list was made. To be fast, only a few files are looked at in a repository without such sessions.
    """
    if Setting.CHECKPOINTS.is_off() or (top := top_of(directory)) is None:
        return False
    with suppress(Unproven, OSError, ValueError):
        common = str(Checkout.at(top).common)
        if _load(_file(common)) is None and (_may_have(common) or os.path.isdir(f"{top}/{HISTORIES}")):  # noqa: PTH112
            return _list(common, str(top), None) is not None
    return False


def unfetched(directory: Path) -> str:
    """Return the git command that fetches a repository's sessions if it uses Entire but none are listed; else ""."""
    top = None if Setting.CHECKPOINTS.is_off() else top_of(directory)
    with suppress(Unproven, OSError, ValueError):
        if top and (top / ".entire/settings.json").is_file() and _load(_file(str(Checkout.at(top).common))) is None:
            return _FETCH
    return ""


def logs(agent: AgentName) -> list[LogFile]:
    """Return the sessions of an agent in all listed repositories."""
    return [_log(file, known, one) for file, known in _all() for one in known.sessions.values() if one.agent == agent]


def log_at(location: str) -> LogFile | None:
    """Return the session at `location` as a log; `None` if its repository no longer has it."""
    found = find(location)
    return _log(Path(location).parent, *found) if found else None


def find(location: str) -> tuple[RepositorySessions, StoredSession] | None:
    """Return the session at `location`, with the list that it is in; `None` if its repository no longer has it."""
    file, _, session_id = location.rpartition("/")
    known = _load(Path(file)) if is_within(location) and not Setting.CHECKPOINTS.is_off() else None
    one = known.sessions.get(session_id) if known else None
    return (known, one) if known and one else None


def author_of(location: str) -> str:
    """Return the author of the session at `location`; empty for a log of this machine."""
    found = find(location)
    return found[1].author if found else ""


def is_history(location: str) -> bool:
    """Return True if the session at `location` is a Markdown history, which its agent cannot load."""
    found = find(location)
    return found is not None and found[1].is_history


def in_clone(session: Session, location: str) -> Session:
    """Return the session with a directory in the clone: its own if that is in the clone, else the clone's root."""
    found = find(location)
    if found is None or f"{session.cwd}/".startswith(f"{found[0].top}/"):
        return session
    return replace(session, cwd=found[0].top)


def _file(common: str) -> Path:
    return checkpoints_dir() / f"{sha256(os.fsencode(common)).hexdigest()[:16]}.json"


def _log(file: Path, known: RepositorySessions, one: StoredSession) -> LogFile:
    version = sha256("\n".join((known.top, one.facts, *one.parts)).encode("utf-8", "replace")).hexdigest()
    return LogFile(one.agent, f"{file}/{one.session_id}", one.size, one.at, int(version[:12], 16), str(file))


def _all() -> Iterator[tuple[Path, RepositorySessions]]:
    """Yield (file, list) for each repository whose sessions are listed, with the list brought up to date."""
    if Setting.CHECKPOINTS.is_off():
        return
    try:
        files = sorted(Path(entry.path) for entry in os.scandir(checkpoints_dir()) if entry.name.endswith(".json"))
    except OSError:
        return
    for file in files:
        known = _load(file)
        if known is not None and (known := _now(file, known)) is not None:
            yield file, known


def _now(file: Path, known: RepositorySessions) -> RepositorySessions | None:
    """Return the list `known`, made again if a git ref or a history has changed; `None` if the clone is gone."""
    if not (os.path.isdir(known.common) and os.path.isdir(known.top)):  # noqa: PTH112 - as text
        with suppress(OSError):
            file.unlink(missing_ok=True)
        return None
    if _stamp(known.common, known.top) == known.stamp:
        return known
    try:
        return _list(known.common, known.top, known)
    except (OSError, ValueError):  # git is late, or gone: what was known stands
        return known


def _load(file: Path) -> RepositorySessions | None:
    try:
        info = file.stat()
        return _loaded(file, info.st_mtime_ns, info.st_size, info.st_ino)
    except OSError:
        return None


@lru_cache(maxsize=16)
def _loaded(file: Path, *_state: int) -> RepositorySessions | None:
    from smart_fork.agents.repository_session_sources import StoredSession

    try:
        said = orjson.loads(file.read_bytes())
        stored = [dict(zip(StoredSession._fields, one, strict=True)) for one in said["sessions"]]
        sessions = {one["session_id"]: StoredSession(**one | {"parts": tuple(one["parts"])}) for one in stored}
        return RepositorySessions(said["common"], said["top"], said["stamp"], said["refs"], sessions)
    except (ValueError, KeyError, TypeError, IndexError):
        return None


def _save(known: RepositorySessions) -> None:
    private_dir(checkpoints_dir())
    said = known._asdict() | {"sessions": [list(one) for one in known.sessions.values()]}
    replace_file(_file(known.common), [orjson.dumps(said)])


def _list(common: str, top: str, before: RepositorySessions | None) -> RepositorySessions | None:
    """List a repository's sessions, with unchanged parts of the list `before`, and save it; `None` without sessions."""
    from smart_fork.agents.repository_session_sources import listed, refs_of, sessions_in

    stamp = _stamp(common, top)
    refs, sessions = refs_of(common), before.sessions if before else {}
    digest = sha256("\n".join(map(" ".join, refs)).encode()).hexdigest()
    histories = listed(f"{top}/{HISTORIES}", sessions)
    if before is None or before.refs != digest:
        sessions = sessions_in(common, refs) if refs else {}
    sessions = histories | {name: one for name, one in sessions.items() if not one.is_history}
    if not (refs or histories):
        _file(common).unlink(missing_ok=True)
        return None
    known = RepositorySessions(common, top, stamp, digest, sessions)
    _save(known)
    return known


# Where refs are, by looking at files.


def _stamp(common: str, top: str) -> list[list[Any]]:
    """Return the versions of the files that change when a git ref or a history changes."""
    found = [_seen(f"{common}/{name}") for name in ("packed-refs", "reftable/tables.list")]
    found += [_seen(path) for path in _loose(common)]
    if os.path.isdir(folder := f"{top}/{HISTORIES}"):  # noqa: PTH112 - as text
        from smart_fork.agents.repository_session_sources import stamps

        found += map(list, stamps(folder))
    return found


def _loose(common: str) -> Iterator[str]:
    yield f"{common}/refs/heads/entire/checkpoints/v1"
    for name in _names(f"{common}/refs/remotes"):
        yield f"{common}/refs/remotes/{name}/entire/checkpoints/v1"
    for name in _names(f"{common}/refs/entire/remotes"):
        yield f"{common}/refs/entire/remotes/{name}/checkpoints/v1.1"
    own = f"{common}/refs/entire/checkpoints"
    yield from (own, f"{own}/v1.1")
    yield from (f"{own}/{name}" for name in _names(own) if len(name) == 2)


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))[:_MAX_NAMES]  # noqa: PTH208 - as text
    except OSError:
        return []


def _seen(path: str) -> list[Any]:
    try:
        info = os.stat(path)  # noqa: PTH116 - as text
    except OSError:
        return []
    return [path, info.st_mtime_ns, info.st_size, info.st_ino]


def _may_have(common: str) -> bool:
    if os.path.lexists(f"{common}/reftable") or any(map(os.path.lexists, _loose(common))):
        return True
    try:
        with open(f"{common}/packed-refs", "rb") as file:  # noqa: PTH123 - as text
            return b"entire/" in file.read(_MAX_REFS)
    except OSError:
        return False
