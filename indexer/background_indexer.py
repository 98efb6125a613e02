"""The background indexer of a long-running process. It updates the index by schedule and when logs change."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from indexer.embedder import Embedder
from indexer.errors import IndexerError, SmartForkError, next_step, what_failed
from indexer.lazy_compilation import dataclass
from indexer.locks import LOCK_SECONDS, IndexBusyError, give_way, only_writer, step_back
from indexer.log_changes import Report
from indexer.pipeline import embed_waiting, has_other_vectors
from indexer.project import Project
from indexer.refresh import read_named, read_rest, read_some
from indexer.run_triggers import Schedule, Watcher
from indexer.runs import Freshness, LastRun, Outcome, announce, ended_run, json_time, keep_run
from indexer.safe_files import index_db, index_root, private_dir, state_home
from indexer.store.damage import DamagedIndexError, open_sound
from indexer.store.sqlite import Store
from indexer.transcripts.base import AgentAdapter, Agents
from indexer.transcripts.model import AgentName

if TYPE_CHECKING:
    from apscheduler.triggers.base import BaseTrigger

#: A changed log is read when nothing was written to it for this time …
QUIET_SECONDS = 1.0
#: … or after this time, if an agent writes without a pause.
LONGEST_SECONDS = 10.0


class Batch:
    """The paths of changed logs that wait to be read, each with the (monotonic) times of its first and last change.

    A path is due when its log has not changed for some seconds, or when the first change is long ago.
    """

    def __init__(self, quiet: float = QUIET_SECONDS, longest: float = LONGEST_SECONDS) -> None:
        self._quiet, self._longest = quiet, longest
        self._times: dict[str, tuple[float, float]] = {}

    def __len__(self) -> int:
        return len(self._times)

    def add(self, paths: Iterable[str], now: float) -> None:
        """Add paths of logs that changed at the time `now`."""
        for path in paths:
            first, _ = self._times.get(path, (now, now))
            self._times[path] = (first, now)

    def clear(self) -> None:
        """Remove all paths, because a run over all logs is about to read them."""
        self._times.clear()

    def due_at(self) -> float | None:
        """Return when the next path is due, by the monotonic clock; `None` if no path waits."""
        return min(map(self._due, self._times.values()), default=None)

    def take(self, now: float) -> set[str]:
        """Remove the paths that are due at the time `now`, and return them."""
        due = {path for path, times in self._times.items() if self._due(times) <= now}
        for path in due:
            del self._times[path]
        return due

    def _due(self, times: tuple[float, float]) -> float:
        first, last = times
        return min(last + self._quiet, first + self._longest)


log = logging.getLogger(__name__)

#: Duration of one piece of reading or embedding everything. Between pieces, logs that have just changed are read.
PIECE_SECONDS = 5.0
#: After a run for changes, nothing is read for this many times as long as reading took, but for at most this many
#: seconds. The time for vectors does not count: each chunk is embedded once, and must not delay new words.
REST_SHARE, REST_SECONDS = 2.0, 30.0
#: Waiting time before all logs are looked at again: after a run was skipped because another process is indexing; after
#: a failed run.
BUSY_SECONDS, FAILED_SECONDS = 5.0, 15.0
#: Interval at which the clock is compared with the schedule.
MEND_SECONDS = 60.0
#: How long `stop` waits for the current log or the current piece of embedding.
STOP_SECONDS = 5.0


class NotReadyError(IndexerError):
    """Something that indexing needs is missing, such as a writable folder. The message says what to do."""

    code = "not_ready"


class _Cancelled(Exception):
    """The current run must end, because the indexer stops or another process waits for the index."""


class _Job(NamedTuple):
    """The next index run. `paths` are the logs to look at, or `None` for all. A `scheduled` run covers all logs."""

    scheduled: bool
    paths: Collection[str] | None


def open_index() -> AbstractContextManager[Store]:
    """Open the index for a `with` block. A damaged index is set aside (renamed) and replaced."""
    return open_sound(index_db())


class BackgroundIndexer:
    """An indexer in threads of a long-running process. `opened` opens the index; tests can set `clock` and `now`.

    `after` is called after each run over all logs, and must return immediately.
    """

    def __init__(
        self,
        adapters: Agents,
        embedder: Embedder,
        trigger: BaseTrigger,
        *,
        opened: Callable[[], AbstractContextManager[Store]] = open_index,
        after: Callable[[], None] = lambda: None,
        batch: Batch | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._adapters, self._embedder, self._opened, self._after = adapters, embedder, opened, after
        self._clock, self._now = clock, now
        self._changed = threading.Condition()
        self._batch = Batch() if batch is None else batch  # one without logs is false
        self._scheduled = False
        self._current: Project | None = None
        self._wanted: Collection[int] = ()
        self._look_at: float | None = None
        self._rest_until = 0.0
        self._embedded_for = 0.0
        self._doing = ""
        self._last_run: LastRun | None = None
        self._last_change: LastRun | None = None
        self._last_error, self._last_error_at, self._failing = "", "", False
        self._stop = threading.Event()
        self._schedule = Schedule(self.run_soon, trigger, now)
        watcher = Watcher(adapters, self.look)
        # Daemons: whatever they are at, a process that wants to end ends, and what they had not finished is undone.
        self._threads = [
            threading.Thread(target=self._work, name="indexer", daemon=True),
            threading.Thread(target=watcher.run, args=(self._stop,), name="watcher", daemon=True),
        ]

    def start(self) -> None:
        """Start the threads of the indexer, which begin with a run over all logs. Failures are only logged."""
        found = check_prerequisites(self._adapters)
        for message in found.warnings:
            log.warning(message)
        for thread in self._threads:
            thread.start()
        self._schedule.start()

    def stop(self, seconds: float = STOP_SECONDS) -> bool:
        """Stop the threads within about `seconds`, after the current log or batch. Return True if they have ended."""
        self._schedule.stop()
        self._stop.set()
        with self._changed:
            self._changed.notify_all()
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def run_soon(self, project: Project | None = None) -> None:
        """Ask for a run over all logs, after the current run. From now on, chunks of `project` are embedded first."""
        with self._changed:
            self._current = project or self._current
            self._scheduled = True
            self._changed.notify_all()

    def put_first(self, project: Project | None, wanted: Collection[int]) -> None:
        """From the next batch on, embed the `wanted` chunks first, then the chunks of `project`."""
        self._current, self._wanted = project or self._current, wanted

    def look(self, paths: Collection[str] | None) -> None:
        """Note that the logs at `paths` may have changed; `None` means any log. A thread reads them soon."""
        now = self._clock()
        with self._changed:
            if paths is None:
                self._look_at = now
            else:
                self._batch.add(paths, now)
            self._changed.notify_all()

    @property
    def doing(self) -> str:
        """Return what the indexer does now, such as ``reading 3/7``; empty when idle."""
        return self._doing

    def status(self) -> Freshness:
        """Return when the indexer last ran and will run next, and its errors. This does not wait for a run."""
        next_run = self._schedule.next_run
        alive = self._threads[0].is_alive()
        return Freshness(
            state=("indexing" if self._doing else "idle") if alive else "stopped", doing=self._doing,
            pending_logs=len(self._batch), last_run=self._last_run, last_change=self._last_change,
            failing=self._failing, last_error=self._last_error or None, last_error_at=self._last_error_at or None,
            next_run=json_time(next_run) if next_run else None,
        )  # fmt: skip

    # -- the indexer's thread --------------------------------------------------------------------------------------

    def _work(self) -> None:
        step_back()
        while (job := self._next()) is not None:
            self._run(job)

    def _next(self) -> _Job | None:
        """Wait until a run is due, and return it. Return `None` when the indexer stops."""
        while not self._stop.is_set():
            with self._changed:
                if job := self._due():
                    return job
                woken = self._changed.wait(self._seconds_to_wait())
            if not woken:  # and without the lock, which the schedule's thread may be waiting for
                self._schedule.mend()
        return None

    def _due(self) -> _Job | None:
        now = self._clock()
        rested = now >= self._rest_until
        if self._scheduled or (rested and self._look_at is not None and self._look_at <= now):
            job = _Job(self._scheduled, None)
            self._scheduled, self._look_at = False, None
            self._batch.clear()  # all will be looked at
            return job
        if rested and (paths := self._batch.take(now)):
            return _Job(scheduled=False, paths=paths)
        return None

    def _seconds_to_wait(self) -> float:
        due = [at for at in (self._batch.due_at(), self._look_at) if at is not None]
        wait = max(min(due), self._rest_until) - self._clock() if due else MEND_SECONDS
        return max(0.0, min(wait, MEND_SECONDS))

    def _run(self, job: _Job) -> None:
        started, began, report = json_time(self._now()), self._clock(), Report()
        self._embedded_for = 0.0
        outcome, error = self._attempt(job, report)
        took = self._clock() - began
        run = ended_run(started, took, outcome, report, error)
        self._doing, self._failing = "", outcome == "failed" or (self._failing and outcome != "completed")
        if job.paths is None:
            self._last_run = run
            self._record(run)
            if outcome in ("completed", "failed"):
                self._after()
        else:
            self._last_change = run
        with self._changed:
            if not job.scheduled:
                self._rest_until = self._clock() + min(REST_SHARE * (took - self._embedded_for), REST_SECONDS)
            if outcome in ("failed", "skipped"):
                wait = BUSY_SECONDS if outcome == "skipped" else FAILED_SECONDS
                self._look_at = self._clock() + wait

    def _record(self, run: LastRun) -> None:
        """Store the summary of a run in the index, where people can look it up. Errors are ignored."""
        try:
            with self._opened() as store:
                keep_run(store, run)
                announce(store, self.status().next_run)
        except Exception as error:  # noqa: BLE001 - it was told of already
            log.debug("the run could not be recorded: %s", error)

    def _attempt(self, job: _Job, report: Report) -> tuple[Outcome, str]:
        """Do the run `job` and catch every error. Return the outcome, and the reason if it failed or was skipped."""
        level = logging.INFO if job.scheduled else logging.DEBUG
        log.log(level, "Indexing run started")
        try:
            self._index(job, report)
        except _Cancelled:
            log.info("Indexing run cancelled")
            return "cancelled", ""
        except IndexBusyError as error:
            log.log(level, "Indexing run skipped: %s", error)
            return "skipped", str(error)
        except Exception as error:  # noqa: BLE001 - the schedule goes on
            if self._stop.is_set():  # what embeds was ended as well
                log.info("Indexing run cancelled")
                return "cancelled", ""
            self._complain(job, error)
            if any(isinstance(one, DamagedIndexError) and one.aside for one in (error, error.__cause__)):
                self.run_soon()  # a new index is there, and empty
            return "failed", self._last_error
        if report.failed:
            path, reason = next(iter(report.failed.items()))
            self._note(f"{len(report.failed)} logs could not be read; {path}: {reason}")
        log.log(
            level, "Indexing run completed: %d of %d logs read, %d passages embedded",
            report.read, report.files, report.embedded,
        )  # fmt: skip
        return "completed", ""

    def _complain(self, job: _Job, error: Exception) -> None:
        """Report why a run failed. The same failure at each change of a session's log is reported only once."""
        step = (error.hint if isinstance(error, SmartForkError) else "") or next_step(error, indexing=True)
        message = f"{what_failed(error)}{'; ' if step else ''}{step}"
        known = message == self._last_error and not job.scheduled
        expected = isinstance(error, NotReadyError)
        log.log(
            logging.DEBUG if known else logging.ERROR, "Indexing run failed: %s", message,
            exc_info=None if expected or known else error,
        )  # fmt: skip
        self._note(message)

    def _note(self, problem: str) -> None:
        self._last_error, self._last_error_at = problem, json_time(self._now())

    def _index(self, job: _Job, report: Report) -> None:
        self._progress("starting", 0, 0)
        if job.paths is None and (errors := check_prerequisites(self._adapters).errors):
            raise NotReadyError("; ".join(errors))
        with self._opened() as store:
            if job.paths is not None:
                read_named(store, self._adapters, job.paths, report, self._progress)
            else:
                self._read_all(store, report)
            since = self._clock()
            try:
                self._embed(store, report)
            finally:
                self._embedded_for = self._clock() - since

    def _read_all(self, store: Store, report: Report) -> None:
        """Read all changed logs, newest first. Then copy logs, if a person wants copies, and erase deleted text."""
        while read_some(store, self._adapters, report, PIECE_SECONDS, progress=self._progress):
            self._progress("reading", 0, 0)
        done: set[str] = set()
        while not read_rest(store, self._adapters, report, PIECE_SECONDS, done, progress=self._progress):
            self._read_meanwhile(store, report)

    def _embed(self, store: Store, report: Report) -> None:
        """Embed all chunks without a vector. Between batches, read logs that have just changed."""
        if has_other_vectors(store, self._embedder):
            return
        try:
            while True:
                with only_writer(LOCK_SECONDS, "embedding"):
                    deadline = time.monotonic() + PIECE_SECONDS
                    agents = self._adapters.names
                    first = store.scope(self._current, agents, automated=False) if self._current else None
                    embed_waiting(
                        store, self._embedder, report, first=first, wanted=self._wanted, deadline=deadline,
                        progress=self._progress,
                    )  # fmt: skip
                if not report.waiting:
                    return
                self._read_meanwhile(store, report)
        except IndexBusyError:
            log.debug("another process is embedding")

    def _read_meanwhile(self, store: Store, report: Report) -> None:
        """Read the changed logs that are due (see `Batch`), between two batches of long work."""
        with self._changed:
            paths = self._batch.take(self._clock())
        if not paths:
            return
        try:
            read_named(store, self._adapters, paths, report, self._progress)
        except IndexBusyError:
            self.look(paths)

    def _progress(self, stage: str, done: int, total: int) -> None:
        """Note how far the run is, or end it because the indexer stops or another process waits for the index."""
        if self._stop.is_set():
            raise _Cancelled
        give_way()
        self._doing = f"{stage} {done}/{total}" if total else stage


