"""The workers that run, what each of them has said itself, and waiting until they are done, ask something or end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from indexer.failures import what_failed
from indexer.masking import NOTHING, Masked, beginning, mask, shorten
from indexer.project import Project
from indexer.transcripts.model import Session
from smart_fork import sessions
from smart_fork.agents import READERS
from smart_fork.agents.births import own_part
from smart_fork.agents.logs import original_of
from smart_fork.agents.selection import ALL, selected
from smart_fork.agents.tail import output_tokens
from smart_fork.conversation import Message
from smart_fork.errors import NotFound, SmartForkError, Usage
from smart_fork.forking.world import Instruments
from smart_fork.notes import noted_if_known
from smart_fork.places.liveness import lives
from smart_fork.places.tmux import TmuxPlace
from smart_fork.registry.workers import OVER, Registry, State, WorkerRecord
from smart_fork.repository.changes import difference
from smart_fork.repository.file_change import FileChange
from smart_fork.retrieval.results import title
from smart_fork.system import permission
from smart_fork.system.processes import Processes
from smart_fork.system.stages import duration
from smart_fork.text.advice import advice
from smart_fork.text.snippets import printable
from smart_fork.whereabouts import in_project
from smart_fork.workers.observation import Seen, WorkerWatch
from smart_fork.workers.outcomes import note_outcomes
from smart_fork.workers.state import Compared, WorkerRead, WorkerState, WorkersWaited, WorkerWaited

LIVING: tuple[State, ...] = ("starting", "running")
PROMPT_CHARACTERS = 200
#: What is read of a worker at once: exchanges, characters in all, characters of one message.
EXCHANGES, READ_CHARACTERS, MESSAGE_CHARACTERS = 3, 24_000, 8_000
LAST_WORDS_CHARACTERS = 2_000


def list_workers(
    project: Project | None, *, agent: str = "all", include_closed: bool = False, around: Instruments | None = None
) -> tuple[WorkerState, ...]:
    """The workers of a project (of all where `None`), newest first; those that have ended only if asked for.

    Windows in our terminal sessions that somebody else opened are among them, as what is known of them: agent ``?``.

    Raises:
        Usage: there is no such agent.
    """
    agents = selected(agent)
    watcher = WorkerWatch(around)
    found = []
    with Registry() as registry:
        known = registry.workers()
        for worker in known:
            if not (agent == ALL or worker.agent in agents) or not _within(worker.cwd, project):
                continue
            if worker.state not in LIVING and not include_closed:
                continue
            seen = watcher.look(worker, registry)
            if seen.state in LIVING or include_closed:
                found.append(described(registry.get(worker.id), seen))
    return (*found, *(_of_others(known, project, watcher.around) if len(agents) > 1 else ()))


def read_worker(reference: str, *, exchanges: int = EXCHANGES, around: Instruments | None = None) -> WorkerRead:
    """A worker's last exchanges, from its own log and without what that has from its parent.

    `messages` are numbered as those of its session are; `earlier` says how many of its own come before these.

    Raises:
        Usage: fewer than one exchange is asked for.
        NotFound: there is no such worker.
    """
    if exchanges < 1:
        raise Usage(f"exchanges must be at least 1, not {exchanges}")
    watcher = WorkerWatch(around)
    with Registry() as registry:
        seen = watcher.look(registry.get(reference), registry)
        worker = registry.get(reference)
    session = own_session(worker, watcher)
    own = own_messages(session, worker) if session else []
    prompts = [i for i, message in enumerate(own) if message.role == "user"]
    first = prompts[-exchanges] if len(prompts) >= exchanges else 0
    chosen = _newest(own[first:], READ_CHARACTERS)
    return WorkerRead.more(described(worker, seen), messages=tuple(chosen), earlier=len(own) - len(chosen))


def described(worker: WorkerRecord, seen: Seen) -> WorkerState:
    """A worker and what it does. Both ids are always there."""
    return WorkerState(
        worker_id=worker.id,
        session_id=worker.session_id,
        agent_type=worker.agent,
        kind=worker.kind,
        name=title(worker.name),
        prompt=shorten(title(worker.prompt), PROMPT_CHARACTERS),
        state=seen.state,
        status=seen.status or None,
        waiting_for=seen.waiting_for,
        last_activity=seen.last_activity,
        tokens=seen.tokens,
        started_at=worker.started_at,
        source_session_id=worker.source_session_id or None,
        cwd=worker.cwd,
        branch=worker.branch,
        place=worker.place,
        terminal_id=worker.terminal_id,
        attach=worker.attach,
        log=worker.log_path,
    )


def own_session(worker: WorkerRecord, watcher: WorkerWatch) -> Session | None:
    """The worker's own session, as its log has it; `None` where there is none yet, or nothing was said in it."""
    path = watcher.log_of(worker)
    try:
        return READERS[worker.agent].read(path).session if path else None
    except OSError:
        return None


