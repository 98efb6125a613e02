"""Finds one session by a reference (its id, a prefix, or the id of a worker), and reads its log or export."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from indexer import kept_logs
from indexer.errors import joined, what_failed
from indexer.lazy_compilation import dataclass
from indexer.log_changes import forgotten
from indexer.masking import Masked, mask
from indexer.session_export import export_path, parse_front_matter
from indexer.transcripts.model import AgentName, Session
from smart_fork.agents import AGENTS
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.references import Reference
from smart_fork.display_text import printable, quoted
from smart_fork.errors import Ambiguous, NotFound, SmartForkError, Usage, advice
from smart_fork.finding.index_access import known_index
from smart_fork.finding.session_place import permits, placed_here
from smart_fork.system import call_context
from smart_fork.workers.registry import Registry, WorkerRecord
from smart_fork.workers.registry_path import has_registry

MIN_PREFIX = 8
#: The number of sessions that an error names if a reference is ambiguous.
MAX_LISTED = 5


@dataclass(frozen=True, slots=True)
class Located:
    """A session that a reference (an id, a prefix or a worker's id) means. `path` is its log; `None` if deleted."""

    agent: AgentName
    session_id: str
    path: Path | None

    @property
    def reference(self) -> str:
        """Return the session's full reference, agent and id, which no other session has."""
        return str(Reference(self.agent, self.session_id))

    @property
    def readable(self) -> bool:
        """Return True if the log exists, or a copy of the deleted log that smart-fork keeps."""
        return self.path is not None or kept_logs.find(self.agent, self.session_id) is not None


def is_session(word: str) -> bool:
    """Return True if `word` means a session by its id, a prefix, or a worker's id; raise `Usage` for several."""
    if not Reference.parsed(word).names_session:
        return False
    try:
        locate(word)
    except NotFound:
        return False
    return True


def locate(reference: str) -> Located:
    """Return the session that `reference` means: a full id, a unique prefix of 8 or more characters, or a worker's id.

    With an agent's name and a colon before it, it only means that agent's sessions.

    Raises:
        Ambiguous: the reference means several sessions.
        Usage: the reference is too short.
        NotFound: there is no such session.
    """
    agent, name = Reference.parsed(reference)
    if worker := _worker(name.lower()):
        agent, name = agent or worker.agent, worker.session_id or name
    wanted = _long_enough(name, reference)
    found = _found(agent, wanted)
    if not found and READERS.note(Path.cwd()):
        found = _found(agent, wanted)
    if not found:
        raise _not_found(quoted(reference), READERS.unread())
    return _only_one(found, name, shown=quoted(reference))


def _found(agent: AgentName | None, wanted: str) -> list[Located]:
    found: list[Located] = []
    places: tuple[Callable[[str], Iterable[Located]], ...] = (_in_logs, _in_index, _in_copies)
    for found_in in places:
        there = (one for one in found_in(wanted) if agent in (None, one.agent))
        there = (one for one in there if not found or _is_namesake(one, found, wanted))
        found += [one for one in there if _is_permitted(one)]
    return found


def _is_namesake(one: Located, found: Sequence[Located], wanted: str) -> bool:
    """Return True if `one` has exactly the `wanted` id, and its agent has no session in `found`."""
    return one.session_id.lower() == wanted and one.agent not in {other.agent for other in found}


def forgotten_session(reference: str) -> Located:
    """Return the session that `reference` means (see `locate`) among those that a person asked to forget."""
    whose, name = Reference.parsed(reference)
    wanted = _long_enough(name, reference)
    known = (Located(agent, session_id, None) for agent, session_id in forgotten() if whose in (None, agent))
    found = [one for one in known if one.session_id.lower().startswith(wanted)]
    if not found:
        raise NotFound(f"No forgotten session has this id: {quoted(reference)}")
    return _only_one(found, name, shown=quoted(reference))


def _long_enough(name: str, reference: str) -> str:
    if len(name) < MIN_PREFIX:
        raise Usage(f"Session id too short: {quoted(reference)}", f"Give at least {MIN_PREFIX} characters of it.")
    return name.lower()


def _only_one(found: Sequence[Located], name: str, *, shown: str) -> Located:
    """Return the session in `found` with exactly the id `name`, or else the only one; raise `Ambiguous` for several."""
    exact = [one for one in found if one.session_id.lower() == name.lower()]
    # Files may differ in case alone: then it matters how it was written.
    found = [one for one in exact if one.session_id == name] or exact or found
    if len({one.reference for one in found}) == 1:
        return found[0]
    ids = sorted({one.session_id for one in found})
    if len(ids) > 1:
        listed = ", ".join(ids[:MAX_LISTED]) + ("" if len(ids) <= MAX_LISTED else ", …")
        raise Ambiguous(f"{shown} is ambiguous", f"It means: {listed}")
    whose = " and ".join(f"one of {AGENTS.title_of(one.agent)}" for one in found)
    either = " or ".join(one.reference for one in found)
    raise Ambiguous(f"{shown} is the id of several sessions: {whose}", f"Say which: {either}")


def refuse_unread(located: Located) -> None:
    """Raise `NotFound` if the logs of the session's agent cannot be read now: its log is then unknown, not deleted."""
    if why := READERS[located.agent].unread():
        raise NotFound(f"The log of {located.session_id} cannot be read now", why)


def read(located: Located, *, keep_raw: bool = False) -> Session:
    """Read a session from its log. With `keep_raw`, its turns keep the log's records.

    Raises:
        NotFound: the log is missing, unreadable, or without a conversation.
    """
    if located.path is None:
        refuse_unread(located)
        raise NotFound(
            f"The log of {located.session_id} has been deleted",
            advice(
                "`smart-fork show` prints the rest. If a copy was kept, `smart-fork fork` restores it.",
                tool="read_session reads the rest. If a copy was kept, fork_session_id restores it.",
            ),
        )
    reader = READERS[located.agent]
    others = [path for path in READERS.logs_of(reader.name, located.session_id) if path != located.path]
    problem = ""
    for path in (located.path, *others):  # an empty or odd copy elsewhere must not hide the real one
        try:
            result = reader.read(path, keep_raw=keep_raw)
        except OSError as error:
            problem = problem or f"The log of {located.session_id} cannot be read: {what_failed(error)}"
            continue
        if result.session is not None:
            return _if_permitted(result.session)
        problem = problem or f"No conversation in {path}: {result.skipped}"
    raise NotFound(problem)


def look_into(located: Located, *, keep_raw: bool = False) -> Session:
    """Read a session from its log, or from the copy that smart-fork keeps of a deleted log; see `read`."""
    copy = kept_logs.find(located.agent, located.session_id) if located.path is None else None
    if copy is None:
        return read(located, keep_raw=keep_raw)
    try:
        with kept_logs.opened(copy) as path:
            result = READERS[located.agent].read(path, keep_raw=keep_raw)
    except OSError as error:
        hint = f"Its export may still exist: {export_path(located.agent, located.session_id)}"
        raise NotFound(f"The kept copy of {located.session_id} cannot be read: {what_failed(error)}", hint) from error
    if result.session is None:
        raise NotFound(f"No conversation in the kept copy of {located.session_id}: {result.skipped}")
    return _if_permitted(result.session)


def left_out(session: Session) -> str:
    """Return a notice that says how much of a large log was not read; empty if the whole log was read."""
    if not session.unread:
        return ""
    whole = session.source_path.stat().st_size
    last = session.messages[-1][0] if session.messages else 0
    export = export_path(session.agent, session.session_id)
    return joined(
        f"Only the first {whole - session.unread >> 20:,} of {whole >> 20:,} MB of this log were read. Messages after "
        f"{last} are missing here. A later rewind is not seen.",
        advice(
            f"`smart-fork index run` writes all of it to {export}.", tool=f"The index writes all of it to {export}."
        ),
    )


def exported(located: Located) -> Masked:
    """Return the Markdown export of a session without a log. Secrets are masked again, because rules change.

    Raises:
        NotFound: there is no export.
    """
    path = export_path(located.agent, located.session_id)
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise NotFound(f"Neither log nor export of {located.session_id} is left") from error
    facts = parse_front_matter(text)
    if facts.get("session_id") != located.session_id:
        raise NotFound(f"{path} is not the export of {located.session_id}")
    if not call_context.permits(facts.get("working_directory", "")):
        raise _not_found(located.session_id)
    return printable(mask(text))


def _not_found(reference: str, whys: Sequence[str] = ()) -> NotFound:
    """Return the error for a reference that means no session. `whys` say which agents' logs cannot be read."""
    listed = advice("`smart-fork list --all-projects` lists all sessions.", tool="list_sessions lists all sessions.")
    return NotFound(f"Session not found: {reference}", call_context.hint(joined(*whys, listed)))


def _if_permitted(session: Session) -> Session:
    """Return `session` if the caller may read its project; else raise the error for an unknown session."""
    if not permits(session):
        raise _not_found(session.session_id)
    return placed_here(session)


def _is_permitted(located: Located) -> bool:
    """Return True if the caller may read a session's project, which the index or the log states."""
    if not call_context.limited():
        return True
    with known_index() as store:
        if store and (row := store.session(located.agent, located.session_id)):
            return permits(row)
    try:
        _ = look_into(located) if located.readable else exported(located)
    except NotFound:
        return False
    return True


def _worker(reference: str) -> WorkerRecord | None:
    if not Reference(None, reference).names_worker or not has_registry():
        return None
    with Registry() as registry:
        try:
            return registry.get(reference)
        except SmartForkError:
            return None


def _in_logs(wanted: str) -> Iterator[Located]:
    for agent in READERS:
        of_session: defaultdict[str, list[Path]] = defaultdict(list)
        files = (one for one in agent.discover() if not agent.named_by_id or wanted in one.location.lower())
        for file in sorted(files, key=lambda file: -file.mtime_ns):
            session_id = agent.id_of(file.path)
            if session_id.lower().startswith(wanted):
                of_session[session_id].append(file.path)
        for session_id, paths in of_session.items():
            yield Located(agent.name, session_id, READERS.latest_first(agent, session_id, paths)[0])


def _in_index(wanted: str) -> list[Located]:
    with known_index() as store:
        # These were not among the logs: whatever path the index remembers, nothing is there.
        return [Located(row.agent, row.session_id, None) for row in (store.find_sessions(wanted) if store else ())]
    return []


def _in_copies(wanted: str) -> list[Located]:
    copies = (copy for copy in kept_logs.copies() if copy.session_id.lower().startswith(wanted))
    return [Located(copy.agent, copy.session_id, None) for copy in copies]
