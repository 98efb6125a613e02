"""Observes workers (agents that smart-fork started): their list, their activity and messages, and waiting for them.

There are three sources. An agent's hooks report when it begins, stops and asks. The end of its log shows the same a
moment later. Its screen shows questions that neither has recorded. The newer report of hooks and log counts. If that is
"idle", the screen is not read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from indexer.json_values import seconds_in
from indexer.lazy_compilation import dataclass
from indexer.masking import NOTHING, Masked, beginning, mask, mask_screen, shorten
from indexer.project import Project
from indexer.transcripts.model import Session
from smart_fork.agents import AGENTS
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.log_tail import Activity, TokenUse
from smart_fork.agents.screen import Question
from smart_fork.display_text import printable
from smart_fork.errors import SmartForkError, Usage, advice
from smart_fork.finding.conversation import Message, ReadRange
from smart_fork.finding.results import title
from smart_fork.finding.session_place import WorkDirectory
from smart_fork.system import call_context
from smart_fork.system.processes import Machine
from smart_fork.workers.liveness import is_alive
from smart_fork.workers.registry import ENDED_STATES, LIVE_STATES, Registry, State, Status, WorkerRecord
from smart_fork.workers.results import WorkerRead, WorkerState, WorkersWaited, WorkerWaited
from smart_fork.workers.session_matching import find_sessions
from smart_fork.workers.terminals import TmuxPlace, place_of
from smart_fork.workers.worker_place import ProcessPlace, location_of

PROMPT_CHARACTERS = 200
#: Seconds for which a fork that answered in a process stays in the list of running workers.
ANSWERED_SECONDS = 24 * 3600.0
#: Limits for reading a worker: exchanges, characters in all, characters of one message.
EXCHANGES, READ_CHARACTERS, MESSAGE_CHARACTERS = 3, 24_000, 8_000
LAST_WORDS_CHARACTERS = 2_000
#: Seconds between two searches for an unknown session.
SEARCH_SECONDS = 2.0
#: Some versions of agents do not log why the model stopped. Their last message ends the turn after this time without
#: another record.
SETTLED_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Observation:
    """The activity of a worker, as found from its process, hooks, log and screen.

    `question` is what it waits on. `said` is the last output of an ended worker. `first_answer` has the tokens of its
    first answer, if known.
    """

    state: State
    status: Status
    last_activity: str
    tokens: int = 0
    first_answer: TokenUse | None = None
    question: Question | None = None
    said: Masked | None = None

    @property
    def waiting_for(self) -> Masked | None:
        """Return the text of the question that the worker waits on."""
        return printable(self.question.text) if self.question else None

    @property
    def settled(self) -> bool:
        """Return True if the worker will not continue by itself: it is idle, waits for an answer, or has ended."""
        return self.is_over or self.status in ("idle", "waiting")

    @property
    def is_over(self) -> bool:
        """Return True if the worker has ended or could not be started."""
        return self.state in ENDED_STATES


class WorkerReader:
    """Reads what workers (agents that smart-fork started) do and say. A log is read again only if it has changed."""

    def __init__(self, around: Machine | None = None) -> None:
        self.around = around or Machine()
        self._logs: dict[str, Path] = {}
        self._read: dict[tuple[str, Path], tuple[tuple[int, int, int], Activity, TokenUse | None]] = {}
        self._searched: dict[str, float] = {}

    def look(self, worker: WorkerRecord, registry: Registry) -> Observation:
        """Return what `worker` is doing. Its end, or a session identified only now, is recorded in the registry."""
        worker = self._with_session(worker, registry)
        wrote, took = self._activity(worker)
        at = wrote.at or worker.status_at or worker.started_at
        seen = Observation(worker.state, "", at, wrote.tokens, took)
        if worker.is_over:
            return seen
        said = self._ended(worker)
        if said is not None:
            noted = registry.note_end(worker)
            return replace(seen, state=noted.state if noted else "ended", said=said)
        if worker.state == "starting":
            return seen
        if self.is_headless(worker):
            return replace(seen, status="working")  # until it ends
        status, question = self._reported(worker, wrote)
        screen = self._screen(worker) if status != "idle" and worker.agent in AGENTS else None
        if screen is not None:
            shows = AGENTS.screen_of(worker.agent)
            if asked := shows.question(screen):
                question = asked
            elif shows.works(screen):  # a hook that told of a question tells nothing of its answer
                status, question = "working", None
            elif status == "working" and shows.rests(screen) and self._is_past(wrote.at or worker.status_at):
                status = "idle"
        if question or (question := self._asked(worker)):
            return replace(seen, status="waiting", question=question)
        if not status:  # no word of its own yet: on what it was given, on its way, or waiting for a person to begin
            on_its_way = screen is not None and not AGENTS.screen_of(worker.agent).hears(screen)
            status = "working" if worker.prompt or on_its_way else "idle"
        return replace(seen, status=status)

    def look_again(self, identity: str, registry: Registry) -> tuple[WorkerRecord, Observation]:
        """Return (worker, observation): the worker's current row in the registry, and what the worker is doing."""
        seen = self.look(registry.get(identity), registry)
        return registry.get(identity), seen

    def output(self, worker: WorkerRecord) -> Masked | None:
        """Return the last output of an ended worker; `None` if the worker runs, or the output is unknown."""
        with suppress(SmartForkError):
            return place_of(worker).ended(location_of(worker), self.around)
        return None

    def log_of(self, worker: WorkerRecord) -> Path | None:
        """Return the path of the log of the worker's session; `None` if there is no log yet."""
        if worker.session_id is None or worker.agent not in READERS.names:
            return None
        known = self._logs.get(worker.session_id)
        if known is None or not known.exists():
            known = READERS.original_of(worker.agent, worker.session_id)
            if known is None:
                return None
            self._logs[worker.session_id] = known
        return known

    def _with_session(self, worker: WorkerRecord, registry: Registry) -> WorkerRecord:
        """Return the worker. If its session id is unknown, first search for it in new logs, at most every 2 seconds."""
        now = self.around.clock.now()
        if worker.session_id or now < self._searched.get(worker.id, 0.0) + SEARCH_SECONDS:
            return worker
        self._searched[worker.id] = now
        for one, session_id in find_sessions(registry, now):
            registry.set_session_id(one.id, session_id)
        return registry.get(worker.id)

    def _activity(self, worker: WorkerRecord) -> tuple[Activity, TokenUse | None]:
        """Return (activity, tokens of the first answer or `None`), as the worker's log shows them."""
        path = self.log_of(worker)
        log = READERS[worker.agent].log_at(str(path)) if path else None
        if path is None or log is None:
            return Activity(), None
        try:
            known, wrote, took = self._read.get((worker.id, path), (None, Activity(), None))
            if known != log.stamp:
                wrote = AGENTS.tail_of(worker.agent).activity(path, worker.started_at)
                if wrote.tokens and (took is None or wrote.status != "working"):  # it was written to its end
                    took = AGENTS.tail_of(worker.agent).first_answer(path, worker.started_at)
                self._read[worker.id, path] = log.stamp, wrote, took
        except OSError:
            return Activity(), None
        if wrote.settling and self.around.clock.now() - log.mtime_ns / 1e9 < SETTLED_SECONDS:
            return replace(wrote, status="working"), took
        return wrote, took

    def _ended(self, worker: WorkerRecord) -> Masked | None:
        """Return the last output, maybe empty, of a worker that has ended; `None` if the worker still runs."""
        if is_alive(worker, self.around):
            return None
        return self.output(worker) or NOTHING

    @staticmethod
    def is_headless(worker: WorkerRecord) -> bool | None:
        """Return True if the worker has no terminal; `None` if its place is unknown to this version."""
        with suppress(SmartForkError):
            return place_of(worker).headless
        return None

    def _is_past(self, at: str | None) -> bool:
        """Return True if the time `at` was at least 5 seconds ago: the screen shows by now what the worker did then."""
        return self.around.clock.now() - (seconds_in(at or "") or 0.0) >= SETTLED_SECONDS

    def _reported(self, worker: WorkerRecord, wrote: Activity) -> tuple[Status, Question | None]:
        """Return the worker's status, and its question if any, from the newer report of its hooks and its log."""
        if worker.status and (worker.status_at or "") >= (wrote.at or ""):
            asks = worker.status == "waiting" and worker.status_note
            return worker.status, Question(mask(worker.status_note)) if asks else None
        if wrote.problem:
            return "waiting", Question(beginning(mask(wrote.problem), Question.MAX_CHARACTERS))
        return wrote.status, None

    def _asked(self, worker: WorkerRecord) -> Question | None:
        with suppress(SmartForkError):
            asks = place_of(worker).asks(location_of(worker), self.around)
            return Question(mask(asks)) if asks else None
        return None

    def _screen(self, worker: WorkerRecord) -> Masked | None:
        with suppress(SmartForkError):
            screen = place_of(worker).screen(location_of(worker), self.around)
            return None if screen is None else mask_screen(screen)
        return None

    @staticmethod
    def described(worker: WorkerRecord, seen: Observation) -> WorkerState:
        """Return the worker's data and its activity as an answer to the user or model."""
        return worker.told(
            WorkerState, name=title(worker.name), prompt=shorten(title(worker.prompt), PROMPT_CHARACTERS),
            state=seen.state, status=seen.status or None, waiting_for=seen.waiting_for,
            last_activity=seen.last_activity, tokens=seen.tokens, first_answer=seen.first_answer,
            source_session_id=worker.source_session_id or None, log=worker.log_path,
        )  # fmt: skip

    def session_of(self, worker: WorkerRecord) -> Session | None:
        """Return the worker's session from its log; `None` if there is no log yet, or it has no conversation."""
        path = self.log_of(worker)
        with suppress(OSError):
            return READERS[worker.agent].read(path).session if path else None
        return None

    def own_messages(self, worker: WorkerRecord) -> list[Message]:
        """Return the worker's messages since its start, numbered as in its session, masked and shortened."""
        session = self.session_of(worker)
        start = len(session.turns) - len(worker.own_part(session)) if session else 0
        if session is None or not any(number >= start for number, _ in session.messages):
            return []
        said, _ = ReadRange(start).messages(session)
        return [replace(message, text=beginning(message.text, MESSAGE_CHARACTERS)) for message in said]

    def last_words(self, worker: WorkerRecord, seen: Observation) -> Masked:
        """Return the last message of the worker's agent; without one, the output of the ended worker."""
        said = [message.text for message in self.own_messages(worker) if message.role == "assistant"]
        if said:
            return beginning(said[-1], LAST_WORDS_CHARACTERS)
        output = self.output(worker) if seen.said is None and seen.is_over else seen.said
        return beginning(printable(output or NOTHING), LAST_WORDS_CHARACTERS)


