"""The systemd user unit: what is written and read back.

Each setting has its own rules (systemd.syntax(7), systemd.service(5)): `ExecStart=` unquotes words, then expands `%`
and `$`; `Environment=` unquotes and expands `%`; paths are taken as they stand, but for `%`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from smart_fork.service.units.settings import Settings, settings_of

UNIT = "smart-fork.service"
#: Starts what `ExecStart=` may not name itself: systemd refuses quotes and backslashes in the path of a program.
_BY_NAME = ("nice", "-n", "0", "--")
_UNNAMEABLE = re.compile(r"[\"'\\$]")
_ESCAPES = {"n": "\n", "t": "\t", "s": " ", "r": "\r"}
#: Part of a word: between double quotes, between single quotes, or bare.
_PART = re.compile(r"""\"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'|((?:\\.|[^\s"'\\])+)""")
_WORD = re.compile(f"(?:{_PART.pattern})+")

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
    """The unit that keeps the service running, and gives up after five failures in ten minutes."""
    argv = [*(_BY_NAME if _UNNAMEABLE.search(settings.program) else ()), *settings.argv]
    variables = [_quoted(f"{name}={text}") for name, text in settings.environment.items()]
    return _TEXT.format(
        command=" ".join(_quoted(word.replace("$", "$$")) for word in argv),
        # The slash keeps a last blank or backslash from being taken for the line's.
        directory=_percent(str(settings.state)),
        environment="\n".join(f"Environment={variable}" for variable in variables),
        log=_percent(str(settings.crash_log)),
    )


def read_unit(text: str) -> Settings:
    """The settings that a unit was written from; edited by hand, it is still understood.

    Raises:
        ValueError: it does not start the service.
        Usage: as `Settings`.
    """
    argv: list[str] = []
    environment: dict[str, str] = {}
    for name, value in _lines(text):
        if name == "ExecStart":
            argv = [word.replace("$$", "$") for word in _words(value)]
        elif name == "Environment":
            environment |= dict(word.split("=", 1) for word in _words(value) if "=" in word)
    return settings_of(argv, environment)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{_percent(escaped)}"'


def _percent(text: str) -> str:
    return text.replace("%", "%%")


def _lines(text: str) -> Iterator[tuple[str, str]]:
    joined = re.sub(r"\\\n\s*", " ", text)
    for line in joined.split("\n"):
        name, equals, value = line.strip().partition("=")
        if equals and name[:1] not in ("#", ";"):
            yield name.rstrip(), value.lstrip()


def _words(value: str) -> list[str]:
    return [_expanded("".join(_unquoted(part) for part in _PART.finditer(word[0]))) for word in _WORD.finditer(value)]


def _unquoted(part: re.Match[str]) -> str:
    text = next(group for group in part.groups() if group is not None)
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), text)


def _expanded(word: str) -> str:
    return re.sub("%([%h])", lambda found: "%" if found[1] == "%" else str(Path.home()), word)
