"""A worker: what is to be started, what was, and what is said about it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from indexer.errors import joined
from indexer.lazy import dataclass
from indexer.masking import NOTHING, ending, mask
from indexer.outcome import known_files
from indexer.project import project_of
from indexer.repositories import recorded
from indexer.transcripts.model import AgentName, Session
from indexer.values import seconds_in
from smart_fork import session_origins
from smart_fork.agents import AGENTS
from smart_fork.agents.copier import Excerpt
from smart_fork.agents.options import Options
from smart_fork.agents.references import Reference
from smart_fork.agents.starter import ForkPlan, LaunchKind
from smart_fork.errors import ProgramFailed, SmartForkError, advice
from smart_fork.finding.session_place import as_guest, directory_of, in_project, where_now
from smart_fork.finding.session_view import resumed_part
from smart_fork.forking.confirmation import CONFIRM_SECONDS, Confirmation
from smart_fork.forking.results import Forked, StartedWorker
from smart_fork.forking.session_copy import Branch, MergedPart, Point
from smart_fork.repository import worktree
from smart_fork.repository.change_summary import note
from smart_fork.repository.changes_since import SessionKnowledge
from smart_fork.snippets import printable
from smart_fork.system.call_context import calling
from smart_fork.system.processes import Completed, Processes
from smart_fork.workers.place import Started, WorkerPlace
from smart_fork.workers.registry import Kind, WorkerRecord

if TYPE_CHECKING:
    from smart_fork.forking.budget_choice import Selected
    from smart_fork.forking.handover import Handover
    from smart_fork.forking.request import ForkRequest, Wanted


#: A name made from a prompt, and room for the number behind it.
NAME_WORDS, NAME_CHARACTERS = 4, worktree.MAX_NAME_CHARACTERS - 3
UNNAMED = worktree.plain_name("")


def name_of(prompt: str | None) -> str:
    """A name for workers that were given none: the first words of what they are to do."""
    words = mask(prompt or "").split(maxsplit=NAME_WORDS)[:NAME_WORDS]
    return worktree.plain_name(" ".join(words).lower())[:NAME_CHARACTERS].strip("-._") or UNNAMED


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a fork: its session up to `point`, or its `excerpt`, and the parts kept of `others`.

    `asked` is the point that was asked for, `leaves` the one before anything was left out. `handover` is what another
    agent is told of all that. `selected` is what a budget keeps of each session.
    """

    asked: Point | None = None
    leaves: Point | None = None
    point: Point | None = None
    excerpt: Excerpt | None = None
    others: tuple[MergedPart, ...] = ()
    handover: Handover | None = None
    selected: tuple[Selected, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """A worker that is to be started; `source` is the session that it forks or goes on with, `None` for a new one.

    Only the `content` of it goes into a fork. With `or_without` the worker starts also where no worktree can be made.
    `written` is a copy of the source that is there already.
    """

    kind: Kind
    agent: AgentName
    source: Session | None = None
    options: Options = field(default_factory=Options)
    content: Content = Content()
    cwd: Path | None = None
    or_without: bool = False
    caller_session_id: str | None = None
    written: Branch | None = None

    @property
    def called(self) -> str | None:
        """The name of a fork, its worktree and its branch: as was said, else its own prompt's, if that gives one."""
        named = name_of(self.options.prompt) if self.kind == "fork" else UNNAMED
        return self.options.name or (named if named != UNNAMED else None)

    @property
    def worktree_name(self) -> str | None:
        """The name for its worktree."""
        return self.options.worktree if isinstance(self.options.worktree, str) else self.called

    @property
    def form(self) -> LaunchKind:
        """The agent's command to use."""
        match self.kind:
            case "continue":
                return "resume"
            case "branch":
                return "fork"
            case kind:
                return kind

    def note_in(self, target: Path, processes: Processes) -> str:
        """The note of a fork that works in `target`; empty where there is nothing to say, or it is not wanted."""
        source = self.source if self.form == "fork" and self.options.brief else None
        if source is None or (then := self.known_until(source)) is None:
            return ""
        committed = self.options.in_worktree and not self.options.with_changes
        return note(target, then, processes, worktree=committed)

    def known_until(self, session: Session) -> SessionKnowledge | None:
        """Return the files and repository state that the fork will know; `None` if unknown."""
        end = None
        written, point, excerpt = self.written, self.content.point, self.content.excerpt
        if written is not None or point is not None:
            last = written.at if written is not None else point.message_id if point else ""
            end = next((place for place, turn in enumerate(session.turns) if turn.id == last), None)
            if end is None:
                return None
            if end == len(session.turns) - 1 and excerpt is None:
                end = None
        kept = excerpt.kept if excerpt is not None else None
        known = known_files(session, str(recorded(session.cwd) or ""), end, kept)
        if (until := seconds_in(known.until)) is None:
            return None
        # The log tells what was checked out at its beginning or at its end.
        branch = str(session.git_branch) or None if end is None or session.begun_at else None
        return SessionKnowledge(
            known.edits, until, seconds_in(session.started), session.cwd, session.begun_at,
            "" if branch == "HEAD" else branch, here=not session_origins.was_received(session.session_id),
        )  # fmt: skip

    def unloaded(self) -> list[str]:
        """Warn if the agent does not load the complete session that it resumes."""
        session = self.source if self.form == "resume" else None
        part = session and resumed_part(session.resumed, session.compacted(), len(session.turns))
        return [f"Its agent {part.sentence}"] if part else []


#: How the note begins of what a command needs that a real run makes first.
NEEDS = "The command needs"
#: How much is repeated of the last words of a worker that has ended.
LAST_CHARACTERS = 1000


@dataclass(frozen=True, slots=True)
class Launched:
    """A worker that was started; of a dry run, only its plan. `session_id` is `None` where it is not known yet.

    `confirmed` says that it was seen to take its prompt, or to be ready for one; `note` is what it was told before.
    `name` is a dry run's.
    """

    plan: ForkPlan
    place: str
    worker: WorkerRecord | None = None
    started: Started = field(default_factory=Started)
    session_id: str | None = None
    warnings: list[str] = field(default_factory=list)
    confirmed: bool = False
    note: str = ""
    name: str | None = None


def as_fork(launched: Launched) -> Forked:
    """A fork in the words of a fork."""
    plan, worker, started = launched.plan, launched.worker, launched.started
    return Forked(
        session_name=worker.name if worker else launched.name or plan.name, worker_id=worker.id if worker else "",
        terminal_id=started.terminal_id, resume_session_id=plan.source_session_id,
        new_session_id=launched.session_id or plan.new_session_id, command=plan.shell_command(), cwd=str(plan.cwd),
        place=launched.place, log=str(started.log) if started.log else None, attach=started.attach,
        warnings=tuple(launched.warnings), confirmed=launched.confirmed, kind=worker.kind if worker else "fork",
        agent_type=plan.agent, news=launched.note,
    )  # fmt: skip


def as_worker(launched: Launched) -> StartedWorker:
    """Any worker that was started."""
    if launched.worker is None:
        raise TypeError("A dry run has no worker")
    told = describe(launched.worker, launched.plan.shell_command(), launched.warnings, confirmed=launched.confirmed)
    return replace(told, news=launched.note)


def describe(worker: WorkerRecord, command: str, warnings: Sequence[str], *, confirmed: bool) -> StartedWorker:
    """A worker as the registry knows it."""
    return worker.told(
        StartedWorker, source_session_id=worker.source_session_id or None, log=worker.log_path, command=command,
        warnings=tuple(warnings), confirmed=confirmed,
    )  # fmt: skip


def ended_at_once(plan: ForkPlan, started: Started, seen: Confirmation) -> ProgramFailed:
    """Return the error for a worker that ended before it took its prompt, with its last output."""
    before = "it took its prompt" if plan.prompt else "it was ready"
    how = Completed.in_words(seen.status)
    said = ending(printable(seen.last_words or NOTHING), LAST_CHARACTERS)
    if started.log:
        where = f"Its output: {started.log}"
    else:
        where = f"Its window is still there: {started.attach}" if started.attach else ""
    return ProgramFailed(f"{plan.agent} ended before {before}{how and f' ({how})'}: {said or 'it said nothing'}", where)


def unexpected(error: Exception) -> SmartForkError:
    """Return what is said of a fork that failed in a way that nobody has foreseen."""
    hint = advice("`smart-fork doctor` checks what forks need.", tool="Run the result's fork_command yourself.")
    return SmartForkError(f"The fork failed: {error}", hint)


def remark(plan: ForkPlan, started: Started, seen: Confirmation) -> str:
    """Return a remark on a started worker; empty if all is well."""
    if seen.last_words is not None:
        how = Completed.in_words(seen.status)
        return (
            f"It has ended already ({how}): {ending(printable(seen.last_words), LAST_CHARACTERS)}"
            if how and seen.status
            else ""
        )
    if seen.taken:
        return ""
    see = f" See: {started.attach}" if started.attach else ""
    if seen.asks:
        untold = " Its prompt was not typed." if seen.untold else ""
        return f"Not confirmed: the worker waits for an answer: {seen.asks}{see}{untold}"
    if seen.untold:
        return f"The prompt could not be typed. Type it yourself.{see}"
    if not plan.prompt:
        return f"Not confirmed: {plan.agent} shows no input line yet; it may be asking something.{see}"
    what = f"did not take the prompt within {CONFIRM_SECONDS:g} seconds"
    return f"Not confirmed: {plan.agent} {what}; it may be asking something.{see}"


def done_by(forked: Forked, command: str) -> Forked:
    """A dry run that says which `command` of ours does what its agent's own cannot do alone."""
    said = (f"{one}: {command}" if one.startswith(NEEDS) else one for one in forked.warnings)
    return replace(forked, warnings=tuple(said))


def named_as_shared(forked: Forked, copy: str, shared: str, command: str) -> Forked:
    """A dry run of a team's session, whose copy is not here any more when somebody reads it."""
    note = f"A real run copies the team's session, then runs: {forked.command.replace(copy, '<its id>')}"
    return replace(forked, command=command, resume_session_id=shared, warnings=(*forked.warnings, note))


def another_agent(spec: WorkerSpec) -> list[str]:
    """Warn if another agent than the caller's resumes a session of its own."""
    asks = calling.get()
    if asks in (None, spec.agent) or spec.source is None or spec.content.handover:
        return []
    theirs, own = AGENTS.title_of(spec.agent), AGENTS.title_of(str(asks))
    return [f"This starts {theirs}, not {own}: the session is one of {theirs}"]


def elsewhere(spec: WorkerSpec, place: WorkerPlace) -> list[str]:
    """Warn if it runs in another place than was asked for."""
    if spec.options.place in (None, place.name):
        return []
    return [f"This {AGENTS.title_of(spec.agent)} has no background sessions of its own: it runs as a {place.name}"]


def moved(spec: WorkerSpec, target: Path) -> list[str]:
    """Warn if a session resumes in another directory without being asked to."""
    if spec.source is None or spec.cwd is not None:
        return []
    if where_now(spec.source.cwd) == spec.source.cwd:
        return _as_guest(spec.source, target)
    return [f"Its directory is gone: {directory_of(spec.source.cwd)}. It continues in {target}"]


def _as_guest(session: Session, target: Path) -> list[str]:
    """Warn about a session that only visited the repository in which it is forked."""
    try:
        here = project_of(Path.cwd())
    except OSError:  # that directory is gone
        return []
    if not session.turns or in_project(str(target), here) or not as_guest(session, here):
        return []
    other = advice("--cwd DIR has it work elsewhere.", tool="project_path has it work elsewhere.")
    return [joined(f"It worked in {here.root}, but began in {target}: the fork works there", other)]


def made_first(spec: WorkerSpec, plan: ForkPlan, *, in_worktree: bool) -> list[str]:
    """List the steps before the command. A dry run makes nothing, so its command alone would fail."""
    content, branch = spec.content, plan.staging == "branch"
    worked_in = recorded(spec.source.cwd if spec.source else "")
    elsewhere = plan.staging == "transcript" and (worked_in is None or project_of(worked_in) != project_of(plan.cwd))
    handed, distilled = content.handover is not None, content.excerpt is not None and content.handover is None
    needed = {
        "the worktree": in_worktree, "a copy of the handed-over session": branch and handed,
        "a copy of the kept exchanges": branch and distilled,
        "a copy up to that message": branch and bool(plan.at) and not distilled and not handed,
        "a copy of the session": branch and not plan.at and not distilled, "a copy of the log": elsewhere,
    }  # fmt: skip
    made = " and ".join(what for what, is_needed in needed.items() if is_needed)
    return [f"{NEEDS} {made}, which a real run makes first"] if made else []


# Writes the command of ours for a fork, with all that was asked for: a dry run says it where the agent's own fails.


def same_command(references: Sequence[str], request: ForkRequest, point: Point | None = None) -> str:
    """Return one line that forks these sessions in the same way, up to `point`; several are merged."""
    options = request.options
    given: list[tuple[str, object]] = [("--merge", len(references) > 1), ("--at", point and point.index)]
    given += _within(request.budget, request) if request.budget else ()
    given += [("--as", request.as_agent), ("--cwd", request.cwd), ("--in", options.place), ("--name", options.name)]
    named = isinstance(options.worktree, str)
    given += [
        ("--worktree-name" if named else "--worktree", options.worktree),
        ("--with-changes", options.with_changes),
    ]
    given += [("--no-brief", not options.brief), ("--unmasked", options.unmasked)]
    return shlex.join(("smart-fork", "fork", *references, *_words(given), *_prompt(options.prompt)))


def _within(wanted: Wanted, request: ForkRequest) -> Iterator[tuple[str, object]]:
    yield "--budget", wanted.budget
    for option, numbers in (("--keep", wanted.keep), ("--drop", wanted.drop)):
        yield option, ",".join(map(str, sorted(numbers))) or None
    intent, prompt = request.looked_for, request.options.prompt or ""
    yield "--intent", None if intent.strip() == prompt.strip() else intent
    for one in request.also:
        yield "--also", one


def _words(given: Iterable[tuple[str, object]]) -> Iterator[str]:
    for option, value in given:
        if value is not None and value is not False:
            yield from (option,) if value is True else (option, str(value))


def _prompt(prompt: str | None) -> tuple[str, ...]:
    """The last word; behind ``--`` where it would pass for an option or a session."""
    if not prompt:
        return ()
    return ("--", prompt) if prompt.startswith("-") or Reference.parsed(prompt).names_session else (prompt,)


def preceded(prompt: str | None, note: str) -> str | None:
    """`prompt` behind `note`, where there is one to precede; without it where both would be too long."""
    if not note or not (prompt or "").strip():
        return prompt
    both = f"{note}\n\n{prompt}"
    return both if ForkPlan.fits(both) else prompt
