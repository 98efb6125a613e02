"""The launchd agent's property list."""

from __future__ import annotations

import plistlib

from smart_fork.service.units.unit_settings import Settings

LABEL = "org.smart-fork.serve"
#: Seconds between two starts. launchd goes on for ever; `smart_fork.service.crashes` ends it.
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
