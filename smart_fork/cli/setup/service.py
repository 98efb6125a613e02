"""The part of the setup that installs the service, a process that keeps the index fresh."""

from __future__ import annotations

import os
from functools import partial

from smart_fork.cli.service import installation
from smart_fork.cli.setup.ledger import Ledger, LedgerLine
from smart_fork.cli.setup.step import Step
from smart_fork.errors import SmartForkError
from smart_fork.system.processes import Processes

#: The consequence if no service is installed: each search updates the index first.
_OTHERWISE = "searches update the index"


NAME = "service"


def planned(program: str, processes: Processes) -> Step:
    """Return the step that installs the service with `program`, the path of the ``smart-fork`` command.

    If this system cannot run it, the step has the state "left": it is not done.
    """
    kind = installation.native_kind()
    step = partial(Step, "service", NAME)
    if kind is None:
        return step("this system", "left", why=f"neither launchd nor systemd is here; {_OTHERWISE}")
    keeper = installation.supervisor(kind, processes)
    there = installation.installed(keeper)
    if there is not None and there.program == program:
        return step(str(keeper.path), "there")
    try:
        if os.geteuid() == 0 and os.environ.get("SUDO_USER"):
            return step(kind, "left", why="it runs for a user, not for root")
        keeper.reach()
    except SmartForkError:
        return step(kind, "left", why=f"{kind} does not answer here; {_OTHERWISE}")
    return step(str(keeper.path), "changed" if keeper.path.exists() else "new", act=partial(_written, keeper))


def _written(keeper: installation.Supervisor, ledger: Ledger) -> list[str]:
    if not keeper.path.exists() and ledger.of("service", "", keeper.path) is None:
        ledger.begin(LedgerLine(what="service", path=keeper.path))
    return installation.install(keeper, installation.settings_for(keeper))


def undo(line: LedgerLine, processes: Processes | None = None) -> list[str]:
    """Stop and uninstall the service that setup recorded in `line`."""
    keeper = installation.supervisor(processes=processes)
    if keeper.path == line.path:
        keeper.uninstall()
    return []


def difference(line: LedgerLine) -> str:
    """Return a complaint if the service that setup installed was uninstalled since; else an empty text."""
    return "" if line.path.exists() else "the service was removed"
