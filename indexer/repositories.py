"""Records of the repositories that sessions worked in, to recognize them after a move, or in another clone.

A repository is recognized by its root commits and its remote, or by its reflog, which moves with it. A directory of
equal name proves nothing. A root commit alone proves nothing either, because forks and templates share it.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from indexer import state_db
from indexer.lazy_compilation import dataclass
from indexer.project import (
    Checkout,
    Project,
    Unproven,
    git_settings,
    listed_worktrees,
    project_of,
    removed_worktrees,
    top_of,
    worktree_named,
)
from indexer.safe_files import open_regular

NAME = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
#: An object's name that git has shortened so that it is unique. Only for SHA-1.
_SHORTENED = re.compile(r"[0-9a-f]{7,39}")
_DIGEST_BYTES = 20
_HEADER = b"\xfftOc\x00\x00\x00\x02"
_FANOUT = 256
#: Maximum size of the list of objects with one first byte. No repository has so many objects.
_MAX_TABLE_BYTES = 1 << 28


def known_objects(repository: Path, names: Collection[str]) -> frozenset[str]:
    """Return those of `names`, full or shortened, that name objects such as commits in the git folder `repository`."""
    objects = repository / "objects"
    wanted = frozenset(name for name in names if NAME.fullmatch(name) or _SHORTENED.fullmatch(name))
    if not wanted or not _is_own(objects):
        return frozenset()
    loose = frozenset(name for name in wanted if _is_loose(objects / name[:2], name[2:]))
    packs = objects / "pack"
    if loose == wanted or not _is_own(packs):
        return loose
    try:
        return loose | _packed(packs, packs.stat().st_mtime_ns, wanted - loose)
    except OSError:
        return loose


@lru_cache(maxsize=64)
def _packed(packs: Path, _changed: int, names: frozenset[str]) -> frozenset[str]:
    """Return those of `names` that a folder's pack files contain. `_changed`, its last change, keys the cache."""
    found: set[str] = set()
    for entry in sorted(os.scandir(packs), key=lambda one: one.name):
        if entry.name.endswith(".idx") and entry.is_file(follow_symlinks=False):
            found.update(_listed(Path(entry.path), names - found))
    return frozenset(found)


def _listed(index: Path, names: Collection[str]) -> Iterator[str]:
    """Yield those of `names` that the index file of a git pack lists; nothing for an index file from before 2007."""
    try:
        with index.open("rb") as file:
            head = file.read(len(_HEADER) + 4 * _FANOUT)
            if not head.startswith(_HEADER) or len(head) != len(_HEADER) + 4 * _FANOUT:
                return
            ends = (0, *struct.unpack(f">{_FANOUT}I", head[len(_HEADER) :]))
            for name in names:
                size = len(name) // 2 if NAME.fullmatch(name) else _DIGEST_BYTES
                start, end = (ends[int(name[:2], 16) + one] * size for one in (0, 1))
                if 0 < end - start <= _MAX_TABLE_BYTES:
                    file.seek(len(head) + start)
                    if _has(file.read(end - start), name, size):
                        yield name
    except OSError:
        return


