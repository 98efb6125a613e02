"""The plan of the setup: this module makes its steps, tries the registered MCP servers, and undoes steps."""

from __future__ import annotations

import json
import os
import shlex
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any, Protocol

from indexer.lazy import dataclass
from indexer.safe_files import index_db
from indexer.settings import Setting
from smart_fork.agents import AGENTS
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.log_retention import Deletion
from smart_fork.agents.mcp_registration import Registration
from smart_fork.agents.programs import Program
from smart_fork.cli.service.unit_settings import own_program
from smart_fork.cli.setup import agent_settings, mcp_entry, skill_file, tool_permission
from smart_fork.cli.setup.features import LogCopies, Recall, ServicePart
from smart_fork.cli.setup.ledger import ForeignFile, Ledger, LedgerLine, Step, What, remove_leftovers
from smart_fork.cli.setup.setup_answer import AgentToSetUp, SetUp, SetupOptions, StepUndone, Trial
from smart_fork.doctor import Check
from smart_fork.errors import ProgramMissing, SmartForkError
from smart_fork.finding.answer import RecentSession
from smart_fork.finding.index_access import known_index
from smart_fork.finding.recent import list_recent
from smart_fork.system.processes import Processes
from smart_fork.system.version import own_version

_NAME = "smart-fork"


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
class AgentHere:
    """An agent on this machine. `program` is the path of its program; empty if only its settings folder is here."""

    way: Registration
    program: str

    def told(self) -> AgentToSetUp:
        return AgentToSetUp(self.way.agent, self.program or None, str(self.way.home()))


@dataclass(frozen=True, slots=True)
class SetupPlan:
    """The plan of the setup: the agents `found` here, those `absent`, and the `steps` in order."""

    program: str
    found: tuple[AgentHere, ...]
    absent: tuple[str, ...]
    steps: tuple[Step, ...]
    deletes: tuple[Deletion, ...] = ()

    def told(self) -> SetUp:
        """Return the plan as a value for the JSON answer."""
        agents, steps = tuple(one.told() for one in self.found), tuple(one.told() for one in self.steps)
        return SetUp(program=self.program, agents=agents, steps=steps, deletes=self.deletes)

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
    deletes = Deletion.expected(time.time(), [one.way.agent for one in found])
    keeps = [LogCopies.planned(one, wanted=options.keep is True) for one in deletes]
    steps = (
        *_of_agents(options, [one.way for one in found], program, ledger),
        *keeps,  # before what makes the copies
        *([_index(copies=any(step.is_open for step in keeps))] if options.index else ()),
        *([ServicePart.planned(program, Processes())] if options.service else ()),
    )
    return SetupPlan(program, found, absent, steps, deletes)


def _found(way: Registration) -> AgentHere | None:
    try:
        return AgentHere(way, Program.find(way.agent))
    except SmartForkError:  # it is not here, or nothing of ours starts it
        return AgentHere(way, "") if way.home().is_dir() else None


def _of_agents(options: SetupOptions, ways: Sequence[Registration], program: str, ledger: Ledger) -> Iterator[Step]:
    of_agents = [[*_of_agent(options, way, program, ledger)] for way in ways]
    failures = [steps[0].failure for steps in of_agents if steps[0].failure]
    if len(failures) == len(ways):
        raise failures[0]
    for steps in of_agents:
        yield from steps


def _of_agent(options: SetupOptions, way: Registration, program: str, ledger: Ledger) -> Iterator[Step]:
    """Yield the steps that set up the agent of `way`, beginning with smart-fork's MCP server."""
    agent, folder = way.agent, way.skills()
    own = Path(program).parent == Path(sys.executable).parent  # else that of another installation is meant
    words = Processes.python("smart_fork", "mcp") if own else [program, "mcp"]
    yield _part("server", way, way.path(), lambda: mcp_entry.planned(way, words))
    if options.skill and folder:
        yield _part("skill", way, folder, lambda: skill_file.planned(way, folder, ledger))
    if options.hooks and AGENTS[agent].hooks:
        settings = agent_settings.settings_file(agent)
        yield _part("hooks", way, settings, lambda: agent_settings.planned(agent))
    if options.recall:
        yield _part("recall", way, way.path(), lambda: Recall.planned(way))
    if options.reading:
        yield _part("reading", way, way.path(), lambda: tool_permission.planned(way))


def _part(what: str, way: Registration, where: Path, planned: Callable[[], Step]) -> Step:
    """Return the step that `planned` makes for `what`, a part of the setup such as "hooks".

    If it fails, return a step that raises the error later, so that the other steps can be done.
    """
    try:
        return planned()
    except SmartForkError as error:
        why = f"cannot be done: {error.message}"
        return Step(what, PARTS[what].NAME, str(where), "new", way.agent, why, failure=error)


def _index(*, copies: bool) -> Step:
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


#: How long a server may take for all of it. The agents wait for 30 s, and for an answer far longer.
SECONDS = 120.0
_END_SECONDS = 5.0
_TOOL = "find_sessions"
_RESULTS = 5
#: A title of fewer words, as "ship it", may stand above anything.
_MIN_TITLE_WORDS = 3


