"""What a worker is doing now, from the cheapest evidence that says so.

The agent's own hooks tell when it begins, stops and asks; the end of its log tells the same a moment later; its screen
shows a question that neither has written down. The newest of the first two counts, and the screen where these do not
say that it is done.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import apsw

from indexer.lazy import dataclass
from indexer.masking import NOTHING, Masked, beginning, mask, mask_screen
from indexer.settings import WORKER_ID
from indexer.values import seconds_in
from smart_fork.agents import AGENTS
from smart_fork.agents.copier import remove_copy
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.log_tail import Activity, TokenUse
from smart_fork.agents.screen import Question
from smart_fork.errors import SmartForkError
from smart_fork.repository.worktree import Worktree
from smart_fork.snippets import printable
from smart_fork.system.processes import Machine, Processes
from smart_fork.workers.births import find_sessions
from smart_fork.workers.place import whereabouts
from smart_fork.workers.places import lives, note_ends, place_of
from smart_fork.workers.registry import OVER, Registry, State, Status, WorkerRecord
from smart_fork.workers.registry_file import has_registry
from smart_fork.workers.tmux import Panes

#: Between two looks for a session that is not known.
SEARCH_SECONDS = 2.0
#: Some versions of agents do not log why the model stopped. Their last message ends the turn after this time without
#: another record.
SETTLED_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Seen:
    """What a worker is doing. `question` is what it has stopped at, `said` what one that has ended said last.

    `first_answer` is what its first answer took, as far as its log tells.
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
        """The question as text."""
        return printable(self.question.text) if self.question else None

    @property
    def settled(self) -> bool:
        """Whether it does nothing by itself any more: idle, asking, or ended."""
        return self.is_over or self.status in ("idle", "waiting")

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.state in OVER


class WorkerWatch:
    """Looks at workers again and again: what has not changed since the last time is not read again."""

    def __init__(self, around: Machine | None = None) -> None:
        self.around = around or Machine()
        self._logs: dict[str, Path] = {}
        self._read: dict[tuple[str, Path], tuple[tuple[int, int, int], Activity, TokenUse | None]] = {}
        self._searched: dict[str, float] = {}

    def look(self, worker: WorkerRecord, registry: Registry) -> Seen:
        """What `worker` does now. That it has ended is noted, and its session, where only now it can be found."""
        worker = self._with_session(worker, registry)
        wrote, took = self._activity(worker)
        at = wrote.at or worker.status_at or worker.started_at
        seen = Seen(worker.state, "", at, wrote.tokens, took)
        if worker.is_over:
            return seen
        said = self._ended(worker)
        if said is not None:
            noted = registry.note_end(worker)
            return replace(seen, state=noted.state if noted else "ended", said=said)
        if worker.state == "starting":
            return seen
        if self._headless(worker):
            return replace(seen, status="working")  # until it ends
        status, question = self._told(worker, wrote)
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

    def output(self, worker: WorkerRecord) -> Masked | None:
        """What a worker that has ended said last; `None` of one that runs, or where it is not to be found out."""
        with suppress(SmartForkError):
            return place_of(worker).ended(whereabouts(worker), self.around.processes, self.around.env)
        return None

    def log_of(self, worker: WorkerRecord) -> Path | None:
        """The worker's own log, if it has one by now."""
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
        """It was not known yet when the worker had been started, where the machine was busy."""
        now = self.around.clock.now()
        if worker.session_id or now < self._searched.get(worker.id, 0.0) + SEARCH_SECONDS:
            return worker
        self._searched[worker.id] = now
        for one, session_id in find_sessions(registry, now):
            registry.set_session_id(one.id, session_id)
        return registry.get(worker.id)

    def _activity(self, worker: WorkerRecord) -> tuple[Activity, TokenUse | None]:
        """What its log says that it does, and that its first answer took."""
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
        """What it said last, if it has ended; `None` while it runs."""
        around = self.around
        if lives(worker, around.processes, around.env, around.clock.now()):
            return None
        return self.output(worker) or NOTHING

    def _headless(self, worker: WorkerRecord) -> bool:
        with suppress(SmartForkError):
            return place_of(worker).headless
        return False

    def _is_past(self, at: str | None) -> bool:
        """Whether that was so long ago that the screen has had the time to show it."""
        return self.around.clock.now() - (seconds_in(at or "") or 0.0) >= SETTLED_SECONDS

    def _told(self, worker: WorkerRecord, wrote: Activity) -> tuple[Status, Question | None]:
        """What the hooks and the log say, whichever is newer."""
        if worker.status and (worker.status_at or "") >= (wrote.at or ""):
            asks = worker.status == "waiting" and worker.status_note
            return worker.status, Question(mask(worker.status_note)) if asks else None
        if wrote.problem:
            return "waiting", Question(beginning(mask(wrote.problem), Question.MAX_CHARACTERS))
        return wrote.status, None

    def _asked(self, worker: WorkerRecord) -> Question | None:
        with suppress(SmartForkError):
            asks = place_of(worker).asks(whereabouts(worker), self.around.processes, self.around.env)
            return Question(mask(asks)) if asks else None
        return None

    def _screen(self, worker: WorkerRecord) -> Masked | None:
        try:
            screen = place_of(worker).screen(whereabouts(worker), self.around.processes, self.around.env)
        except SmartForkError:
            return None
        return None if screen is None else mask_screen(screen)


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Recovered:
    """What `reconcile` has found out: the workers that are no more, and those whose session is known now."""

    ended: tuple[WorkerRecord, ...] = ()
    identified: tuple[WorkerRecord, ...] = ()


