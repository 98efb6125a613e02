"""Lists the recent sessions from their logs, without a model. An index saves reading unchanged logs."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple, cast

from indexer.errors import what_failed
from indexer.lazy_compilation import dataclass
from indexer.log_changes import VERSION, forgotten
from indexer.masking import Masked
from indexer.project import Project
from indexer.runs import FailedLog
from indexer.safe_files import index_db
from indexer.store.base import SessionRow
from indexer.store.sqlite import Store
from indexer.transcripts.base import AgentAdapter, LogFile
from indexer.transcripts.model import AgentName, Origin, Session
from smart_fork.agents import AGENTS, repository_sessions
from smart_fork.agents.agent import KeptPrompt
from smart_fork.agents.log_readers import READERS
from smart_fork.display_text import printable, quoted
from smart_fork.errors import IndexUnavailable, Usage
from smart_fork.finding.answer import DeletedPrompt, Recents
from smart_fork.finding.index_access import known_index, opened
from smart_fork.finding.query import words_of
from smart_fork.finding.request import current_project, project_notice
from smart_fork.finding.results import known_parents, parent_of, recent_ones, workers
from smart_fork.finding.session_notes import ARCHIVED, PINNED, marked
from smart_fork.finding.session_notes import tag as checked
from smart_fork.finding.session_place import WorkDirectory, as_guest, belongs, placed
from smart_fork.system import call_context

log = logging.getLogger(__name__)

#: The number of newest logs that are read for one answer, and of further logs in folders named after the project.
MAX_LOOKED_AT = 400


class Recent(NamedTuple):
    """The newest sessions, the number of automated sessions left out, and the logs that could not be read."""

    sessions: list[Session]
    hidden: int
    passed_over: list[FailedLog]


@dataclass(frozen=True, slots=True)
class ListFilter:
    """The filters of a list of sessions: a `tag`, if any, and whether to list archived sessions or all others."""

    tag: str = ""
    archived: bool = False


def recent_sessions(
    adapters: Sequence[AgentAdapter], project: Project | None, limit: int, *, automated: bool = False,
    listed: ListFilter | None = None,
) -> Recent:  # fmt: skip
    """Return the newest sessions of a project (all worktrees), or of all projects, newest first. Skip unreadable logs.

    With the filters `listed`, pinned sessions come first, and sessions that began elsewhere and worked in the project
    are included. Sessions that a program started are only included if `automated`.
    """
    files = [file for agent in adapters for file in agent.discover() if file.size > 0]
    files.sort(key=lambda file: (-file.mtime_ns, file.location))
    names: Mapping[AgentName, AgentAdapter] = {agent.name: agent for agent in adapters}
    pinned = set[LogFile]()
    if listed is not None:
        files, pinned = _filtered(files, names, listed)
    files = list(_promising(files, project, names))
    host = project if listed is not None else None
    indexed = _indexed(files, host)
    times = {
        file: row.last_activity if (row := indexed.get(file.location)) else names[file.agent].worked_at(file)
        for file in files
    }
    files.sort(key=lambda file: (file in pinned, times[file]), reverse=True)
    files = _copies_behind_originals(files, names)
    found: dict[tuple[AgentName, str], Session] = {}
    hidden: set[tuple[AgentName, str]] = set()
    gone = set(forgotten())
    asked_for = {(one.agent, one.session_id) for one in workers() if one.is_fork}  # also in a process
    odd: list[FailedLog] = []
    for session in _sessions(files, names, indexed, odd):
        identity = (session.agent, session.session_id)
        if identity in gone:
            continue
        of_here = project is None or session.guest or belongs(session, project)
        if one := placed(session, project) if of_here else host and as_guest(session, host):
            if automated or session.origin == "person" or identity in asked_for:
                found.setdefault(identity, one)
            else:
                hidden.add(identity)
        if len(found) >= limit:
            break
    return Recent(list(found.values()), len(hidden - found.keys()), odd)


def _filtered(
    files: Sequence[LogFile], adapters: Mapping[AgentName, AgentAdapter], listed: ListFilter
) -> tuple[list[LogFile], set[LogFile]]:
    """Return the logs that pass the filters `listed`, pinned ones first. Also return the pinned ones as a set."""

    def having(mark: str) -> set[LogFile]:
        sessions = marked(mark)
        own = ((one, (one.agent, adapters[one.agent].id_of(one.path))) for one in files) if sessions else ()
        return {one for one, session in own if session in sessions}

    pinned, archived = having(PINNED), having(ARCHIVED)
    files = [one for one in files if (one in archived) == listed.archived]
    if listed.tag:
        tagged = having(listed.tag)
        files = [one for one in files if one in tagged]
    return sorted(files, key=lambda one: one not in pinned), pinned  # the others stay in their order


def _copies_behind_originals(files: Sequence[LogFile], adapters: Mapping[AgentName, AgentAdapter]) -> list[LogFile]:
    of_name: defaultdict[str, dict[Path, LogFile]] = defaultdict(dict)
    names = Counter(_file_name(file) for file in files)
    for file in files:
        if names[_file_name(file)] > 1:
            of_name[_file_name(file)][file.path] = file
    places: dict[LogFile, tuple[LogFile, ...]] = {}
    for same in of_name.values():
        reader = adapters[next(iter(same.values())).agent]
        paths = READERS.latest_first(reader, reader.id_of(next(iter(same))), list(same))
        places |= dict.fromkeys(same.values(), ()) | {same[paths[0]]: tuple(same[path] for path in paths)}
    return [one for file in files for one in places.get(file, (file,))]


def _file_name(file: LogFile) -> str:
    """Return a log's file name. It is equal for all logs of one session."""
    return file.location.rpartition("/")[2]