def list_workers(
    project: Project | None, *, agent: str = "all", include_closed: bool = False, around: Machine | None = None
) -> tuple[WorkerState, ...]:
    """Return the workers of `project`, or of all projects if `None`, newest first.

    Ended workers are left out unless `include_closed`. A fork in a background process, which ends when it has answered,
    stays in the list for a day, until a person closes or resumes it. Windows that other programs opened in smart-fork's
    tmux sessions are listed with agent ``?``.
    """
    agents = AGENTS.selected(agent)
    watcher = WorkerReader(around)
    found = []
    with Registry() as registry:
        known = registry.workers()
        for worker in known:
            if not (agent == AGENTS.ALL or worker.agent in agents) or not _within(worker.cwd, project):
                continue
            if worker.state not in LIVE_STATES and not include_closed and not _has_answered(worker, registry, watcher):
                continue
            now, seen = watcher.look_again(worker.id, registry)
            if seen.state in LIVE_STATES or include_closed or _has_answered(now, registry, watcher):
                found.append(watcher.described(now, seen))
    return (*found, *(_of_others(known, project, watcher.around) if len(agents) > 1 else ()))


def _has_answered(worker: WorkerRecord, registry: Registry, watcher: WorkerReader) -> bool:
    if worker.state != "ended" or worker.place != ProcessPlace.name or not worker.is_fork or worker.pid is None:
        return False
    ended = seconds_in(worker.ended_at or "") or 0.0
    return watcher.around.clock.now() - ended < ANSWERED_SECONDS and registry.successor(worker).id == worker.id


