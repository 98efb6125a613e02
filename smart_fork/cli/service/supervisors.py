"""The service managers that can run smart-fork's service: launchd (macOS) and systemd (Linux)."""

from __future__ import annotations

import contextlib
import os
import plistlib
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from indexer.safe_files import config_home, private_dir, remove, replace_file, state_home
from smart_fork.cli.service.unit_settings import UnitSettings, UnitState, name_suffix, state_of
from smart_fork.errors import ProgramFailed, SmartForkError
from smart_fork.system.processes import Completed, Processes

LABEL = "org.smart-fork.serve"
#: Seconds between two starts. launchd restarts forever; `smart_fork.cli.service.instance` ends that.
THROTTLE = 60
STOP_SECONDS = 20


def launchd_plist(settings: UnitSettings, label: str = LABEL) -> bytes:
    """Return the property list (settings file) of a launchd job that keeps the service running."""
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
    """Return the name of a launchd job that runs this home's service under another name; else an empty text.

    `content` is the job's property list (settings file), `state` the state folder of this home.
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
#: Seconds between two looks at a job that is being stopped: `bootout` answers before the job is gone.
PAUSE = 0.25


class Launchd:
    """Installs and controls the service with launchd. `Systemd` has the same methods."""

    name = "launchd"

    def __init__(self, processes: Processes, sleep: Callable[[float], None] = time.sleep) -> None:
        self._processes = processes
        self._sleep = sleep
        self._domain = f"gui/{os.getuid()}"
        self._label = LABEL + name_suffix()

    @property
    def path(self) -> Path:
        """The path of the property list, launchd's settings file for the service."""
        return Path.home() / "Library/LaunchAgents" / f"{self._label}.plist"

    def written(self, settings: UnitSettings) -> bytes:
        """Return the content of the property list (settings file) for a service with these settings."""
        return launchd_plist(settings, self._label)

    def reach(self) -> None:
        """Check that launchd can start a program for this user.

        Raises:
            ProgramFailed: launchd has no session for this user.
        """
        if not (answer := self._launchctl("print", self._domain)).ok:
            step = "Log in at the screen and run it in Terminal: launchd does not serve ssh sessions."
            raise ProgramFailed(f"launchd has no session for this user: {answer.complaint}", step)

    def install(self, content: bytes) -> list[str]:
        """Write `content` as the property list (settings file), and restart the service. Return notes for the person.

        Jobs with other names that run the same service are stopped for good.

        Raises:
            ProgramFailed: the service could not be started.
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
        """Stop the service, and delete its property list (settings file)."""
        if self.path.exists() or self._loaded(self._label):
            self._stop(self._label)
            remove(self.path)

    def state(self) -> UnitState:
        answer = self._launchctl("print", self._target(self._label))
        if not answer.ok:
            return UnitState()
        said = dict(re.findall(r"^\s*(state|pid|last exit code) = (.+?)\s*$", answer.text, re.MULTILINE))
        pid = said.get("pid", "")
        ended = said.get("last exit code", "")
        ended = "" if ended.startswith("(") else ended  # "(never exited)"
        number = int(pid) if pid.isdecimal() else None
        return UnitState(loaded=True, running=said.get("state") == "running", pid=number, ended=ended)

    def _others(self) -> Iterator[tuple[str, Path]]:
        """Yield (name, file) of each other launchd job that runs the service for the same SMART_FORK_HOME."""
        for path in sorted(self.path.parent.glob("*.plist")):
            try:
                label = other_label(path.read_bytes(), state_home(), self._label)
            except OSError:
                continue
            if label:
                yield label, path

    def _retire(self, label: str, path: Path) -> str:
        """Stop and disable the launchd job `label`. Its file stays. Return a note for the person."""
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


UNIT = "smart-fork.service"
#: Starts what `ExecStart=` may not name itself: systemd refuses quotes and backslashes in the path of a program,
#: and by 262 at the latest what stands for other names.
_BY_NAME = ("nice", "-n", "0", "--")
_UNNAMEABLE = re.compile(r"[\"'\\$*?\[]")


# Each setting has its own rules (systemd.syntax(7), systemd.service(5)): `ExecStart=` unquotes words, then expands
# `%` and `$`; `Environment=` unquotes and expands `%`; paths are taken as they stand, but for `%`.


def systemd_unit(settings: UnitSettings) -> str:
    """Return the content of the systemd unit (settings file) for a service with these settings.

    systemd then stops restarting the service after five failures in ten minutes.
    """
    argv = [*(_BY_NAME if _UNNAMEABLE.search(settings.program) else ()), *settings.argv]
    variables = [_quoted(f"{name}={text}") for name, text in settings.environment.items()]
    template = Path(__file__).with_name(UNIT).read_text(encoding="utf-8")
    return template.format(
        command=" ".join(_quoted(word.replace("$", "$$")) for word in argv),
        # The slash keeps a last blank or backslash from being taken for the line's.
        directory=_percent(str(settings.state)),
        environment="\n".join(f"Environment={variable}" for variable in variables),
        log=_percent(str(settings.crash_log)),
    )


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{_percent(escaped)}"'


def _percent(text: str) -> str:
    return text.replace("%", "%%")


_STEM = UNIT.removesuffix(".service")
_LINGER = "It ends when you log out. `loginctl enable-linger` keeps it running, and starts it with the machine."


class Systemd:
    """Installs and controls smart-fork's service with systemd's user manager. `Launchd` has the same methods."""

    name = "systemd"

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._unit = f"{_STEM}{name_suffix()}.service"

    @property
    def path(self) -> Path:
        return config_home() / "systemd/user" / self._unit

    def written(self, settings: UnitSettings) -> bytes:
        return systemd_unit(settings).encode()

    def reach(self) -> None:
        answer = self._systemctl("show", "--property=Version")
        if not answer.ok:
            step = (
                "Most containers have none, nor does a shell after `su` or `sudo`. Log in as the user, or let your "
                "login start `smart-fork serve`."
            )
            raise ProgramFailed(f"systemd's user manager does not answer: {answer.complaint}", step)

    def install(self, content: bytes) -> list[str]:
        private_dir(self.path.parent)
        replace_file(self.path, [content])
        self._must("daemon-reload")
        self._systemctl("reset-failed", self._unit)  # one that gave up would not be started again
        self._must("enable", self._unit)
        self._must("restart", self._unit)
        return [] if self._lingers() else [_LINGER]

    def uninstall(self) -> None:
        if not self.path.exists():
            with contextlib.suppress(SmartForkError):
                self._systemctl("stop", self._unit)  # where its file was removed by hand
            return
        self.reach()
        self._must("disable", "--now", self._unit)
        remove(self.path)
        self._must("daemon-reload")
        self._systemctl("reset-failed", self._unit)

    def state(self) -> UnitState:
        answer = self._systemctl("show", self._unit, "--property=LoadState,ActiveState,MainPID,Result,ExecMainStatus")
        said = dict(line.partition("=")[::2] for line in answer.text.splitlines())
        pid, result = said.get("MainPID", ""), said.get("Result", "")
        status = said.get("ExecMainStatus", "")
        loaded, running = said.get("LoadState") == "loaded", said.get("ActiveState") == "active"
        number = int(pid) if pid.isdecimal() and int(pid) else None
        ended = "" if result in ("", "success") else f"{result}, status {status}"
        return UnitState(loaded=loaded, running=running, pid=number, ended=ended)

    def _lingers(self) -> bool:
        """Return True if systemd keeps the user's services running after logout, or if that is unknown."""
        try:
            words = ["loginctl", "show-user", str(os.getuid()), "--property=Linger"]
            return self._processes.run(words, timeout=SECONDS).text != "Linger=no"
        except SmartForkError:
            return True

    def _must(self, *words: str) -> None:
        answer = self._systemctl(*words)
        if not answer.ok:
            step = f"`systemctl --user status {self._unit}` and `journalctl --user -u {self._unit}` say more."
            raise ProgramFailed(f"systemctl --user {' '.join(words)} failed: {answer.complaint}", step)

    def _systemctl(self, *words: str) -> Completed:
        env = dict(os.environ)
        runtime = f"/run/user/{os.getuid()}"
        if not env.get("XDG_RUNTIME_DIR") and Path(runtime).is_dir():  # not set in a cron job or after `su`
            env["XDG_RUNTIME_DIR"] = runtime
        return self._processes.run(["systemctl", "--user", *words], env=env, timeout=SECONDS)
