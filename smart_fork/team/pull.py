"""The command `team pull`: download the user's own shared session, and write it as an agent's session here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from indexer.project import project_of, resolve
from indexer.safe_files import replace_file
from indexer.transcripts.model import AgentName
from smart_fork import provenance
from smart_fork.agents import AGENTS
from smart_fork.errors import Conflict, NotFound, Usage
from smart_fork.finding.session_place import WorkDirectory, belongs
from smart_fork.forking.branch import command_to_resume
from smart_fork.sharing import canonical, received_logs
from smart_fork.sharing.local_logs import write_local
from smart_fork.sharing.outgoing import SentBefore
from smart_fork.sharing.tracking import Alias, check_alias, check_utf8, timestamp, write_error
from smart_fork.team import PullOptions
from smart_fork.team.project import Download, PendingCreation, Shared, TeamProject, Verb, download, has_moved, shared
from smart_fork.team.wire import SessionInfo

if TYPE_CHECKING:
    from smart_fork.sharing.local_logs import WrittenLog
    from smart_fork.sharing.tracking import Tracked

#: Given instead of an agent, this writes the unchanged records into a file of the project.
RECORD_FILE_PLATFORM = "file"
OUTSIDE_PROJECT_WARNING = "Its directory is outside this project, so it is not tracked here. Push it from there."
OTHER_AGENT_WARNING = "It belongs to another agent now. A push shares it as a separate session."


def for_project(options: PullOptions, root: Path) -> PullOptions:
    """Return the options for a copy in the project at `root`. A copy in another project is not tracked."""
    there = options.into is None or WorkDirectory(str(resolve(options.into))).is_in(project_of(root))
    return replace(options, track=options.track and there)


def pull(project: TeamProject, reference: str, wanted: PullOptions) -> Shared:
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
            done = shared("pull", project.server, read.session, name)
            return replace(done, up_to_date=True, files=one.files)
    base = SentBefore(known[1].base_count, known[1].base_digest) if known and not wanted.force else None
    taken = download(project.client, read, base=base)
    name = alias_for(tracked, wanted, session_id, known[0] if known else None)
    if wanted.platform == RECORD_FILE_PLATFORM:
        return _as_file(project, taken, name)
    wanted = wanted.for_agent(taken.info.agent)
    with written_copy(project, taken, wanted, others=False) as written:
        kept = _keep_as_branch(project, known[1], session_id) if known is not None and wanted.track else ()
        if wanted.track:
            track_session(project, name, alias_of(taken.info, written, kind="pull"))
    done = shared_result(project, "pull", taken.info, written, name if wanted.track else None)
    return replace(done, warnings=(*done.warnings, *kept))


def _check_unchanged(project: TeamProject, name: str, one: Alias, info: SessionInfo) -> None:
    """Raise `Conflict` if the local log of a session has unpushed records: a pull would replace the log."""
    if one.file is None or not AGENTS.files_of(one.platform).has(one.file):
        return
    more = len(project.logs.records(project.logs.read(one.file, one.platform)).records) - one.local_count
    if more > 0:
        way = f"smart-fork team push {name} sends them."
        if has_moved(one, info):
            way = (
                f"smart-fork team branch {name} makes them a separate session. Then: smart-fork team pull {name} again."
            )
        raise Conflict(f"It continued here: {more} records are not pushed.", way)


def _keep_as_branch(project: TeamProject, one: Alias, session_id: str) -> tuple[str, ...]:
    """Track a local log with unpushed records as a branch under a new alias before a pull replaces it.

    Return a sentence that names the alias; an empty tuple if all records were pushed.
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
    """Write the first `count` records of a downloaded session (or all) as an agent's log here, and yield the log.

    After an error in the context, the log is deleted. `others` is true if the session belongs to another person.
    """
    agent = wanted.platform or taken.info.agent
    AGENTS.converter_of(agent)  # says what it cannot have
    new, directory = AGENTS.starter_of(agent).new_id(), directory_of(project, wanted)
    root = project.place.root if directory.is_relative_to(project.place.root) else directory
    with received_logs.writing_copy(agent, new, project.place):
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
            _remember(project, taken, made, root, others=others, count=count)
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


