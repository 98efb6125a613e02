"""What setting up would do here: nothing is changed by looking."""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distribution

from indexer.paths import index_db
from indexer.shapes import dataclass
from indexer.transcripts.model import AgentName
from smart_fork.agents import AGENTS, READERS
from smart_fork.agents.deletions import Deletion, deletions
from smart_fork.agents.facets import registrations
from smart_fork.agents.programs import find_program
from smart_fork.agents.registration import Registration
from smart_fork.agents.selection import titles
from smart_fork.errors import ProgramMissing, SmartForkError
from smart_fork.retrieval.index_access import known_index
from smart_fork.service.units.unit_settings import own_program
from smart_fork.setup import background, entry, hook_entries, keeping, recall_step, skill_file, tool_permission
from smart_fork.setup.ledger import Ledger, Step
from smart_fork.setup.setup_answer import AgentToSetUp, SetUp
from smart_fork.system.processes import Processes

_NAME = "smart-fork"


def lasting_program(env: Mapping[str, str]) -> str:
    """The absolute path of our command.

    Raises:
        SmartForkError: there is none, or it lies in a cache that is emptied, as after ``uvx``.
    """
    try:
        return own_program(env)
    except ProgramMissing as error:
        raise ProgramMissing("No installed smart-fork command was found", _step()) from error
    except SmartForkError as error:
        raise SmartForkError("This smart-fork runs from a temporary folder (uvx)", _step()) from error


def _step() -> str:
    return f"Install it permanently, then set up again:\n  uv tool install {shlex.quote(_source())}\n  smart-fork setup"


def _source() -> str:
    """Where this smart-fork was installed from, as uv takes it: the index, a folder, or a repository."""
    try:
        origin = json.loads(distribution(_NAME).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return _NAME
    url = str(origin.get("url", ""))
    if "vcs_info" in origin:
        return f"{origin['vcs_info'].get('vcs', 'git')}+{url}"
    return url.removeprefix("file://") or _NAME


@dataclass(frozen=True, slots=True)
class SetupOptions:
    """What of it is wanted."""

    agents: tuple[AgentName, ...]
    skill: bool = True
    hooks: bool = True
    service: bool = True
    index: bool = True
    recall: bool = False
    reading: bool = False
    keep: bool = False


@dataclass(frozen=True, slots=True)
class AgentHere:
    """An agent that is here. `program` is empty where only its folder is: an editor may have brought it."""

    way: Registration
    program: str

    def told(self) -> AgentToSetUp:
        """The agent as it is answered."""
        return AgentToSetUp(self.way.agent, self.program or None, str(self.way.home()))


@dataclass(frozen=True, slots=True)
class SetupPlan:
    """The agents that are here, those that are not, and the steps, in the order in which they are done."""

    program: str
    found: tuple[AgentHere, ...]
    absent: tuple[str, ...]
    steps: tuple[Step, ...]
    deletes: tuple[Deletion, ...] = ()

    def told(self) -> SetUp:
        """The plan as it is answered: nothing is changed by it."""
        agents, steps = tuple(one.told() for one in self.found), tuple(one.told() for one in self.steps)
        return SetUp(program=self.program, agents=agents, steps=steps, deletes=self.deletes)

    @property
    def is_done(self) -> bool:
        """Whether there is nothing to do."""
        return not any(step.is_open for step in self.steps)


def make_plan(options: SetupOptions, ledger: Ledger, processes: Processes) -> SetupPlan:
    """Look at everything that is wanted.

    Raises:
        SmartForkError: the program would not stay where it is, no agent is here, or none can be set up safely.
    """
    program = lasting_program(os.environ)
    looked = [(way, _found(way)) for way in registrations() if way.agent in options.agents]
    found = tuple(one for _, one in looked if one is not None)
    absent = tuple(way.agent for way, one in looked if one is None)
    if not found:
        step = "Install one and start it once, then run this again; `smart-fork demo` works without an agent."
        raise ProgramMissing(missing(absent), step)
    deletes = deletions(time.time(), [one.way.agent for one in found])
    keeps = [keeping.planned(one, wanted=options.keep) for one in deletes]
    steps = (
        *_of_agents(options, [one.way for one in found], program, ledger),
        *keeps,  # before what makes the copies
        *_of_machine(options, program, processes, copies=any(step.is_open for step in keeps)),
    )
    return SetupPlan(program, found, absent, steps, deletes)


def missing(absent: Sequence[str]) -> str:
    """That these agents are not here, for people."""
    return f"{titles(absent)} {'were' if len(absent) > 1 else 'was'} not found"


def _found(way: Registration) -> AgentHere | None:
    try:
        return AgentHere(way, find_program(way.agent))
    except SmartForkError:  # it is not here, or nothing of ours starts it
        return AgentHere(way, "") if way.home().is_dir() else None


def _of_agents(options: SetupOptions, ways: Sequence[Registration], program: str, ledger: Ledger) -> Iterator[Step]:
    of_agents = [_of_agent(options, way, program, ledger) for way in ways]
    failures = [found for found in of_agents if isinstance(found, SmartForkError)]
    if len(failures) == len(ways):
        raise failures[0]
    for way, found in zip(ways, of_agents, strict=True):
        yield from [_failing(way, found)] if isinstance(found, SmartForkError) else found


def _of_machine(options: SetupOptions, program: str, processes: Processes, *, copies: bool) -> Iterator[Step]:
    if options.index:
        yield _index(copies=copies)
    if options.service:
        yield background.planned(program, processes)


def _of_agent(options: SetupOptions, way: Registration, program: str, ledger: Ledger) -> list[Step] | SmartForkError:
    """The steps for one agent, or why it is left as it is."""
    try:
        steps = [entry.planned(way, program)]
        if options.skill and (folder := way.skills()):
            steps.append(skill_file.planned(way, folder, ledger))
        if options.hooks and AGENTS[way.agent].hooks:
            steps.append(hook_entries.planned(way.agent))
        if options.recall:
            steps.append(recall_step.planned(way))
        if options.reading:
            steps.append(tool_permission.planned(way))
    except SmartForkError as error:
        return error
    return steps


def _failing(way: Registration, error: SmartForkError) -> Step:
    """The step of an agent that is left as it is: it fails when it is done, and the others are done."""

    def fail(_: Ledger) -> list[str]:
        raise error

    return Step("server", entry.NAME, str(way.path()), "new", way.agent, f"cannot be done: {error.message}", fail)


def _index(*, copies: bool) -> Step:
    """The first index, or the first `copies`. What is new later is indexed by the service, or by who asks."""
    logs = sum(1 for agent in READERS for _ in agent.discover())
    where = str(index_db())
    if not logs:
        return Step("index", "first index", where, "left", why="there are no sessions yet")
    if copies and _is_whole():
        return Step("index", f"copies, {logs:,} logs", where, "changed")
    return Step("index", f"first index, {logs:,} logs", where, "there" if _is_whole() else "new")


def _is_whole() -> bool:
    with known_index() as store:
        counts = store.counts() if store else None
        return counts is not None and counts.sessions > 0 and counts.embedded >= counts.chunks
    return False
