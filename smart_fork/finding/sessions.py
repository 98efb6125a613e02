"""Finds one session by a reference (its id, a prefix, or the id of a worker), and reads its conversation."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from indexer import kept_logs
from indexer.errors import joined, what_failed
from indexer.export import export_path, parse_front_matter
from indexer.lazy import dataclass
from indexer.log_changes import forgotten
from indexer.masking import Masked, beginning, mask
from indexer.store.base import SessionRow
from indexer.transcripts.lines import bounded, is_over
from indexer.transcripts.model import AgentName, Session, Turn
from smart_fork.agents import AGENTS, repository_sessions
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.references import Reference
from smart_fork.display_text import minute, printable, quoted
from smart_fork.errors import Ambiguous, NotFound, SmartForkError, Usage, advice
from smart_fork.finding.index_access import known_index
from smart_fork.finding.results import UNTRUSTED, edited_files, known_parents, parent_of, place_mark, title, written_by
from smart_fork.finding.session_notes import noted_if_known
from smart_fork.finding.session_place import permits, placed_here
from smart_fork.finding.session_view import CommitsMade, Conversation, Exported, Message, SessionNotes, resumed_part
from smart_fork.system import call_context
from smart_fork.workers.registry import Registry, WorkerRecord
from smart_fork.workers.registry_path import has_registry

MIN_PREFIX = 8
#: A line in a message that looks like the heading of a message.
_HEADING = re.compile(r"^(?=[^\S\n]*##[^\S\n]*\d+[^\S\n]*·)", re.MULTILINE)
_JUMPS = "Numbers jump over records that are no messages: tool calls, their output, and what an agent notes for itself."
#: The processor seconds after which an answer with a session's messages ends.
ANSWER_SECONDS = 6.0
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
        """Return True if the conversation can be read, from the log or from smart-fork's copy of a deleted log."""
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
    for places in (_in_logs, _in_index, _in_copies):
        there = (one for one in places(wanted) if agent in (None, one.agent))
        there = (one for one in there if not found or _is_namesake(one, found, wanted))
        found += [one for one in there if _may_be_told(one)]
    return found


def _is_namesake(one: Located, found: Sequence[Located], wanted: str) -> bool:
    """Return True if `one` has exactly the `wanted` id and no session in `found` is of its agent."""
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
    """Return the session in `found` with exactly the id `name`, or else the only session in `found`.

    Raises:
        Ambiguous: several sessions are meant.
    """
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
    """Raise `NotFound` if the logs of the session's agent cannot be read now, so that a missing log may still exist."""
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
            return _told(result.session)
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
    return _told(result.session)


@bounded()
def conversation(
    located: Located, reading: ReadRange, *, notice: str = "", resolved: str = ""
) -> Conversation | Exported:
    """Read a session's messages in a range. If the session's log is gone, return its export (a Markdown file)."""
    one = located.agent, located.session_id
    noted = noted_if_known([one]).get(one) if reading.at is None else None  # they are told with the first message
    if not located.readable:
        text = exported(located)
        text = beginning(text, reading.characters) if reading.characters else text
        return Exported(
            session_id=located.session_id, agent_type=located.agent, notice=notice, noted=noted, markdown=text
        )
    author = repository_sessions.author_of(str(located.path or ""))
    if author:
        notice = written_by([author], notice or UNTRUSTED)
    session = look_into(located)
    read = conversation_part(session, reading, notice=notice, resolved=resolved, owner=author)
    if reading.at is not None:
        return read
    from smart_fork.finding.commits import commits_made

    made = commits_made([(session.agent, session.session_id)], session.cwd).get(session.session_id)
    parent, edited = _indexed_facts(session)
    return replace(read, commits=made, noted=noted, forked_from=parent or "", edited_files=edited)


def _indexed_facts(session: Session) -> tuple[str | None, tuple[str, ...]]:
    """Return the id of the session's parent, and the files that the session edited most, from the index."""
    family, edited = list[SessionRow](), tuple[str, ...]()
    with known_index() as store:
        if store and (row := store.session(session.agent, session.session_id)):
            family, edited = store.family(row.root_id) if session.own else [], edited_files(store, row)
    return parent_of(session, family, known_parents()), edited


def messages(session: Session, asked: ReadRange) -> tuple[list[Message], int | None]:
    """Return the session's messages in the range `asked`, numbered and masked, and the number of the next one, if any.

    Raises:
        NotFound: there is no message of that number.
    """
    said, characters = list(session.messages), asked.characters
    if (at := asked.at) is not None:
        middle = next((i for i, (number, _) in enumerate(said) if number >= at), None)
        if middle is None or at < 0:
            hint = left_out(session) or f"The last one is {said[-1][0]}."
            raise NotFound(f"No message {at} in {session.session_id}", hint)
        said = said[max(0, middle - asked.before) : None if asked.after is None else middle + asked.after + 1]
    chosen: list[Message] = []
    used = 0
    for number, turn in said:
        one = message(number, turn, characters)
        used += len(one.text)
        if chosen and ((characters is not None and used > characters) or is_over(ANSWER_SECONDS)):
            return chosen, number
        chosen.append(one)
    return chosen, None


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


