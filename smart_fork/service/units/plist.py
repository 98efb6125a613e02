"""The launchd agent's property list, and other agents that run the service too."""

from __future__ import annotations

import os
import plistlib
from pathlib import Path
from typing import Any

from indexer.shapes import dataclass
from smart_fork.service.units.unit_settings import Settings, state_of

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


def other_label(content: bytes, state: Path, label: str = LABEL) -> str:
    """Return the label of an agent that runs `smart-fork serve` in `state` under another name than `label`.

    Return an empty text for all other agents.
    """
    try:
        job = _job(content)
        serves = "serve" in job.argv and any(word.rpartition("/")[2] == "smart-fork" for word in job.argv)
        ours = serves and os.path.realpath(state_of(job.environment)) == os.path.realpath(state)
    except ValueError:
        return ""
    return job.label if ours and job.label != label else ""


@dataclass(frozen=True, slots=True)
class _Job:
    label: str
    argv: list[str]
    environment: dict[str, str]


def _job(content: bytes) -> _Job:
    try:
        given: Any = plistlib.loads(content)
    except Exception as error:  # plistlib lets through whatever the XML parser and its own converters raise
        raise ValueError(f"not a property list: {error}") from error
    job = given if isinstance(given, dict) else {}
    label, argv, environment = job.get("Label"), job.get("ProgramArguments"), job.get("EnvironmentVariables") or {}
    if not isinstance(label, str) or not isinstance(argv, list) or not isinstance(environment, dict):
        raise ValueError("not a launchd job")  # noqa: TRY004 - whoever reads files expects one kind of error
    if not all(isinstance(text, str) for text in (*argv, *environment, *environment.values())):
        raise ValueError("not a launchd job")
    return _Job(label, argv, environment)
