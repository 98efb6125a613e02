"""Synchronization of sessions with the remote.

A run fetches the remote's files, applies withdrawals (sessions that their owner took back), receives sessions and sends
sessions. If another machine has pushed meanwhile, the run starts again.
"""

from __future__ import annotations

import fcntl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from hashlib import sha256
from pathlib import Path

from indexer import repositories
from indexer.errors import what_failed
from indexer.json_values import Value, rare, record, value
from indexer.locks import held
from indexer.log_changes import forgotten
from indexer.project import project_of
from smart_fork import provenance
from smart_fork.agents import AGENTS, repository_sessions
from smart_fork.agents.log_readers import READERS
from smart_fork.errors import Conflict, SmartForkError
from smart_fork.finding import session_lookup
from smart_fork.finding.project_places import look
from smart_fork.sharing import log_register, withdrawal
from smart_fork.sharing.canonical import decode
from smart_fork.sharing.local_logs import LocalRecords, ProjectLogs, write_local
from smart_fork.sharing.log_register import ReceivedLog
from smart_fork.sharing.sync import manifest, sending
from smart_fork.sharing.sync.manifest import Manifest, SharedEntry, SyncKey
from smart_fork.sharing.sync.ref import Fetched, Ref
from smart_fork.sharing.tracking import ProjectFolder, timestamp

Copies = Mapping[str, sending.SyncedCopy]


def _is_own(entry: SharedEntry) -> bool:
    """Return True if this machine has the log from which the remote's session was sent, so that it needs no copy."""
    return any(not repository_sessions.is_within(str(path)) for path in READERS[entry.agent].locate(entry.session_id))


def _root_of(entry: SharedEntry, directories: Sequence[str]) -> Path | None:
    """Return the root of the synchronized repository in which a remote session worked; `None` if it is not here."""
    given, there = repositories.adopted().get(entry.directory), _repository(entry)
    for directory in directories:
        root = Path(project_of(directory).root)
        if given == str(root):
            return root
        here = look(root) if root.is_dir() else None
        if here is not None and (repositories.why_same(there, here) or _is_alike(there, here)):
            return root
    return None


def _is_alike(there: repositories.SeenRepository, here: repositories.SeenRepository) -> bool:
    """Return True if two repositories without remotes have the same path and a common first commit.

    They are taken for the same one, because users cannot match repositories without remotes by hand.
    """
    return there.top == here.top and not (there.remote or here.remote) and bool(there.roots & here.roots)


def _note(entry: SharedEntry) -> None:
    """Note a remote session's repository if it is missing here, so that the command `project` offers to match it."""
    if not Path(entry.directory).exists() and entry.directory not in repositories.noted():
        repositories.note(_repository(entry))


def _repository(entry: SharedEntry) -> repositories.SeenRepository:
    return repositories.SeenRepository(
        top=entry.directory, key="", roots=frozenset(entry.roots), remote=entry.remote, head=entry.head, last="",
        place="", shallow=not entry.roots,
    )  # fmt: skip


def _copies_of(source: str, here: Copies) -> list[ReceivedLog]:
    """Return the register entries of the logs on this machine that are copies of the remote's session `source`."""
    found = (log_register.of_session(session_id) for session_id, copy in here.items() if copy.source == source)
    return [one for one in found if one is not None]


def _receive(source: str, entry: SharedEntry, records: Sequence[bytes], root: Path) -> Path | None:
    """Update this machine's copies of a remote session, or write one. Return its log; `None` if an agent has it open.

    Content that was cut on the remote is cut out of every copy. A copy that was continued on this machine keeps its
    own turns; the remote's version is then written as a second copy.
    """
    here, untouched = sending.copies(), list[str]()
    for one in _copies_of(source, here):
        now, known = ProjectLogs(one.root).tracked(one.path, one.agent), here[one.id]
        if now and len(now.records) == known.count and now.digest(known.count) == known.digest:
            untouched.append(one.id)
        _take_out(one, records)
    withdrawal.apply_pending()
    there = _copies_of(source, here)
    if any(one.pending_edits() for one in there):
        return None
    for one in there:
        if (len(one.records), one.digest(entry.records)) == (entry.records, entry.digest):
            now = ProjectLogs(one.root).tracked(one.path, one.agent) if one.id in untouched else None
            copy = _copy(source, entry, now) if now else replace(here[one.id], shared=entry.digest)
            sending.keep_copy(one.id, copy)
            return one.path
    before = next((one for one in there if one.id in untouched), None)
    if before is not None:
        AGENTS.files_of(before.agent).remove(before.path)
    return _written(source, entry, records, root, before.id if before else AGENTS.starter_of(entry.agent).new_id())


