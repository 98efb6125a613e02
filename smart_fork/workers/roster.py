"""The workers that run, what each of them has said itself, and waiting until they are done, ask something or end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from indexer.masking import NOTHING, Masked, beginning, shorten
from indexer.project import Project
from indexer.transcripts.model import Session
from indexer.values import seconds_in
from smart_fork.agents import AGENTS
from smart_fork.agents.log_readers import READERS
from smart_fork.errors import SmartForkError, Usage, advice
from smart_fork.finding import sessions
from smart_fork.finding.results import title
from smart_fork.finding.session_place import in_project
from smart_fork.finding.session_view import Message
from smart_fork.snippets import printable
from smart_fork.system import call_context
from smart_fork.system.processes import Machine
from smart_fork.workers.observation import Seen, WorkerWatch
from smart_fork.workers.place import ProcessPlace
from smart_fork.workers.registry import LIVING, Registry, WorkerRecord
from smart_fork.workers.state import WorkerRead, WorkerState, WorkersWaited, WorkerWaited
from smart_fork.workers.tmux import TmuxPlace

PROMPT_CHARACTERS = 200
#: How long a fork that has answered in a process is shown among those that run.
ANSWERED_SECONDS = 24 * 3600.0
#: What is read of a worker at once: exchanges, characters in all, characters of one message.
EXCHANGES, READ_CHARACTERS, MESSAGE_CHARACTERS = 3, 24_000, 8_000
LAST_WORDS_CHARACTERS = 2_000


class WorkerReader(WorkerWatch):
    """Watches workers, and reads what they say themselves."""

    @staticmethod
    def described(worker: WorkerRecord, seen: Seen) -> WorkerState:
        """A worker and what it does. Both ids are always there."""
        return worker.told(
            WorkerState, name=title(worker.name), prompt=shorten(title(worker.prompt), PROMPT_CHARACTERS),
            state=seen.state, status=seen.status or None, waiting_for=seen.waiting_for,
            last_activity=seen.last_activity, tokens=seen.tokens, first_answer=seen.first_answer,
            source_session_id=worker.source_session_id or None, log=worker.log_path,
        )  # fmt: skip

    def session_of(self, worker: WorkerRecord) -> Session | None:
        """The worker's own session, as its log has it; `None` where there is none yet, or nothing was said in it."""
        path = self.log_of(worker)
        try:
            return READERS[worker.agent].read(path).session if path else None
        except OSError:
            return None

    def own_messages(self, worker: WorkerRecord) -> list[Message]:
        """What was said in a worker's own part, numbered as in its session; secrets masked, long texts cut."""
        session = self.session_of(worker)
        start = len(session.turns) - len(worker.own_part(session)) if session else 0
        if session is None or not any(number >= start for number, _ in session.messages):
            return []
        said, _ = sessions.messages(session, sessions.ReadRange(start))
        return [replace(message, text=beginning(message.text, MESSAGE_CHARACTERS)) for message in said]

    def last_words(self, worker: WorkerRecord, seen: Seen) -> Masked:
        """What the worker's agent said last; of one that ended without having said anything, its last output."""
        said = [message.text for message in self.own_messages(worker) if message.role == "assistant"]
        if said:
            return beginning(said[-1], LAST_WORDS_CHARACTERS)
        output = self.output(worker) if seen.said is None and seen.is_over else seen.said
        return beginning(printable(output or NOTHING), LAST_WORDS_CHARACTERS)


def list_workers(
    project: Project | None, *, agent: str = "all", include_closed: bool = False, around: Machine | None = None
) -> tuple[WorkerState, ...]:
    """The workers of a project (of all where `None`), newest first; those that have ended only if asked for.

    A fork in a process ends when it has answered: it is shown for a day, until somebody closes or resumes it.

    Windows in our terminal sessions that somebody else opened are among them, as what is known of them: agent ``?``.

    Raises:
        Usage: there is no such agent.
    """
    agents = AGENTS.selected(agent)
    watcher = WorkerReader(around)
    found = []
    with Registry() as registry:
        known = registry.workers()
        for worker in known:
            if not (agent == AGENTS.ALL or worker.agent in agents) or not _within(worker.cwd, project):
                continue
            if worker.state not in LIVING and not include_closed and not _has_answered(worker, registry, watcher):
                continue
            seen = watcher.look(worker, registry)
            now = registry.get(worker.id)
            if seen.state in LIVING or include_closed or _has_answered(now, registry, watcher):
                found.append(watcher.described(now, seen))
    return (*found, *(_of_others(known, project, watcher.around) if len(agents) > 1 else ()))


def _has_answered(worker: WorkerRecord, registry: Registry, watcher: WorkerWatch) -> bool:
    if worker.state != "ended" or worker.place != ProcessPlace.name or not worker.is_fork or worker.pid is None:
        return False
    ended = seconds_in(worker.ended_at or "") or 0.0
    return watcher.around.clock.now() - ended < ANSWERED_SECONDS and registry.successor(worker).id == worker.id