def _has(table: bytes, name: str, size: int) -> bool:
    """Return True if one of the object names in `table`, of `size` bytes each, begins with the hexadecimal `name`."""
    begins = bytes.fromhex(name[: len(name) // 2 * 2])
    place = table.find(begins)
    while place >= 0 and (place % size or not table[place : place + size].hex().startswith(name)):
        place = table.find(begins, place + 1)
    return place >= 0


def _is_loose(folder: Path, rest: str) -> bool:
    if not _SHORTENED.fullmatch(folder.name + rest):
        return _is_own(folder / rest)
    return _is_own(folder) and folder.is_dir() and any(one.startswith(rest) for one in os.listdir(folder))  # noqa: PTH208 - as text


def _is_own(path: Path) -> bool:
    """Return True if `path` exists, and no part of it is a symbolic link."""
    return os.path.lexists(path) and os.path.realpath(path) == str(path)


#: Bytes read at the end of a reflog: for its last line, and to look for a line.
_LINE_BYTES, _REFLOG_BYTES = 1 << 16, 1 << 22
#: Much longer than a tick of a file system's clock.
_TICK_NS = 100_000_000
_COLUMNS = "top, key, remote, head, last, place, shallow, config, roots, made"
_PLACES = ", ".join("?" * len(_COLUMNS.split(", ")))
#: Maximum number of commits stored for the sessions of a directory.
_MAX_COMMITS = 64
_REFLOG_LINE = re.compile(rb"[0-9a-f]{40,64} ([0-9a-f]{40,64}) [^\n]*")
_REMOTE = re.compile(r"remote\.(.+)\.url", re.DOTALL)
#: ``user@host:path``, which is no URL. Windows drives, and paths with a colon, do not match.
_SCP = re.compile(r"(?:[^@/:]+@)?([^@/:]{2,}):(?!//)(.*)", re.DOTALL)
_URL = re.compile(r"(?:[a-z][a-z0-9+.-]*)://(?:[^@/]*@)?([^/:]*)(?::\d*)?/*(.*)", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SeenRepository:
    """A git repository as it was when it was last seen in the directory `top`.

    `key` is its git folder, empty if only a log names the repository. `roots` are its root commits, empty if unknown.
    `remote` is its normalized remote, `head` its last commit, `last` the digest of its reflog's last line, `place` its
    device and inode, and `config` the time of its configuration. `made` are the shortened names of sessions' commits.
    """

    top: str
    key: str
    remote: str
    head: str
    last: str
    place: str
    shallow: bool
    config: str = ""
    roots: frozenset[str] = frozenset()
    made: frozenset[str] = frozenset()

    @property
    def is_there(self) -> bool:
        return os.path.lexists(self.top)


def seen(top: Path, before: SeenRepository | None = None) -> SeenRepository | None:
    """Return a record of the repository in the directory `top`; `None` if its `.git` is not proven to belong there.

    The earlier record `before` gives the root commits, and the remote if the configuration is unchanged.
    """
    try:
        found = Checkout.at(top)
        info = os.stat(found.common)  # noqa: PTH116 - as text
    except (Unproven, OSError, ValueError):
        return None
    known_before = before if before and before.key == str(found.key) else None
    config = _changed_at(found.common / "config")
    lines = end_of(found.common / "logs" / "HEAD", _LINE_BYTES).splitlines()
    said = _REFLOG_LINE.fullmatch(lines[-1]) if lines else None
    return SeenRepository(
        str(top), str(found.key),
        known_before.remote if known_before and known_before.config == config else remote_of(found.common),
        said[1].decode() if said else "", _digest(lines[-1]) if lines else "", f"{info.st_dev}:{info.st_ino}",
        os.path.lexists(found.common / "shallow"), config, known_before.roots if known_before else frozenset(),
    )  # fmt: skip


def why_same(old: SeenRepository, new: SeenRepository) -> str:
    """Return why the existing repository `new` is the recorded `old`, such as "remote" (they share it), or ""."""
    if old.key and old.key == new.key:
        return "worktree"
    if old.roots and new.roots and not old.roots & new.roots:
        return ""
    gone, remotes = not old.is_there, old.remote and new.remote
    if gone and old.last and old.last in _digests(new.key, _changed_at(Path(new.key, "logs/HEAD"))):
        return "reflog" if old.place == new.place or not remotes or old.remote == new.remote else ""
    if remotes and old.remote == new.remote:
        return "remote" if old.shallow or new.shallow or shares_history(old, new) else ""
    if not old.key and not remotes and known_objects(Path(new.key), old.made):
        return "commits"
    return "clone" if gone and new.remote == old.top and shares_history(old, new) else ""


def shares_history(old: SeenRepository, new: SeenRepository) -> bool:
    """Return True if `old` and `new` share a root commit, or `new` has the last commit of `old`, as forks do."""
    return bool(old.roots & new.roots) or bool(known_objects(Path(new.key), {old.head, *old.made}))


def note_recorded(directory: Path, remote: str, head: str, made: Iterable[str]) -> None:
    """Record what a log says about the repository of a deleted directory, unless an earlier record came from git.

    Raises:
        StateUnavailable: the record cannot be stored.
    """
    before = noted()
    near = before.get(_nearest(directory, before))
    if os.path.lexists(directory) or (near and near.key) or top_of(directory):
        return
    url = normalized(remote, directory) if remote else ""
    one = SeenRepository(str(directory), "", url, head, "", "", shallow=False, made=frozenset(made))
    if near and near.top == one.top:
        made = sorted(near.made | one.made)[:_MAX_COMMITS]
        one = replace(one, remote=near.remote or url, head=near.head or head, made=frozenset(made))
    note(one)


def note(one: SeenRepository) -> None:
    """Store the record of a repository in the state database. It replaces an older record of that directory."""
    if one != noted().get(one.top):
        state_db.change(f"INSERT OR REPLACE INTO repositories({_COLUMNS}) VALUES ({_PLACES})", *_row(one))  # noqa: S608


def noted() -> dict[str, SeenRepository]:
    """Return the recorded repositories by directory."""
    return _noted(*_stamp())


def adopted() -> dict[str, str]:
    """Return the directories that a person assigned to a project, each with a directory of that project."""
    return _adopted(*_stamp())


def adopt(old: str, top: str | None) -> None:
    """Assign the sessions of the directory `old` to the project in `top`. If `top` is `None`, undo an assignment."""
    if top is None:
        state_db.change("DELETE FROM adopted WHERE old = ?", old)
    else:
        state_db.change("INSERT OR REPLACE INTO adopted VALUES (?, ?)", old, top)


def places_of(one: SeenRepository) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return a repository's other directories, each with the reason, and a second list of possible directories.

    The first directories were proven to belong to the repository, for example by its remote. The second ones no longer
    exist, and only share a root commit, a last commit or the name with it.
    """
    found: dict[str, str] = {}
    maybe: dict[str, None] = {}
    name, given = Path(one.top).name, adopted()
    for old in noted().values():
        if old.top == one.top or old.top in given:
            continue
        parts = Path(old.top).parts
        if why := why_same(old, one):
            found[old.top] = why
        elif not old.is_there and shares_history(old, one):
            maybe[old.top] = None
        elif not old.key and name in parts:
            maybe[str(Path(*parts[: parts.index(name) + 1]))] = None
    return found, tuple(one for one in maybe if not _nearest(Path(one), given))


def now_at(directory: Path) -> Path | None:
    """Return where a session's `directory` is today, if it was moved or assigned to a project; otherwise `None`."""
    try:
        given, before = _adopted(*(stamp := _stamp())), _noted(*stamp)
    except OSError:  # without these facts each directory is where its log says
        return None
    if old := _nearest(directory, given):
        return _below(directory, old, given[old])
    old = "" if os.path.lexists(directory) else _nearest(directory, before)
    if not old or before[old].is_there:
        return None
    here = ""
    with suppress(OSError):  # the directory that this was started in is gone
        here = str(Path.cwd())
    new = _moved_to(old, here, *stamp)
    if not new:
        return None
    if not before[old].key:  # a log tells where it worked, and not where its repository was
        parts, name = directory.parts, Path(new).name
        old = str(Path(*parts[: parts.index(name) + 1])) if name in parts else str(directory)
    return _below(directory, old, new)


@lru_cache(maxsize=512)
def _moved_to(old: str, here: str, _path: str, _changed: int) -> str:
    """Return where the repository or worktree of `old` is now, or "". `_path` and `_changed` only key the cache."""
    before = noted()
    one = before[old]
    own = [worktree_named(Path(one.key), Path(old).name), work_tree(Path(one.key))] if one.key else []
    top = top_of(Path(here)) if here else None  # then the one that somebody asks in
    places = dict.fromkeys(str(place) for place in (*own, top, *sorted(before)) if place)
    now = (seen(Path(place), before.get(place)) for place in places)
    return next((new.top for new in now if new and why_same(one, new)), "")


def work_tree(common: Path) -> Path | None:
    """Return the working directory of the git folder `common`; for a bare repository, its first existing worktree."""
    if common.name == ".git":
        return common.parent
    return next((one for one in sorted(listed_worktrees(common)) if one.is_dir()), None)


def successor(directory: Path) -> Path | None:
    """Return the directory that replaces the deleted `directory`: the top of the repository that contained it."""
    try:
        here, tops = [str(Path.cwd())], sorted(noted())
    except OSError:  # that directory is gone itself, or nothing is noted
        here, tops = [], []
    inside = top_of(directory)
    for top in (inside,) if inside else filter(None, (*map(top_of, map(Path, here)), *map(Path, tops))):
        with suppress(Unproven, OSError, ValueError):
            found = Checkout.at(top)
            if inside or any(directory.is_relative_to(one) for one in removed_worktrees(found.key)):
                place = work_tree(found.key) or top
                return place if place == top or Checkout.at(place).key == found.key else top
    return None


def recorded(directory: str) -> Path | None:
    """Return today's path of a directory that a log names, with links resolved; `None` if the name is not absolute."""
    if not Path(directory).is_absolute() or "\0" in directory:
        return None
    try:
        there = Path(os.path.realpath(directory))
        return now_at(there) or there
    except (OSError, ValueError):  # half a character
        return None


def repository_of(directory: str) -> Project | None:
    """Return the project of the repository that contains or contained a log's `directory`; `None` outside git."""
    if (there := recorded(directory)) is None:
        return None
    project = project_of(there)
    if not project.git and not os.path.lexists(there):
        after = successor(there)
        project = project_of(after) if after else project
    return project if project.git else None


def remote_of(common: Path) -> str:
    """Return the normalized URL, without a password, of the remote ``origin``, or of the only remote, or ""."""
    said: dict[str, str] = {}
    for name, value in git_settings(common).items():
        if (found := _REMOTE.fullmatch(name)) and value:
            said[found[1]] = value
    url = said.get("origin") or (next(iter(said.values())) if len(said) == 1 else "")
    return normalized(url, common.parent) if url else ""


def normalized(url: str, beside: Path) -> str:
    """Return a remote's URL without scheme, user, port and ``.git``, or its path (relative to `beside`) as absolute."""
    path = url.removeprefix("file://")
    if url == path and (found := _URL.fullmatch(url) or (None if url[:1] in "/.~" else _SCP.fullmatch(url))):
        host, path = found.groups()
        return f"{host.lower()}/{path.strip('/').removesuffix('.git').rstrip('/')}"
    return os.path.realpath(beside / os.path.expanduser(path)).removesuffix("/.git")  # noqa: PTH111


def _nearest(directory: Path, tops: Mapping[str, object]) -> str:
    """Return the nearest folder at or above `directory` that is one of `tops`, or ""."""
    return next((str(one) for one in (directory, *directory.parents) if str(one) in tops), "")


def _below(directory: Path, old: str, new: str) -> Path:
    """Return the path below `new` that corresponds to `directory` below `old`, or its nearest existing parent."""
    place = Path(new)
    for name in directory.relative_to(old).parts:
        if not (place / name).is_dir():
            break
        place /= name
    return place


def end_of(file: Path, most: int) -> bytes:
    """Return the last `most` bytes of a regular file; empty if it is missing or not regular."""
    try:
        with open_regular(file) as opened:
            opened.seek(max(0, opened.seek(0, os.SEEK_END) - most))
            return opened.read(most)
    except (OSError, ValueError):
        return b""


@lru_cache(maxsize=64)
def _digests(key: str, _changed: str) -> frozenset[str]:
    return frozenset(map(_digest, end_of(Path(key, "logs/HEAD"), _REFLOG_BYTES).splitlines()))


def _changed_at(file: Path) -> str:
    try:
        return str(file.stat().st_mtime_ns)
    except OSError:
        return ""


def _digest(line: bytes) -> str:
    return hashlib.blake2b(line, digest_size=16).hexdigest()


def _stamp() -> tuple[str, int]:
    """Return the state database's path and time of change, with which results are cached until the database changes.

    Two writes within one tick of the clock have the same time. Therefore, shortly after a write, the present time is
    returned, so that nothing is cached.
    """
    path = state_db.path()
    try:
        changed, now = path.stat().st_mtime_ns, time.time_ns()
    except OSError:
        return str(path), 0
    return str(path), now if now - changed < _TICK_NS else changed


@lru_cache(maxsize=2)
def _noted(_path: str, _changed: int) -> dict[str, SeenRepository]:
    rows = state_db.rows(f"SELECT {_COLUMNS} FROM repositories")  # noqa: S608
    found = (SeenRepository(*one, *(frozenset(names.split()) for names in (roots, made))) for *one, roots, made in rows)
    return {one.top: one for one in found}


@lru_cache(maxsize=2)
def _adopted(_path: str, _changed: int) -> dict[str, str]:
    return dict(state_db.rows("SELECT old, top FROM adopted"))


def _row(one: SeenRepository) -> Iterator[str | int]:
    yield from (one.top, one.key, one.remote, one.head, one.last, one.place, one.shallow, one.config)
    yield from (" ".join(sorted(names)) for names in (one.roots, one.made))
