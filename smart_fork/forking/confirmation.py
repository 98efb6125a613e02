"""Whether a worker has taken up what it is for: its own log says so, not that a process or a window is there.

One without a prompt, which writes nothing yet, shows a line to type in. Whoever does not want to wait for either is
told the rest later (R-024).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from filelock import FileLock, Timeout

from indexer.masking import Masked, mask_screen
from indexer.paths import private_dir, state_home
from indexer.transcripts.base import AgentAdapter, LogFile
from indexer.transcripts.lines import LineReader
from indexer.transcripts.model import Agent
from indexer.transcripts.state import utc
from smart_fork.agents import AGENTS
from smart_fork.agents.activity import activity
from smart_fork.agents.plan import ForkPlan, plain_prompt
from smart_fork.agents.questions import hears_on, question_on
from smart_fork.places.base import Place, Started
from smart_fork.processes import Processes, SystemProcesses

#: How long a start waits for the worker to take its prompt, or without one to be ready, and how often it looks.
CONFIRM_SECONDS, READY_SECONDS = 20.0, 10.0
LOOK_SECONDS = 0.1
#: Seconds between two looks at its screen.
SCREEN_SECONDS = 0.5
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
        adapter or AGENTS[agent],
        clock or SystemClock(),
    )


@dataclass(frozen=True, slots=True)
class Confirmation:
    """`taken` is whether the worker was seen to have taken its prompt, or to be ready for one.

    `last_words` is what a worker said that has ended, else `None`; `status` then how it ended, negative for a signal,
    where that is known. `asks` is the question that it has stopped at instead.
    """

    session_id: str | None
    taken: bool
    last_words: Masked | None = None
    status: int | None = None
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
    """Wait until the worker has taken its prompt, has ended, or asks something, or for `patience` seconds."""
    now = world.clock.now()
    deadline = now + (patience if _writes_at_once(plan) else min(patience, READY_SECONDS))
    look_again, before = now, ""
    while True:
        last_words = place.ended(started, world.processes, world.env)
        session_id = _written(plan, world.adapter, began) if _writes_at_once(plan) else None
        taken = session_id is not None and _took(plan, session_id, world.adapter, began)
        if last_words is None and not taken and world.clock.now() >= look_again:
            screen = mask_screen(place.screen(started, world.processes, world.env) or "")
            taken = not _writes_at_once(plan) and hears_on(screen)
            asks = question_on(screen)
            if asks and asks.text == before:  # twice the same: not just drawn over
                return Confirmation(session_id or plan.new_session_id, taken=False, asks=asks.text)
            look_again, before = world.clock.now() + SCREEN_SECONDS, asks.text if asks else ""
        if taken or last_words is not None or world.clock.now() >= deadline:
            status = None if last_words is None else place.exit_status(started, world.processes, world.env)
            return Confirmation(session_id or plan.new_session_id, taken, last_words, status)
        world.clock.sleep(LOOK_SECONDS)


def _tells_its_id(plan: ForkPlan) -> bool:
    """Whether there will be a log that tells the id, which nobody knows beforehand."""
    return not plan.new_session_id and _writes_at_once(plan)


def _writes_at_once(plan: ForkPlan) -> bool:
    """Whether a log will be written without somebody typing something.

    Agents write with the first prompt; a fork of Codex's does so at once. A shortened copy is there beforehand.
    """
    return bool(plan.prompt) or (plan.agent == "codex" and plan.form == "fork" and plan.new_session_id is None)


def _took(plan: ForkPlan, session_id: str, adapter: AgentAdapter, began: float) -> bool:
    """Whether its log says that it works on the prompt, or has done so; a log that begins says neither."""
    if not plan.prompt:
        return True
    for path in adapter.locate(session_id):
        with contextlib.suppress(OSError):
            wrote = activity(plan.agent, path, utc(began - _RECORD_SECONDS))
            if wrote.status and not wrote.problem:
                return True
    return False


def _written(plan: ForkPlan, adapter: AgentAdapter, began: float) -> str | None:
    """The id of the worker's session, once there is a log of it; one that is gone on with has had one before."""
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


def _since(timestamp: object, began: float) -> bool:
    try:
        return datetime.fromisoformat(str(timestamp)).timestamp() >= began - _RECORD_SECONDS
    except ValueError:
        return False