def read_worker(reference: str, *, exchanges: int = EXCHANGES, around: Machine | None = None) -> WorkerRead:
    """A worker's last exchanges, from its own log and without what that has from its parent.

    `messages` are numbered as those of its session are; `earlier` says how many of its own come before these.

    Raises:
        Usage: fewer than one exchange is asked for.
        NotFound: there is no such worker.
    """
    if exchanges < 1:
        raise Usage(f"exchanges must be at least 1, not {exchanges}")
    watcher = WorkerReader(around)
    with Registry() as registry:
        seen = watcher.look(registry.get(reference), registry)
        worker = registry.get(reference)
    own = watcher.own_messages(worker)
    prompts = [i for i, message in enumerate(own) if message.role == "user"]
    first = prompts[-exchanges] if len(prompts) >= exchanges else 0
    chosen = _newest(own[first:], READ_CHARACTERS)
    return WorkerRead.more(watcher.described(worker, seen), messages=tuple(chosen), earlier=len(own) - len(chosen))


def _newest(messages: Sequence[Message], characters: int) -> list[Message]:
    """As many of the last messages as fit, one at least."""
    chosen: list[Message] = []
    for message in reversed(messages):
        characters -= len(message.text)
        if chosen and characters < 0:
            break
        chosen.insert(0, message)
    return chosen


def _within(cwd: str, project: Project | None) -> bool:
    return call_context.permits(cwd) if project is None else in_project(cwd, project)


def _of_others(known: Sequence[WorkerRecord], project: Project | None, around: Machine) -> list[WorkerState]:
    """Windows in our tmux sessions that are nobody's whom we started."""
    tmux = TmuxPlace()
    if not tmux.available(around.processes, around.env):
        return []
    ours = {(worker.terminal_id, worker.pid) for worker in known}
    try:
        windows = tmux.windows(around.processes, around.env)
    except SmartForkError:
        return []
    return [
        WorkerState(
            worker_id=None,
            session_id=None,
            agent_type="?",
            name=title(window.name),
            cwd=window.cwd,
            place=tmux.name,
            terminal_id=window.terminal_id,
            attach=tmux.attach_command(window.session, around.env),
        )
        for window in windows
        if (window.terminal_id, window.pid) not in ours and _within(window.cwd, project)
    ]


def require(references: Sequence[str], registry: Registry) -> list[WorkerRecord]:
    """The workers of these ids, session ids, names or terminals, each once.

    Raises:
        Usage: none is named, or one stands for several.
        NotFound: one does not exist; then nothing is done with the others either.
    """
    if not references:
        raise Usage("No worker is named", advice("smart-fork active lists them.", tool="list_workers lists them."))
    found = {worker.id: worker for worker in map(registry.get, references)}
    return list(found.values())


#: How soon workers are looked at again: at first and after every change, and at most.
SOON_SECONDS, LATEST_SECONDS = 0.1, 2.0
_SLOWER = 1.4

#: Told of every look: how many are done, of how many, after how many seconds.
Told = Callable[[int, int, float], None]


def wait_workers(
    references: Sequence[str], *, any_of: bool = False, timeout: float | None = None,
    told: Told = lambda _done, _of, _seconds: None, around: Machine | None = None,
) -> WorkersWaited:  # fmt: skip
    """Wait for all of the workers, or for one of them, for `timeout` seconds at most; with each one's last words.

    Raises:
        Usage: no worker is named, or the time is negative.
        NotFound: there is no such worker.
    """
    if timeout is not None and not timeout >= 0:
        raise Usage(f"timeout must be 0 or more: {timeout}")
    watcher = WorkerReader(around)
    with Registry() as registry:
        workers = require(references, registry)
        wait = _Wait(workers, registry, watcher)
        done = wait.until(len(workers) if not any_of else 1, timeout, told)
        waited = (
            WorkerWaited.more(
                watcher.described(worker, seen), settled=seen.settled, last_words=watcher.last_words(worker, seen)
            )
            for worker, seen in wait.seen.values()
        )
        return WorkersWaited(done=done, workers=tuple(waited))


class _Wait:
    def __init__(self, workers: Sequence[WorkerRecord], registry: Registry, watcher: WorkerWatch) -> None:
        self.registry = registry
        self.watcher = watcher
        self._said: dict[str, str | None] = {}
        self.seen: dict[str, tuple[WorkerRecord, Seen]] = {worker.id: self._look(worker.id) for worker in workers}

    def until(self, enough: int, timeout: float | None, told: Told) -> bool:
        """Whether so many have settled in time."""
        clock = self.watcher.around.clock
        began, pause = clock.now(), SOON_SECONDS
        while True:
            settled = sum(seen.settled for _, seen in self.seen.values())
            passed = clock.now() - began
            told(settled, len(self.seen), passed)
            if settled >= enough:
                return True
            if timeout is not None and passed >= timeout:
                return False
            clock.sleep(pause if timeout is None else min(pause, timeout - passed))
            before, self.seen = self.seen, {identity: self._look(identity) for identity in self.seen}
            pause = SOON_SECONDS if before != self.seen else min(pause * _SLOWER, LATEST_SECONDS)

    def _look(self, identity: str) -> tuple[WorkerRecord, Seen]:
        seen = self.watcher.look(self.registry.get(identity), self.registry)
        return self.registry.get(identity), seen
