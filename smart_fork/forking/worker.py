"""The specification of a worker (an agent to run), the check that it began with its prompt, and the answer about it."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from pathlib import Path

from indexer.errors import joined
from indexer.lazy import dataclass
from indexer.locks import held_file
from indexer.masking import NOTHING, Masked, ending, mask, mask_screen
from indexer.project import project_of
from indexer.repositories import recorded
from indexer.safe_files import private_dir, state_home
from indexer.session_work import known_files
from indexer.transcripts.base import AgentAdapter, LogFile
from indexer.transcripts.model import AgentName, Session
from indexer.transcripts.reader_state import utc
from indexer.values import seconds_in
from smart_fork import provenance
from smart_fork.agents import AGENTS
from smart_fork.agents.copier import Excerpt
from smart_fork.agents.fork_plan import ForkPlan
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.references import Reference
from smart_fork.agents.request_fields import Options
from smart_fork.agents.screen import Screen
from smart_fork.agents.start_command import LaunchKind
from smart_fork.display_text import printable
from smart_fork.errors import ProgramFailed, SmartForkError, advice
from smart_fork.finding.results import resumed_part
from smart_fork.finding.session_place import WorkDirectory, as_guest
from smart_fork.forking.budget_choice import Selected
from smart_fork.forking.copies import ForkPoint, MergedPart, SessionCopy
from smart_fork.forking.handover import Handover
from smart_fork.forking.request import Budget, ForkRequest
from smart_fork.forking.results import Forked, StartedWorker
from smart_fork.repository import worktree
from smart_fork.repository.change_summary import change_summary
from smart_fork.repository.changes_since import SessionKnowledge
from smart_fork.system.call_context import calling
from smart_fork.system.processes import Completed, Machine, Processes
from smart_fork.workers.registry import WorkerKind, WorkerRecord
from smart_fork.workers.worker_terminal import Typist, WorkerLocation, WorkerPlace

#: Words and characters of a name made from a prompt, with room for a number after it.
NAME_WORDS, NAME_CHARACTERS = 4, worktree.MAX_NAME_CHARACTERS - 3
UNNAMED = worktree.plain_name("")


def name_of(prompt: str | None) -> str:
    """Return a name for a worker, made from the first words of its prompt."""
    words = mask(prompt or "").split(maxsplit=NAME_WORDS)[:NAME_WORDS]
    return worktree.plain_name(" ".join(words).lower())[:NAME_CHARACTERS].strip("-._") or UNNAMED


@dataclass(frozen=True, slots=True)
class ForkContent:
    """The content of a fork: its session up to `point`, or the turns of `excerpt`, then the kept turns of `others`.

    `asked` is the requested last turn; `leaves` the one before a budget dropped turns. `handover` is the text, if
    another agent receives it. `selected` has the budget's choice for each session.
    """

    asked: ForkPoint | None = None
    leaves: ForkPoint | None = None
    point: ForkPoint | None = None
    excerpt: Excerpt | None = None
    others: tuple[MergedPart, ...] = ()
    handover: Handover | None = None
    selected: tuple[Selected, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """A worker to start. `source` is the session that it forks or resumes, `None` for a new session.

    A fork gets only the `content` of `source`. With `or_without`, the worker starts even if no worktree can be made.
    `written` is an existing copy of `source`, which the worker resumes.
    """

    kind: WorkerKind
    agent: AgentName
    source: Session | None = None
    options: Options = field(default_factory=Options)
    content: ForkContent = ForkContent()
    cwd: Path | None = None
    or_without: bool = False
    caller_session_id: str | None = None
    written: SessionCopy | None = None

    @property
    def called(self) -> str | None:
        """Return the name for the worker, its worktree and branch: the given one, or a fork's from its prompt."""
        named = name_of(self.options.prompt) if self.kind == "fork" else UNNAMED
        return self.options.name or (named if named != UNNAMED else None)

    @property
    def worktree_name(self) -> str | None:
        """Return the name for the worker's worktree: the requested one, otherwise the worker's name."""
        return self.options.worktree if isinstance(self.options.worktree, str) else self.called

    @property
    def form(self) -> LaunchKind:
        """Return the kind of agent command that starts the worker: begin a new session, fork one, or resume one."""
        match self.kind:
            case "continue":
                return "resume"
            case "branch":
                return "fork"
            case kind:
                return kind

    def note_in(self, target: Path, processes: Processes) -> str:
        """Return a note on what changed in the repository `target` after the forked session, if one is wanted."""
        source = self.source if self.form == "fork" and self.options.brief else None
        if source is None or (then := self.known_until(source)) is None:
            return ""
        committed = self.options.in_worktree and not self.options.with_changes
        return change_summary(target, then, processes, worktree=committed)

    def known_until(self, session: Session) -> SessionKnowledge | None:
        """Return the files and the state of the repository that a fork knows from `session`, if known."""
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
            "" if branch == "HEAD" else branch, here=not provenance.was_received(session.session_id),
        )  # fmt: skip

    def unloaded(self) -> list[str]:
        """Return a warning if the worker resumes a session of which its agent will load only a part."""
        session = self.source if self.form == "resume" else None
        part = session and resumed_part(session.resumed, session.compacted(), len(session.turns))
        return [f"Its agent {part.sentence}"] if part else []

    def deviations(self, place: WorkerPlace, target: Path) -> list[str]:
        """Return warnings that the worker starts in another place, agent or directory than the caller may expect."""
        return [*_elsewhere(self, place), *_another_agent(self), *_moved(self, target)]

    def made_first(self, plan: ForkPlan, *, in_worktree: bool) -> list[str]:
        """Return a note on what a real run makes before it runs the command, such as a worktree.

        A dry run makes nothing, so the command that it shows would fail.
        """
        content, branch = self.content, plan.staging == "branch"
        worked_in = recorded(self.source.cwd if self.source else "")
        elsewhere = plan.staging == "transcript" and (
            worked_in is None or project_of(worked_in) != project_of(plan.cwd)
        )
        handed, distilled = content.handover is not None, content.excerpt is not None and content.handover is None
        needed = {
            "the worktree": in_worktree, "a copy of the handed-over session": branch and handed,
            "a copy of the kept exchanges": branch and distilled,
            "a copy up to that message": branch and bool(plan.at) and not distilled and not handed,
            "a copy of the session": branch and not plan.at and not distilled, "a copy of the log": elsewhere,
        }  # fmt: skip
        made = " and ".join(what for what, is_needed in needed.items() if is_needed)
        return [f"{NEEDS} {made}, which a real run makes first"] if made else []


