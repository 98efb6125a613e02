"""One synchronization: fetch, take out what was withdrawn, receive, send; again where another machine was faster."""

from __future__ import annotations

import fcntl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from hashlib import sha256
from pathlib import Path

from indexer import repositories
from indexer.changes import forgotten
from indexer.failures import what_failed
from indexer.locks import held
from indexer.project import project_of
from indexer.values import Value, rare, record, value
from smart_fork import session_origins
from smart_fork.agents import AGENTS, checkpoints
from smart_fork.agents.log_readers import READERS
from smart_fork.errors import Conflict, SmartForkError
from smart_fork.repository.history import look
from smart_fork.sharing import received_logs, withdrawal
from smart_fork.sharing.canonical import decode
from smart_fork.sharing.local_logs import Local, local_in, write_local
from smart_fork.sharing.received_logs import ReceivedLog
from smart_fork.sharing.sync import manifest as lists
from smart_fork.sharing.sync import sending
from smart_fork.sharing.sync.manifest import Manifest, SharedEntry, SyncKey, folder, known
from smart_fork.sharing.sync.ref import Fetched, Ref
from smart_fork.sharing.tracking import ProjectFolder, timestamp

Copies = Mapping[str, sending.SyncedCopy]


def is_own(entry: SharedEntry) -> bool:
    """Return True if this machine has the log that the session was sent from."""
    return any(not checkpoints.is_within(str(path)) for path in READERS[entry.agent].locate(entry.session_id))


def is_read(entry: SharedEntry) -> bool:
    """Return True if this version can receive sessions of that agent."""
    return entry.agent in READERS.names and AGENTS[entry.agent].has("forms")


def root_of(entry: SharedEntry, directories: Sequence[str]) -> Path | None:
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
    """Return True if neither repository has a remote, and both have the same directory and history. The user cannot
    adopt such a session.
    """
    return there.top == here.top and not (there.remote or here.remote) and bool(there.roots & here.roots)


def note(entry: SharedEntry) -> None:
    """Note the repository of a session that waits: `project` names its directory where it may be the same."""
    if not Path(entry.directory).exists() and entry.directory not in repositories.noted():
        repositories.note(_repository(entry))


def _repository(entry: SharedEntry) -> repositories.Repository:
    return repositories.Repository(
        top=entry.directory, key="", roots=frozenset(entry.roots), remote=entry.remote, head=entry.head, last="",
        place="", shallow=not entry.roots,
    )  # fmt: skip


def copies_of(source: str, here: Copies) -> list[ReceivedLog]:
    """The sessions that were written here from one of the remote's."""
    found = (received_logs.of_session(session_id) for session_id, copy in here.items() if copy.source == source)
    return [one for one in found if one is not None]


def is_current(source: str, entry: SharedEntry, here: Copies) -> bool:
    """Return True if this machine has written a full copy of the remote session. A copy deleted since does not come
    back.
    """
    return any(copy.source == source and copy.shared == entry.digest for copy in here.values())


def withdraw(source: str, here: Copies) -> None:
    """Write down that all copies of a session are to go."""
    for one in copies_of(source, here):
        if any(one.digests):
            one.owe(dict.fromkeys(one.digests))


def receive(source: str, entry: SharedEntry, records: Sequence[bytes], root: Path) -> Path | None:
    """Bring what is here of a session to what is on the remote, and return its log; nothing where an agent has it open.

    What was cut out of it there is cut out of every copy, also of one that was continued here; such a one keeps what it
    has beyond, and the session is written a second time.

    Raises:
        SmartForkError: it cannot be written here.
        OSError: the same.
    """
    here, untouched = sending.copies(), list[str]()
    for one in copies_of(source, here):
        now, known = local_in(one.path, one.agent, one.root), here[one.id]
        if now and len(now.records) == known.count and now.digest(known.count) == known.digest:
            untouched.append(one.id)
        _take_out(one, records)
    withdrawal.apply_pending()
    there = copies_of(source, here)
    if any(one.owed() for one in there):
        return None
    for one in there:
        if _has(one, entry):
            now = local_in(one.path, one.agent, one.root) if one.id in untouched else None
            copy = _copy(source, entry, now) if now else replace(here[one.id], shared=entry.digest)
            sending.keep_copy(one.id, copy)
            return one.path
    before = next((one for one in there if one.id in untouched), None)
    if before is not None:
        AGENTS.files_of(before.agent).remove(before.path)
    return _written(source, entry, records, root, before.id if before else AGENTS.starter_of(entry.agent).new_id())


