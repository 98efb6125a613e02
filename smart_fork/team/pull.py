"""The command `team pull`: download the user's own shared session, and write it as an agent's session here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from indexer.project import project_of, resolve
from indexer.safe_files import replace_file
from smart_fork import provenance
from smart_fork.agents import AGENTS
from smart_fork.errors import Conflict, NotFound
from smart_fork.finding.session_place import WorkDirectory
from smart_fork.sharing import canonical, log_register
from smart_fork.sharing.local_logs import write_local
from smart_fork.sharing.outgoing import SentBefore
from smart_fork.sharing.tracking import Alias, check_utf8, write_error
from smart_fork.team import PullOptions
from smart_fork.team.download import Download, download
from smart_fork.team.project import TeamProject
from smart_fork.team.sharing_result import SharingResult, shared_result
from smart_fork.team.tracked_sessions import (
    alias_of_session,
    changed_on_server,
    chosen_alias,
    free_alias,
    track_session,
)
from smart_fork.team.wire import SessionInfo

if TYPE_CHECKING:
    from smart_fork.sharing.local_logs import WrittenLog

#: Given instead of an agent, this writes the unchanged records into a file of the project.
RECORD_FILE_PLATFORM = "file"


def for_project(options: PullOptions, root: Path) -> PullOptions:
    """Return the options for a log in the project at `root`. A log in another project gets no alias."""
    there = options.into is None or WorkDirectory(str(resolve(options.into))).is_in(project_of(root))
    return replace(options, track=options.track and there)


def pull(project: TeamProject, reference: str, wanted: PullOptions) -> SharingResult:
    """Download one of the user's own shared sessions, and write it here, unless it is here already and unchanged.

    Raises:
        NotFound: the user has no session of this reference.
        Conflict: the local log has unpushed records, or the session's earlier records have changed.
    """
    session_id, project = project.session_id_of(reference), project.in_clone_of(wanted.into)
    wanted = for_project(wanted, project.place.root)
    read = project.client.session(project.key, session_id, "pull")
    tracked = project.tracking.read()
    known = next(((name, one) for name, one in tracked.aliases.items() if one.session_id == session_id), None)
    if known is not None and not wanted.force:
        _check_unchanged(project, *known, read.session)
        if _is_here(known[1], read.session, wanted):
            name, one = known
            project.tracking.change(lambda all_: all_.with_alias(name, all_.aliases[name]))
            done = shared_result("pull", project, read.session, name)
            return replace(done, up_to_date=True, files=one.files)
    base = SentBefore(known[1].base_count, known[1].base_digest) if known and not wanted.force else None
    taken = download(project.client, read, base=base)
    name = chosen_alias(tracked, wanted, session_id, known[0] if known else None)
    if wanted.platform == RECORD_FILE_PLATFORM:
        return _as_file(project, taken, name)
    wanted = wanted.for_agent(taken.info.agent)
    with written_copy(project, taken, wanted, others=False) as written:
        kept = _keep_as_branch(project, known[1], session_id) if known is not None and wanted.track else ()
        if wanted.track:
            track_session(project, name, alias_of_session(taken.info, written, kind="pull"))
    done = shared_result("pull", project, taken.info, name if wanted.track else None, written)
    return replace(done, warnings=(*done.warnings, *kept))


def _check_unchanged(project: TeamProject, name: str, one: Alias, info: SessionInfo) -> None:
    """Raise `Conflict` if the local log of a session has unpushed records: a pull would replace the log."""
    if one.file is None or not AGENTS.files_of(one.platform).has(one.file):
        return
    more = len(project.logs.records(project.logs.read(one.file, one.platform)).records) - one.local_count
    if more > 0:
        way = f"smart-fork team push {name} sends them."
        if changed_on_server(one, info):
            way = (
                f"smart-fork team branch {name} makes them a separate session. Then: smart-fork team pull {name} again."
            )
        raise Conflict(f"It continued here: {more} records are not pushed.", way)


def _keep_as_branch(project: TeamProject, one: Alias, session_id: str) -> tuple[str, ...]:
    """Track a local log with unpushed records as a branch under a new alias before a pull replaces it.

    Return a sentence that names the new alias; an empty tuple if all records were pushed.
    """
    more = project.logs.ahead(one) or 0
    if more <= 0:
        return ()
    name = free_alias(project.tracking.read(), session_id, new=True)
    project.tracking.change(lambda tracked: tracked.with_alias(name, one.apart(), current=False))
    return (f"{more} records that were not pushed are kept as {name}: smart-fork team push {name} shares them.",)


@contextmanager
def written_copy(
    project: TeamProject, taken: Download, wanted: PullOptions, *, others: bool, count: int | None = None
) -> Iterator[WrittenLog]:
    """Write the first `count` records of a downloaded session (default: all) as an agent's log, and yield it.

    After an error in the context, the log is deleted. `others` is true if the session belongs to another person.
    """
    agent = wanted.platform or taken.info.agent
    AGENTS.converter_of(agent)  # says what it cannot have
    new, directory = AGENTS.starter_of(agent).new_id(), directory_of(project, wanted)
    root = project.place.root if directory.is_relative_to(project.place.root) else directory
    with log_register.writing_copy(agent, new, project.place):
        try:
            made = write_local(
                taken.records,
                taken.info.agent,
                directory,
                source_id=taken.info.id,
                others=others,
                root=root,
                count=count,
                title=taken.info.title,
                platform=wanted.platform,
                new_session_id=new,
            )
            _store_origin(project, taken, made, root, others=others, count=count)
        except OSError as error:
            raise write_error(Path(error.filename or directory), error) from error
        try:
            yield made
        except BaseException:
            delete_copy(made)
            raise


def directory_of(project: TeamProject, wanted: PullOptions) -> Path:
    """Return the working directory for the new session: `into` in the options, or the project's folder."""
    directory = resolve(wanted.into) if wanted.into else project.place.root
    if not directory.is_dir():
        raise NotFound(f"No such directory: {directory}")
    check_utf8(project.place.root)
    check_utf8(directory)
    return directory