#: The beginning of a dry run's note on steps that a real run takes first.
NEEDS = "The command needs"
#: Characters repeated of an ended worker's last output.
LAST_CHARACTERS = 1000


@dataclass(frozen=True, slots=True)
class LaunchedWorker:
    """A started worker; in a dry run, only its plan. `session_id` is `None` until known.

    `confirmed` is true if it was seen to take its prompt, or to be ready for one. `note` was put before the prompt.
    `name` is set in a dry run only.
    """

    plan: ForkPlan
    place: str
    worker: WorkerRecord | None = None
    started: WorkerLocation = field(default_factory=WorkerLocation)
    session_id: str | None = None
    warnings: list[str] = field(default_factory=list)
    confirmed: bool = False
    note: str = ""
    name: str | None = None

    def as_fork(self) -> Forked:
        """Return the answer about a fork, from this worker."""
        plan, worker, started = self.plan, self.worker, self.started
        return Forked(
            session_name=worker.name if worker else self.name or plan.name, worker_id=worker.id if worker else "",
            terminal_id=started.terminal_id, resume_session_id=plan.source_session_id,
            new_session_id=self.session_id or plan.new_session_id, command=plan.shell_command(), cwd=str(plan.cwd),
            place=self.place, log=str(started.log) if started.log else None, attach=started.attach,
            warnings=tuple(self.warnings), confirmed=self.confirmed, kind=worker.kind if worker else "fork",
            agent_type=plan.agent, news=self.note,
        )  # fmt: skip

    def as_worker(self) -> StartedWorker:
        """Return the answer about a started worker, from this worker."""
        if self.worker is None:
            raise TypeError("A dry run has no worker")
        told = describe(self.worker, self.plan.shell_command(), self.warnings, confirmed=self.confirmed)
        return replace(told, news=self.note)