class _BrokenError(Exception):
    """An error: an MCP server that setup tries did not answer, or its answer is no valid MCP."""


def try_server(way: Registration, *, ask: bool = True) -> Trial:
    """Try the MCP server registered with the agent of `way`: start it, and list its tools.

    With `ask`, also have it search for the newest session by its title.
    """
    try:
        entry = way.value(ForeignFile(way.path()).read()) or {}
    except (SmartForkError, ValueError) as error:
        return Trial(way.agent, ok=False, error=str(error))
    if not way.argv(entry):
        return Trial(way.agent, ok=False, error="no smart-fork server is registered")
    newest = _newest(way.agent) if ask else None
    folder = Path(newest.project_path) if newest else Path.home()
    try:
        return _tried(way, entry, newest, folder if folder.is_dir() else Path.home())
    except (SmartForkError, _BrokenError, OSError) as error:
        return Trial(way.agent, ok=False, error=str(error))


def _tried(way: Registration, entry: Mapping[str, Any], newest: RecentSession | None, folder: Path) -> Trial:
    env = {**way.environment(os.environ, entry), Setting.INDEXING: "false"}  # it answers from what is there by now
    with _server(list(way.argv(entry)), folder, env) as server:
        started = time.perf_counter()
        name, protocol = way.client
        client = {"name": name, "version": own_version()}
        server.ask("initialize", {"protocolVersion": protocol, "capabilities": {}, "clientInfo": client})
        server.say({"method": "notifications/initialized"})
        tools = len(server.ask("tools/list", {})["tools"])
        listed = time.perf_counter()
        trial = Trial(way.agent, ok=tools > 0, tools=tools, tools_seconds=round(listed - started, 2))
        if newest is None:
            return trial
        named = {"agent_type": newest.agent_type, "project_path": newest.project_path, "limit": _RESULTS}
        question = {"intent": newest.title, **named}
        answer = server.ask("tools/call", {"name": _TOOL, "arguments": question})
        seconds = round(time.perf_counter() - listed, 2)
    return _judged(trial, newest, answer, seconds)


def _judged(trial: Trial, newest: RecentSession, answer: Mapping[str, Any], seconds: float) -> Trial:
    results = (answer.get("structuredContent") or {}).get("results", [])
    if answer.get("isError"):
        said = " ".join(str(part.get("text", "")) for part in answer.get("content", []))
        return Trial(trial.agent, ok=False, error=f"it answered: {said}")
    if not results:
        return replace(trial, ok=False, error="it found nothing for the newest session's own title")
    best = next((one for one in results if one.get("session_id") == newest.session_id), results[0])
    found, score = str(best.get("title", "")), float(best.get("score", 0.0))
    return replace(trial, asked=newest.title, found=found, score=score, answer_seconds=seconds)


def _newest(agent: str) -> RecentSession | None:
    """Return the newest session with a title long enough to search for, if possible of `agent`; else `None`."""
    for whose in (agent, "all") if agent in READERS.names else ("all",):
        found = [one for one in list_recent(whose, None, _RESULTS, everywhere=True).sessions if one.project_path]
        if titled := [one for words in (_MIN_TITLE_WORDS, 1) for one in found if len(one.title.split()) >= words]:
            return titled[0]
    return None


class _TriedServer:
    """An MCP server that setup has started to try it. This process exchanges lines of JSON with it."""

    def __init__(self, process: Any) -> None:
        self._process, self._number = process, 0

    def say(self, message: Mapping[str, Any]) -> None:
        """Send a JSON-RPC message to the server."""
        try:
            self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise _BrokenError("it ended at its start") from error

    def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request to the server, and return its result. Ignore the server's other messages."""
        self._number += 1
        self.say({"id": self._number, "method": method, "params": params})
        for line in self._process.stdout:
            try:
                said = json.loads(line)
            except ValueError as error:
                raise _BrokenError("its answer is not MCP") from error
            if isinstance(said, dict) and said.get("id") == self._number and "method" not in said:
                if "error" in said:
                    raise _BrokenError(f"{method} failed: {said['error'].get('message', '')}")
                result: dict[str, Any] = said.get("result", {})
                return result
        raise _BrokenError("it ended, or did not answer in time")


@contextmanager
def _server(argv: list[str], folder: Path, env: Mapping[str, str]) -> Iterator[_TriedServer]:
    process: Any = Processes().converse(argv, cwd=folder, env=env)
    late = threading.Timer(SECONDS, process.kill)
    late.start()
    try:
        yield _TriedServer(process)
    finally:
        with suppress(OSError):
            process.stdin.close()  # a server ends with its input, and takes what it has started with it
        with suppress(TimeoutExpired):
            process.wait(_END_SECONDS)
        late.cancel()
        process.kill()
        process.stdout.close()
        process.wait()


