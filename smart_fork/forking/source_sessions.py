"""Sessions to fork: their logs, restored or temporary if the agent has none, and whether another user made them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path

import orjson

from indexer import kept_logs
from indexer.errors import what_failed
from indexer.kept_logs import CompressedFile, pieces
from indexer.safe_files import private_dir, remove, write_new
from indexer.transcripts.lines import bounded
from indexer.transcripts.model import Session
from smart_fork import provenance
from smart_fork.agents import AGENTS, repository_sessions
from smart_fork.agents.log_readers import READERS
from smart_fork.errors import Ambiguous, ForkRefused, NotFound, Usage, advice
from smart_fork.finding import session_lookup
from smart_fork.finding.session_lookup import Located
from smart_fork.forking.record_masking import MaskedSecrets, RecordMasker
from smart_fork.workers.registry import Registry, WorkerRecord

#: The most ancestors that are checked; this also ends cycles of recorded parents.
_DEPTH = 100


def is_others(session_id: str, session: Session | None = None) -> bool:
    """Return True if records on this machine say that another user made the session, or one of its ancestors.

    Pass its `session` if its log was read already. If sessions of several agents have this id, return True to be safe.
    """
    if not provenance.has_foreign():
        return False
    for _ in range(_DEPTH):
        try:
            session = session or _read(session_id)
        except Ambiguous:
            return True
        worker = Registry.known_worker(session_id)
        messages = (turn.id for turn in session.turns) if session else ()
        if provenance.foreign_among((session_id, *messages)) or (
            worker and worker.permission_mode == WorkerRecord.ASKED
        ):
            return True
        above = session.parent_id if session else None
        above = above or (worker.source_session_id if worker and worker.is_fork else None)
        if not above or above == session_id:
            return False
        session_id, session = above, None
    return True


@bounded()
def _read(session_id: str) -> Session | None:
    try:
        return session_lookup.look_into(session_lookup.locate(session_id))
    except Ambiguous:
        raise
    except (NotFound, Usage):
        return None


@contextmanager
def restored(located: Located, *, dry_run: bool = False) -> Iterator[Located]:
    """Yield `located` (a session and its log's path) with an existing log.

    A log that the agent has deleted is restored from smart-fork's backup; in a `dry_run`, only as a temporary file. A
    session that a repository stores gets a temporary log.

    Raises:
        NotFound: the backup of the log, or of its parent's log, is missing or cannot be read.
        ForkRefused: another file has the log's path.
    """
    copy = kept_logs.find(located.agent, located.session_id) if located.path is None else None
    if is_borrowed(located):
        with _borrowed(located) as there:
            yield there
    elif copy is None:
        yield located
    elif dry_run:
        with ExitStack() as stack:
            with _reading(copy):
                path = stack.enter_context(kept_logs.opened(copy))
            yield dataclasses.replace(located, path=path)
    else:
        created: list[Path] = []
        try:
            for one in reversed(_with_parents(copy)):
                path = _put_back(one, created)
            yield dataclasses.replace(located, path=path)
        except BaseException:
            for made in reversed(created):
                remove(made)
            raise


def with_temporary_log(located: Located) -> AbstractContextManager[Located]:
    """Return a context with `located` (a session and its log's path); a repository's session gets a temporary log."""
    return _borrowed(located) if is_borrowed(located) else nullcontext(located)


def refuse_borrowed(located: Located) -> None:
    """Refuse (`ForkRefused`) a session that is stored in a repository, for actions that change its log."""
    if is_borrowed(located):
        raise ForkRefused(
            f"{located.session_id} is {repository_sessions.author_of(str(located.path))}'s, and kept in a repository",
            advice(f"Fork it: smart-fork fork {located.session_id}", tool="Fork it: fork_from."),
        )


def refuse_without_log(located: Located, as_agent: str | None) -> None:
    """Refuse (`ForkRefused`) to fork a session kept as Markdown, unless `as_agent` is to receive its text."""
    if as_agent is None and repository_sessions.is_history(str(located.path)):
        raise ForkRefused(
            f"{located.session_id} is kept as Markdown in {repository_sessions.HISTORIES}. "
            "There is no log of it to fork",
            advice(
                f"Hand it over: smart-fork fork {located.session_id} --as {located.agent}",
                tool=f"Hand it over: as_agent '{located.agent}'.",
            ),
        )


def is_borrowed(located: Located) -> bool:
    """Return True if a repository stores the session, so that its agent has no log of it."""
    return located.path is not None and repository_sessions.is_within(str(located.path))


@contextmanager
def _borrowed(located: Located) -> Iterator[Located]:
    """Yield `located`, a session stored in a repository, with a temporary log in which secrets are masked.

    Also record on this machine that the session is another user's.
    """
    reader, secrets = READERS[located.agent], RecordMasker()
    try:
        stack = ExitStack()
        path = stack.enter_context(reader.as_file(located.path or Path()))
    except OSError as error:
        raise NotFound(f"{located.session_id} cannot be read: {what_failed(error)}") from error
    with stack:
        if AGENTS[located.agent].has("converter"):  # a session of any other is only told, which masks it
            converter, records = (
                AGENTS.converter_of(located.agent),
                [orjson.loads(line) for line in path.read_bytes().splitlines()],
            )
            secrets.learn(records)
            masked = (secrets.record(record, converter, MaskedSecrets()) for record in records)
            path.write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in masked if record))
        session = reader.read(path).session
        provenance.remember_foreign(located.session_id, (turn.id for turn in session.turns) if session else ())
        yield dataclasses.replace(located, path=path)


def _put_back(copy: kept_logs.KeptLog, created: list[Path]) -> Path:
    """Restore the backup `copy` of a deleted log and the files beside it, the log last. Return its path.

    Written paths are appended to `created`.
    """
    target = READERS[copy.agent].home() / AGENTS.storage_of(copy.agent).restored(copy.place, copy.session_id)
    if target.parent.is_file():
        raise ForkRefused(
            f"{AGENTS.title_of(copy.agent)} keeps all sessions in one file, which smart-fork does not write",
            advice("`smart-fork show` reads the copy.", tool="read_session reads the copy."),
        )
    with _reading(copy):
        for name, part in copy.beside.items():
            _write(copy, part, target.with_suffix("") / name, created)
        _write(copy, copy.log, target, created)
    return target


def _write(copy: kept_logs.KeptLog, part: CompressedFile, target: Path, created: list[Path]) -> None:
    private_dir(target.parent)
    try:
        write_new(target, pieces(copy.folder, part))
    except FileExistsError:
        if target.is_symlink() or not target.is_file() or target.read_bytes() != b"".join(pieces(copy.folder, part)):
            raise ForkRefused(
                f"Another version of this session is already there: {target}", "Fork the session that is there."
            ) from None
    else:
        created.append(target)


def _with_parents(copy: kept_logs.KeptLog) -> list[kept_logs.KeptLog]:
    """Return the backup `copy` of a log, then the backups of those ancestors whose logs are deleted, nearest first.

    Forks by some agents hold only their own records, and need their parent's log.
    """
    chain = [copy]
    while base := _base(chain[-1]):
        if READERS[copy.agent].locate(base):
            break
        above = kept_logs.find(copy.agent, base)
        if above is None or above in chain or len(chain) > AGENTS.MAX_FORK_DEPTH:
            raise NotFound(f"The parent session of {copy.session_id} is gone: {base}")
        chain.append(above)
    return chain


def _base(copy: kept_logs.KeptLog) -> str:
    """Return the id of the parent whose log has the first records of the session in the backup `copy`; or ""."""
    ancestry = AGENTS.ancestry_of(copy.agent)
    if not ancestry.goes_on:
        return ""
    with _reading(copy), kept_logs.opened(copy) as path:
        return ancestry.base(path)


@contextmanager
def _reading(copy: kept_logs.KeptLog) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise NotFound(
            f"The kept copy of {copy.session_id} cannot be used: {what_failed(error)}",
            advice("`smart-fork show` reads the export.", tool="read_session reads the export."),
        ) from error
