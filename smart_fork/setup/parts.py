"""The parts of a set-up that the ledger lists: whether they are as they were left, and undoing them, the last first.

What somebody else has changed since stays theirs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from smart_fork.agents.facets import registration_of, registrations, title_of
from smart_fork.agents.registration import is_ours
from smart_fork.doctor import Check
from smart_fork.errors import SmartForkError
from smart_fork.hooks import agent_settings
from smart_fork.setup import background, entry, hook_entries, keeping, recall_step, skill_file, tool_permission
from smart_fork.setup.ledger import Ledger, LedgerLine, What
from smart_fork.setup.setup_answer import StepUndone
from smart_fork.system.processes import Processes


class Part(Protocol):
    """The module of a part. `NAME` is for people."""

    NAME: str

    def undo(self, line: LedgerLine) -> list[str]: ...
    def standing(self, line: LedgerLine) -> str: ...


PARTS: Mapping[str, Part] = {
    "server": entry,
    "skill": skill_file,
    "hooks": hook_entries,
    "recall": recall_step,
    "reading": tool_permission,
    "keep": keeping,
    "service": background,
}
_AGAIN = "`smart-fork setup` sets it up again; `smart-fork setup --remove` undoes the rest."


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
            notes = background.undo(line, processes) if line.what == "service" else PARTS[line.what].undo(line)
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


def checks() -> Iterator[Check]:
    """One check of everything that the ledger lists; none where nothing was set up.

    Raises:
        SmartForkError: the ledger cannot be read.
    """
    ledger = Ledger()
    lines = list(ledger)
    if not lines:
        step = "`smart-fork setup` connects your agents."
        yield Check("set-up", ok=False, detail="nothing was set up here", next_step=step, optional=True)
        return
    wrong = [said for line in lines if (said := _standing(line))]
    gone = [program for line in lines if (program := _missing_program(line))]
    if gone:
        detail = f"the agents start {gone[0]}, which no longer exists"
        yield Check("set-up", ok=False, detail=detail, next_step="Run `smart-fork setup`: it writes the new path.")
    elif wrong:
        yield Check("set-up", ok=False, detail="; ".join(wrong), next_step=_AGAIN, optional=True)
    else:
        yield Check("set-up", ok=True, detail=f"{len(lines)} installed parts are unchanged")
    yield from recall_step.checks(ledger)


def _standing(line: LedgerLine) -> str:
    """What is no longer as it was left; empty where all is."""
    try:
        return PARTS[line.what].standing(line)
    except SmartForkError as error:
        return error.message


def _missing_program(line: LedgerLine) -> str:
    starts = registration_of(line.agent).argv(line.value or {}) if line.what == "server" else ()
    program = "".join(starts[:1])
    return program if program and not Path(program).exists() else ""