def describe(worker: WorkerRecord, command: str, warnings: Sequence[str], *, confirmed: bool) -> StartedWorker:
    """Return the answer to the user about a started worker, from its row in the registry."""
    return worker.told(
        StartedWorker, source_session_id=worker.source_session_id or None, log=worker.log_path, command=command,
        warnings=tuple(warnings), confirmed=confirmed,
    )  # fmt: skip


def unexpected(error: Exception) -> SmartForkError:
    """Return an unexpected `error` as a `SmartForkError` that says that the fork failed, with a hint."""
    hint = advice("`smart-fork doctor` checks what forks need.", tool="Run the result's fork_command yourself.")
    return SmartForkError(f"The fork failed: {error}", hint)


def _another_agent(spec: WorkerSpec) -> list[str]:
    """Return a warning if the agent to start is not the caller's own agent."""
    asks = calling.get()
    if asks in (None, spec.agent) or spec.source is None or spec.content.handover:
        return []
    theirs, own = AGENTS.title_of(spec.agent), AGENTS.title_of(str(asks))
    return [f"This starts {theirs}, not {own}: the session is one of {theirs}"]


def _elsewhere(spec: WorkerSpec, place: WorkerPlace) -> list[str]:
    """Return a warning if the worker runs in another kind of place (tmux, process, …) than requested."""
    if spec.options.place in (None, place.name):
        return []
    return [f"This {AGENTS.title_of(spec.agent)} has no background sessions of its own: it runs as a {place.name}"]


def _moved(spec: WorkerSpec, target: Path) -> list[str]:
    """Return a warning if a session continues in another directory than its own without a request of the user."""
    if spec.source is None or spec.cwd is not None:
        return []
    if WorkDirectory(spec.source.cwd).now == spec.source.cwd:
        return _as_guest(spec.source, target)
    return [f"Its directory is gone: {WorkDirectory(spec.source.cwd).shown}. It continues in {target}"]


def _as_guest(session: Session, target: Path) -> list[str]:
    """Return a warning if the session also worked in the current repository, but the fork will work where it began."""
    try:
        here = project_of(Path.cwd())
    except OSError:  # that directory is gone
        return []
    if not session.turns or WorkDirectory(str(target)).is_in(here) or not as_guest(session, here):
        return []
    other = advice("--cwd DIR has it work elsewhere.", tool="project_path has it work elsewhere.")
    return [joined(f"It worked in {here.root}, but began in {target}: the fork works there", other)]


# Writes the command of ours for a fork, with all that was asked for: a dry run says it where the agent's own fails.


def same_command(references: Sequence[str], request: ForkRequest, point: ForkPoint | None = None) -> str:
    """Return the ``smart-fork fork`` command line that makes the same fork. Several `references` mean a merge.

    `point` is the last turn of the session to copy, if any.
    """
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


def _within(wanted: Budget, request: ForkRequest) -> Iterator[tuple[str, object]]:
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
    """Return the prompt as command-line arguments, after ``--`` if it could be taken for an option or a session."""
    if not prompt:
        return ()
    return ("--", prompt) if prompt.startswith("-") or Reference.parsed(prompt).names_session else (prompt,)


