"""Messages to workers (agents that smart-fork started).

A message is typed into a running worker's terminal. Without a terminal, its session is resumed with the message as the
prompt.

The rules follow Claude Code 2.1 and Codex 0.169. In pasted text, newlines are part of the text. Enter does not submit a
line that ends with a backslash, or with a file name after ``@``. The agent keeps text that is typed while it works, and
reads the text when its work is done.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from indexer.locks import held_file
from indexer.masking import NOTHING, ending
from indexer.safe_files import private_dir, state_home
from smart_fork.agents import AGENTS
from smart_fork.agents.fork_plan import ForkPlan
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.programs import Program
from smart_fork.agents.request_fields import Options
from smart_fork.agents.screen import Question
from smart_fork.agents.start_command import LaunchRequest
from smart_fork.errors import ForkRefused, ProgramFailed, Usage, advice
from smart_fork.forking.session_use import SessionUse
from smart_fork.forking.worker_preconditions import provisions
from smart_fork.system.call_context import refuse_cancelled
from smart_fork.system.processes import Machine
from smart_fork.workers.observation import Observation, WorkerReader
from smart_fork.workers.registry import Registry, WorkerRecord
from smart_fork.workers.results import WorkerMessaged
from smart_fork.workers.terminals import place_of
from smart_fork.workers.worker_place import SCREEN_SECONDS, Typist, WorkerLocation, WorkerPlace, is_running, location_of

MessageDelivery = Literal["typed", "queued", "answered", "resumed"]

#: Seconds until a sent message must be in the log.
LOG_SECONDS = 30.0
#: Seconds to wait for another process that is sending to the worker.
TURN_SECONDS = 60.0
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]+")


def message_worker(
    reference: str, text: str, *, queue: bool = False, answer: bool = False,
    meant: Callable[[str | None], bool] = lambda _asked: True, around: Machine | None = None,
) -> WorkerMessaged:  # fmt: skip
    """Send `text` to a worker (an agent that smart-fork started), or to a later one that continues its session.

    With `queue`, a working agent reads the message when its work is done. With `answer`, `text` is the number of an
    option of the worker's question. It is chosen only if `meant` returns True for the question's text.

    Raises:
        Usage: the text is empty, or there is no such option.
        ForkRefused: the worker is working (without `queue`), waits for an answer (without `answer`), or is unreachable.
        ProgramFailed: the worker does not accept the typed text, or its session could not be resumed.
    """
    with Registry() as registry:
        worker = registry.successor(registry.get(reference))
        with _in_turn(worker):
            talk = _Talk(worker, registry, WorkerReader(around))
            refuse_cancelled()
            how = talk.answer(text, meant) if answer else talk.say(text, queue=queue)
        worker = registry.get(worker.id)
        told = talk.watcher.described(worker, talk.watcher.look(worker, registry))
        return WorkerMessaged.more(told, how=how, warnings=tuple(talk.warnings))


def typed_text(text: str) -> str:
    """Return `text` so that every agent takes it as a message, not as a command; raise `Usage` if it is empty."""
    said = ForkPlan.plain_prompt(_CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n")))
    if not said:
        raise Usage("The message is empty", advice('Write one: smart-fork message ID "…"', tool="Give message."))
    last = said.split()[-1]
    return f"{said} " if said.endswith("\\") or last.startswith("@") else said


def resume_plan(worker: WorkerRecord, program: str, text: str) -> ForkPlan:
    """Return a plan that resumes the worker's session with the prompt `text`, without a terminal window.

    The worker keeps its id and permissions. Raise `ForkRefused` if its session is unknown.
    """
    if not worker.session_id:
        raise ForkRefused(
            f"The session of {worker.id} is not known",
            advice("Start a new worker: smart-fork new", tool="Fork the session that knows instead: smart_fork."),
        )
    place = place_of(worker)
    given = place.agent is None  # an agent keeps the options of its own background sessions
    launch = LaunchRequest(
        agent=worker.agent, session_id=worker.session_id, target_cwd=Path(worker.cwd), program=program,
        prompt=typed_text(text), headless=place.headless, background=not given, name=worker.name,
        depth=worker.depth - 1, worker_id=worker.id, form="resume",
        of_others=given and worker.permission_mode == WorkerRecord.ASKED,
        options=Options(skip_permissions=given and worker.permission_mode == WorkerRecord.UNASKED),
    )  # fmt: skip
    with AGENTS[worker.agent].home.used(READERS.original_of(worker.agent, worker.session_id)):
        return ForkPlan.of(launch)


def _mark(typist: Typist, question: Question, number: str) -> None:
    """Select option `number` of the question on the screen with arrow keys, waiting for the screen after each key."""
    for _ in question.options:
        asked = typist.asked()
        if asked is None or not question.is_also(asked) or asked.marked == number:
            return
        typist.press("Down" if asked.marked < number else "Up")

        def moved(before: Question = asked) -> bool:
            return typist.asked() != before

        typist.wait(moved, SCREEN_SECONDS)


@contextlib.contextmanager
def _in_turn(worker: WorkerRecord) -> Iterator[None]:
    """Hold a lock for a worker, so that two processes cannot type into its terminal at the same time."""
    with held_file(private_dir(state_home() / "locks") / f"{worker.id}.lock", TURN_SECONDS) as ours:
        if not ours:
            raise ForkRefused(f"Another process is talking to {worker.id}", "Try again.")
        yield


@dataclass
class _Talk:
    """The delivery of one message to one worker."""

    worker: WorkerRecord
    registry: Registry
    watcher: WorkerReader

    def __post_init__(self) -> None:
        self.around: Machine = self.watcher.around
        self.warnings: list[str] = []
        self.worker = self.registry.get(self.worker.id)  # another talk may just have ended
        self.started = location_of(self.worker)

    def say(self, text: str, *, queue: bool) -> MessageDelivery:
        said = typed_text(text)
        place, seen = place_of(self.worker), self._look()
        if seen.state in ("ended", "failed"):
            return self._resume(place, text)
        if seen.state == "starting":
            raise ForkRefused(f"{self.worker.id} is just being started", "Try again.")
        if seen.status == "waiting":
            hint = advice(
                "Choose one of its options: smart-fork message ID NUMBER --answer",
                tool="If the user chose an option, send it: answer.",
            )
            hint = f"Open it: {self.worker.attach}" if place.agent else hint
            raise ForkRefused(f"{self.worker.id} has asked something: {seen.waiting_for}", hint)
        if seen.status == "working" and place.restarts:
            hint = advice(f"Wait for it: smart-fork wait {self.worker.id}", tool="Wait for it: wait_workers.")
            when = "is done" if place.agent else "ends"
            raise ForkRefused(f"{self.worker.id} has no terminal and takes no message before it {when}", hint)
        if place.restarts:
            return self._resume(place, text)
        if seen.status == "working" and not queue:
            hint = advice(
                "Wait for it, or queue the message: --queue",
                tool="Wait for it with wait_workers, or queue the message: queue.",
            )
            raise ForkRefused(f"{self.worker.id} is working", hint)
        before = self._written()
        typist, queued = self._typist(place), self._is_queued(said)
        if not queued:
            typist.type(said)
        if seen.status == "working":
            if not queued:
                typist.send(said, lambda: not typist.holds(said))
            return "queued"
        alive = partial(is_running, self.started, self.around.processes)

        def taken() -> bool:
            return self._written() > before or not alive()

        sent = typist.wait(taken, LOG_SECONDS) if queued else typist.send(said, taken, LOG_SECONDS)
        if not alive():
            raise self._ended(place, self.started, "ended on this message")
        if not sent:
            self.warnings.append(f"It is not in its log after {LOG_SECONDS:g} seconds. See: {self.worker.attach}")
        return "typed"

    def _is_queued(self, text: str) -> bool:
        """Pass the message to the agent's own command for queued messages, if it has one. Return True on success."""
        worker, around = self.worker, self.around
        agent = AGENTS[worker.agent]
        verb = agent.processes.queue(worker.session_id or "", text, around.processes.running) if agent.processes else ()
        if not verb:
            return False
        program = Program.find(worker.agent, around.env)
        if not Program.lists(program, ("--help",), rf"(?m)^\s+{verb[0]}\b", around.processes, around.env):
            return False
        with agent.home.used(self.watcher.log_of(worker)):
            env = {**around.env, **agent.home.environment()}
        return around.processes.run([program, *verb], cwd=Path(worker.cwd), env=env, timeout=LOG_SECONDS).ok

    def answer(self, text: str, meant: Callable[[str | None], bool]) -> MessageDelivery:
        place, seen = place_of(self.worker), self._look()
        question = seen.question
        if seen.waiting_for is not None and not meant(seen.waiting_for):
            raise ForkRefused("Its question has changed", "Read it again, and answer the new one.")
        if question is None or not question.options:
            raise ForkRefused(f"{self.worker.id} has no question with options", f"See: {self.worker.attach}")
        if (number := text.strip()) not in question.options:
            raise Usage(f"It asks: {seen.waiting_for}", f"Options are {', '.join(question.options)}.")

        typist = self._typist(place)

        def answered() -> bool:
            return not question.is_also(typist.asked())

        if question.by_arrows:
            _mark(typist, question, number)
        else:
            typist.press(number)
        if question.by_arrows or not typist.wait(answered, SCREEN_SECONDS / 2):
            # Where a number only marks an option. One that has not arrived marks nothing: Enter would choose another.
            asked = typist.asked()
            if asked and question.is_also(asked) and asked.marked == number:
                typist.press("Enter")
            if not typist.wait(answered, SCREEN_SECONDS):
                self.warnings.append(f"It still asks the same. See: {self.worker.attach}")
        return "answered"

    def _resume(self, place: WorkerPlace, text: str) -> MessageDelivery:
        worker, around = self.worker, self.around
        if not place.restarts:
            raise ForkRefused(
                f"{worker.id} has ended",
                advice(
                    f"Start it again: smart-fork resume {worker.session_id or 'ID'}",
                    tool="Fork its session instead: smart_fork, with fork_session_id and this as the prompt.",
                ),
            )
        program = Program.find(worker.agent, around.env)
        given = provisions(worker.agent, program, place, around)
        self.warnings += given.notes
        plan = resume_plan(worker, program, text)
        alive = partial(place.runs, self.started, around)
        if place.agent and alive():  # it is idle
            place.close(self.started, around)
        # A hook may have told of its end before it was there: two must not write the same log.
        wait = self._typist(place).wait
        wait(lambda: not alive(), SCREEN_SECONDS)
        log = READERS.original_of(worker.agent, plan.source_session_id)
        SessionUse(worker.agent, plan.source_session_id, log, around).check_free()
        before = self._written()
        started = place.start(plan, worker, replace(around, env=given.environment(plan, around.env)))
        started.note(self.registry, worker.id, plan.argv)
        self.worker = self.registry.set_session_id(worker.id, started.session_id or plan.source_session_id)

        def moved() -> bool:
            return self._written() > before or place.ended(started, around) is not None

        wait(moved, LOG_SECONDS)
        if place.ended(started, around) is not None and self._written() <= before:
            raise self._ended(place, started, "could not continue")
        return "resumed"

    def _ended(self, place: WorkerPlace, started: WorkerLocation, how: str) -> ProgramFailed:
        """Record that the worker has ended. Return an error that says `how`, with the worker's last output."""
        said = place.ended(started, self.around)
        self.registry.set_state(self.worker.id, "ended")
        return ProgramFailed(f"{self.worker.id} {how}: {ending(said or NOTHING, 500) or 'it said nothing'}")

    def _typist(self, place: WorkerPlace) -> Typist:
        return place.typist(self.started, AGENTS.screen_of(self.worker.agent), self.around)

    def _look(self) -> Observation:
        return self.watcher.look(self.worker, self.registry)

    def _written(self) -> int:
        """Return the size of the worker's log in bytes: a larger log shows that it took the message."""
        path = self.watcher.log_of(self.worker)
        with contextlib.suppress(OSError):
            return path.stat().st_size if path else 0
        return 0