def _store_origin(
    project: TeamProject, taken: Download, made: WrittenLog, root: Path, *, others: bool, count: int | None
) -> None:
    """Store the source of a written log and the digests of its records, for later pulls and withdrawals.

    If that fails, delete the log.
    """
    here = log_register.ReceivedLog(made.path, made.agent, root, project.server, project.key, (), (taken.info.id,))
    try:
        if made.agent == taken.info.agent:
            log_register.store_received(here, taken.records[:count], others=others)
        else:
            log_register.store_converted(here, taken.records[:count])
        _note_others(project, taken, taken.records[:count], made, others=others)
    except BaseException:
        delete_copy(made)
        raise


def delete_copy(made: WrittenLog) -> None:
    """Delete a log that a command wrote on this machine, and all data that are stored about the log."""
    made.undo()
    if (known := log_register.find(made.path, made.agent)) is not None:
        known.forget()


def _as_file(project: TeamProject, taken: Download, name: str) -> SharingResult:
    """Write downloaded records, unchanged, into a file. Its first line is the server's description of the session."""
    path = project.place.file_for(name)
    header = orjson.dumps({"smart_fork": 1, "session": taken.info.model_dump(mode="json")})
    replace_file(path, (line + b"\n" for line in (header, *taken.records)))
    digests = [sha256(one).hexdigest() for one in taken.records]
    known = tuple(zip(digests, digests, strict=True))
    root, server, key = project.place.root, project.server, project.key
    log_register.ReceivedLog(path, log_register.RECORD_FILE, root, server, key, known, (taken.info.id,)).save()
    return replace(shared_result("pull", project, taken.info, None), files=(str(path),))


def _is_here(one: Alias, info: SessionInfo, wanted: PullOptions) -> bool:
    same = not changed_on_server(one, info)
    there = one.file is not None and AGENTS.files_of(one.platform).has(one.file)
    return same and there and wanted.into is None and wanted.alias is None and wanted.platform in (None, one.platform)


#: The most ancestors of a session that are requested from the server.
_MAX_ANCESTORS = 100


def _note_others(
    project: TeamProject, taken: Download, told: Sequence[bytes], made: WrittenLog, *, others: bool
) -> None:
    """Store which messages of the written log `made` other people wrote: the user is asked before a fork acts on them.

    `told` are the records that the log was written from. `others` is true if the session itself belongs to another
    person. Messages in records that this machine pushed count as the user's own.
    """
    count = len(told) if others else _count_of_others(project, taken.info)
    if not count:
        return
    pushed = {digest for one in log_register.all_received() for digest, key in one.records if not key}
    own = {
        log_register.record_id(canonical.decode(one))
        for number, one in enumerate(told)
        if number >= count or sha256(one).hexdigest() in pushed
    }
    said = (log_register.record_id(canonical.decode(one)) for one in made.local.records)
    provenance.remember_foreign(made.session_id, (one for one in said if one and one not in own))


def _count_of_others(project: TeamProject, info: SessionInfo) -> int:
    """Return how many of the session's first records come from another person's session."""
    for _ in range(_MAX_ANCESTORS):
        if info.parent_id is None:
            return 0
        try:
            parent = project.client.session(project.key, info.parent_id).session
        except NotFound:
            return info.base_count
        if not project.is_mine(parent):
            return info.base_count
        info = parent
    return info.base_count