def _remember(
    project: TeamProject, taken: Download, made: WrittenLog, root: Path, *, others: bool, count: int | None
) -> None:
    """Store where a written log came from, and the digests of its records. If that fails, delete the log.

    Later pulls and withdrawals (removals of text by its owner) need these data.
    """
    here = received_logs.ReceivedLog(made.path, made.agent, root, project.server, project.key, (), (taken.info.id,))
    try:
        if made.agent == taken.info.agent:
            received_logs.store_received(here, taken.records[:count], others=others)
        else:
            received_logs.store_converted(here, taken.records[:count])
        _note_others(project, taken, taken.records[:count], made, others=others)
    except BaseException:
        delete_copy(made)
        raise


def delete_copy(made: WrittenLog) -> None:
    """Delete a log that a command wrote on this machine, and all data that are stored about the log."""
    made.undo()
    if (known := received_logs.find(made.path, made.agent)) is not None:
        known.forget()


def _as_file(project: TeamProject, taken: Download, name: str) -> Shared:
    """Write downloaded records, unchanged, into a file. Its first line is the server's description of the session."""
    path = project.place.file_for(name)
    header = orjson.dumps({"smart_fork": 1, "session": taken.info.model_dump(mode="json")})
    replace_file(path, (line + b"\n" for line in (header, *taken.records)))
    digests = [sha256(one).hexdigest() for one in taken.records]
    known = tuple(zip(digests, digests, strict=True))
    root, server, key = project.place.root, project.server, project.key
    received_logs.ReceivedLog(path, received_logs.RECORD_FILE, root, server, key, known, (taken.info.id,)).save()
    return replace(shared("pull", project.server, taken.info, None), files=(str(path),))


def alias_for(tracked: Tracked, wanted: PullOptions, session_id: str, before: str | None = None) -> str:
    """Return the chosen alias, the earlier one `before`, or the id's beginning. Raise `Usage` if it is taken."""
    name = check_alias(wanted.alias) if wanted.alias else before or free_alias(tracked, session_id)
    there = tracked.aliases.get(name)
    if there is not None and name != before and there.session_id != session_id and not wanted.force:
        raise Usage(f"The alias {name} belongs to another session", "Choose another one, or --force.")
    return name


def free_alias(tracked: Tracked, session_id: str, *, new: bool = False) -> str:
    """Return an alias for a session: the beginning of its id, with a number if another session has that alias.

    With `new`, an alias that the session itself already has is not returned either.
    """
    name = default_alias(session_id)
    names = (name, *(f"{name}-{number}" for number in range(2, len(tracked.aliases) + 3)))
    mine = [] if new else [name for name, one in tracked.aliases.items() if one.session_id == session_id]
    return next(one for one in names if one not in tracked.aliases or one in mine)


def rename(project: TeamProject, name: str, reference: str, *, force: bool) -> Alias:
    """Give a session the alias `name` in place of its earlier alias. Return the tracking data.

    Raise `Usage` if another session has the alias; with `force`, take the alias from it.
    """
    tracked, name = project.tracking.read(), check_alias(name)
    if known := tracked.named(reference):
        before, one = known
    else:
        info = project.client.session(project.key, project.session_id_of(reference)).session
        before, one = "", alias_of(info, None, kind="pull")
    if name in tracked.aliases and name != before and not force:
        raise Usage(f"The alias {name} belongs to another session", "Choose another one, or --force.")

    def change(now: Tracked) -> Tracked:
        others = now.without(before) if before in now.aliases else now
        return others.model_copy(update=project.location).with_alias(name, one)

    project.tracking.change(change)
    return one


def default_alias(session_id: str) -> str:
    """Return the default alias of a session: the beginning of its id.

    Of ids of version 7, which begin with the time, it takes 13 characters; of others 8.
    """
    return session_id[: 13 if session_id[14:15] == "7" else 8]


