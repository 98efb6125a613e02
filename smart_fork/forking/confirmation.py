"""Confirmation that a started worker (an agent that smart-fork runs) took its prompt: from log, screen and process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from indexer.lazy_compilation import dataclass
from indexer.locks import held_file
from indexer.masking import NOTHING, Masked, ending, mask_screen
from indexer.safe_files import private_dir, state_home
from indexer.transcripts.base import AgentAdapter, LogFile
from indexer.transcripts.reader_state import utc
from smart_fork.agents import AGENTS
from smart_fork.agents.fork_plan import ForkPlan
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.screen import Screen
from smart_fork.display_text import printable
from smart_fork.errors import ProgramFailed, SmartForkError
from smart_fork.system.processes import Completed, Machine
from smart_fork.workers.worker_place import WorkerLocation, WorkerPlace

#: Characters repeated of an ended worker's last output.
LAST_CHARACTERS = 1000


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
    """Behavior of a started worker. `taken` is true if it took its prompt, or is ready for one.

    `last_words` is the output of a worker that has ended, `status` its exit status, if known, negative for a signal.
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
            if not self.status or not (how := Completed.in_words(self.status)):
                return ""
            return f"It has ended already ({how}): {ending(printable(self.last_words), LAST_CHARACTERS)}"
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
    """Hold a lock during the start, if the agent chooses its session ids itself.

    Without it, two workers that start at the same time could be mistaken for each other.
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
    """Wait until the worker takes its prompt, ends, or asks a question. Return what was seen.

    The wait ends after about `patience` seconds in any case.
    """
    screens, now = AGENTS.screen_of(plan.agent), machine.clock.now()
    unsaid = plan.said if plan.delivery == "typed" else ""
    deadline = now + (patience if _writes_at_once(plan) else min(patience, READY_SECONDS))
    look_again, before = now, ""
    while True:
        last_words = place.ended(started, machine)
        session_id = _written(plan, READERS[plan.agent], began) if _writes_at_once(plan) else None
        taken = session_id is not None and _took(plan, session_id, READERS[plan.agent], began)
        if last_words is None and not taken and machine.clock.now() >= look_again:
            screen = mask_screen(place.screen(started, machine) or "")
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
            status = None if last_words is None else place.exit_status(started, machine)
            return Confirmation(session_id or plan.new_session_id, taken, last_words, status, untold=bool(unsaid))
        machine.clock.sleep(LOOK_SECONDS)


def _typed(text: str, place: WorkerPlace, started: WorkerLocation, machine: Machine, screens: Screen) -> bool:
    """Type the prompt into the worker's terminal and submit it. Return True on success."""
    types = place.typist(started, screens, machine)
    try:
        types.type(text)
        return types.send(text, lambda: not types.holds(text))
    except SmartForkError:
        return False


def _writes_at_once(plan: ForkPlan) -> bool:
    """Return True if the agent creates its log without a person's input: at its start, or with its first prompt."""
    return bool(plan.prompt) or plan.writes


def _took(plan: ForkPlan, session_id: str, adapter: AgentAdapter, began: float) -> bool:
    """Return True if the log shows that the worker works on its prompt; an agent may create the log earlier."""
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
    """Yield the session id of the log `file` if the worker of `plan`, started at `began`, can have begun the session.

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
