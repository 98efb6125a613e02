"""The service's restart after an upgrade: it notices a newly installed version, and restarts when it is idle."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import NoReturn

import psutil

from indexer.environment import Setting
from smart_fork.system.version import Release

#: Seconds between two looks at the installed version, and until the next look while a restart is near.
LOOK_SECONDS, SOON_SECONDS = 60.0, 5.0

#: The package of the commands, which the service does not import, and in it the package of the service.
_COMMANDS, _SERVICE = "smart_fork.cli", "smart_fork.cli.service"

log = logging.getLogger(__name__)


class Upgrade:
    """Watches the installed version of smart-fork, and restarts the service after an upgrade.

    `may` gets the seconds that the restart has waited, and returns True if it may happen. Then `restart` is called,
    once.
    """

    def __init__(
        self,
        may: Callable[[float], bool],
        restart: Callable[[], None],
        look: Callable[[], Release | None] = Release.installed,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._may, self._restart, self._look, self._clock = may, restart, look, clock
        self._running = self._seen = look()
        self._since: float | None = None
        self._done = False

    @property
    def pending(self) -> dict[str, str] | None:
        """The running version (``from``) and the installed one (``to``); `None` if no restart is pending."""
        if self._since is None or self._running is None or self._seen is None:
            return None
        return {"from": self._running.version, "to": self._seen.version}

    def step(self) -> float:
        """Check the installed version, and restart the service if it may. Return the seconds until the next check."""
        now = self._look()
        if now is None or self._running is None or now == self._running or self._done:
            self._since = None
            return LOOK_SECONDS
        if now != self._seen:  # it may still be being written: it counts when it is the same at two looks
            self._seen, self._since = now, None
            return SOON_SECONDS
        if self._since is None:
            self._since = self._clock()
            log.info("version %s is installed: the service restarts when it is idle", now.version)
        if self._may(self._clock() - self._since):
            self._done = True
            self._restart()
        return SOON_SECONDS

    def run(self, stop: threading.Event) -> None:
        while not stop.wait(self.step()):
            pass


def adopt() -> None:
    """Wait for each child process in a new thread, because a restart ends the threads that waited for them."""
    for child in psutil.Process().children():
        threading.Thread(target=child.wait, name=f"wait-{child.pid}", daemon=True).start()


def load_service() -> None:
    """Import all modules that the service may need later, so that none is imported after an upgrade."""
    load_all(but=(_COMMANDS,))
    _load(import_module(_SERVICE), ())


def load_all(*, but: Collection[str]) -> None:
    """Import all modules of smart-fork, except the packages and modules in `but`.

    A module that is first imported after an upgrade might not fit the old ones.
    """
    for package in ("indexer", "smart_fork"):
        _load(import_module(package), but)


def _load(package: ModuleType, but: Collection[str]) -> None:
    for _, name, is_package in iter_modules(package.__path__, f"{package.__name__}."):
        if name not in but and not name.endswith(".__main__"):
            with suppress(ImportError):  # a library that is not on every system
                module = import_module(name)
                if is_package:
                    _load(module, but)


def become(port: int) -> NoReturn:
    """Replace this process by the newly installed version of the service, at `port`.

    Raises:
        OSError: the Python interpreter of this process is gone.
    """
    env = os.environ | {Setting.PORT: str(port)}
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], env)  # noqa: S606 - no shell is what we want