@dataclass(frozen=True, slots=True)
class Prerequisites:
    """The agents that have log folders, `errors` that prevent all indexing, and `warnings` about one agent each."""

    agents: tuple[AgentName, ...]
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def check_prerequisites(adapters: Iterable[AgentAdapter]) -> Prerequisites:
    """Check that the state folder is writable, and find the agents with log folders. The others only get a warning."""
    errors = [message for folder in (state_home(), index_root()) if (message := _unwritable(folder))]
    there, warnings = [], []
    for agent in adapters:
        if problem := _unreadable(agent):
            step = f"use {agent.name} once, or point {agent.variable} at its folder"
            warnings.append(f"{agent.name} is not indexed yet: {problem}; {step}")
        else:
            there.append(agent.name)
            if problem := agent.unread():
                warnings.append(f"no session of {agent.name} can be read: {problem}")
    return Prerequisites(tuple(there), tuple(dict.fromkeys(errors)), tuple(warnings))


def _unwritable(folder: Path) -> str:
    probe = folder / ".probe"
    try:
        private_dir(folder)
        probe.write_bytes(b"")
    except OSError as error:
        return f"cannot write to {folder} ({error}): make it writable, or set SMART_FORK_HOME to a writable folder"
    finally:
        with suppress(OSError):
            probe.unlink()
    return ""


def _unreadable(agent: AgentAdapter) -> str:
    """Return why no log folder of an agent can be listed; empty if at least one can."""
    problem = "no folder"
    for folder, _ in agent.folders():
        try:
            next(iter(folder.iterdir()), None)
        except OSError as error:
            problem = problem if problem != "no folder" else f"{folder}: {error.strerror}"
        else:
            return ""
    return problem