class SetupPart(Protocol):
    """A part of the setup, such as the MCP server or the hooks, implemented by a module or a class.

    `undo` removes what setup installed. `difference` returns a complaint if it has changed since.
    """

    NAME: str

    def undo(self, line: LedgerLine) -> list[str]: ...
    def difference(self, line: LedgerLine) -> str: ...


PARTS: Mapping[str, SetupPart] = {
    "server": mcp_entry, "skill": skill_file, "hooks": agent_settings, "recall": Recall,
    "reading": tool_permission, "keep": LogCopies, "service": ServicePart,
}  # fmt: skip
_AGAIN = "`smart-fork setup` sets it up again; `smart-fork setup --remove` undoes the rest."


def undone(line: LedgerLine, notes: Collection[str] = (), error: str = "", hint: str | None = None) -> StepUndone:
    """Return the JSON answer about a setup step that was undone, or with an `error` was not."""
    stays = bool(error) or (bool(notes) and line.what == "skill")  # a file of ours that is still used
    return StepUndone(
        step=line.what, agent=line.agent, where=str(line.path), removed=not stays, notes=tuple(notes), error=error,
        hint=hint,
    )  # fmt: skip


def lines_of(ledger: Ledger, agents: tuple[str, ...], what: Collection[What] = ()) -> list[LedgerLine]:
    """Return the lines of the ledger (setup's list of its changes) that belong to `agents`, the newest first.

    For all agents, this includes lines without an agent, such as the service's. `what` selects parts of the setup.
    """
    everything = len(agents) == len(AGENTS.registrations())
    lines = [line for line in reversed(list(ledger)) if line.agent in agents or (everything and not line.agent)]
    return [line for line in lines if not what or line.what in what]


def undo_lines(ledger: Ledger, lines: list[LedgerLine], processes: Processes) -> list[StepUndone]:
    """Undo the changes in `lines` of the ledger (setup's list of its changes). Return an answer for each."""
    going = {line.about for line in lines}
    return [_undone(ledger, line, processes, going) for line in lines]


def _undone(ledger: Ledger, line: LedgerLine, processes: Processes, going: Collection[object]) -> StepUndone:
    try:
        if sharer := _sharer(ledger, line):
            ledger.write(sharer.model_copy(update={"folders": [*line.folders, *sharer.folders]}))
            stays = f"{line.path} stays: {AGENTS.title_of(sharer.agent)} reads it, too"
            notes = [] if sharer.about in going else [stays]
        else:
            notes = ServicePart.undo(line, processes) if line.what == "service" else PARTS[line.what].undo(line)
            remove_leftovers(line.path, line.folders)
        ledger.strike(line)
    except SmartForkError as error:
        return undone(line, error=error.message, hint=error.hint)
    return undone(line, notes)


def _sharer(ledger: Ledger, line: LedgerLine) -> LedgerLine | None:
    """Return the ledger's line (recorded change) of another agent that reads the skill file of `line`, or `None`."""
    same = (one for one in ledger if (one.what, one.path) == ("skill", line.path) and one.agent != line.agent)
    return next(same, None) if line.what == "skill" else None


def installed_by_hand(agents: tuple[str, ...]) -> Iterator[str]:
    """Yield a sentence for each MCP server or hook of `agents` that a person, not setup, installed."""
    for way in AGENTS.registrations():
        if way.agent not in agents:
            continue
        try:
            value = way.value(way.path().read_text(encoding="utf-8"))
            if value is not None and Registration.is_ours(way.argv(value)):
                yield f"{way.title} still has a manually added server smart-fork: {way.path()}"
            if agent_settings.is_installed(way.agent):
                yield f"{way.title} still has hooks: `smart-fork setup hooks --remove` removes them"
        except (OSError, UnicodeDecodeError, SmartForkError):
            continue


def checks() -> Iterator[Check]:
    """Yield the checks of the setup for ``doctor``: one for all parts that setup has installed, one for recall."""
    ledger = Ledger()
    lines = list(ledger)
    if not lines:
        step = "`smart-fork setup` connects your agents."
        yield Check("set-up", ok=False, detail="nothing was set up here", next_step=step, optional=True)
        return
    wrong = [said for line in lines if (said := _difference(line))]
    gone = [program for line in lines if (program := _missing_program(line))]
    if gone:
        detail = f"the agents start {gone[0]}, which no longer exists"
        yield Check("set-up", ok=False, detail=detail, next_step="Run `smart-fork setup`: it writes the new path.")
    elif wrong:
        yield Check("set-up", ok=False, detail="; ".join(wrong), next_step=_AGAIN, optional=True)
    else:
        yield Check("set-up", ok=True, detail=f"{len(lines)} installed parts are unchanged")
    yield from Recall.checks(ledger)


def _difference(line: LedgerLine) -> str:
    """Return a complaint if the part that setup recorded in `line` has changed since; else an empty text."""
    try:
        return PARTS[line.what].difference(line)
    except SmartForkError as error:
        return error.message


def _missing_program(line: LedgerLine) -> str:
    starts = AGENTS.registration_of(line.agent).argv(line.value or {}) if line.what == "server" else ()
    program = "".join(starts[:1])
    return program if program and not Path(program).exists() else ""
