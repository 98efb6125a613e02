"""Confirms from a worker's own log that it has taken up its task. A process or window is not enough.

One without a prompt, which writes nothing yet, shows a line to type in. Whoever does not want to wait for either is
told the rest later.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from indexer.files import private_dir, state_home
from indexer.lazy import dataclass
from indexer.locks import held_file
from indexer.masking import Masked, mask_screen
from indexer.transcripts.base import AgentAdapter, LogFile
from indexer.transcripts.state import utc
from smart_fork.agents import AGENTS
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.starter import ForkPlan
from smart_fork.errors import SmartForkError
from smart_fork.system.processes import Machine
from smart_fork.workers.place import SCREEN_SECONDS as TYPING_SECONDS
from smart_fork.workers.place import Started, Typist, WorkerPlace

if TYPE_CHECKING:
    from smart_fork.agents.screen import Screen

#: How long a start waits for the worker to take its prompt, or without one to be ready, and how often it looks.
CONFIRM_SECONDS, READY_SECONDS = 20.0, 10.0
#: How long a start waits at least for a line to type the prompt in: who does not type it has started nothing.
HEARS_SECONDS = 90.0
LOOK_SECONDS = 0.1
#: Seconds between two looks at its screen.
SCREEN_SECONDS = 0.5
#: File systems round their times, up to two seconds; agents write theirs in milliseconds.
_FILE_SECONDS = 2.0
_RECORD_SECONDS = 0.002


@dataclass(frozen=True, slots=True)
class Confirmation:
    """`taken` is whether the worker was seen to have taken its prompt, or to be ready for one.

    `last_words` is what a worker said that has ended, else `None`; `status` then how it ended, negative for a signal,
    where that is known. `asks` is the question that it has stopped at instead. `untold` says that the prompt was to be
    typed, and was not.
    """

    session_id: str | None
    taken: bool
    last_words: Masked | None = None
    status: int | None = None
    asks: str = ""
    untold: bool = False


@contextlib.contextmanager
def one_at_a_time(plan: ForkPlan) -> Iterator[None]:
    """Keeps two workers that look alike from being taken for each other, where only the agent knows the new id."""
    if plan.new_session_id or not _writes_at_once(plan):  # no log will tell an id that nobody knows beforehand
        yield
        return
    # Where it is not had: better to be taken for another one than not to start.
    with held_file(private_dir(state_home()) / f"{plan.agent}-start.lock", CONFIRM_SECONDS):
        yield


def confirm(
    plan: ForkPlan, place: WorkerPlace, started: Started, machine: Machine, began: float, *,
    patience: float = CONFIRM_SECONDS,
) -> Confirmation:  # fmt: skip
    """Wait until the worker has taken its prompt, has ended, or asks something, or for `patience` seconds."""
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


def _typed(text: str, place: WorkerPlace, started: Started, machine: Machine, screens: Screen) -> bool:
    """Type the prompt and submit it. Return True on success."""
    types = Typist(place, started, screens, machine)
    try:
        types.type(text)
        return types.send(text, lambda: not types.holds(text), TYPING_SECONDS)
    except SmartForkError:
        return False


def _writes_at_once(plan: ForkPlan) -> bool:
    """Return True if the agent writes its log without further input: with the first prompt, if not before."""
    return bool(plan.prompt) or plan.writes


def _took(plan: ForkPlan, session_id: str, adapter: AgentAdapter, began: float) -> bool:
    """Return True if the log shows that the worker has begun the prompt. A new log alone does not."""
    if not plan.prompt:
        return True
    for path in adapter.locate(session_id):
        with contextlib.suppress(OSError):
            wrote = AGENTS.tail_of(plan.agent).activity(path, utc(began - _RECORD_SECONDS))
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
    """The id in a log whose beginning says that it was born since `began`, of the same source, in its place.

    A new session has no source; it is recognised by its prompt.
    """
    births = AGENTS[plan.agent].births
    birth = births.birth(file.path) if births else None
    if births is None or birth is None or birth.parent_id != (plan.source_session_id or None):
        return
    if birth.born < began - _RECORD_SECONDS or birth.cwd != str(plan.cwd):
        return
    with contextlib.suppress(OSError):
        if plan.form != "new" or births.was_asked(file.path, ForkPlan.plain_prompt(plan.prompt)):
            yield birth.session_id