def own_messages(session: Session, worker: WorkerRecord) -> list[Message]:
    """What was said in a worker's own part, numbered as in its session; secrets masked, long texts cut."""
    own = own_part(session, worker)
    start = len(session.turns) - len(own)
    if not any(number >= start for number, _ in session.messages):
        return []
    said, _ = sessions.messages(session, start)
    return [replace(message, text=beginning(message.text, MESSAGE_CHARACTERS)) for message in said]


def last_words(worker: WorkerRecord, seen: Seen, watcher: WorkerWatch) -> Masked:
    """What the worker's agent said last; of one that ended without having said anything, its last output."""
    session = own_session(worker, watcher)
    said = [message.text for message in (own_messages(session, worker) if session else []) if _spoke(message)]
    if said:
        return beginning(said[-1], LAST_WORDS_CHARACTERS)
    output = watcher.output(worker) if seen.said is None and seen.state in OVER else seen.said
    return beginning(printable(output or NOTHING), LAST_WORDS_CHARACTERS)


def _spoke(message: Message) -> bool:
    return message.role == "assistant"


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
    return permission.permits(cwd) if project is None else in_project(cwd, project)


def _of_others(known: Sequence[WorkerRecord], project: Project | None, around: Instruments) -> list[WorkerState]:
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
    references: Sequence[str],
    *,
    any_of: bool = False,
    timeout: float | None = None,
    told: Told = lambda _done, _of, _seconds: None,
    around: Instruments | None = None,
) -> WorkersWaited:
    """Wait for all of the workers, or for one of them, for `timeout` seconds at most; with each one's last words.

    Raises:
        Usage: no worker is named, or the time is negative.
        NotFound: there is no such worker.
    """
    if timeout is not None and not timeout >= 0:
        raise Usage(f"timeout must be 0 or more: {timeout}")
    watcher = WorkerWatch(around)
    with Registry() as registry:
        workers = require(references, registry)
        wait = _Wait(workers, registry, watcher)
        done = wait.until(len(workers) if not any_of else 1, timeout, told)
        waited = (
            WorkerWaited.more(
                described(worker, seen), settled=seen.settled, last_words=last_words(worker, seen, watcher)
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


#: Starts that are no further apart than this belong together: each waits for its agent's first words.
TOGETHER_SECONDS = 60.0
#: A patch is cut here: nobody reads more of one.
MAX_PATCH_CHARACTERS = 1_000_000


def compare(references: Sequence[str], processes: Processes, *, patch: bool = False) -> list[Compared]:
    """The workers that `references` mean, or those of the last fan-out; with `patch` also what they changed, in full.

    Raises:
        NotFound: there is no such worker, or there was no fan-out.
        Usage: a reference means several workers.
    """
    with Registry() as registry:
        workers = [registry.get(one) for one in references] or last_fan_out(
            [worker for worker in registry.workers() if permission.permits(worker.cwd)]
        )
    note_outcomes(workers, processes)
    known = noted_if_known((worker.agent, worker.session_id) for worker in workers if worker.session_id)
    return [
        replace(_compared(worker, processes, patch=patch), noted=known.get((worker.agent, worker.session_id or "")))
        for worker in workers
    ]


def last_fan_out(workers: Sequence[WorkerRecord]) -> list[WorkerRecord]:
    """Of all workers, newest first: the newest ones that were given the same prompt together.

    In the order of their numbered names, since which of them was registered first is chance.

    Raises:
        NotFound: no two were.
    """
    prompts = dict.fromkeys(worker.prompt for worker in workers if worker.prompt)
    for prompt in prompts:
        same = [worker for worker in workers if worker.prompt == prompt]
        apart = (i for i, (newer, older) in enumerate(pairwise(same), 1) if _seconds(older, newer) > TOGETHER_SECONDS)
        together = same[: next(apart, len(same))]
        if len(together) > 1:
            return sorted(together, key=lambda worker: (len(worker.name), worker.name))
    raise NotFound(
        "There is no fan-out to compare",
        advice("Name them: smart-fork compare WORKER WORKER", tool="Name them in workers; list_workers lists them."),
    )


def facts(one: Compared) -> list[tuple[str, str]]:
    """What is known of a worker, in words, in the same order for all."""
    return [
        ("state", f"{one.state}, {one.status}" if one.status else one.state),
        ("time", "unknown" if one.seconds is None else duration(one.seconds)),
        ("context", "unknown" if one.context_tokens is None else f"{one.context_tokens:,} tokens"),
        ("written", "unknown" if one.output_tokens is None else f"{one.output_tokens:,} tokens"),
        ("changes", _changes(one)),
        ("branch", one.branch or "none of its own"),
        ("outcome", "; ".join(one.noted.sentences) if one.noted and one.noted.verdict else "unknown"),
    ]


def counted(file: FileChange) -> str:
    """How many lines of it."""
    return "binary" if file.added is None else f"+{file.added} -{file.removed}"


def _compared(worker: WorkerRecord, processes: Processes, *, patch: bool) -> Compared:
    living = lives(worker, processes, os.environ, time.time())
    one = Compared(
        worker_id=worker.id,
        session_id=worker.session_id,
        name=worker.name,
        agent_type=worker.agent,
        kind=worker.kind,
        state=worker.state if living or worker.state == "failed" else "ended",
        status=worker.status if living else "",
        prompt=mask(worker.prompt),
        started_at=worker.started_at,
        worktree=worker.worktree,
        branch=worker.branch,
    )
    return _with_changes(_with_words(one, worker), worker, processes, patch=patch)


def _with_words(one: Compared, worker: WorkerRecord) -> Compared:
    """With what its log says."""
    try:
        session, log = _session(worker)
        own = own_part(session, worker)
        spent = output_tokens(worker.agent, log, worker.started_at)
    except SmartForkError as error:
        return replace(one, notes=(*one.notes, error.message))
    except OSError as error:
        return replace(one, notes=(*one.notes, f"Its log cannot be read: {what_failed(error)}"))
    times = [turn.timestamp for turn in own if turn.timestamp]
    answer = next((turn.text for turn in reversed(own) if turn.role == "assistant" and turn.text), "")
    return replace(
        one,
        last_activity=max(times, default=None),
        seconds=max(0.0, moment(max(times)) - moment(worker.started_at)) if times else None,
        context_tokens=session.token_estimate if any(turn.loaded for turn in own) else None,
        output_tokens=spent,
        answer=printable(mask(answer)),
        notes=one.notes if answer else (*one.notes, "It has not answered yet"),
    )


def _with_changes(one: Compared, worker: WorkerRecord, processes: Processes, *, patch: bool) -> Compared:
    """With what it has done to its worktree."""
    if not (worker.worktree and worker.base_commit):
        return replace(one, notes=(*one.notes, "Its changes are not known: it has no worktree of its own"))
    if not Path(worker.worktree).is_dir():
        return replace(one, notes=(*one.notes, "Its changes are not known: its worktree is gone"))
    try:
        files, text = difference(Path(worker.worktree), worker.base_commit, processes, patch=patch)
    except (SmartForkError, OSError) as error:
        return replace(one, notes=(*one.notes, f"Its changes are not known: {what_failed(error)}"))
    diff = beginning(printable(mask(text.decode("utf-8", "replace"))), MAX_PATCH_CHARACTERS)
    added, removed = (sum(count or 0 for count in counts) for counts in _counts(files))
    return replace(one, files=files, lines_added=added, lines_removed=removed, diff=diff if patch else None)


def _counts(files: Sequence[FileChange]) -> tuple[list[int | None], list[int | None]]:
    return [file.added for file in files], [file.removed for file in files]


def _session(worker: WorkerRecord) -> tuple[Session, Path]:
    if not worker.session_id:
        raise NotFound("It has no session yet")
    if worker.agent not in READERS.names:
        raise NotFound(f"What {worker.agent} writes cannot be read")
    log = original_of(READERS[worker.agent], worker.session_id)
    if log is None:
        raise NotFound("It has not written a log yet, or its log is gone")
    session = sessions.read(sessions.Located(worker.agent, worker.session_id, log))
    return session, session.source_path


def _seconds(older: WorkerRecord, newer: WorkerRecord) -> float:
    return moment(newer.started_at) - moment(older.started_at)


def moment(timestamp: str) -> float:
    """A time of the register in seconds."""
    return datetime.fromisoformat(timestamp).timestamp()


def _changes(one: Compared) -> str:
    if one.files is None:
        return "unknown"
    number = len(one.files)
    return f"{number} file{'' if number == 1 else 's'}, +{one.lines_added} -{one.lines_removed}" if number else "none"
