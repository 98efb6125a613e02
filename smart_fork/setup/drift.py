"""Whether what was set up is still as it was left: for ``doctor``, which reads the ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from smart_fork.agents.facets import registration_of
from smart_fork.doctor import Check
from smart_fork.errors import SmartForkError
from smart_fork.setup import background, entry, hook_entries, keeping, recall_step, skill_file, tool_permission
from smart_fork.setup.ledger import Ledger, LedgerLine, What

_AGAIN = "`smart-fork setup` sets it up again; `smart-fork setup --remove` undoes the rest."

_STANDING: Mapping[What, Callable[[LedgerLine], str]] = {
    "server": entry.standing,
    "skill": skill_file.standing,
    "hooks": hook_entries.standing,
    "recall": recall_step.standing,
    "reading": tool_permission.standing,
    "keep": keeping.standing,
    "service": background.standing,
}


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
        return _STANDING[line.what](line)
    except SmartForkError as error:
        return error.message


def _missing_program(line: LedgerLine) -> str:
    starts = registration_of(line.agent).argv(line.value or {}) if line.what == "server" else ()
    program = "".join(starts[:1])
    return program if program and not Path(program).exists() else ""
