"""What was cut, looked for in the files that an agent keeps apart from its logs: prompt histories, plans, earlier
versions of files, databases of its own.

A file, or a line of one, that names a session has its words. In all others only what looks like a secret is looked for,
since other sessions use ordinary words as well.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from indexer.failures import what_failed
from smart_fork.agents import READERS
from smart_fork.agents.facets import find_cutter, title_of
from smart_fork.cuts.answer import CopyBehind
from smart_fork.cuts.model import Transcript
from smart_fork.errors import ProgramFailed, SmartForkError
from smart_fork.excise.traces import own_words, searched, words_at, words_in, words_of
from smart_fork.families.descent import Descendant
from smart_fork.repository.git import GIT_SECONDS, bare_environment
from smart_fork.system import permission
from smart_fork.system.processes import Processes
from smart_fork.text.advice import advice

#: The shortest word with a digit that is taken for a secret, and how many solid texts are looked for, the longest.
_SECRET, _MOST = 8, 200
#: Programs that an agent has installed.
_PROGRAMS = ("node_modules", "bin")


def beside_logs(session: Transcript, gone: Collection[str], below: Iterable[Descendant]) -> Iterator[CopyBehind]:
    """Find the files of the agents of a session, and of those that were told of it, that have words that were cut."""
    if permission.limited() or session.tool not in READERS.names:
        return
    family = {(session.tool, session.session_id), *((one.agent, one.session_id) for one in below)}
    search = _Search(gone, {session_id for _, session_id in family})
    for agent in sorted({agent for agent, _ in family}) if search.wanted or search.solid else ():
        for path in _files_of(agent, search.session_ids):
            yield from search.behind(path, title_of(agent))


class _Search:
    """The words that are looked for, and the sessions that they were cut out of."""

    def __init__(self, gone: Collection[str], session_ids: Collection[str]) -> None:
        self.session_ids = session_ids
        self.wanted = searched(word for word in gone if word.isidentifier() or word.isalnum()) - own_words()
        solid = sorted((one for one in gone if not one.replace("_", "").isalnum() and " " not in one), key=len)
        self.solid = {one: one for one in solid[-_MOST:]}
        self._secret = frozenset(
            word for word in self.wanted if len(word) >= _SECRET and any(map(str.isdigit, word)) and not word.isdigit()
        )

    def behind(self, path: Path, owner: str) -> Iterator[CopyBehind]:
        """The file or store, where it has some of them, or cannot be searched."""
        is_store = path.is_dir()
        look = f"It is a {'git repository' if is_store else 'file'} of {owner}'s own"
        where = str(path.parent if is_store else path)
        try:
            found = self._in_store(path) if is_store else self._in_file(path)
        except (SmartForkError, OSError) as error:
            yield CopyBehind(where, (), f"{look}, and is not searched: {what_failed(error)}")
            return
        if found:
            reason = advice(f"{look}: look at it, and delete it.", tool=f"{look}: the user can delete it.")
            yield CopyBehind(where, tuple(sorted(found)), reason)

    def _in_store(self, store: Path) -> set[str]:
        """Those in any version of any file that a git repository has. Sessions are not told apart there."""
        likely = (*self._secret, *self.solid)
        pieces = contents(store, Processes()) if likely else ()
        some = (one for one in pieces if any(word in one.decode("utf-8", "ignore").lower() for word in likely))
        return words_of(some, self._secret, self.solid)

    def _in_file(self, path: Path) -> set[str]:
        if self._is_named(str(path)):
            return words_at(path, self.wanted, self.solid)
        found = words_at(path, self._secret, self.solid)
        return found | (self._in_lines(path) if path.suffix == ".jsonl" else set())

    def _in_lines(self, path: Path) -> set[str]:
        with suppress(OSError), path.open(encoding="utf-8", errors="replace") as file:
            return set[str]().union(*(self.wanted & words_in(line) for line in file if self._is_named(line)))
        return set()

    def _is_named(self, text: str) -> bool:
        return any(one in text for one in self.session_ids)


def _files_of(agent: str, session_ids: Collection[str]) -> Iterator[Path]:
    """The files of an agent, without logs, what is beside those of other sessions, and programs; of a git repository
    the store of its objects.
    """
    reader, cutter = READERS[agent], find_cutter(agent)
    yield from filter(Path.is_file, cutter.apart() if cutter else ())
    logs = {file.location: reader.id_of(file.path) for file in reader.discover()}
    others = {*logs.values()} - set(session_ids)
    for folder, folders, names in os.walk(reader.home()):
        folders[:] = sorted(name for name in folders if name not in others and name not in _PROGRAMS)
        if "HEAD" in names and "objects" in folders:
            folders.remove("objects")
            yield Path(folder, "objects")
        for path in (Path(one) for name in sorted(names) if (one := f"{folder}/{name}") not in logs):
            if path.is_file() and not path.is_symlink() and next(iter(reader.logs_of(str(path))), None) is None:
                yield path


#: About so much is read at a time; a larger object by itself.
_BATCH_BYTES = 1 << 24


def contents(store: Path, processes: Processes) -> Iterator[bytes]:
    """The contents of all objects in a store that nobody vouches for, packed or not, several at a time.

    Its configuration, its hooks and what it borrows from other repositories do not count.

    Raises:
        ProgramMissing: git is not installed.
        ProgramFailed: git cannot read all of them.
    """
    with tempfile.TemporaryDirectory() as folder:
        own = _around(store, Path(folder))
        listed = _git(own, processes, b"", "--batch-all-objects", "--batch-check=%(objectname) %(objectsize)")
        for names in _batches(listed):
            yield _git(own, processes, b"\n".join(names), "--batch")


def _around(store: Path, own: Path) -> Path:
    """A repository with the objects of another one, and nothing else of it."""
    for name in ("refs", "objects"):
        (own / name).mkdir()
    (own / "HEAD").write_text("ref: refs/heads/main\n")
    for entry in os.scandir(store):
        if entry.is_dir(follow_symlinks=False) and (len(entry.name) == 2 or entry.name == "pack"):
            (own / "objects" / entry.name).symlink_to(Path(entry.path).resolve())
    return own


def _batches(listed: bytes) -> Iterator[list[bytes]]:
    names: list[bytes] = []
    size = 0
    for line in listed.splitlines():
        name, _, length = line.partition(b" ")
        if not length.isdigit():
            raise ProgramFailed(f"git cannot read the objects: {line.decode()}")
        if names and size + int(length) > _BATCH_BYTES:
            yield names
            names, size = [], 0
        names.append(name)
        size += int(length)
    if names:
        yield names


def _git(own: Path, processes: Processes, given: bytes, *options: str) -> bytes:
    done = processes.run(
        ["git", "cat-file", *options], env=bare_environment(own), timeout=GIT_SECONDS, input=given, cwd=own
    )
    if not done.ok:
        raise ProgramFailed(f"git cannot read the objects: {done.complaint}")
    return done.stdout