def read_worker(reference: str, *, exchanges: int = EXCHANGES, around: Machine | None = None) -> WorkerRead:
    """Return a worker's last exchanges (prompts with answers) from its log, without exchanges copied from its parent.

    Messages are numbered as in the session. `earlier` counts the worker's own messages before them.
    """
    if exchanges < 1:
        raise Usage(f"exchanges must be at least 1, not {exchanges}")
    watcher = WorkerReader(around)
    with Registry() as registry:
        worker, seen = watcher.look_again(reference, registry)
    own = watcher.own_messages(worker)
    prompts = [i for i, message in enumerate(own) if message.role == "user"]
    first = prompts[-exchanges] if len(prompts) >= exchanges else 0
    chosen = _newest(own[first:], READ_CHARACTERS)
    return WorkerRead.more(watcher.described(worker, seen), messages=tuple(chosen), earlier=len(own) - len(chosen))


def _newest(messages: Sequence[Message], characters: int) -> list[Message]:
    """Return as many of the last messages as fit into `characters`, but at least one."""
    chosen: list[Message] = []
    for message in reversed(messages):
        characters -= len(message.text)
        if chosen and characters < 0:
            break
        chosen.insert(0, message)
    return chosen


def _within(cwd: str, project: Project | None) -> bool:
    return call_context.permits(cwd) if project is None else WorkDirectory(cwd).is_in(project)


