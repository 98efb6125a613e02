"""Up to four workers at once: all are checked before the first starts, and each has a result of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import apsw

from indexer.failures import what_failed
from indexer.project import project_of, recorded
from indexer.transcripts.lines import bounded
from indexer.transcripts.model import AgentName
from smart_fork import sessions
from smart_fork.agents.facets import starter_of
from smart_fork.agents.options import KEYS, options_from
from smart_fork.agents.selection import first, named
from smart_fork.budget.wanted import wanted_of
from smart_fork.copies.session_copy import Point, point_at
from smart_fork.errors import ForkRefused, SmartForkError, Usage, advice
from smart_fork.forking.bringing_back import forkable, is_borrowed, refuse_borrowed
from smart_fork.forking.confirmation import CONFIRM_SECONDS
from smart_fork.forking.handover import notes
from smart_fork.forking.launch import check_forkable, end_of_whole, told
from smart_fork.forking.report import as_worker
from smart_fork.forking.resume import check_free, newest_session
from smart_fork.forking.spec import ForkSource, WorkerSpec, source_of
from smart_fork.forking.start import Prepared, directory, launch, prepare
from smart_fork.forking.started import NotSpawned, Spawned, SpawnedWorker
from smart_fork.forking.world import Clock, SystemClock, World, world_of
from smart_fork.places import choose_place
from smart_fork.registry.workers import Kind
from smart_fork.system.processes import Processes
from smart_fork.text.given import refuse_both, refuse_empty
from smart_fork.text.snippets import quoted, shown
from smart_fork.whereabouts import directory_of, is_there, where_now

if TYPE_CHECKING:
    from smart_fork.retrieval.library import Opening

MAX_WORKERS = 4
#: How long each is looked at, however long the ones before it took: one that dies immediately is to be noticed.
LEAST_SECONDS = 5.0
#: These read on behind the number: "Worker 0 missing required 'project_path'".
_READ_ON = ("missing required", "must be")
_WORDS: Mapping[type, str] = {str: "a string", bool: "true or false", int: "a number"}
_EXCLUSIVE = (
    ("resume_session_id", "continue_session"),
    ("fork_from", "resume_session_id"),
    ("fork_from", "continue_session"),
)


def is_not_started(result: SpawnedWorker | NotSpawned) -> bool:
    """Whether that is what became of a worker."""
    return isinstance(result, NotSpawned)


def spawn(
    workers: Sequence[Any],
    *,
    caller_session_id: str | None = None,
    default_agent: AgentName | None = None,
    processes: Processes | None = None,
    env: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    library: Opening | None = None,
) -> tuple[SpawnedWorker | NotSpawned, ...]:
    """Start 1 to 4 workers, each described by the keys of `KEYS`.

    Each has a result of its own, also one that could not be started.
    All together are waited for hardly longer than one fork is.
    What answers where one is forked within a budget is told by the `library`, the commands' own by default.

    Raises:
        SmartForkError: one of them cannot be had; then none was started.
    """
    if not workers:
        raise Usage("At least one worker is required", "Give each a project_path and a prompt.")
    if len(workers) > MAX_WORKERS:
        raise Usage(f"Maximum {MAX_WORKERS} workers per spawn", "Call again for the rest.")
    time = clock or SystemClock()
    ready = []
    with ExitStack() as held:
        for index, said in enumerate(workers):
            try:
                asked = Asked(said, default_agent or first(), caller_session_id, held)
                world = world_of(asked.agent, processes, env, time)
                ready.append((prepare(asked.spec(world, library), world), world, asked.notes))
            except SmartForkError as error:
                colon = "" if error.message.startswith(_READ_ON) else ":"
                error.preface(f"Worker {index}{colon}")
                raise
        deadline = time.now() + CONFIRM_SECONDS
        return tuple(_result(index, *one, deadline) for index, one in enumerate(ready))


def summary(results: Sequence[SpawnedWorker | NotSpawned]) -> Spawned:
    """The results, and how many workers run now."""
    failed = sum(isinstance(one, NotSpawned) for one in results)
    return Spawned(len(results) - failed, failed, tuple(results))


def _result(
    index: int, prepared: Prepared, world: World, notes: Sequence[str], deadline: float
) -> SpawnedWorker | NotSpawned:
    """One that fails does not keep the others from starting."""
    try:
        launched = launch(prepared, world, patience=max(LEAST_SECONDS, deadline - world.clock.now()))
    except SmartForkError as error:
        return NotSpawned(index, error.code, error.message, error.hint)
    except (OSError, apsw.Error) as error:
        text = what_failed(error)
        hint = advice("`smart-fork doctor` checks every part.", tool="Start the others without it.")
        return NotSpawned(index, "unexpected", text, hint)
    return SpawnedWorker.numbered(index, as_worker(launched), notes)


def checked(said: Any) -> dict[str, Any]:
    """What is said of a worker, with nothing unknown, of another type or contradictory in it.

    By hand, for the tool and for the command alike: the command does without pydantic, which takes a tenth of a second.

    Raises:
        Usage: something is.
    """
    if not isinstance(said, Mapping):
        raise Usage(f"must be an object, not {shown(said)}", f"Its keys: {', '.join(KEYS)}.")
    if unknown := [repr(quoted(str(key))) for key in said if key not in KEYS]:
        raise Usage(f"unknown key {', '.join(unknown)}", f"Known: {', '.join(KEYS)}.")
    given = {key: value for key, value in said.items() if value is not None}
    for key, value in given.items():
        if type(value) not in KEYS[key].types:  # exactly: true is a number to Python
            raise Usage(f"'{key}' must be {' or '.join(_WORDS[kind] for kind in KEYS[key].types)}, not {shown(value)}")
    refuse_empty(given)
    if not given.get("project_path"):
        raise Usage("missing required 'project_path'", "The directory that the worker works in.")
    refuse_both(given, _EXCLUSIVE)
    return given


class Asked:
    """One worker that was asked for in JSON. `notes` are what whoever asked should know, and a log that is made for it
    is there as long as it is `held`.

    Raises:
        SmartForkError: it cannot be had.
    """

    def __init__(
        self, said: Any, default_agent: AgentName, caller_session_id: str | None, held: ExitStack
    ) -> None:  # fmt: skip
        self.said = checked(said)
        self.caller = caller_session_id
        self.notes: list[str] = []
        self.target = directory(self.said["project_path"])
        told = named(self.said["agent_type"]) if "agent_type" in self.said else None
        reference = self.said.get("fork_from") or self.said.get("resume_session_id")
        located = sessions.locate(reference) if reference else None
        self.is_borrowed = located is not None and is_borrowed(located)
        held.enter_context(bounded())
        self.session = sessions.read(held.enter_context(forkable(located))) if located else None
        self.notes += filter(None, [sessions.left_out(self.session)] if self.session else ())
        self.agent: AgentName = told or (self.session.agent if self.session else default_agent)
        self.kind = self._kind()
        if located is not None and self.kind != "fork":
            refuse_borrowed(located)

    def spec(self, world: World, library: Opening | None = None) -> WorkerSpec:
        """What is to be started for it.

        Raises:
            SmartForkError: it cannot be had.
        """
        source = source_of(self.session) if self.session else self._newest(world)
        goes_on = self.kind in ("resume", "continue")
        if self.session and self.kind == "fork":
            check_forkable(self.session, str(self.target))
        if source and goes_on:
            self._check_going_on(source, world)
        options = options_from(self.said)
        unsaid = options.worktree is None
        if unsaid:  # what begins from nothing has one if that is possible
            options = replace(options, worktree=project_of(self.target).git and not goes_on)
        self._check_place(options.place)
        spec = WorkerSpec(
            self.kind,
            self.agent,
            source,
            options,
            self._point(),
            cwd=None if goes_on and (source is None or is_there(source.cwd)) else self.target,
            or_without=unsaid,
            caller_session_id=self.caller,
        )
        spec = self._within(spec, library)
        spec = told(spec, self.session) if self.session and self.kind == "fork" else spec
        self.notes += notes(spec.handover.handed, spec.agent) if spec.handover else ()
        return spec

    def _kind(self) -> Kind:
        fork = self.said.get("fork_session", False)
        if self.said.get("fork_from"):
            return "fork"
        if self.said.get("resume_session_id"):
            return "fork" if fork else "resume"
        if self.said.get("continue_session"):
            return "fork" if fork else "continue"
        if fork and not starter_of(self.agent).forks_nothing:
            raise Usage(
                "fork_session needs fork_from, resume_session_id or continue_session", "Name the session to fork."
            )
        if fork:
            self.notes.append("fork_session is ignored without resume_session_id or continue_session")
        return "new"

    def _check_place(self, place: str | None) -> None:
        if place == "here":
            raise Usage("run_in cannot be 'here'", "Places for workers are tmux and process.")

    def _newest(self, world: World) -> ForkSource | None:
        if not self.said.get("continue_session"):
            return None
        self._check_place(self.said.get("run_in"))
        headless = choose_place(self.said.get("run_in"), world.processes, world.env).headless
        return newest_session(self.target, self.agent, automated=headless, apart_from=self.caller)

    def _point(self) -> Point | None:
        """The last turn that the fork knows: the end of what the given message is part of."""
        at = self.said.get("at")
        if at is None and self.session and self.kind == "fork":
            whole, note = end_of_whole(self.session, borrowed=self.is_borrowed)
            self.notes += [note] if note and self.agent == self.session.agent else []
            return whole
        if at is None:
            return None
        if self.session is None or self.kind != "fork":
            raise Usage("'at' needs a session to fork", "Say which: fork_from.")
        point = point_at(self.session, at)
        if point.index != at:
            self.notes.append(point.moved_from(at))
        return point

    def _within(self, spec: WorkerSpec, library: Opening | None) -> WorkerSpec:
        """The same within the budget that was given, if any."""
        given = [self.said.get(key) for key in ("budget", "keep", "drop")]
        if all(one is None for one in given):  # nearly every worker, which starts sooner without what a budget needs
            return spec
        from smart_fork.forking.spending import Spending, within

        wanted = wanted_of(*given)
        if wanted is None or self.session is None or self.kind != "fork":
            raise Usage("'budget' needs a session to fork", "Say which: fork_from.")
        from smart_fork.retrieval import background

        with (library or background.library)() as known:
            spec, kept = within(spec, self.session, Spending(wanted, self.said.get("prompt") or "", (), known))
        selection = kept.selection
        all_of_them = selection.kept + selection.left_out
        had = f"It has {selection.kept} of {all_of_them} exchanges, about {selection.tokens:,} tokens"
        self.notes += selection.notes if selection.whole else [*selection.notes, had]
        return spec

    def _check_going_on(self, source: ForkSource, world: World) -> None:
        if source.agent != self.agent:
            raise ForkRefused(
                f"A {source.agent} session cannot be resumed by {self.agent}",
                "Drop agent_type, or fork it: fork_from.",
            )
        if source.session_id == self.caller:
            raise ForkRefused("This is the calling session itself", "Fork it: fork_from.")
        worked_in = recorded(where_now(source.cwd))
        if source.cwd and (worked_in is None or project_of(worked_in).key != project_of(self.target).key):
            whose = "no" if worked_in is None else "another"
            raise ForkRefused(
                f"{source.session_id} worked in {directory_of(source.cwd)}, which is of {whose} project",
                "A session resumes in its own directory. To run it here, fork it: fork_from.",
            )
        check_free(source, world=world)