def alias_of(info: SessionInfo, written: WrittenLog | None, *, kind: str) -> Alias:
    """Return the tracking data (what this machine stores) of a session on the server.

    `written` is its log on this machine, if there is one. `kind` names the command, such as "pull".
    """
    return Alias(
        session_id=info.id,
        parent_id=info.parent_id,
        root_id=info.root_id,
        base_count=info.record_count,
        base_digest=info.head_digest,
        platform=written.agent if written else info.agent,
        files=(str(written.path),) if written else (),
        last_pulled_at=timestamp(),
        local_digest=written.local.digest(len(written.local.records)) if written else "",
        local_count=len(written.local.records) if written else 0,
        revision=info.revision,
        kind=kind,
        visibility=info.visibility,
        title=info.title,
    )


def track_session(
    project: TeamProject, name: str, one: Alias, begun: PendingCreation | None = None, *, in_place_of: str = ""
) -> None:
    """Store a shared session in the tracking file under the alias `name`, as the current one.

    The pending creation `begun` and the earlier alias `in_place_of` are removed from the file.
    """

    def change(tracked: Tracked) -> Tracked:
        known = begun.removed_from(tracked) if begun is not None else tracked
        there = known.model_copy(update=project.location)
        if in_place_of != name and in_place_of in there.aliases:
            there = there.without(in_place_of)
        before = there.aliases.get(name)
        return there.with_alias(name, one.model_copy(update=before.model_extra) if before else one)

    project.tracking.change(change)


def shared_result(
    project: TeamProject, verb: Verb, info: SessionInfo, written: WrittenLog | None, name: str | None
) -> Shared:
    """Return the result of a command about a session on the server, with the path of the `written` log."""
    done = shared(verb, project.server, info, name)
    return done if written is None else replace(done, **written_fields(project, info, written))


def unshared_result(verb: Verb, project: TeamProject, name: str | None, one: Alias, agent: AgentName) -> Shared:
    """Return the result of a command that made a session which the server does not have yet."""
    return Shared(
        verb=verb, server=project.server, project=project.key, session_id=None, alias=name, url=None, title=one.title,
        owner=project.client.account.user, visibility=one.visibility, agent=agent, root_id=one.root_id,
        parent_id=one.parent_id, base_count=one.base_count, base_digest=one.base_digest, head_digest=one.base_digest,
        record_count=one.base_count, created=True, files=one.files,
    )  # fmt: skip


def written_fields(project: TeamProject, info: SessionInfo, written: WrittenLog) -> dict[str, Any]:
    """Return the result fields about a log that was written here, such as its path and resume command."""
    return {
        "files": (str(written.path),),
        "resume_command": command_to_resume(written.agent, written.session_id, written.local.session.cwd),
        "lost": written.lost,
        "warnings": (*written.branch.warnings, *_warnings(project, info, written)),
    }


def _warnings(project: TeamProject, info: SessionInfo, written: WrittenLog) -> Iterator[str]:
    if written.agent != info.agent:
        yield OTHER_AGENT_WARNING
    elif not belongs(written.local.session, project_of(project.place.root)):
        yield OUTSIDE_PROJECT_WARNING


def _is_here(one: Alias, info: SessionInfo, wanted: PullOptions) -> bool:
    same = not has_moved(one, info)
    there = one.file is not None and AGENTS.files_of(one.platform).has(one.file)
    return same and there and wanted.into is None and wanted.alias is None and wanted.platform in (None, one.platform)


#: The most ancestors of a session that are requested from the server.
_MAX_ANCESTORS = 100


def _note_others(
    project: TeamProject, taken: Download, told: Sequence[bytes], made: WrittenLog, *, others: bool
) -> None:
    """Store which messages of a written session other people wrote, so that a fork asks the user first.

    `told` are the written records. `others` is true if the session itself belongs to another person. Messages that the
    user pushed do not count.
    """
    count = len(told) if others else _begun_by_others(project, taken.info)
    if not count:
        return
    pushed = {digest for one in received_logs.all_received() for digest, key in one.records if not key}
    own = {
        received_logs.record_id(canonical.decode(one))
        for number, one in enumerate(told)
        if number >= count or sha256(one).hexdigest() in pushed
    }
    said = (received_logs.record_id(canonical.decode(one)) for one in made.local.records)
    provenance.remember_foreign(made.session_id, (one for one in said if one and one not in own))


def _begun_by_others(project: TeamProject, info: SessionInfo) -> int:
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
