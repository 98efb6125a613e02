"""The service as a launchd agent of the person who is logged in."""

from __future__ import annotations

import os
import plistlib
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from indexer.safe_files import private_dir, remove, replace_file, state_home
from smart_fork.cli.service.units.unit_settings import Settings, State, mark, state_of
from smart_fork.errors import ProgramFailed
from smart_fork.system.processes import Completed, Processes

LABEL = "org.smart-fork.serve"
#: Seconds between two starts. launchd goes on for ever; `smart_fork.cli.service.crashes` ends it.
THROTTLE = 60
STOP_SECONDS = 20


def launchd_plist(settings: Settings, label: str = LABEL) -> bytes:
    """The property list that keeps the service running."""
    log = str(settings.crash_log)
    return plistlib.dumps(
        {
            "Label": label,
            "ProgramArguments": settings.argv,
            "WorkingDirectory": str(settings.state),
            "EnvironmentVariables": dict(settings.environment),
            "StandardOutPath": log,
            "StandardErrorPath": log,
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "ThrottleInterval": THROTTLE,
            "ExitTimeOut": STOP_SECONDS,
            "Umask": 0o077,
            # No limits, as an app has none: forks have the same. Indexing steps back by itself.
            "ProcessType": "Interactive",
            # Forks that the service has started outlive it.
            "AbandonProcessGroup": True,
        },
        sort_keys=False,
    )


def other_label(content: bytes, state: Path, label: str = LABEL) -> str:
    """Return the label of an agent that runs `smart-fork serve` in `state` under another name than `label`.

    Return an empty text for all other agents.
    """
    try:
        given: Any = plistlib.loads(content)
    except Exception:  # noqa: BLE001 - plistlib lets through whatever the XML parser and its own converters raise
        return ""
    job = given if isinstance(given, dict) else {}
    name, argv, environment = job.get("Label"), job.get("ProgramArguments"), job.get("EnvironmentVariables") or {}
    if not isinstance(name, str) or not isinstance(argv, list) or not isinstance(environment, dict):
        return ""
    if not all(isinstance(text, str) for text in (*argv, *environment, *environment.values())):
        return ""
    serves = "serve" in argv and any(word.rpartition("/")[2] == "smart-fork" for word in argv)
    try:
        ours = serves and os.path.realpath(state_of(environment)) == os.path.realpath(state)
    except ValueError:  # a NUL
        return ""
    return name if ours and name != label else ""


SECONDS = 60.0
#: Between two looks at a job that is being stopped: `bootout` answers before it is gone.
PAUSE = 0.25


class Launchd:
    """launchd. It and `Systemd` have the same methods."""

    name = "launchd"

    def __init__(self, processes: Processes, sleep: Callable[[float], None] = time.sleep) -> None:
        self._processes = processes
        self._sleep = sleep
        self._domain = f"gui/{os.getuid()}"
        self._label = LABEL + mark()

    @property
    def path(self) -> Path:
        """The file that it reads."""
        return Path.home() / "Library/LaunchAgents" / f"{self._label}.plist"

    def written(self, settings: Settings) -> bytes:
        """Return the content of that file."""
        return launchd_plist(settings, self._label)

    def reach(self) -> None:
        """Check that it can start something here.

        Raises:
            ProgramFailed: it does not answer.
        """
        if not (answer := self._launchctl("print", self._domain)).ok:
            step = "Log in at the screen and run it in Terminal: launchd does not serve ssh sessions."
            raise ProgramFailed(f"launchd has no session for this user: {answer.complaint}", step)

    def install(self, content: bytes) -> list[str]:
        """Write the file and start the service, instead of a running one. Return notes for the user.

        Raises:
            ProgramFailed: it could not be started.
        """
        notes = [self._retire(label, path) for label, path in self._others()]
        self._stop(self._label)
        private_dir(self.path.parent)
        replace_file(self.path, [content])
        # An agent that was disabled once would be refused by bootstrap.
        self._launchctl("enable", self._target(self._label))
        if not (answer := self._launchctl("bootstrap", self._domain, str(self.path))).ok:
            step = "Console.app shows launchd's messages; `smart-fork service uninstall` undoes the installation."
            raise ProgramFailed(f"launchd did not start the service: {answer.complaint}", step)
        return notes

    def uninstall(self) -> None:
        """Stop the service and remove the file. Nothing installed is no error.

        Raises:
            ProgramFailed: it could not be stopped; the file is still there.
        """
        if self.path.exists() or self._loaded(self._label):
            self._stop(self._label)
            remove(self.path)

    def state(self) -> State:
        """Return the state of the service now."""
        answer = self._launchctl("print", self._target(self._label))
        if not answer.ok:
            return State()
        said = dict(re.findall(r"^\s*(state|pid|last exit code) = (.+?)\s*$", answer.text, re.MULTILINE))
        pid = said.get("pid", "")
        ended = said.get("last exit code", "")
        ended = "" if ended.startswith("(") else ended  # "(never exited)"
        number = int(pid) if pid.isdecimal() else None
        return State(loaded=True, running=said.get("state") == "running", pid=number, ended=ended)

    def _others(self) -> Iterator[tuple[str, Path]]:
        """Agents under another label that run this home's service too: they would fight for its port."""
        for path in sorted(self.path.parent.glob("*.plist")):
            try:
                label = other_label(path.read_bytes(), state_home(), self._label)
            except OSError:
                continue
            if label:
                yield label, path

    def _retire(self, label: str, path: Path) -> str:
        """Stop an agent for good, and leave its file to whoever wrote it."""
        self._stop(label)
        self._launchctl("disable", self._target(label))
        return f"{label} also ran the service. It was stopped and disabled. Its file stays: {path}"

    def _stop(self, label: str) -> None:
        if not self._loaded(label):
            return
        answer = self._launchctl("bootout", self._target(label))
        for _ in range(int((STOP_SECONDS + 5) / PAUSE)):
            if not self._loaded(label):
                return
            self._sleep(PAUSE)
        step = f"`launchctl bootout {self._target(label)}` stops it by hand."
        raise ProgramFailed(f"The running service did not stop. {answer.complaint}".strip(), step)

    def _loaded(self, label: str) -> bool:
        return self._launchctl("print", self._target(label)).ok

    def _target(self, label: str) -> str:
        return f"{self._domain}/{label}"

    def _launchctl(self, *words: str) -> Completed:
        return self._processes.run(["launchctl", *words], timeout=SECONDS)
