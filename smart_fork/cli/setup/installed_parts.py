"""The parts of smart-fork that setup has installed: their checks for ``doctor``, and their removal."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from indexer.environment import Setting
from smart_fork.agents import AGENTS
from smart_fork.agents.mcp_registration import Registration
from smart_fork.cli.preload.client import folder
from smart_fork.cli.service.instance import stop
from smart_fork.cli.setup import agent_hooks, log_copies, mcp_entry, recall, service, skill_file, tool_permission
from smart_fork.cli.setup.foreign_file import remove_leftovers
from smart_fork.cli.setup.ledger import Ledger, LedgerLine, What
from smart_fork.cli.setup.setup_output import StepUndone
from smart_fork.doctor import Check
from smart_fork.errors import SmartForkError
from smart_fork.system.processes import Processes


class SetupPart(Protocol):
    """A part of the setup, such as the MCP server or the hooks. Each is a module.

    `undo` removes what setup installed. `difference` returns a complaint if it has changed since.
    """

    NAME: str

    def undo(self, line: LedgerLine) -> list[str]: ...
    def difference(self, line: LedgerLine) -> str: ...


PARTS: Mapping[str, SetupPart] = {
    "server": mcp_entry, "skill": skill_file, "hooks": agent_hooks, "recall": recall,
    "reading": tool_permission, "keep": log_copies, "service": service,
}  # fmt: skip
_AGAIN = "`smart-fork setup` sets it up again; `smart-fork setup --remove` undoes the rest."


def undone(line: LedgerLine, notes: Collection[str] = (), error: str = "", hint: str | None = None) -> StepUndone:
    """Return the JSON answer about the step in `line` that was undone, or with an `error` could not be undone."""
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
            notes = service.undo(line, processes) if line.what == "service" else PARTS[line.what].undo(line)
            remove_leftovers(line.path, line.folders)
        ledger.strike(line)
    except SmartForkError as error:
        return undone(line, error=error.message, hint=error.hint)
    return undone(line, notes)


def _sharer(ledger: Ledger, line: LedgerLine) -> LedgerLine | None:
    """Return the ledger's line of another agent for the same skill file as `line`, or `None`. Such a file must stay."""
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
            if agent_hooks.is_installed(way.agent):
                yield f"{way.title} still has hooks: `smart-fork setup hooks --remove` removes them"
        except (OSError, UnicodeDecodeError, SmartForkError):
            continue


def checks() -> Iterator[Check]:
    """Yield the checks of the setup for ``doctor``: one for all parts that setup has installed, one for the hints."""
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
    yield from recall.checks(ledger)


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


#: Words in the command line of a process that completes the index in the background.
_INDEXING = frozenset({"index", "run", "--if-idle"})
#: Environment variables that say to which home a process belongs.
_HOMES = (Setting.HOME, "HOME")


def end_running(processes: Processes) -> list[str]:
    """End this home's background processes: the service, index runs and preloaders. Return their names.

    Processes that an agent started, such as MCP servers, go on. A preloader (which runs commands faster) ends when its
    socket is deleted.
    """
    ended = ["the service"] if stop() else []
    here = [os.environ.get(one) for one in _HOMES]
    for pid in [pid for pid, one in processes.running().items() if _INDEXING.issubset(one.words)]:
        if here == list(map((processes.environment(pid) or {}).get, _HOMES)):
            processes.end(pid, force=False)
            ended.append("indexing")
    if Path(preloaders := folder()).exists():
        shutil.rmtree(preloaders, ignore_errors=True)
        ended.append("the preloader")
    return ended