def _promising(
    files: Sequence[LogFile], project: Project | None, adapters: Mapping[AgentName, AgentAdapter]
) -> Iterator[LogFile]:
    """Yield the first `MAX_LOOKED_AT` logs, and as many later ones from folders that are named after the project."""
    here = {name: agent.place_of(project.root) if project else "" for name, agent in adapters.items()}
    own = 0
    for number, file in enumerate(files):
        if number < MAX_LOOKED_AT:
            yield file
        elif own < MAX_LOOKED_AT and (place := here[file.agent]) and file.location.startswith(place):
            own += 1
            yield file


def _sessions(
    files: Sequence[LogFile], adapters: Mapping[AgentName, AgentAdapter], indexed: Mapping[str, SessionRow | None],
    odd: list[FailedLog],
) -> Iterator[Session]:  # fmt: skip
    for file in files:
        if file.location in indexed:
            row = indexed[file.location]
            session = _session(row, file) if row else None
        else:
            try:
                session = adapters[file.agent].glance(file.path)
            except Exception as error:  # noqa: BLE001 - one odd log must not hide all others
                log.info("%s is passed over: %s", file.path, error)
                why = (error.strerror if isinstance(error, OSError) else "") or what_failed(error)
                odd.append(FailedLog(printable(file.location), printable(why)))
                continue
        if session is not None:
            yield session


def _indexed(files: Sequence[LogFile], project: Project | None) -> dict[str, SessionRow | None]:
    """Map unchanged logs (paths) to their indexed sessions, or to `None` if a log holds no session.

    A session that began elsewhere is represented by its work in `project`, even if its log has grown.
    """
    try:
        if not index_db().exists():
            return {}
        with opened() as store:
            kept = [file for file in files if not file.within or repository_sessions.is_within(file.location)]
            seen = store.seen([file.location for file in kept])
            same = {file.location for file in kept if seen.get(file.location) == (*file.stamp, VERSION)}
            rows = store.log_rows(seen if project and project.git else same)
            sessions = store.sessions(row for row in rows.values() if row is not None)
            guests: dict[int, SessionRow] = {}
            if project and project.git:
                scope = store.scope(project, [*{file.agent for file in kept}], automated=True)
                others = [row for row, one in sessions.items() if one.part not in scope.parts]
                guests = store.guests(others, scope)
            there, parents = sessions | guests, known_parents()
            for number, row in there.items():
                if row.own and (parent := parent_of(row, store.family(row.root_id), parents)):
                    there[number] = row._replace(parent_id=parent)
    except (IndexUnavailable, OSError) as error:
        log.info("all logs are read: %s", error)
        return {}
    found = {path: there[row] if row else None for path, row in rows.items() if path in same or row in guests}
    return {path: row for path, row in found.items() if row is None or row.path == path}


def _session(row: SessionRow, file: LogFile) -> Session:
    return Session(
        row.agent, row.session_id, file.path, (), row.cwd, Masked(row.git_branch), Masked(row.title),
        started=row.started, last_activity=row.last_activity, origin=cast("Origin", row.origin),
        parent_id=row.parent_id, root_id=row.root_id, inferred_from=row.inferred_from, head=row.head,
        guest=row.home is not None, headline=Masked(row.headline),
    )  # fmt: skip


# Recent sessions, for the command line and MCP.