def reconcile(
    registry: Registry, processes: Processes, env: Mapping[str, str], *, now: float | None = None
) -> Recovered:
    """Bring the registry up to date with the machine. A second time finds nothing more to do.

    What cannot be checked is left as it is.
    """
    moment_now = time.time() if now is None else now
    panes = Panes(processes, env)
    for worker in registry.workers(states=["starting"]):
        if worker.pid is None and (pid := _marked(worker)):
            registry.set_found(worker.id, pid=pid, terminal_id=panes.pane_of(pid))
    ended = note_ends(registry, processes, env, moment_now)
    identified = [registry.set_session_id(worker.id, one) for worker, one in find_sessions(registry, moment_now)]
    return Recovered(tuple(ended), tuple(identified))


def tree_of(worker: WorkerRecord) -> Worktree | None:
    """The worktree that was made for it, or was about to be."""
    return Worktree.of(worker.worktree, worker.branch, worker.base_commit) if worker.worktree else None


def undo_cut_off(registry: Registry, around: Machine) -> None:
    """Undo the starts whose process died before their agent ran. What git does not remove is tried again next time."""
    for worker in registry.workers(states=["starting", "failed"]):
        tree, copy = tree_of(worker), Path(worker.copied_to) if worker.copied_to else None
        if worker.pid is not None or worker.maker is None:
            continue
        if worker.state == "starting":
            if lives(worker, around.processes, around.env, around.clock.now()) or _marked(worker):
                continue
        elif not (tree and tree.path.exists()) and not (copy and copy.exists()):
            continue  # else a git that its process did not outlive may have made it
        try:
            if copy and copy.parent.is_dir():  # else it is in a database
                _undo_copy(worker, copy, registry)
            if tree and worker.cwd != str(tree.path):  # else its agent was about to be started
                tree.undo(around.processes)
        except (OSError, SmartForkError) as error:
            log.warning("what was made for %s is left: %s", worker.id, error)
            continue
        registry.set_state(worker.id, "failed")


def _undo_copy(worker: WorkerRecord, copy: Path, registry: Registry) -> None:
    """Delete the copy of a log that was made for a worker. One that somebody continued, or the last one, stays."""
    reader = READERS[worker.agent]
    if copy.is_file():
        session = reader.read(copy).session
        if (session and worker.own_part(session)) or not READERS.original_of(worker.agent, reader.id_of(copy)):
            return
    remove_copy(copy, reader.id_of(copy))
    registry.forget_staged_copy(copy)


def recover() -> None:
    """Reconcile the registry, if there is one, with this machine: what each server does first, once."""
    if not has_registry():
        return
    try:
        with Registry() as registry:
            reconcile(registry, Processes(), os.environ)
    except (SmartForkError, apsw.Error, OSError) as error:
        log.warning("the registry of workers could not be brought up to date: %s", error)


def _marked(worker: WorkerRecord) -> int | None:
    """The only process that bears the worker's mark and was not started by one that does."""
    import psutil  # takes a while, and only a server asks

    above: dict[int, int] = {}
    for process in Processes.each():
        with suppress(psutil.Error, OSError):  # somebody else's, or gone by now
            if process.environ().get(WORKER_ID) == worker.id:
                above[process.pid] = process.ppid()
    first = [pid for pid, parent in above.items() if parent not in above]
    return first[0] if len(first) == 1 else None