def _copy(source: str, entry: SharedEntry, now: Local) -> sending.SyncedCopy:
    count = len(now.records)
    return sending.SyncedCopy(source, entry.agent, entry.digest, count, now.digest(count))


def _written(source: str, entry: SharedEntry, records: Sequence[bytes], root: Path, session_id: str) -> Path:
    """Write a session; who is killed meanwhile leaves nothing that the next command does not take away."""
    place = ProjectFolder(root, entry.remote)
    with received_logs.writing_copy(entry.agent, session_id, place):
        made = write_local(
            records, entry.agent, root, source_id=source, others=False, title=entry.title, new_session_id=session_id
        )
        try:
            here = ReceivedLog(made.path, made.agent, root, "", entry.remote, (), (source,))
            received_logs.store_received(here, records, others=False)
            sending.keep_copy(READERS[made.agent].id_of(made.path), _copy(source, entry, made.local))
        except BaseException:
            made.undo()
            here.forget()
            raise
    return made.path


def _take_out(one: ReceivedLog, records: Sequence[bytes]) -> None:
    """Write down what a copy has that the session has no longer, and what takes its place."""
    digests = {sha256(record).hexdigest() for record in records}
    gone = [(digest, key) for digest, key in one.records if digest not in digests]
    if gone:
        known = (
            {received_logs.key_of(decode(record)): record for record in records} if len(gone) < len(one.records) else {}
        )
        one.owe({digest: known.get(key) if key.startswith("id:") else None for digest, key in gone})


def _has(one: ReceivedLog, entry: SharedEntry) -> bool:
    return len(one.records) == entry.records and one.digest(entry.records) == entry.digest


#: So often another machine may be faster.
_TRIES = 10
_STILL = "Withdrawn text is still in it."


@value
class Moved(Value):
    """A session that was sent, received or withdrawn. `session_id` is this machine's, where it has it."""

    session_id: str
    agent_type: str = ""
    title: str = ""
    machine: str = rare("")
    path: str | None = rare()


@value
class PendingSessions(Value):
    """Sessions of a repository that takes part on another machine, and not here."""

    directory: str
    machine: str
    remote: str
    sessions: int


@value
class NotMoved(Value):
    """A session that was not sent or received, with the reason."""

    session_id: str
    error: str
    hint: str = ""


@record
class Synced(Value):
    """Results of a synchronization, or with `dry_run` of a planned one."""

    remote: str
    sent: tuple[Moved, ...] = ()
    received: tuple[Moved, ...] = ()
    withdrawn: tuple[Moved, ...] = ()
    waiting: tuple[PendingSessions, ...] = ()
    failed: tuple[NotMoved, ...] = ()
    dry_run: bool = False


@dataclass(slots=True)
class _Done:
    sent: dict[str, Moved] = field(default_factory=dict)
    received: dict[str, Moved] = field(default_factory=dict)
    withdrawn: dict[str, Moved] = field(default_factory=dict)
    failed: dict[str, NotMoved] = field(default_factory=dict)


def sync(*, dry_run: bool = False, older: bool = False, progress: sending.Progress | None = None) -> Synced:
    """Send what is new here, receive what is new there, and take out on both sides what was withdrawn.

    `older` accepts a remote that has less than was seen there before.

    Raises:
        NotFound: this machine is not set up.
        Conflict: the remote has an older list than before.
        SmartForkError: the remote does not answer, or has what no machine with this key has put there.
    """
    with held(folder(), fcntl.LOCK_EX):
        run = _Run(sending.settled(), known(), dry_run=dry_run, progress=progress or (lambda *_: None))
        return run.all(older=older)


def withdraw_session(source: str) -> None:
    """Have a session withdrawn by the next synchronization."""
    with held(folder(), fcntl.LOCK_EX):
        now = sending.settled()
        replace(now, withdrawn={**now.withdrawn, source: timestamp()}).keep()


