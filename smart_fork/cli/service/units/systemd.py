"""The service as a systemd user unit."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from indexer.safe_files import config_home, private_dir, remove, replace_file
from smart_fork.cli.service.units.unit_settings import Settings, State, mark
from smart_fork.errors import ProgramFailed, SmartForkError
from smart_fork.system.processes import Completed, Processes

UNIT = "smart-fork.service"
#: Starts what `ExecStart=` may not name itself: systemd refuses quotes and backslashes in the path of a program,
#: and by 262 at the latest what stands for other names.
_BY_NAME = ("nice", "-n", "0", "--")
_UNNAMEABLE = re.compile(r"[\"'\\$*?\[]")


# Each setting has its own rules (systemd.syntax(7), systemd.service(5)): `ExecStart=` unquotes words, then expands
# `%` and `$`; `Environment=` unquotes and expands `%`; paths are taken as they stand, but for `%`.


def systemd_unit(settings: Settings) -> str:
    """Return the unit. It gives up after five failures in ten minutes."""
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


SECONDS = 60.0
_STEM = UNIT.removesuffix(".service")
_LINGER = "It ends when you log out. `loginctl enable-linger` keeps it running, and starts it with the machine."


class Systemd:
    """systemd's manager of the user's services. It and `Launchd` have the same methods."""

    name = "systemd"

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._unit = f"{_STEM}{mark()}.service"

    @property
    def path(self) -> Path:
        return config_home() / "systemd/user" / self._unit

    def written(self, settings: Settings) -> bytes:
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

    def state(self) -> State:
        answer = self._systemctl("show", self._unit, "--property=LoadState,ActiveState,MainPID,Result,ExecMainStatus")
        said = dict(line.partition("=")[::2] for line in answer.text.splitlines())
        pid, result = said.get("MainPID", ""), said.get("Result", "")
        status = said.get("ExecMainStatus", "")
        loaded, running = said.get("LoadState") == "loaded", said.get("ActiveState") == "active"
        number = int(pid) if pid.isdecimal() and int(pid) else None
        ended = "" if result in ("", "success") else f"{result}, status {status}"
        return State(loaded=loaded, running=running, pid=number, ended=ended)

    def _lingers(self) -> bool:
        """Return True if the user's services outlive the last login session, or if that is unknown."""
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
