"""Whether a worker has come to life: known from its transcript, not from its window (F-098, F-105).

Nothing depends on it: whoever does not want to wait is told the rest later (R-024).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from filelock import FileLock, Timeout

from indexer.paths import private_dir, state_home
from indexer.transcripts.agents import adapter as adapter_of
from indexer.transcripts.base import AgentAdapter, LogFile
from indexer.transcripts.lines import LineReader
from indexer.transcripts.model import Agent
from smart_fork.agents.plan import ForkPlan, plain_prompt
from smart_fork.agents.questions import question_on
from smart_fork.places.base import Place, Started
from smart_fork.processes import Processes, SystemProcesses

#: How long a start waits for the worker's own log to appear, and how often it looks.
CONFIRM_SECONDS = 20.0
LOOK_SECONDS = 0.1
#: Seconds between two looks at its screen.
SCREEN_SECONDS = 1.0
#: File systems round their times, up to two seconds; agents write theirs in milliseconds.
_FILE_SECONDS = 2.0
_RECORD_SECONDS = 0.002


class Clock(Protocol):
    """Time, for whoever waits."""

    def now(self) -> float:
        """Seconds since the epoch."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The real one."""

    def now(self) -> float:
        """See `Clock.now`."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """See `Clock.sleep`."""
        time.sleep(seconds)


@dataclass(frozen=True, slots=True)
class World:
    """What a launch works with. Tests may give their own."""

    processes: Processes
    env: Mapping[str, str]
    adapter: AgentAdapter
    clock: Clock


def world_of(
    agent: Agent,
    processes: Processes | None = None,
    env: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    adapter: AgentAdapter | None = None,
) -> World:
    """What starting an agent works with: of what is not given, the real one."""
    return World(
        processes or SystemProcesses(),
        os.environ if env is None else env,
        adapter or adapter_of(agent),
        clock or SystemClock(),
    )


@dataclass(frozen=True, slots=True)
class Confirmation:
    """`found` is whether the worker's log was seen; `last_words` is what a worker said that has ended, else `None`.

    `asks` is the question that it has stopped at instead.
    """

    session_id: str | None
    found: bool
    last_words: str | None = None
    asks: str = ""


@contextlib.contextmanager
def one_at_a_time(plan: ForkPlan) -> Iterator[None]:
    """Keeps two workers that look alike from being taken for each other, where only the agent knows the new id."""
    if not _tells_its_id(plan):
        yield
        return
    lock = FileLock(private_dir(state_home()) / "codex-start.lock", mode=0o600)
    with contextlib.suppress(Timeout):  # better to be taken for another one than not to start
        lock.acquire(timeout=CONFIRM_SECONDS)
    try:
        yield
    finally:
        lock.release()


def confirm(
    plan: ForkPlan, place: Place, started: Started, world: World, began: float, *, patience: float = CONFIRM_SECONDS
) -> Confirmation:
    """Wait until the worker has a log of its own, has ended, or asks something, or for `patience` seconds."""
    if not _writes_at_once(plan):
        return Confirmation(
            plan.new_session_id, found=True, last_words=place.ended(started, world.processes, world.env)
        )
    now = world.clock.now()
    deadline, look_again, before = now + patience, now + SCREEN_SECONDS, ""
    while True:
        last_words = place.ended(started, world.processes, world.env)
        session_id = _written(plan, world.adapter, began)
        now = world.clock.now()
        if session_id or last_words is not None or now >= deadline:
            return Confirmation(session_id or plan.new_session_id, session_id is not None, last_words)
        if now >= look_again:
            asks = question_on(place.screen(started, world.processes, world.env) or "")
            if asks and asks.text == before:  # twice the same: not just drawn over
                return Confirmation(plan.new_session_id, found=False, asks=asks.text)
            look_again, before = now + SCREEN_SECONDS, asks.text if asks else ""
        world.clock.sleep(LOOK_SECONDS)


def _tells_its_id(plan: ForkPlan) -> bool:
    """Whether there will be a log that tells the id, which nobody knows beforehand."""
    return not plan.new_session_id and _writes_at_once(plan)


def _writes_at_once(plan: ForkPlan) -> bool:
    """Whether a log will be written without somebody typing something.

    Agents write with the first prompt; a fork of Codex's does so at once. A shortened copy is there beforehand.
    """
    if plan.staging == "branch":
        return False
    return bool(plan.prompt) or (plan.agent == "codex" and plan.form == "fork")


def _written(plan: ForkPlan, adapter: AgentAdapter, began: float) -> str | None:
    if plan.form == "resume" and plan.new_session_id:  # the log was there, and goes on
        paths = adapter.locate(plan.new_session_id)
        return plan.new_session_id if any(_changed_since(path, began) for path in paths) else None
    if plan.new_session_id:
        return plan.new_session_id if adapter.locate(plan.new_session_id) else None
    new = (file for file in adapter.discover() if file.mtime_ns >= (began - _FILE_SECONDS) * 1e9)
    return next((session_id for file in new for session_id in _own_id(file, plan, began)), None)


def _own_id(file: LogFile, plan: ForkPlan, began: float) -> Iterator[str]:
    """The id in a log whose first record says that it was born since `began`, of the same source, in its place.

    Later records do not count: the parent's own first record may be among them. A new session has no source; it is
    recognised by its prompt.
    """
    with contextlib.suppress(OSError):
        payloads = (line.record.get("payload") for line in LineReader(file.path))
        meta = next(payloads, None)
        if not isinstance(meta, dict) or meta.get("forked_from_id") != (plan.source_session_id or None):
            return
        if not (_since(meta.get("timestamp"), began) and meta.get("cwd") == str(plan.cwd)):
            return
        if plan.form == "new" and not any(_asks(payload, plain_prompt(plan.prompt)) for payload in payloads):
            return
        if isinstance(meta.get("id"), str):
            yield meta["id"]


def _asks(payload: object, prompt: str) -> bool:
    if not isinstance(payload, dict) or payload.get("role") != "user":
        return False
    parts = payload.get("content")
    if not isinstance(parts, list):
        return False
    return any(isinstance(part, dict) and str(part.get("text")).strip() == prompt.strip() for part in parts)


def _changed_since(path: Path, moment: float) -> bool:
    try:
        return path.stat().st_mtime >= moment
    except OSError:
        return False


def _since(timestamp: object, began: float) -> bool:
    try:
        return datetime.fromisoformat(str(timestamp)).timestamp() >= began - _RECORD_SECONDS
    except ValueError:
        return False