def preceded(prompt: str | None, note: str) -> str | None:
    """Return `prompt` with `note` before it; only `prompt` if either is empty or both together are too long."""
    if not note or not (prompt or "").strip():
        return prompt
    both = f"{note}\n\n{prompt}"
    return both if ForkPlan.fits(both) else prompt


#: Seconds to wait for a worker to take its prompt, or without a prompt to be ready.
CONFIRM_SECONDS, READY_SECONDS = 20.0, 10.0
#: Seconds to wait at least for an input line, if the prompt must be typed.
HEARS_SECONDS = 90.0
LOOK_SECONDS = 0.1
#: Seconds between two looks at the worker's screen.
SCREEN_SECONDS = 0.5
#: File systems round times by up to two seconds; agents write milliseconds.
_FILE_SECONDS = 2.0
_RECORD_SECONDS = 0.002


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The observed behavior of a started worker. `taken` is true if it took its prompt, or is ready for one.

    `last_words` is the output of a worker that has ended. `status` is its exit status, if known, negative for a signal.
    `asks` is the question that it waits on. `untold` is true if its prompt could not be typed.
    """

    session_id: str | None
    taken: bool
    last_words: Masked | None = None
    status: int | None = None
    asks: str = ""
    untold: bool = False

    def as_error(self, plan: ForkPlan, started: WorkerLocation) -> ProgramFailed:
        """Return the error for a worker that ended before it took its prompt, with its last output."""
        before = "it took its prompt" if plan.prompt else "it was ready"
        how = Completed.in_words(self.status)
        said = ending(printable(self.last_words or NOTHING), LAST_CHARACTERS)
        if started.log:
            where = f"Its output: {started.log}"
        else:
            where = f"Its window is still there: {started.attach}" if started.attach else ""
        return ProgramFailed(
            f"{plan.agent} ended before {before}{how and f' ({how})'}: {said or 'it said nothing'}", where
        )

    def remark(self, plan: ForkPlan, started: WorkerLocation) -> str:
        """Return a remark if the worker ended with an error or did not take its prompt; otherwise an empty text."""
        if self.last_words is not None:
            how = Completed.in_words(self.status)
            return (
                f"It has ended already ({how}): {ending(printable(self.last_words), LAST_CHARACTERS)}"
                if how and self.status
                else ""
            )
        if self.taken:
            return ""
        see = f" See: {started.attach}" if started.attach else ""
        if self.asks:
            untold = " Its prompt was not typed." if self.untold else ""
            return f"Not confirmed: the worker waits for an answer: {self.asks}{see}{untold}"
        if self.untold:
            return f"The prompt could not be typed. Type it yourself.{see}"
        if not plan.prompt:
            return f"Not confirmed: {plan.agent} shows no input line yet; it may be asking something.{see}"
        what = f"did not take the prompt within {CONFIRM_SECONDS:g} seconds"
        return f"Not confirmed: {plan.agent} {what}; it may be asking something.{see}"


@contextlib.contextmanager
def one_at_a_time(plan: ForkPlan) -> Iterator[None]:
    """Hold a lock during the start of an agent that chooses its session ids itself.

    Two such workers that start at the same time could be mistaken for each other.
    """
    if plan.new_session_id or not _writes_at_once(plan):  # no log will tell an id that nobody knows beforehand
        yield
        return
    # Where it is not had: better to be taken for another one than not to start.
    with held_file(private_dir(state_home()) / f"{plan.agent}-start.lock", CONFIRM_SECONDS):
        yield


def confirm(
    plan: ForkPlan, place: WorkerPlace, started: WorkerLocation, machine: Machine, began: float, *,
    patience: float = CONFIRM_SECONDS,
) -> Confirmation:  # fmt: skip
    """Wait until the worker has taken its prompt, has ended, or asks a question, at most `patience` seconds."""
    screens, now = AGENTS.screen_of(plan.agent), machine.clock.now()
    unsaid = plan.said if plan.delivery == "typed" else ""
    deadline = now + (patience if _writes_at_once(plan) else min(patience, READY_SECONDS))
    look_again, before = now, ""
    while True:
        last_words = place.ended(started, machine.processes, machine.env)
        session_id = _written(plan, READERS[plan.agent], began) if _writes_at_once(plan) else None
        taken = session_id is not None and _took(plan, session_id, READERS[plan.agent], began)
        if last_words is None and not taken and machine.clock.now() >= look_again:
            screen = mask_screen(place.screen(started, machine.processes, machine.env) or "")
            hears, asks = screens.hears(screen), screens.question(screen)
            taken = not _writes_at_once(plan) and hears
            if asks and asks.text == before:  # twice the same: not just drawn over
                known = session_id or plan.new_session_id
                return Confirmation(known, taken=False, asks=asks.text, untold=bool(unsaid))
            if unsaid and hears and not asks:
                if not _typed(unsaid, place, started, machine, screens):
                    return Confirmation(session_id or plan.new_session_id, taken=False, untold=True)
                unsaid, deadline = "", machine.clock.now() + patience
            look_again, before = machine.clock.now() + SCREEN_SECONDS, asks.text if asks else ""
        late = machine.clock.now() >= (max(deadline, now + HEARS_SECONDS) if unsaid else deadline)
        if taken or last_words is not None or late:
            status = None if last_words is None else place.exit_status(started, machine.processes, machine.env)
            return Confirmation(session_id or plan.new_session_id, taken, last_words, status, untold=bool(unsaid))
        machine.clock.sleep(LOOK_SECONDS)


def _typed(text: str, place: WorkerPlace, started: WorkerLocation, machine: Machine, screens: Screen) -> bool:
    """Type the prompt into the worker's terminal and submit it. Return True on success."""
    types = Typist(place, started, screens, machine)
    try:
        types.type(text)
        return types.send(text, lambda: not types.holds(text))
    except SmartForkError:
        return False