def as_markdown(read: Conversation) -> Iterator[tuple[str, str]]:
    """Yield the texts of a conversation in Markdown, each with its speaker's role; empty for text about it.

    Lines of a message that look like a message's heading are escaped.
    """
    where = " ".join(printable(read.working_directory).splitlines()) or "directory unknown"
    if read.project_inferred_from and (mark := place_mark(read.project_inferred_from)):
        where = f"{where} ({mark})"
    whose = f" · shared by {read.owner}" if read.owner else ""
    whose += f" · fork of {printable(read.forked_from)}" if read.forked_from else ""
    numbers = [one.number for one in read.messages]
    head = [
        f"# {read.headline or read.title}",
        "",
        f"{read.agent_type} {read.session_id} · {where} · {minute(read.last_activity)}{whose}",
        *(("", _JUMPS) if numbers and numbers[-1] - numbers[0] >= len(numbers) else ()),
        *(_noted_in_words(read.noted) if read.noted else ()),
        *(("", f"Edited most: {', '.join(read.edited_files)}") if read.edited_files else ()),
        *(_commits_in_words(read.commits) if read.commits else ()),
        *(("", f"Its agent alone {read.resumed.sentence}") if read.resumed else ()),
    ]
    yield "\n".join(head), ""
    before = 0
    for one in read.messages:
        if read.resumed and before < read.resumed.start <= one.number:
            both = "what both ends have, and this one" if read.resumed.reason == "elsewhere" else "what follows"
            yield f"\n> Its agent alone loads {both}, from message {read.resumed.start} on", ""
        before = one.number
        yield f"\n## {one.number} · {one.role} · {minute(one.timestamp)}\n", ""
        yield _HEADING.sub(r"\\\g<0>", one.text), one.role


def _noted_in_words(noted: SessionNotes) -> Iterator[str]:
    for said in filter(None, (", ".join(noted.marks), *noted.sentences)):
        yield from ("", said)


def _commits_in_words(made: CommitsMade) -> Iterator[str]:
    if made.count:
        yield from ("", f"Commits: {made.count}", "")
    for one in made.commits:
        wrote = f"{one.lines} of {one.of} lines" if one.lines else "its message names this session"
        yield f"- {minute(one.date)[:10]} {one.commit[:8]} {one.subject} ({wrote})"
    if more := made.count - len(made.commits):
        yield f"- {more} more"
    if made.count:
        yield from ("", f"Lines of these in HEAD now: {made.lines_today}", "")
        places = (one.rpartition(":") for one in made.places)
        for name, several in groupby(places, key=lambda one: one[0]):
            yield f"- {name}: {', '.join(numbers for *_, numbers in several)}"
    if made.notice:
        yield from ("", made.notice)


@dataclass(frozen=True, slots=True)
class ReadRange:
    """A range of a conversation's messages: from `before` messages before message `at` to `after` messages after it.

    At most about `characters` are read. Without `at`, the range begins at the first message.
    """

    at: int | None = None
    before: int = 0
    after: int | None = None
    characters: int | None = None


def conversation_part(
    session: Session, reading: ReadRange, *, notice: str = "", resolved: str = "", owner: str = "", called: str = ""
) -> Conversation:
    """Return the messages of a session in a range, with facts about it. `called` is a title for a log without one."""
    chosen, next_at = messages(session, reading)
    left = left_out(session)
    if next_at is not None and reading.characters is None:
        rest = advice(
            f"`smart-fork show {session.session_id} --at {next_at} -C 100` reads on.", tool=f"Read on at {next_at}."
        )
        left = joined(f"Messages from {next_at} on are not printed", rest, left)
    return Conversation(
        session_id=session.session_id, agent_type=session.agent, title=title(called or session.title),
        headline=title(session.headline), working_directory=session.cwd, project_inferred_from=session.inferred_from,
        last_activity=session.last_activity, models=tuple(map(printable, session.models)), notice=notice, owner=owner,
        resolved=resolved, resumed=resumed_part(session.resumed, session.compacted(), len(session.turns)),
        messages=tuple(chosen), left_out=left, read_on={} if reading.characters is None else {"next_at": next_at},
    )  # fmt: skip


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


def _told(session: Session) -> Session:
    """Return `session`, if the caller may read its project; else raise the error for a session that does not exist."""
    if not permits(session):
        raise _not_found(session.session_id)
    return placed_here(session)


def _may_be_told(located: Located) -> bool:
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


def message(number: int, turn: Turn, characters: int | None) -> Message:
    """Return a turn as a message to show: masked, and shortened to `characters`."""
    text = printable(mask(turn.text))
    if characters is not None:
        text = beginning(text, characters)
    return Message(number, turn.id, turn.role, turn.timestamp, text)


def _worker(reference: str) -> WorkerRecord | None:
    if not Reference(None, reference).names_worker or not has_registry():
        return None
    with Registry() as registry:
        try:
            return registry.get(reference)
        except SmartForkError:
            return None


def _in_logs(wanted: str) -> list[Located]:
    found = []
    for agent in READERS:
        of_session: defaultdict[str, list[Path]] = defaultdict(list)
        files = (one for one in agent.discover() if not agent.named_by_id or wanted in one.location.lower())
        for file in sorted(files, key=lambda file: -file.mtime_ns):
            session_id = agent.id_of(file.path)
            if session_id.lower().startswith(wanted):
                of_session[session_id].append(file.path)
        for session_id, paths in of_session.items():
            found.append(Located(agent.name, session_id, READERS.longest_first(agent, session_id, paths)[0]))
    return found


def _in_index(wanted: str) -> list[Located]:
    with known_index() as store:
        # These were not among the logs: whatever path the index remembers, nothing is there.
        return [Located(row.agent, row.session_id, None) for row in (store.find_sessions(wanted) if store else ())]
    return []


def _in_copies(wanted: str) -> list[Located]:
    copies = (copy for copy in kept_logs.copies() if copy.session_id.lower().startswith(wanted))
    return [Located(copy.agent, copy.session_id, None) for copy in copies]