def _copy(source: str, entry: SharedEntry, now: LocalRecords) -> sending.SyncedCopy:
    count = len(now.records)
    return sending.SyncedCopy(source, entry.agent, entry.digest, count, now.digest(count))


def _written(source: str, entry: SharedEntry, records: Sequence[bytes], root: Path, session_id: str) -> Path:
    """Write a copy of a remote session with this session id, and return its log.

    After a kill, the next command deletes the unfinished copy.
    """
    place = ProjectFolder(root, entry.remote)
    with log_register.writing_copy(entry.agent, session_id, place):
        made = write_local(
            records, entry.agent, root, source_id=source, others=False, title=entry.title, new_session_id=session_id
        )
        try:
            here = ReceivedLog(made.path, made.agent, root, "", entry.remote, (), (source,))
            log_register.store_received(here, records, others=False)
            sending.keep_copy(READERS[made.agent].id_of(made.path), _copy(source, entry, made.local))
        except BaseException:
            made.undo()
            here.forget()
            raise
    return made.path


def _take_out(one: ReceivedLog, records: Sequence[bytes]) -> None:
    """Store pending edits of a copy, to remove or replace the records that the remote's `records` no longer have."""
    digests = {sha256(record).hexdigest() for record in records}
    gone = [(digest, key) for digest, key in one.records if digest not in digests]
    if gone:
        kept = records if len(gone) < len(one.records) else ()
        known = {log_register.record_key(decode(record)): record for record in kept}
        one.store_pending({digest: known.get(key) if key.startswith("id:") else None for digest, key in gone})


#: The number of attempts if other machines are faster.
_TRIES = 10
_STILL = "Withdrawn text is still in it."


@value
class MovedSession(Value):
    """A session that synchronization sent, received or withdrew.

    `session_id` is its id on this machine, or on the sending machine if it is not here.
    """

    session_id: str
    agent_type: str = ""
    title: str = ""
    machine: str = rare("")
    path: str | None = rare()


@value
class PendingSessions(Value):
    """The number of remote sessions that wait because their repository is not synchronized on this machine."""

    directory: str
    machine: str
    remote: str
    sessions: int


@value
class FailedMove(Value):
    """A session that synchronization could not send or receive, and the reason."""

    session_id: str
    error: str
    hint: str = ""


@record
class Synced(Value):
    """The result of a synchronization, or with `dry_run`, what it would do."""

    remote: str
    sent: tuple[MovedSession, ...] = ()
    received: tuple[MovedSession, ...] = ()
    withdrawn: tuple[MovedSession, ...] = ()
    waiting: tuple[PendingSessions, ...] = ()
    failed: tuple[FailedMove, ...] = ()
    dry_run: bool = False


@dataclass(slots=True)
class _Done:
    sent: dict[str, MovedSession] = field(default_factory=dict)
    received: dict[str, MovedSession] = field(default_factory=dict)
    withdrawn: dict[str, MovedSession] = field(default_factory=dict)
    failed: dict[str, FailedMove] = field(default_factory=dict)


def sync(*, dry_run: bool = False, older: bool = False, progress: sending.Progress | None = None) -> Synced:
    """Synchronize with the remote: send and receive new sessions, and remove withdrawn ones on both sides.

    `older` accepts a remote with an older list of sessions than before, such as a restored one.

    Raises:
        NotFound: this machine is not set up.
        Conflict: the remote has an older list than before, or keeps changing.
        SmartForkError: the remote does not answer, or has content that no machine with this key wrote.
    """
    with held(manifest.folder(), fcntl.LOCK_EX):
        run = _Run(sending.sync_state(), manifest.own_key(), dry_run=dry_run, progress=progress or (lambda *_: None))
        return run.all(older=older)


