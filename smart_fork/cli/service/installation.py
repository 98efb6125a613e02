"""Installs the service with a service manager (launchd or systemd), and returns the state of the installation."""

from __future__ import annotations

import logging
import os
import re
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Literal

from indexer.environment import Setting
from indexer.json_values import Value, record
from indexer.safe_files import private_dir
from smart_fork.cli.service.client import find_service
from smart_fork.cli.service.instance import LOOPBACKS, PORT, forget_starts, keep_port, stop
from smart_fork.cli.service.supervisors import Launchd, Systemd
from smart_fork.cli.service.unit_settings import UnitSettings, UnitState, keep, kept, new_settings
from smart_fork.errors import SmartForkError, Usage
from smart_fork.system.processes import Processes

Kind = Literal["launchd", "systemd"]
Supervisor = Launchd | Systemd

_TRIES = 20
#: Matches the port in the service file of another home, a launchd property list or a systemd unit.
_PORT = re.compile(rb"--port\W+(?:string\W+){0,2}(\d{1,5})\b")

log = logging.getLogger(__name__)


def native_kind() -> Kind | None:
    """Return this system's service manager: launchd on macOS, systemd on Linux, else `None`."""
    return "launchd" if sys.platform == "darwin" else "systemd" if sys.platform.startswith("linux") else None


def supervisor(kind: Kind | None = None, processes: Processes | None = None) -> Supervisor:
    """Return an object for the service manager `kind`, by default this system's.

    Raises:
        SmartForkError: this system has neither launchd nor systemd.
    """
    kind, processes = kind or native_kind(), processes or Processes()
    if kind is None:
        step = "Let your login start `smart-fork serve`."
        raise SmartForkError(f"Neither launchd nor systemd is on {sys.platform}: nothing was installed", step)
    return Launchd(processes) if kind == "launchd" else Systemd(processes)


def installed(keeper: Supervisor) -> UnitSettings | None:
    """Return the settings of this home's service if `keeper` has installed it; `None` if not, or if damaged."""
    if not keeper.path.exists():
        return None
    try:
        return kept()
    except (OSError, ValueError, Usage) as error:
        log.error("The settings of the service cannot be read, so that nothing of them is kept: %s", error)  # noqa: TRY400
        return None


def settings_for(
    keeper: Supervisor, *, port: int | None = None, every: str | None = None, env: Mapping[str, str] | None = None
) -> UnitSettings:
    """Return the settings for installing the service with `keeper`. Arguments override those of an installed one."""
    said = os.environ if env is None else env
    return new_settings(installed(keeper), said, port=port, every=every, otherwise=_free_port(keeper))


def _free_port(keeper: Supervisor) -> int:
    """Return the service's default TCP port, or any free port if another home's service or a program has it."""
    units = [path for path in keeper.path.parent.glob("*smart-fork*") if path != keeper.path and path.is_file()]
    taken = {int(port) for path in units for port in _PORT.findall(path.read_bytes())}
    for wanted in (PORT, *(0 for _ in range(_TRIES))):
        with socket.socket() as one, suppress(OSError):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind((LOOPBACKS[0], wanted))
            if (port := int(one.getsockname()[1])) not in taken:
                return port
    return PORT


def install(keeper: Supervisor, settings: UnitSettings) -> list[str]:
    """Write the file for the service manager `keeper`, and have it start the service. Return notes for the person.

    Raises:
        SmartForkError: the service cannot be installed here, or does not start.
    """
    if keeper.name != native_kind():
        step = (
            "`smart-fork service install` uses the one on this machine; "
            "`smart-fork service print --kind …` shows the other."
        )
        raise SmartForkError(f"{keeper.name} is not on {sys.platform}: nothing was installed", step)
    if os.geteuid() == 0 and os.environ.get("SUDO_USER"):
        raise SmartForkError("The service runs for a user, not for root", "Run this without sudo.")
    content = keeper.written(settings)
    keeper.reach()
    private_dir(settings.crash_log.parent)
    keep_port(settings.port, settings.state)
    forget_starts(settings.state)  # one that gave up is to start again
    stop()  # where one runs that was started by hand, the new one would end immediately
    notes = keeper.install(content)
    keep(settings)
    return notes


@record
class ServiceInstallation(Value):
    """The answer of ``service status``: the settings of the installed service, and whether it runs."""

    kind: str
    unit: str
    installed: bool
    loaded: bool
    running: bool
    pid: int | None
    ended: str
    program: str | None
    program_found: bool
    port: int | None
    every: str | None
    logs: str | None
    restart: Mapping[str, str] | None


def look(keeper: Supervisor) -> ServiceInstallation:
    """Return the settings of the service that `keeper` manages, and whether it runs."""
    there, settings = keeper.path.exists(), installed(keeper)
    state = keeper.state() if there else UnitState()
    service = find_service() if state.running else None
    return ServiceInstallation(
        kind=keeper.name, unit=str(keeper.path), installed=there, **asdict(state),
        program=settings.program if settings else None, port=settings.port if settings else None,
        program_found=settings is not None and Path(settings.program).exists(),
        every=settings.environment.get(Setting.INDEX_CRON) if settings else None,
        logs=str(settings.crash_log.parent) if settings else None,
        restart=service.status.restart if service else None,
    )  # fmt: skip
