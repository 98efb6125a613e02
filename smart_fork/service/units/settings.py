"""What the service is started with, and which of it a reinstall keeps."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from indexer.schedule import DEFAULT_INTERVAL, VARIABLE
from indexer.shapes import dataclass
from smart_fork.agents.facets import home_variables, overrides
from smart_fork.errors import Usage
from smart_fork.service.address import PORT, wanted_port
from smart_fork.service.units.interval import checked_interval
from smart_fork.service.units.names import is_usual
from smart_fork.service.units.search_path import own_program, search_path

INTERVAL = VARIABLE
#: Folders: the service runs in another directory, so they are written as absolute paths.
_FOLDERS = ("SMART_FORK_HOME", *home_variables())
#: Taken over from whoever installs the service, where set. Never a key or a token.
PASSED_ON = (
    *_FOLDERS,
    "SMART_FORK_MODEL",
    "SMART_FORK_RERANKER",
    "SMART_FORK_ENGINE",
    "SMART_FORK_QMD_COMMAND",
    "SMART_FORK_QMD_SECONDS",
    "SMART_FORK_KEEP_TRANSCRIPTS",
    "SMART_FORK_KEEP_MEGABYTES",
    "SMART_FORK_MAX_WORKERS",
    "SMART_FORK_CHECK_LOGIN",
    *overrides(),
    "SMART_FORK_TMUX_SOCKET",
    "TMUX_TMPDIR",
    "XDG_CONFIG_HOME",
    "LANG",
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Settings:
    """What a unit says. `program` is absolute.

    Raises:
        Usage: something in it cannot be written into a unit: a line break, another control character, no Unicode.
    """

    program: str
    port: int
    environment: Mapping[str, str]

    def __post_init__(self) -> None:
        for text in (self.program, str(self.state), *self.environment, *self.environment.values()):
            if any(_unwritable(c) for c in text):
                raise Usage(f"This cannot be written into a service's settings: {text!r}", "Move or rename it.")
        if odd := [name for name in self.environment if not _NAME.fullmatch(name)]:
            raise Usage(f"{odd[0]!r} is not a valid environment variable name")

    @property
    def argv(self) -> list[str]:
        """The command."""
        return [self.program, "serve", "--port", str(self.port)]

    @property
    def state(self) -> Path:
        """The state folder, which is also the working directory: it is in nobody's project."""
        return _state(self.environment)

    @property
    def crash_log(self) -> Path:
        """What the service says when it cannot log by itself: its last words. Its own log rotates beside it."""
        return self.state / "logs" / "service-crash.log"


def settings_of(argv: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Those that an installed unit was written from.

    Raises:
        ValueError: it does not start the service.
        Usage: as `Settings`.
    """
    at = list(argv).index("serve", 1)
    program, options = argv[at - 1], list(argv[at + 1 :])
    port = int(options[options.index("--port") + 1]) if "--port" in options[:-1] else PORT
    return Settings(program, port, {name: text for name, text in environment.items() if _NAME.fullmatch(name)})


def state_of(unit: Path, read: Callable[[bytes], Settings]) -> Path | None:
    """The state folder of the service that a unit starts; `None` without any that can be read."""
    try:
        return read(unit.read_bytes()).state
    except (OSError, ValueError, Usage):
        return None


def new_settings(
    before: Settings | None, env: Mapping[str, str], *, port: int | None = None, every: str | None = None,
    otherwise: int = PORT,
) -> Settings:  # fmt: skip
    """Those to install: what is asked for, else what is set in `env`, else what was installed before, else the default.

    `otherwise` is the port where no other was chosen.
    A variable that is set and empty in `env` is forgotten.

    Raises:
        Usage: a value is not acceptable.
        SmartForkError: there is no program to start.
    """
    program = own_program(env)
    environment = dict(before.environment) if before else {}
    environment.setdefault("SMART_FORK_INDEXING", "true")
    environment[INTERVAL] = checked_interval(
        every or env.get(INTERVAL, "").strip() or environment.get(INTERVAL) or DEFAULT_INTERVAL
    )
    for name in PASSED_ON:
        if name in env:
            environment[name] = _absolute(env[name]) if name in _FOLDERS else env[name]
        if not environment.get(name):
            environment.pop(name, None)
    if not is_usual(_state(environment)):
        environment["SMART_FORK_HOME"] = str(_state(environment))  # HOME is another where the system starts it
    environment["PATH"] = search_path(env, environment.get("PATH", ""))
    chosen = port or wanted_port(env, before.port if before else None, _state(environment), otherwise)
    return Settings(program, chosen, environment)


def _state(environment: Mapping[str, str]) -> Path:
    return Path(_absolute(environment.get("SMART_FORK_HOME") or "~/.smart-fork"))


def _absolute(folder: str) -> str:
    return os.path.abspath(Path(folder).expanduser()) if folder else ""  # noqa: PTH100 - resolve() would follow links


def _unwritable(character: str) -> bool:
    """Whether launchd or systemd would not read `character` back: controls, halves of surrogates, non-characters."""
    code = ord(character)
    return unicodedata.category(character) in {"Cc", "Cs"} or 0xFDD0 <= code <= 0xFDEF or code & 0xFFFE == 0xFFFE
