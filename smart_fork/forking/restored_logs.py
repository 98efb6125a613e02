"""A session whose log the agent has deleted, put back from the copy that was kept, so that it can be forked.

Nothing that exists is ever written over, and a fork that fails leaves nothing behind.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import orjson

from indexer import kept_logs
from indexer.errors import what_failed
from indexer.files import private_dir, remove, write_new
from indexer.kept_logs import Compressed, pieces
from indexer.transcripts.lines import bounded
from indexer.transcripts.model import Session
from smart_fork import session_origins
from smart_fork.agents import AGENTS, checkpoints
from smart_fork.agents.log_readers import READERS
from smart_fork.errors import Ambiguous, ForkRefused, NotFound, Usage, advice
from smart_fork.finding import sessions
from smart_fork.finding.sessions import Located
from smart_fork.workers.registry import Registry, WorkerRecord

#: So many sessions above one are looked at; records that name each other in a circle end there as well.
_DEPTH = 100


def is_others(session_id: str, session: Session | None = None) -> bool:
    """Return True if the session is another user's, as far as this machine knows. `session` is its log, if it was read.

    Where an id is that of sessions of several agents, it does: what cannot be told is not trusted.
    """
    if not session_origins.has_foreign():
        return False
    for _ in range(_DEPTH):
        try:
            session = session or _read(session_id)
        except Ambiguous:
            return True
        worker = Registry.known_worker(session_id)
        messages = (turn.id for turn in session.turns) if session else ()
        if session_origins.foreign_among((session_id, *messages)) or (
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
        return sessions.look_into(sessions.locate(session_id))
    except Ambiguous:
        raise
    except (NotFound, Usage):
        return None


@contextmanager
def brought_back(located: Located, *, dry_run: bool = False) -> Iterator[Located]:
    """`located` with a log: its own, or the one that is put back; of a `dry_run` a file that is gone afterwards.

    Raises:
        NotFound: there is no copy, or it, or what it was forked from, cannot be read.
        ForkRefused: another file of that name is there.
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


@contextmanager
def forkable(located: Located) -> Iterator[Located]:
    """`located` with a log that can be copied: of a session that a repository keeps, a file for as long."""
    if not is_borrowed(located):
        yield located
        return
    with _borrowed(located) as there:
        yield there


def refuse_borrowed(located: Located) -> None:
    """Refuse a session that a repository keeps, where only the session itself would do.

    Raises:
        ForkRefused: it is one.
    """
    if is_borrowed(located):
        raise ForkRefused(
            f"{located.session_id} is {checkpoints.author_of(str(located.path))}'s, and kept in a repository",
            advice(f"Fork it: smart-fork fork {located.session_id}", tool="Fork it: fork_from."),
        )


def refuse_without_log(located: Located, as_agent: str | None) -> None:
    """Refuse to fork Markdown. It can be handed over, also to the agent that it is of.

    Raises:
        ForkRefused: nobody said to whom.
    """
    if as_agent is None and checkpoints.is_history(str(located.path)):
        raise ForkRefused(
            f"{located.session_id} is kept as Markdown in {checkpoints.HISTORIES}. There is no log of it to fork",
            advice(
                f"Hand it over: smart-fork fork {located.session_id} --as {located.agent}",
                tool=f"Hand it over: as_agent '{located.agent}'.",
            ),
        )


def is_borrowed(located: Located) -> bool:
    """Return True if a session is stored in a repository: its agent has no log of it, and a fork copies it."""
    return located.path is not None and checkpoints.is_within(str(located.path))


@contextmanager
def _borrowed(located: Located) -> Iterator[Located]:
    """`located` with a log for as long as it is forked: without secrets, and known as somebody else's from now on."""
    from smart_fork.forking.secrets import MaskedSecrets, Secrets  # other forks are not kept waiting for it

    reader, secrets = READERS[located.agent], Secrets()
    try:
        stack = ExitStack()
        path = stack.enter_context(reader.as_file(located.path or Path()))
    except OSError as error:
        raise NotFound(f"{located.session_id} cannot be read: {what_failed(error)}") from error
    with stack:
        if AGENTS[located.agent].has("forms"):  # a session of any other is only told, which masks it
            forms, records = (
                AGENTS.forms_of(located.agent),
                [orjson.loads(line) for line in path.read_bytes().splitlines()],
            )
            secrets.learn(records)
            masked = (secrets.record(record, forms, MaskedSecrets()) for record in records)
            path.write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in masked if record))
        session = reader.read(path).session
        session_origins.remember_foreign(located.session_id, (turn.id for turn in session.turns) if session else ())
        yield dataclasses.replace(located, path=path)


def _put_back(copy: kept_logs.KeptLog, created: list[Path]) -> Path:
    """The log and what lay beside it, where the agent looks for them; the log last, so that it is never alone."""
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


def _write(copy: kept_logs.KeptLog, part: Compressed, target: Path, created: list[Path]) -> None:
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
    """A copy, and before it those of the sessions whose records it shares, as far as their logs are gone as well.

    Forks of some agents hold only their own records.
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
    """The id of the session whose records a fork goes on from; empty where it holds them itself."""
    heads = AGENTS.heads_of(copy.agent)
    if not heads.goes_on:
        return ""
    with _reading(copy), kept_logs.opened(copy) as path:
        return heads.base(path)


@contextmanager
def _reading(copy: kept_logs.KeptLog) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise NotFound(
            f"The kept copy of {copy.session_id} cannot be used: {what_failed(error)}",
            advice("`smart-fork show` reads the export.", tool="read_session reads the export."),
        ) from error
