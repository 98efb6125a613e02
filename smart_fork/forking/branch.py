"""Branches of sessions. A branch is a copy with its own title that an agent can continue; the original stays unchanged.

A session is not branched while its agent answers, or runs tasks in the background.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Container, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import field, replace
from datetime import datetime
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Self

from indexer.errors import next_step, what_failed
from indexer.lazy_compilation import dataclass
from indexer.locks import held_file
from indexer.project import Project, project_of
from indexer.safe_files import open_regular, private_dir, state_home
from indexer.transcripts.base import AgentAdapter, Agents, LogFile
from indexer.transcripts.lines import bounded, decode_line
from indexer.transcripts.model import AgentName, Session
from smart_fork import provenance
from smart_fork.agents import AGENTS
from smart_fork.agents.copier import NewSession
from smart_fork.agents.excision import titles
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.references import Reference
from smart_fork.agents.request_fields import Options
from smart_fork.display_text import MAX_NAME_CHARACTERS, plain_name, quoted
from smart_fork.errors import ForkRefused, NotFound, SmartForkError, Usage, advice
from smart_fork.finding import session_lookup
from smart_fork.finding.results import title as shown_title
from smart_fork.finding.session_place import WorkDirectory, belongs
from smart_fork.finding.team_sessions import sessions_here
from smart_fork.forking.budget_choice import Selected
from smart_fork.forking.copies import SessionCopy, write_copy
from smart_fork.forking.fork_content import answering, chosen, gathered, hand_over_to
from smart_fork.forking.fork_points import ForkPoint, branch_point, last_branch_point, message_at
from smart_fork.forking.handover import Handover, beyond, write_handover
from smart_fork.forking.request import BranchRequest
from smart_fork.forking.results import Branched, Forked, NamedSession
from smart_fork.forking.session_use import IN_PROGRESS, SessionUse, is_unfinished
from smart_fork.forking.source_sessions import is_others, refuse_without_log, with_temporary_log
from smart_fork.forking.start import resume_written
from smart_fork.forking.worker_preconditions import place_of_work
from smart_fork.forking.worker_spec import WorkerSpec
from smart_fork.system.call_context import refuse_cancelled
from smart_fork.system.processes import Clock, Machine

if TYPE_CHECKING:
    from smart_fork.finding.session_library import Opening

#: Seconds to wait for the log of the caller's own session, and between two looks.
WRITTEN_SECONDS, LOOK_SECONDS = 3.0, 0.2


@dataclass(frozen=True, slots=True)
class PlannedBranch:
    """A branch (a copy of the turns 0 to `end` of a session) that is not written yet.

    `held` keeps temporary logs to copy from; they are deleted when the branch is written.
    """

    request: BranchRequest
    session: Session
    agent: AgentName
    target: Path
    end: int
    kept: Selected | None
    handover: Handover | None
    notes: tuple[str, ...]
    moment: float
    held: ExitStack = field(repr=False, compare=False)

    @classmethod
    @bounded()
    def plan(
        cls, request: BranchRequest, library: Opening | None = None, *, now: float | None = None, clock: Clock
    ) -> Self:
        """Decide what a branch contains and in which directory it works; write nothing.

        The branch ends after the answer to the requested message, or after the best answer to the intent (what the user
        looks for), found with `library` (the index). Without either, it ends with the last finished turn. If the
        caller's own session has no log yet, wait for it.
        """
        at, budget, caller = request.message, request.budget, request.caller_session_id
        chooses = request.at_match or budget is not None
        with ExitStack() as held:
            (here,) = held.enter_context(sessions_here([request.session.strip()], request.cwd or request.project))
            with gathered(request.looked_for, request.also, library, chooses=chooses) as answers:
                session = _source(here.session_id, caller or "", clock, held, request.as_agent)
                if session.unread and request.at is None:
                    raise ForkRefused(
                        f"{session.session_id} is too long to be copied whole. {session_lookup.left_out(session)}",
                        advice(
                            "Give a message, --at N. Or fork all of it: smart-fork fork, its agent reads it itself.",
                            tool="Give a message (at), or fork all of it: its agent reads it itself.",
                        ),
                    )
                agent = request.agent_of(session)
                moment = clock.now() if now is None else now
                target = place_of_work(session.cwd, request.cwd)
                if request.project is not None and not _belongs(session, request.project):
                    raise ForkRefused(
                        f"Source session does not belong to current project: {session.session_id}",
                        f"It worked in {session.cwd}.",
                    )
                through = answering(session, answers) if request.at_match else None
                end, notes = _end(session, at, through, moment, caller)
                kept = chosen(session, end, budget, answers) if budget is not None else None
                excerpt, unmasked = kept.excerpt if kept else None, request.options.unmasked
                _, told = hand_over_to(agent, session, ForkPoint.after(session, end), excerpt, unmasked=unmasked)
                if told:
                    notes += [*told.handed.notes(agent), *(beyond(told.handed, budget) if budget else ())]
                notes += filter(None, [session_lookup.left_out(session)])
                notes = [*(kept.selection.notes if kept else ()), *notes]
            return cls(request, session, agent, target, end, kept, told, tuple(notes), moment, held.pop_all())

    @bounded()
    def write(self) -> Branched:
        """Write the branch as a new session. If the request says `start`, also resume it in a worker."""
        session, told = self.session, self.handover
        asked, parent = self.request.title, told.title if told else session.title
        with self.held:
            with new_title(parent, self.target, self.moment, name=asked) as final:
                local = datetime.fromtimestamp(self.moment)  # noqa: DTZ006 - files may be named by local time
                refuse_cancelled()
                becomes = NewSession(AGENTS.starter_of(self.agent).new_id(), self.target, local, final)
                written = self._written(becomes)
                _remember(written, session, self.end)
            report = self._report(written, final)
            if not self.request.start:
                return report
            options = self.request.options
            options = Options(prompt=options.prompt or None, place=options.place, name=final)
            return replace(report, started=self._started(written, options))

    def _written(self, becomes: NewSession) -> SessionCopy:
        if self.handover is None:
            excerpt = self.kept.excerpt if self.kept else None
            return write_copy(self.session, self.end, becomes, excerpt=excerpt)
        written = write_handover(READERS[self.agent], self.handover, self.session, becomes, Machine())
        return replace(written, source_session_id=self.session.session_id)

    def _started(self, written: SessionCopy, options: Options) -> Forked:
        cwd = None if str(self.target) == self.session.cwd else self.target
        caller = self.request.caller_session_id
        return resume_written(
            WorkerSpec(
                "branch", written.agent, self.session, options, cwd=cwd, caller_session_id=caller, written=written
            )
        )

    def _report(self, written: SessionCopy, title: str) -> Branched:
        session = self.session
        return Branched(
            session_id=written.session_id, agent_type=written.agent, title=shown_title(title), path=str(written.path),
            copied=written.copied, parent=NamedSession(session.session_id, shown_title(session.title)), at=self.end,
            working_directory=str(self.target), warnings=(*self.notes, *written.warnings),
            resume_command=command_to_resume(written.agent, written.session_id, str(self.target)),
            resume_original=command_to_resume(session.agent, session.session_id, session.cwd, session=session),
            selection=self.kept.selection if self.kept else None,
        )  # fmt: skip


def branch(
    request: BranchRequest, library: Opening | None = None, *, now: float | None = None, clock: Clock | None = None
) -> Branched:
    """Copy a session as `request` says, and record the session as the copy's parent.

    `library` is the index to search; by default, the index of the command line.
    """
    return PlannedBranch.plan(request, library, now=now, clock=clock or Clock()).write()


def _source(reference: str, own: str, clock: Clock, held: ExitStack, as_agent: AgentName | None) -> Session:
    """Read the session named by `reference`. If it is the caller's session `own`, wait until its log appears.

    A session that a repository stores gets a temporary log, which is deleted when `held` closes.
    """
    if not Reference.parsed(reference).names_session:
        raise Usage(
            f"Invalid source sessionId: {quoted(reference)}",
            advice("`smart-fork list` shows ids.", tool="list_sessions shows ids."),
        )
    deadline = clock.now() + WRITTEN_SECONDS
    while True:
        try:
            located = session_lookup.locate(reference)
            AGENTS.check_id(located.agent, located.session_id)
            refuse_without_log(located, as_agent)
            return session_lookup.read(held.enter_context(with_temporary_log(located)))
        except NotFound:
            if not own.lower().startswith(reference.lower()):
                raise
            if clock.now() >= deadline:
                hint = "This session has no log yet. Try again after its first answer."
                raise ForkRefused(IN_PROGRESS, hint) from None
        clock.sleep(LOOK_SECONDS)


def _belongs(session: Session, project: str) -> bool:
    try:
        return belongs(session, project_of(project))
    except ValueError:  # a NUL
        return False


@contextmanager
def new_title(parent_title: str, target: Path, moment: float, *, name: str | None = None) -> Iterator[str]:
    """Yield an unused title for a branch. Until the block ends, a lock keeps other processes from choosing titles.

    Raises:
        SmartForkError: the titles cannot be read, or an `OSError` occurred inside the block.
    """
    try:
        with held_file(private_dir(state_home()) / "branch.lock"):
            taken = branch_titles(READERS, project_of(target))
            yield branch_title(name, parent_title, taken, int(moment * 1000))
    except OSError as error:
        hint = f"Nothing was written. {next_step(error) or 'Try again.'}"
        raise SmartForkError(f"Failed to branch conversation: {what_failed(error)}", hint) from error


def _remember(written: SessionCopy, session: Session, end: int) -> None:
    """Record the session and turn from which a branch was copied, which stay known if a log is deleted."""
    through = session.turns[end].id
    one = provenance.HandedOver(written.session_id, written.agent, session.agent, session.session_id, through)
    try:
        provenance.remember_handover(one)
    except BaseException:
        written.undo()
        raise


def _end(
    session: Session, at: int | None, through: str | None, now: float, caller: str | None
) -> tuple[int, list[str]]:
    """Return the index of the last turn that a branch copies, and notes for the user on that choice.

    The branch ends after message number `at`, or after the message with the id `through`; else with the last finished
    turn.
    """
    if through is not None:
        end = branch_point(session, through)
        return end, [f"Branched after message {end}, where the exchange that answers best ends"]
    if at is not None:
        end = branch_point(session, message_at(session, at))
        moved = f"Branched after message {end}, where the agent had finished what message {at} is part of"
        return end, [moved] if end != at else []
    hint = advice(
        "Or branch at an earlier message: --at N, numbered as in `smart-fork show`.",
        tool="Or branch at an earlier message: at, numbered as in read_session.",
    )
    SessionUse.refuse_while_working(session, now, hint, hint, caller)
    left_out = ["The unfinished answer is not in the branch"] if is_unfinished(session) else []
    return last_branch_point(session), left_out


def command_to_resume(agent: AgentName, session_id: str, cwd: str, *, session: Session | None = None) -> str:
    """Return the shell command that resumes a session from any directory. A given `session` need not be read again."""
    asking = AGENTS.starter_of(agent).asking if is_others(session_id, session) else ()
    words = shlex.join((*READERS[agent].resume_command(session_id), *asking))
    home = AGENTS[agent].home
    further = len(home.folders()) > 1 and home.is_further(*READERS[agent].locate(session_id)[:1])
    if further or WorkDirectory(cwd).now != cwd:  # from there its agent does not find it
        return shlex.join(("smart-fork", "resume", session_id))
    return WorkDirectory(cwd).changed_to(words)


# What a branch is called: its base's name with ``(Branch)``, unlike any other in the project.


FALLBACK = "Branched conversation"
#: The highest number in a title; later branches have the time in their title.
MAX_NUMBER = 99
#: Bytes read at a log's beginning and end: titles are at either, and agents repeat theirs at the end.
_ENDS = 64 << 10
_BRANCHED = re.compile(rb"\(branch", re.IGNORECASE)


def branch_title(name: str | None, parent_title: str, taken: Container[str], milliseconds: int) -> str:
    """Return a title for a branch, made from `name` or from the parent's title, that is not in `taken`.

    `taken` are the project's titles, each as `titles.comparable_title` returns it. `milliseconds` is the current time.
    """
    base = titles.without_suffix(plain_name(name)) or titles.without_suffix(plain_name(parent_title)) or FALLBACK
    numbers = chain(("",), (f" {number}" for number in range(2, MAX_NUMBER + 1)))
    later = (f" {milliseconds + more}" for more in count())
    named = (_titled(base, number) for number in chain(numbers, later))
    return next(title for title in named if titles.comparable_title(title) not in taken)


def branch_titles(agents: Agents, project: Project) -> set[str]:
    """Return the titles in `project` that contain "(Branch", in the form for comparison (`titles.comparable_title`)."""
    found: set[str] = set()
    for adapter in agents:
        here = adapter.place_of(project.root)
        for file in adapter.discover():
            if here and not file.location.startswith(here):  # another project's
                continue
            found.update(titles.comparable_title(title) for title in _titles(adapter, file, project))
    return found


def _titles(adapter: AgentAdapter, file: LogFile, project: Project) -> Iterator[str]:
    try:
        ends = _both_ends(file)
        if not _BRANCHED.search(ends):
            return
        session = adapter.glance(file.path)
    except OSError:
        return
    if session is not None and belongs(session, project):
        yield session.title
        yield from _recorded_titles(ends)


def _both_ends(log: LogFile) -> bytes:
    with open_regular(log.location) as file:
        head = file.read(_ENDS)
        if log.size <= _ENDS:
            return head
        file.seek(max(len(head), log.size - _ENDS))
        return head + b"\n" + file.read(_ENDS)


def _recorded_titles(ends: bytes) -> Iterator[str]:
    """Yield the session's titles in `ends` (the first and last bytes of its log), former titles included."""
    for line in filter(_BRANCHED.search, ends.splitlines()):
        for _, record in decode_line(line)[0]:
            payload = record.get("payload")
            title = record.get("customTitle", payload.get("thread_name") if isinstance(payload, dict) else None)
            if isinstance(title, str):
                yield title


def _titled(base: str, number: str) -> str:
    suffix = f" (Branch{number})"
    return base[: MAX_NAME_CHARACTERS - len(suffix)].rstrip() + suffix