def _of_others(known: Sequence[WorkerRecord], project: Project | None, around: Machine) -> list[WorkerState]:
    """Return entries for windows in smart-fork's tmux sessions that belong to none of the `known` workers."""
    tmux = TmuxPlace()
    if not tmux.available(around):
        return []
    ours = {(worker.terminal_id, worker.pid) for worker in known}
    try:
        windows = tmux.windows(around)
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
    """Return the workers that `references` name by id, session id, name or terminal, each worker once.

    Raises:
        Usage: no worker is named, or a reference matches several.
        NotFound: a worker does not exist.
    """
    if not references:
        raise Usage("No worker is named", advice("smart-fork active lists them.", tool="list_workers lists them."))
    found = {worker.id: worker for worker in map(registry.get, references)}
    return list(found.values())


#: Seconds between two looks: at first and after each change, and at most.
SOON_SECONDS, LATEST_SECONDS = 0.1, 2.0
_SLOWER = 1.4

#: A function called after each look with the settled workers, all workers, and the seconds passed.
WaitProgress = Callable[[int, int, float], None]


def wait_workers(
    references: Sequence[str], *, any_of: bool = False, timeout: float | None = None,
    told: WaitProgress = lambda _done, _of, _seconds: None, around: Machine | None = None,
) -> WorkersWaited:  # fmt: skip
    """Wait until all named workers (with `any_of`, one) have settled, for at most `timeout` seconds.

    A worker has settled if it is idle, waits for an answer, or has ended. `told` is called after each look. The answer
    has each worker's last message.

    Raises:
        Usage: no worker is named, or `timeout` is negative.
        NotFound: there is no such worker.
    """
    if timeout is not None and not timeout >= 0:
        raise Usage(f"timeout must be 0 or more: {timeout}")
    watcher, pause = WorkerReader(around), SOON_SECONDS
    clock = watcher.around.clock
    with Registry() as registry:
        ids = [worker.id for worker in require(references, registry)]
        looked = [watcher.look_again(one, registry) for one in ids]
        began = clock.now()
        while True:
            settled, passed = sum(seen.settled for _, seen in looked), clock.now() - began
            told(settled, len(ids), passed)
            done = settled >= (1 if any_of else len(ids))
            if done or (timeout is not None and passed >= timeout):
                break
            clock.sleep(pause if timeout is None else min(pause, timeout - passed))
            before, looked = looked, [watcher.look_again(one, registry) for one in ids]
            pause = SOON_SECONDS if before != looked else min(pause * _SLOWER, LATEST_SECONDS)
        waited = (
            WorkerWaited.more(
                watcher.described(worker, seen), settled=seen.settled, last_words=watcher.last_words(worker, seen)
            )
            for worker, seen in looked
        )
        return WorkersWaited(done=done, workers=tuple(waited))