def list_recent(
    agent: str, project: str | None, limit: int, *, everywhere: bool = False, automated: bool = False,
    tag: str = "", archived: bool = False,
) -> Recents:  # fmt: skip
    """Return the newest sessions of a project, read from the logs. The caller adds `notice`.

    Raises:
        Usage: an unknown agent or directory, or a limit below 1.
    """
    agents = AGENTS.selected(agent)
    if limit < 1:
        raise Usage(f"limit must be at least 1, not {limit}", "Drop it for the default.")
    within = None if everywhere else current_project(project)
    adapters = [READERS[one] for one in agents]
    listed = ListFilter(checked(tag) if tag else "", archived)
    with known_index():
        found = recent_sessions(adapters, within, limit, automated=automated or bool(tag), listed=listed)
        gone = () if tag or archived else deleted_prompts(within, agents)
    passed_over = () if call_context.limited() else (*odd(adapters), *found.passed_over)
    notice = project_notice(within, found=bool(found.sessions))
    shown = recent_ones(found.sessions)
    return Recents(len(shown), "", shown, found.hidden, READERS.unread(adapters), passed_over, notice, gone)


def odd(adapters: Iterable[AgentAdapter]) -> tuple[FailedLog, ...]:
    """Return files that are named like logs but are none, with reasons; none for a client limited to projects."""
    return tuple(
        FailedLog(printable(path), why)
        for agent in (() if call_context.limited() else adapters)
        for path, why in agent.odd_files()
    )


def passed_over(store: Store | None, adapters: Iterable[AgentAdapter] = READERS) -> tuple[FailedLog, ...]:
    """Return files in log folders that hold no session, with reasons.

    `odd` finds some of them by their names; the index knows the others, which were read in vain.
    """
    read = store.odd_logs() if store is not None and not call_context.limited() else []
    return (*odd(adapters), *(FailedLog(printable(path), why) for path, why in read))


# Prompts of sessions that their agent deleted before smart-fork read them. These sessions cannot be forked.


#: The number of deleted sessions in an answer, and the characters of their prompts.
MAX_GONE, GONE_CHARACTERS = 5, 200
#: The minimum share of the asked words in such a prompt.
MIN_SHARE = 0.6


def deleted_prompts(
    project: Project | None, agents: Sequence[AgentName], phrasings: Sequence[str] = ()
) -> tuple[DeletedPrompt, ...]:
    """Return one prompt, as its agent keeps it, of each session that was deleted before smart-fork read it.

    These are the newest prompts or, with `phrasings`, those with most words of a phrasing, best first.
    """
    found: dict[tuple[AgentName, str], list[KeptPrompt]] = {}
    for agent in agents:
        try:
            for one in _prompts_of_deleted(agent, project):
                found.setdefault((agent, one.session_id), []).append(one)
        except (IndexUnavailable, OSError) as error:  # the answer is good without
            log.info("prompts of sessions that are gone are not known: %s", error)
    asked = [frozenset(words_of(text)) for text in phrasings]

    def share(one: KeptPrompt) -> float:
        words = frozenset(words_of(one.text))
        return max((len(words & each) / len(each) for each in asked if each), default=0.0)

    best = [
        (share(one), one.moment, agent, one, len(prompts))
        for (agent, _), prompts in found.items()
        for one in [max(prompts, key=lambda one: (share(one), one.moment))]
    ]
    best = sorted((one for one in best if not asked or one[0] >= MIN_SHARE), key=lambda one: one[:2], reverse=True)
    return tuple(
        DeletedPrompt(
            one.session_id, agent, WorkDirectory(one.directory).now, moment, quoted(one.text, GONE_CHARACTERS), prompts
        )
        for _, moment, agent, one, prompts in best[:MAX_GONE]
    )


def _prompts_of_deleted(agent: AgentName, project: Project | None) -> Iterator[KeptPrompt]:
    """Yield the prompts that an agent keeps of sessions that have no log and are not indexed, forgotten or running."""
    kept = AGENTS[agent].prompts
    if kept is None:
        return
    reader = READERS[agent]
    known: set[str] = set()
    if index_db().exists():
        with opened() as store:
            known |= {session for of, session, _ in store.sources() if of == agent}
            known |= {row.session_id for row in store.without_log() if row.agent == agent}
    known |= {session for of, session in forgotten() if of == agent}
    known |= {one.session_id for one in workers() if one.session_id and not one.is_over}  # no log yet

    @cache
    def is_here(directory: str) -> bool:
        return call_context.permits(directory) and (project is None or WorkDirectory(directory).is_in(project))

    prompts = list(kept(known))
    there = {reader.id_of(file.path) for file in reader.discover()} if prompts else ()  # of very many logs
    yield from (one for one in prompts if one.session_id not in there and is_here(one.directory))