def _writes_at_once(plan: ForkPlan) -> bool:
    """Return True if the agent writes its log without input from a person: with its first prompt, or earlier."""
    return bool(plan.prompt) or plan.writes


def _took(plan: ForkPlan, session_id: str, adapter: AgentAdapter, began: float) -> bool:
    """Return True if the log shows that the worker has begun with its prompt: an agent may create the log before."""
    if not plan.prompt:
        return True
    for path in adapter.locate(session_id):
        with contextlib.suppress(OSError):
            wrote = AGENTS.tail_of(plan.agent).activity(path, utc(began - _RECORD_SECONDS))
            if wrote.status and not wrote.problem:
                return True
    return False


def _written(plan: ForkPlan, adapter: AgentAdapter, began: float) -> str | None:
    """Return the id of the worker's session once that session has a log, otherwise `None`."""
    if plan.new_session_id:
        return plan.new_session_id if adapter.locate(plan.new_session_id) else None
    new = (file for file in adapter.discover() if file.mtime_ns >= (began - _FILE_SECONDS) * 1e9)
    return next((session_id for file in new for session_id in _own_id(file, plan, began)), None)


def _own_id(file: LogFile, plan: ForkPlan, began: float) -> Iterator[str]:
    """Yield the session id of the log `file` if the worker of `plan` can have begun this session after `began`.

    Parent and directory must match the plan. A new session has no parent, so its first prompt must match.
    """
    finder = AGENTS[plan.agent].worker_sessions
    beginning = finder.beginning(file.path) if finder else None
    if finder is None or beginning is None or beginning.parent_id != (plan.source_session_id or None):
        return
    if beginning.born < began - _RECORD_SECONDS or beginning.cwd != str(plan.cwd):
        return
    with contextlib.suppress(OSError):
        if plan.form != "new" or finder.was_asked(file.path, ForkPlan.plain_prompt(plan.prompt)):
            yield beginning.session_id