class _Run:
    def __init__(self, now: sending.Settled, key: SyncKey, *, dry_run: bool, progress: sending.Progress) -> None:
        self._settled, self._key, self._dry = now, key, dry_run
        self._progress = progress
        self._ref = Ref(now.remote)
        self._done = _Done()
        self._prepared: dict[str, sending.PreparedSession | sending.KeptSession] | None = None
        self._withdrawn_there: dict[str, str] = {}

    def all(self, *, older: bool) -> Synced:
        for _ in range(_TRIES):
            fetched = self._ref.fetch()
            there = self._read(fetched, older=older)
            there = self._withdrawn(there)
            waiting = self._received(there, fetched)
            if self._sent(there, fetched):
                done = {one.name: tuple(getattr(self._done, one.name).values()) for one in fields(_Done)}
                return Synced(remote=self._settled.remote, waiting=waiting, dry_run=self._dry, **done)
        raise Conflict("Other machines keep changing the remote.", "Try again.")

    def _read(self, fetched: Fetched, *, older: bool) -> Manifest:
        """The list on the remote, which must not be older than the one that was seen last."""
        now, blob = self._settled, fetched.files.get(lists.NAME, "")
        there = lists.opened(self._ref.read(blob), self._key) if blob else Manifest()
        self._withdrawn_there = dict(there.withdrawn)
        if older or there.number > now.number or (there.number == now.number and blob == now.blob):
            return there
        raise Conflict(
            f"The remote has an older list than before: {there.number}, not {now.number}.",
            "If you restored the remote, run: smart-fork sync --accept-older",
        )

    def _withdrawn(self, there: Manifest) -> Manifest:
        """The list without what was withdrawn on any machine, which goes from this one as well."""
        here = sending.copies()
        gone = {**self._settled.withdrawn, **there.withdrawn}
        for agent, session_id in forgotten():
            copy = here.get(session_id)
            source = copy.source if copy else sending.source_id(self._key, agent, session_id)
            if source in there.sessions:
                gone.setdefault(source, timestamp())
        for source in gone:
            entry = there.sessions.get(source)
            own = next((session_id for session_id, one in here.items() if one.source == source), "")
            if entry is not None or own:
                self._note_withdrawn(source, entry, own)
            if not self._dry:
                withdraw(source, here)
        if not self._dry:
            withdrawal.apply_pending()
            for session_id in sending.copies():
                if not session_origins.was_received(session_id):
                    sending.keep_copy(session_id, None)
            self._settled = replace(self._settled, withdrawn=gone)
        left = {source: entry for source, entry in there.sessions.items() if source not in gone}
        return there.model_copy(update={"sessions": left, "withdrawn": gone})

    def _note_withdrawn(self, source: str, entry: SharedEntry | None, copy: str = "") -> None:
        agent, title, there = (entry.agent, entry.title, entry.session_id) if entry else ("", "", source)
        self._done.withdrawn.setdefault(source, Moved(copy or there, agent, title))

    def _received(self, there: Manifest, fetched: Fetched) -> tuple[PendingSessions, ...]:
        waiting: dict[tuple[str, str, str], int] = {}
        roots: dict[tuple[str, str, str], Path | None] = {}
        here = sending.copies()
        for number, (source, entry) in enumerate(there.sessions.items()):
            self._progress("receiving", number, len(there.sessions))
            known = source in self._settled.stamps or is_current(source, entry, here)
            if known or not is_read(entry) or is_own(entry):
                continue
            place = (entry.directory, entry.machine, entry.remote)
            if place not in roots:
                roots[place] = root_of(entry, self._settled.directories)
            if (root := roots[place]) is None:
                waiting[place] = waiting.get(place, 0) + 1
                if not self._dry:
                    note(entry)
                continue
            self._done.failed.pop(source, None)
            try:
                self._receive(source, entry, fetched, root)
            except SmartForkError as error:
                self._done.failed[source] = NotMoved(entry.session_id, error.message, error.hint)
            except OSError as error:
                self._done.failed[source] = NotMoved(entry.session_id, f"It cannot be written: {what_failed(error)}")
        self._progress("receiving", len(there.sessions), len(there.sessions))
        if not self._dry:
            for one in received_logs.with_pending_edits():
                if not one.server:
                    self._done.failed[one.id] = NotMoved(one.id, _STILL, "End the agent that has it open.")
        return tuple(PendingSessions(*place, number) for place, number in waiting.items())

    def _receive(self, source: str, entry: SharedEntry, fetched: Fetched, root: Path) -> None:
        if self._dry:
            self._done.received[source] = Moved(entry.session_id, entry.agent, entry.title, entry.machine)
            return
        data = self._ref.read(fetched.files[name]) if (name := self._key.name(source)) in fetched.files else b""
        records = lists.opened_records(source, entry, data, self._key)
        if (path := receive(source, entry, records, root)) is not None:
            session_id = READERS[entry.agent].id_of(path)
            self._done.received[source] = Moved(session_id, entry.agent, entry.title, entry.machine, str(path))

    def _sent(self, there: Manifest, fetched: Fetched) -> bool:
        """Put this machine's sessions there. Return whether nobody was faster."""
        sessions, withdrawn, before = dict(there.sessions), dict(there.withdrawn), self._stamps(there, fetched)
        if self._prepared is None:
            now = replace(self._settled, stamps=before)
            self._prepared = {
                one.id: one for one in sending.ready(now, self._key, withdrawn, sending.copies(), self._progress)
            }
        stamps, blobs = dict(before), dict[str, str]()
        for source, one in self._prepared.items():
            if isinstance(one, sending.KeptSession):
                if one.excluded and source in sessions:
                    withdrawn[source] = timestamp()
                    self._note_withdrawn(source, sessions.pop(source))
                elif not one.excluded:
                    self._done.failed[source] = NotMoved(one.session_id, one.error, one.hint)
                continue
            if source in withdrawn:
                continue
            stamps[source] = one.stamp
            old = sessions.get(source) if self._key.name(source) in fetched.files else None
            if one.entry is None or not self._is_news(source, one.entry, old):
                continue
            self._done.sent[source] = Moved(one.entry.session_id, one.entry.agent, one.entry.title)
            if not self._dry:
                data = lists.sealed_records(source, one.records, self._key)
                blobs[self._key.name(source)] = self._ref.add(data)
                sessions[source] = one.entry.model_copy(update={"sealed": sha256(data).hexdigest()})
        if self._dry:
            return True
        after = there.model_copy(update={"sessions": sessions, "withdrawn": withdrawn})
        return self._pushed(fetched, after, stamps, blobs)

    def _stamps(self, there: Manifest, fetched: Fetched) -> dict[str, str]:
        """Return the stamps of logs that the remote still has, and of copies whose original it has."""
        own = {one for one in there.sessions if self._key.name(one) in fetched.files}
        copied = {sending.source_id(self._key, copy.agent, session_id) for session_id, copy in sending.copies().items()}
        return {source: stamp for source, stamp in self._settled.stamps.items() if source in own | copied}

    def _is_news(self, source: str, entry: SharedEntry, there: SharedEntry | None) -> bool:
        """Return True if the session must be sent. If two machines have its log, the later one stays."""
        if there is None or source in self._settled.stamps:
            return there is None or there.digest != entry.digest
        return there.digest != entry.digest and entry.last_activity >= there.last_activity

    def _pushed(self, fetched: Fetched, after: Manifest, stamps: dict[str, str], blobs: dict[str, str]) -> bool:
        names = {self._key.name(source) for source in after.sessions}
        files = {name: blob for name, blob in (dict(fetched.files) | blobs).items() if name in names}
        blob, number = fetched.files.get(lists.NAME, ""), after.number
        others = fetched.files.keys() - {lists.NAME}
        if not blob or blobs or files.keys() != others or after.withdrawn != self._withdrawn_there:
            number = max(number, self._settled.number) + 1
            blob = self._ref.add(lists.sealed(after.model_copy(update={"number": number}), self._key))
            if not self._ref.push({**files, lists.NAME: blob}, fetched):
                return False
        withdrawn = after.withdrawn
        replace(self._settled, number=number, blob=blob, withdrawn=withdrawn, stamps=stamps).keep()
        return True
