"""Sessions of the other machines become sessions of this one, and what was withdrawn goes from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from indexer import repositories
from indexer.project import project_of
from smart_fork.agents import AGENTS, READERS
from smart_fork.agents.checkpoints import is_within
from smart_fork.agents.facets import files_of, starter_of
from smart_fork.errors import SmartForkError
from smart_fork.foreign_sessions import is_taken
from smart_fork.repository.identity import look
from smart_fork.sharing.canonical import decode
from smart_fork.sync.manifest import Entry
from smart_fork.sync.settled import Copy, copies, keep_copy
from smart_fork.team import changes, pulled, unfinished
from smart_fork.team.local import Local, local, read_log
from smart_fork.team.materialise import materialise
from smart_fork.team.pulled import Written
from smart_fork.team.tracking import ProjectFolder

Copies = Mapping[str, Copy]


def is_own(entry: Entry) -> bool:
    """Whether this machine has the log that a session of the list was sent from."""
    return any(not is_within(str(path)) for path in READERS[entry.agent].locate(entry.session_id))


def is_read(entry: Entry) -> bool:
    """Whether this version knows the agent, and how its sessions are shared."""
    return entry.agent in READERS.names and AGENTS[entry.agent].has("forms")


def root_of(entry: Entry, directories: Sequence[str]) -> Path | None:
    """The directory here of the repository that a session worked in, of those that take part."""
    given, there = repositories.adopted().get(entry.directory), _repository(entry)
    for directory in directories:
        root = Path(project_of(directory).root)
        if given == str(root):
            return root
        here = look(root) if root.is_dir() else None
        if here is not None and (repositories.why_same(there, here) or _is_alike(there, here)):
            return root
    return None


def _is_alike(there: repositories.Repository, here: repositories.Repository) -> bool:
    """Whether neither has a remote, and both have the same directory and history: a person cannot adopt that one."""
    return there.top == here.top and not (there.remote or here.remote) and bool(there.roots & here.roots)


def note(entry: Entry) -> None:
    """Note the repository of a session that waits: `project` names its directory where it may be the same."""
    if not Path(entry.directory).exists() and entry.directory not in repositories.noted():
        repositories.note(_repository(entry))


def _repository(entry: Entry) -> repositories.Repository:
    return repositories.Repository(
        top=entry.directory, key="", roots=frozenset(entry.roots), remote=entry.remote, head=entry.head, last="",
        place="", shallow=not entry.roots,
    )  # fmt: skip


def copies_of(source: str, here: Copies) -> list[Written]:
    """The sessions that were written here from one of the remote's."""
    found = (pulled.of_session(session_id) for session_id, copy in here.items() if copy.source == source)
    return [one for one in found if one is not None]


def is_current(source: str, entry: Entry, here: Copies) -> bool:
    """Whether a copy was written here of all that is on the remote. One that was deleted since does not come back."""
    return any(copy.source == source and copy.shared == entry.digest for copy in here.values())


def withdraw(source: str, here: Copies) -> None:
    """Write down that all copies of a session are to go."""
    for one in copies_of(source, here):
        if any(one.digests):
            one.owe(dict.fromkeys(one.digests))


def pending() -> Iterator[str]:
    """Copies of which something is still to be taken out, since an agent has them open."""
    return (one.id for one in pulled.owing() if not one.server)


def forget_gone() -> None:
    """Keep nothing of copies that are gone."""
    for session_id in copies():
        if not is_taken(session_id):
            keep_copy(session_id, None)


def receive(source: str, entry: Entry, records: Sequence[bytes], root: Path) -> Path | None:
    """Bring what is here of a session to what is on the remote, and return its log; nothing where an agent has it open.

    What was cut out of it there is cut out of every copy, also of one that was continued here; such a one keeps what it
    has beyond, and the session is written a second time.

    Raises:
        SmartForkError: it cannot be written here.
        OSError: the same.
    """
    here, untouched = copies(), list[str]()
    for one in copies_of(source, here):
        if (now := _local(one)) and _is_as_written(now, here[one.id]):
            untouched.append(one.id)
        _take_out(one, records)
    changes.settle()
    there = copies_of(source, here)
    if any(one.owed() for one in there):
        return None
    for one in there:
        if _has(one, entry):
            now = _local(one) if one.id in untouched else None
            copy = _copy(source, entry, now) if now else replace(here[one.id], shared=entry.digest)
            keep_copy(one.id, copy)
            return one.path
    before = next((one for one in there if one.id in untouched), None)
    if before is not None:
        files_of(before.agent).remove(before.path)
    return _written(source, entry, records, root, before.id if before else starter_of(entry.agent).new_id())


def _copy(source: str, entry: Entry, now: Local) -> Copy:
    count = len(now.records)
    return Copy(source, entry.agent, entry.digest, count, now.digest(count))


def _written(source: str, entry: Entry, records: Sequence[bytes], root: Path, session_id: str) -> Path:
    """Write a session; who is killed meanwhile leaves nothing that the next command does not take away."""
    place = ProjectFolder(root, entry.remote)
    with unfinished.copy(entry.agent, session_id, place):
        made = materialise(
            records, entry.agent, root, source_id=source, others=False, title=entry.title, new_session_id=session_id
        )
        try:
            here = Written(made.path, made.agent, root, "", entry.remote, (), (source,))
            pulled.remember(here, records, others=False)
            keep_copy(READERS[made.agent].id_of(made.path), _copy(source, entry, made.local))
        except BaseException:
            made.undo()
            here.forget()
            raise
    return made.path


def _take_out(one: Written, records: Sequence[bytes]) -> None:
    """Write down what a copy has that the session has no longer, and what takes its place."""
    digests = {sha256(record).hexdigest() for record in records}
    gone = [(digest, key) for digest, key in one.records if digest not in digests]
    if gone:
        known = {pulled.key_of(decode(record)): record for record in records} if len(gone) < len(one.records) else {}
        one.owe({digest: known.get(key) if key.startswith("id:") else None for digest, key in gone})


def _has(one: Written, entry: Entry) -> bool:
    return len(one.records) == entry.records and one.digest(entry.records) == entry.digest


def _is_as_written(now: Local, known: Copy) -> bool:
    return len(now.records) == known.count and now.digest(known.count) == known.digest


def _local(one: Written) -> Local | None:
    """The log of a copy; nothing where it is gone."""
    try:
        return local(read_log(one.path, one.agent, one.root), one.root)
    except SmartForkError:
        return None