def _note_withdrawn(source: str) -> None:
    """Note that the next synchronization must delete the remote's session `source` and its copies."""
    with held(manifest.folder(), fcntl.LOCK_EX):
        now = sending.sync_state()
        replace(now, withdrawn={**now.withdrawn, source: timestamp()}).keep()


class _Run:
    def __init__(self, now: sending.SyncState, key: SyncKey, *, dry_run: bool, progress: sending.Progress) -> None:
        self._settled, self._key, self._dry = now, key, dry_run
        self._progress = progress
        self._ref = Ref(now.remote)
        self._done = _Done()
        self._prepared: dict[str, sending.PreparedSession | sending.UnsentSession] | None = None
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
        """Decrypt the list of sessions on the remote. Without `older`, refuse a list that is older than the last."""
        now, blob = self._settled, fetched.files.get(manifest.NAME, "")
        there = manifest.opened(self._ref.read(blob), self._key) if blob else Manifest()
        self._withdrawn_there = dict(there.withdrawn)
        if older or there.number > now.number or (there.number == now.number and blob == now.blob):
            return there
        raise Conflict(
            f"The remote has an older list than before: {there.number}, not {now.number}.",
            "If you restored the remote, run: smart-fork sync --accept-older",
        )

    def _withdrawn(self, there: Manifest) -> Manifest:
        """Delete this machine's copies of withdrawn sessions. Return the remote's list `there` without them."""
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
            for copied in _copies_of(source, here) if not self._dry else ():
                if any(copied.digests):
                    copied.store_pending(dict.fromkeys(copied.digests))
        if not self._dry:
            withdrawal.apply_pending()
            for session_id in sending.copies():
                if not provenance.was_received(session_id):
                    sending.keep_copy(session_id, None)
            self._settled = replace(self._settled, withdrawn=gone)
        left = {source: entry for source, entry in there.sessions.items() if source not in gone}
        return there.model_copy(update={"sessions": left, "withdrawn": gone})

    def _note_withdrawn(self, source: str, entry: SharedEntry | None, copy: str = "") -> None:
        agent, title, there = (entry.agent, entry.title, entry.session_id) if entry else ("", "", source)
        self._done.withdrawn.setdefault(source, MovedSession(copy or there, agent, title))

    def _received(self, there: Manifest, fetched: Fetched) -> tuple[PendingSessions, ...]:
        waiting: dict[tuple[str, str, str], int] = {}
        roots: dict[tuple[str, str, str], Path | None] = {}
        here = sending.copies()
        for number, (source, entry) in enumerate(there.sessions.items()):
            self._progress("receiving", number, len(there.sessions))
            # A copy of this state was written here: if it was deleted since, it does not come back.
            copied = any(copy.source == source and copy.shared == entry.digest for copy in here.values())
            can_receive = entry.agent in READERS.names and AGENTS[entry.agent].has("converter")
            if copied or source in self._settled.stamps or not can_receive or _is_own(entry):
                continue
            place = (entry.directory, entry.machine, entry.remote)
            if place not in roots:
                roots[place] = _root_of(entry, self._settled.directories)
            if (root := roots[place]) is None:
                waiting[place] = waiting.get(place, 0) + 1
                if not self._dry:
                    _note(entry)
                continue
            self._done.failed.pop(source, None)
            try:
                self._receive(source, entry, fetched, root)
            except SmartForkError as error:
                self._done.failed[source] = FailedMove(entry.session_id, error.message, error.hint)
            except OSError as error:
                why = f"It cannot be written: {what_failed(error)}"
                self._done.failed[source] = FailedMove(entry.session_id, why)
        self._progress("receiving", len(there.sessions), len(there.sessions))
        if not self._dry:
            for one in log_register.with_pending_edits():
                if not one.server:
                    self._done.failed[one.id] = FailedMove(one.id, _STILL, "End the agent that has it open.")
        return tuple(PendingSessions(*place, number) for place, number in waiting.items())

    def _receive(self, source: str, entry: SharedEntry, fetched: Fetched, root: Path) -> None:
        if self._dry:
            self._done.received[source] = MovedSession(entry.session_id, entry.agent, entry.title, entry.machine)
            return
        data = self._ref.read(fetched.files[name]) if (name := self._key.name(source)) in fetched.files else b""
        records = manifest.opened_records(source, entry, data, self._key)
        if (path := _receive(source, entry, records, root)) is not None:
            session_id = READERS[entry.agent].id_of(path)
            self._done.received[source] = MovedSession(session_id, entry.agent, entry.title, entry.machine, str(path))

    def _sent(self, there: Manifest, fetched: Fetched) -> bool:
        """Send new and changed sessions. Return False if another machine has pushed since the remote was `fetched`."""
        sessions, withdrawn, before = dict(there.sessions), dict(there.withdrawn), self._stamps(there, fetched)
        if self._prepared is None:
            now = replace(self._settled, stamps=before)
            self._prepared = {
                one.id: one
                for one in sending.prepared_sessions(now, self._key, withdrawn, sending.copies(), self._progress)
            }
        stamps, blobs = dict(before), dict[str, str]()
        for source, one in self._prepared.items():
            if isinstance(one, sending.UnsentSession):
                if one.excluded and source in sessions:
                    withdrawn[source] = timestamp()
                    self._note_withdrawn(source, sessions.pop(source))
                elif not one.excluded:
                    self._done.failed[source] = FailedMove(one.session_id, one.error, one.hint)
                continue
            if source in withdrawn:
                continue
            stamps[source] = one.stamp
            old = sessions.get(source) if self._key.name(source) in fetched.files else None
            if one.entry is None or not self._is_news(source, one.entry, old):
                continue
            self._done.sent[source] = MovedSession(one.entry.session_id, one.entry.agent, one.entry.title)
            if not self._dry:
                data = manifest.sealed_records(source, one.records, self._key)
                blobs[self._key.name(source)] = self._ref.add(data)
                sessions[source] = one.entry.model_copy(update={"sealed": sha256(data).hexdigest()})
        if self._dry:
            return True
        after = there.model_copy(update={"sessions": sessions, "withdrawn": withdrawn})
        return self._pushed(fetched, after, stamps, blobs)

    def _stamps(self, there: Manifest, fetched: Fetched) -> dict[str, str]:
        """Return the stamps (stored states) of the logs that were sent before, by remote session id.

        Only logs that the remote still has, or that are copies of remote sessions, are included: others are sent again.
        """
        own = {one for one in there.sessions if self._key.name(one) in fetched.files}
        copied = {sending.source_id(self._key, copy.agent, session_id) for session_id, copy in sending.copies().items()}
        return {source: stamp for source, stamp in self._settled.stamps.items() if source in own | copied}

    def _is_news(self, source: str, entry: SharedEntry, there: SharedEntry | None) -> bool:
        """Return True if the session `source` must be sent, since the remote has another version `there` or none.

        If two machines have the session's log, the version with the later activity wins.
        """
        if there is None or source in self._settled.stamps:
            return there is None or there.digest != entry.digest
        return there.digest != entry.digest and entry.last_activity >= there.last_activity

    def _pushed(self, fetched: Fetched, after: Manifest, stamps: dict[str, str], blobs: dict[str, str]) -> bool:
        names = {self._key.name(source) for source in after.sessions}
        files = {name: blob for name, blob in (dict(fetched.files) | blobs).items() if name in names}
        blob, number = fetched.files.get(manifest.NAME, ""), after.number
        others = fetched.files.keys() - {manifest.NAME}
        if not blob or blobs or files.keys() != others or after.withdrawn != self._withdrawn_there:
            number = max(number, self._settled.number) + 1
            blob = self._ref.add(manifest.sealed(after.model_copy(update={"number": number}), self._key))
            if not self._ref.push({**files, manifest.NAME: blob}, fetched):
                return False
        withdrawn = after.withdrawn
        replace(self._settled, number=number, blob=blob, withdrawn=withdrawn, stamps=stamps).keep()
        return True


def withdraw(reference: str, *, progress: sending.Progress | None = None) -> Synced:
    """Withdraw the session that `reference` names from the remote and all machines. The original log stays."""
    sending.sync_state()
    one = session_lookup.locate(reference)
    copy = sending.copies().get(one.session_id)
    _note_withdrawn(copy.source if copy else sending.source_id(manifest.own_key(), one.agent, one.session_id))
    return sync(progress=progress)
