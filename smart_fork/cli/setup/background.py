"""The service that keeps the index fresh, as a step."""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path

from indexer.settings import Setting
from smart_fork.cli.preload.client import folder
from smart_fork.cli.service.lock import stop
from smart_fork.cli.service.units import installation
from smart_fork.cli.setup.ledger import Ledger, LedgerLine, Step, take_away
from smart_fork.errors import SmartForkError
from smart_fork.system.processes import Processes

NAME = "service"
#: Words of a process that completes the index in the background.
_INDEXING = frozenset({"index", "run", "--if-idle"})
#: Variables that say which home a process is of.
_HOMES = (Setting.HOME, "HOME")
#: Without a service a question brings the index up to date first.
_OTHERWISE = "searches update the index"


def planned(program: str, processes: Processes) -> Step:
    """The step that has the system run the service; left out where the system cannot."""
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
    """Stop and remove it.

    Raises:
        SmartForkError: the system does not let it be removed.
    """
    keeper = installation.supervisor(processes=processes)
    if keeper.path == line.path:
        keeper.uninstall()
    take_away(line.path, line.folders)
    return []


def end_running(processes: Processes) -> list[str]:
    """End what runs for this home and no agent has started; return what that was. A preloader without socket ends.

    Raises:
        SmartForkError: the service does not end.
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


def standing(line: LedgerLine) -> str:
    """Describe the differences from what setup left; empty if none."""
    return "" if line.path.exists() else "the service was removed"
