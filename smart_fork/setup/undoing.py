"""Undoing what the ledger lists, the last first; what somebody else has changed since stays theirs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from smart_fork.agents.facets import registrations, title_of
from smart_fork.agents.registration.base import is_ours
from smart_fork.errors import SmartForkError
from smart_fork.hooks import agent_settings
from smart_fork.setup import background, entry, hook_entries, keeping, recall_step, skill_file, tool_permission
from smart_fork.setup.ledger import Ledger, LedgerLine, What
from smart_fork.setup.setup_answer import StepUndone
from smart_fork.system.processes import Processes

#: For people.
NAMES: Mapping[str, str] = {
    "server": "MCP server",
    "skill": f"skill {skill_file.SKILL}",
    "hooks": "hooks",
    "recall": recall_step.NAME,
    "reading": tool_permission.NAME,
    "keep": keeping.NAME,
    "service": "service",
}
_UNDO: Mapping[str, Callable[[LedgerLine], list[str]]] = {
    "server": entry.undo,
    "skill": skill_file.undo,
    "hooks": hook_entries.undo,
    "recall": recall_step.undo,
    "reading": tool_permission.undo,
    "keep": keeping.undo,
}


def undone(line: LedgerLine, notes: Collection[str] = (), error: str = "", hint: str | None = None) -> StepUndone:
    """A line of the ledger that was undone; with an `error` it was not, and stays in the ledger."""
    return StepUndone(
        step=line.what, agent=line.agent, where=str(line.path), removed=not error, notes=tuple(notes), error=error,
        hint=hint,
    )  # fmt: skip


def lines_of(ledger: Ledger, agents: tuple[str, ...], what: Collection[What] = ()) -> list[LedgerLine]:
    """What there is to undo for these agents, the last first; for all of them, what is the machine's as well.

    With `what` only that.
    """
    everything = len(agents) == len(registrations())
    lines = [line for line in reversed(list(ledger)) if line.agent in agents or (everything and not line.agent)]
    return [line for line in lines if not what or line.what in what]


def remove(ledger: Ledger, lines: list[LedgerLine], processes: Processes) -> list[StepUndone]:
    """Undo these lines, each on its own: one that fails does not stop the next."""
    going = {line.about for line in lines}
    return [_undone(ledger, line, processes, going) for line in lines]


def _undone(ledger: Ledger, line: LedgerLine, processes: Processes, going: Collection[object]) -> StepUndone:
    try:
        if sharer := _sharer(ledger, line):
            ledger.write(sharer.model_copy(update={"folders": [*line.folders, *sharer.folders]}))
            stays = f"{line.path} stays: {title_of(sharer.agent)} reads it, too"
            notes = [] if sharer.about in going else [stays]
        else:
            notes = background.undo(line, processes) if line.what == "service" else _UNDO[line.what](line)
        ledger.strike(line)
    except SmartForkError as error:
        return undone(line, error=error.message, hint=error.hint)
    return undone(line, notes)


def _sharer(ledger: Ledger, line: LedgerLine) -> LedgerLine | None:
    """What was set up for another agent in the same file, which is all ours: only skills are shared."""
    same = (one for one in ledger if (one.what, one.path) == ("skill", line.path) and one.agent != line.agent)
    return next(same, None) if line.what == "skill" else None


def not_ours_to_undo(agents: tuple[str, ...]) -> Iterator[str]:
    """What is here without having been set up: somebody has put it there by hand, and knows how to take it out."""
    for way in registrations():
        if way.agent not in agents:
            continue
        try:
            value = way.value(way.path().read_text(encoding="utf-8"))
            if value is not None and is_ours(way.argv(value)):
                yield f"{way.title} still has a manually added server smart-fork: {way.path()}"
            if agent_settings.is_installed(way.agent):
                yield f"{way.title} still has hooks: `smart-fork setup hooks --remove` removes them"
        except (OSError, UnicodeDecodeError, SmartForkError):
            continue
