"""The plan of the setup: the agents on this machine, and the steps that connect smart-fork to them."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from indexer.lazy_compilation import dataclass
from indexer.safe_files import index_db
from indexer.transcripts.model import AgentName
from smart_fork.agents import AGENTS
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.log_retention import Deletion
from smart_fork.agents.mcp_registration import Registration
from smart_fork.agents.programs import Program
from smart_fork.agents.request_fields import said
from smart_fork.cli.service.unit_settings import own_program
from smart_fork.cli.setup import agent_hooks, log_copies, mcp_entry, recall, service, skill_file, tool_permission
from smart_fork.cli.setup.installed_parts import PARTS
from smart_fork.cli.setup.ledger import Ledger
from smart_fork.cli.setup.setup_output import AgentToSetUp, SetUp
from smart_fork.cli.setup.step import Step
from smart_fork.errors import ProgramMissing, SmartForkError
from smart_fork.finding.index_access import known_index
from smart_fork.system.processes import Processes

_NAME = "smart-fork"


@dataclass(frozen=True, slots=True)
class SetupOptions:
    """The options of ``setup``: the agents and the parts of the setup that a person has selected."""

    agents: tuple[AgentName, ...] = ()
    skill: bool = said(bool, default=True, help="Install no skill.", flags=("--no-skill",))
    hooks: bool = said(bool, default=True, help="Install no hooks.", flags=("--no-hooks",))
    index: bool = said(bool, default=True, help="Build no index.", flags=("--no-index",))
    service: bool = said(bool, default=True, help="Install no service.", flags=("--no-service",))
    recall: bool | None = said(
        bool, help="Tell sessions what past ones know: at first prompts, edits and errors.",
        flags=("--recall/--no-recall",),
    )  # fmt: skip
    reading: bool | None = said(
        bool, help="Let agents search and read without asking.", flags=("--allow-reading/--no-allow-reading",)
    )
    keep: bool | None = said(
        bool, help="Keep copies of logs that agents delete.", flags=("--keep-logs/--no-keep-logs",)
    )


def lasting_program(env: Mapping[str, str]) -> str:
    """Return the absolute path of the ``smart-fork`` command of a permanent installation.

    Raises:
        SmartForkError: there is no such command, or it is in a temporary environment, as after ``uvx``.
    """
    try:
        return own_program(env)
    except SmartForkError as error:
        commands = f"  uv tool install {shlex.quote(_source())}\n  smart-fork setup"
        raise type(error)(error.message, f"Install it permanently, then set up again:\n{commands}") from error


def _source() -> str:
    """Return this installation's source, as uv expects it: the package's name, a folder, or a repository."""
    try:
        origin = json.loads(distribution(_NAME).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return _NAME
    url = str(origin.get("url", ""))
    if "vcs_info" in origin:
        return f"{origin['vcs_info'].get('vcs', 'git')}+{url}"
    return url.removeprefix("file://") or _NAME


@dataclass(frozen=True, slots=True)
class SetupPlan:
    """The plan of the setup: the agents `found` here, those `absent`, and the `steps` in order."""

    program: str
    found: tuple[AgentToSetUp, ...]
    absent: tuple[str, ...]
    steps: tuple[Step, ...]
    deletes: tuple[Deletion, ...] = ()

    def told(self) -> SetUp:
        """Return the plan as a value for the JSON answer."""
        steps = tuple(one.told() for one in self.steps)
        return SetUp(program=self.program, agents=self.found, steps=steps, deletes=self.deletes)

    @property
    def is_done(self) -> bool:
        """Return True if no step of the plan has to be done."""
        return not any(step.is_open for step in self.steps)


def make_plan(options: SetupOptions, ledger: Ledger) -> SetupPlan:
    """Return a plan for the parts that `options` select, without changing anything.

    `ledger` lists the changes of earlier setups.

    Raises:
        SmartForkError: smart-fork is in a temporary environment, no agent is here, or none can be set up safely.
    """
    program = lasting_program(os.environ)
    looked = [(way, _found(way)) for way in AGENTS.registrations() if way.agent in options.agents]
    found = tuple(one for _, one in looked if one is not None)
    absent = tuple(way.agent for way, one in looked if one is None)
    if not found:
        step = "Install one and start it once, then run this again; `smart-fork demo` works without an agent."
        were = "were" if len(absent) > 1 else "was"
        raise ProgramMissing(f"{AGENTS.titles(absent)} {were} not found", step)
    deletes = Deletion.expected(time.time(), [one.agent for one in found])
    keeps = [log_copies.planned(one, wanted=options.keep is True) for one in deletes]
    steps = (
        *_steps_for_all(options, [way for way, one in looked if one is not None], program, ledger),
        *keeps,  # before what makes the copies
        *([_index_step(copies=any(step.is_open for step in keeps))] if options.index else ()),
        *([service.planned(program, Processes())] if options.service else ()),
    )
    return SetupPlan(program, found, absent, steps, deletes)


def _found(way: Registration) -> AgentToSetUp | None:
    try:
        program = Program.find(way.agent)
    except SmartForkError:  # it is not here, or nothing of ours starts it
        program = ""
    return AgentToSetUp(way.agent, program or None, str(way.home())) if program or way.home().is_dir() else None


def _steps_for_all(options: SetupOptions, ways: Sequence[Registration], program: str, ledger: Ledger) -> Iterator[Step]:
    of_agents = [[*_steps_for(options, way, program, ledger)] for way in ways]
    failures = [steps[0].failure for steps in of_agents if steps[0].failure]
    if len(failures) == len(ways):
        raise failures[0]
    for steps in of_agents:
        yield from steps


def _steps_for(options: SetupOptions, way: Registration, program: str, ledger: Ledger) -> Iterator[Step]:
    """Yield the steps that set up the agent of `way`, beginning with smart-fork's MCP server."""
    agent, folder = way.agent, way.skills()
    own = Path(program).parent == Path(sys.executable).parent  # else that of another installation is meant
    words = Processes.python("smart_fork", "mcp") if own else [program, "mcp"]
    yield _step_or_failure("server", way, way.path(), lambda: mcp_entry.planned(way, words))
    if options.skill and folder:
        yield _step_or_failure("skill", way, folder, lambda: skill_file.planned(way, folder, ledger))
    if options.hooks and AGENTS[agent].hooks:
        settings = agent_hooks.settings_file(agent)
        yield _step_or_failure("hooks", way, settings, lambda: agent_hooks.planned(agent))
    if options.recall:
        yield _step_or_failure("recall", way, way.path(), lambda: recall.planned(way))
    if options.reading:
        yield _step_or_failure("reading", way, way.path(), lambda: tool_permission.planned(way))


def _step_or_failure(what: str, way: Registration, where: Path, planned: Callable[[], Step]) -> Step:
    """Return the step that `planned` makes for `what`, a part of the setup such as "hooks".

    If it fails, return a step that raises the error later, so that the other steps can be done.
    """
    try:
        return planned()
    except SmartForkError as error:
        why = f"cannot be done: {error.message}"
        return Step(what, PARTS[what].NAME, str(where), "new", way.agent, why, failure=error)


def _index_step(*, copies: bool) -> Step:
    """Return the step that builds the first index; with `copies`, its run also makes the first copies of logs."""
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
