"""The systemd user unit.

Each setting has its own rules (systemd.syntax(7), systemd.service(5)): `ExecStart=` unquotes words, then expands `%`
and `$`; `Environment=` unquotes and expands `%`; paths are taken as they stand, but for `%`.
"""

from __future__ import annotations

import re

from smart_fork.service.units.unit_settings import Settings

UNIT = "smart-fork.service"
#: Starts what `ExecStart=` may not name itself: systemd refuses quotes and backslashes in the path of a program.
_BY_NAME = ("nice", "-n", "0", "--")
_UNNAMEABLE = re.compile(r"[\"'\\$]")

_TEXT = """\
[Unit]
Description=smart-fork: a fresh index of agent sessions, and forks of them
StartLimitIntervalSec=600
StartLimitBurst=5

[Service]
Type=exec
ExecStart={command}
WorkingDirectory={directory}/
{environment}
StandardOutput=append:{log}
StandardError=append:{log}
UMask=0077
Restart=on-failure
RestartSec=15
TimeoutStopSec=20
# Forks that the service has started outlive it, and do not take it with them.
KillMode=process
OOMPolicy=continue

[Install]
WantedBy=default.target
"""


def systemd_unit(settings: Settings) -> str:
    """Return the unit. It gives up after five failures in ten minutes."""
    argv = [*(_BY_NAME if _UNNAMEABLE.search(settings.program) else ()), *settings.argv]
    variables = [_quoted(f"{name}={text}") for name, text in settings.environment.items()]
    return _TEXT.format(
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
