"""The installed service's settings (program, port, environment variables), stored for the next installation."""

from __future__ import annotations

import hashlib
import os
import pwd
import re
import shutil
import sys
import unicodedata
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import orjson

from indexer.environment import VARIABLES, Setting
from indexer.lazy_compilation import dataclass
from indexer.run_triggers import parsed
from indexer.safe_files import private_dir, replace_file, state_home
from smart_fork.agents import AGENTS
from smart_fork.agents.programs import Program
from smart_fork.cli.service.instance import PORT, wanted_port
from smart_fork.errors import ProgramMissing, SmartForkError, Usage


def login_home() -> Path:
    """Return the home directory of the user's login, in which launchd and systemd start services, whatever HOME is."""
    return Path(pwd.getpwuid(os.getuid()).pw_dir)


def is_default_home(state: Path) -> bool:
    """Return True if `state` is smart-fork's default state folder."""
    return os.path.realpath(state) == os.path.realpath(login_home() / ".smart-fork")


def name_suffix() -> str:
    """Return the suffix of the service's name in launchd or systemd: empty for the default state folder."""
    if is_default_home(state_home()):
        return ""
    state = os.path.realpath(state_home())
    return "-" + hashlib.blake2b(state.encode("utf-8", "surrogateescape"), digest_size=4).hexdigest()


@dataclass(frozen=True, slots=True)
class UnitState:
    """The service's state as launchd or systemd reports it. `ended` says how its process last failed."""

    loaded: bool = False
    running: bool = False
    pid: int | None = None
    ended: str = ""


#: Variables with a folder. The service runs in another directory, so they are written as absolute paths.
_FOLDERS = (Setting.HOME, *AGENTS.home_variables())
#: Variables that an installation takes over from its environment. Never a key or a token.
PASSED_ON = (
    *_FOLDERS,
    *(one for one in VARIABLES if one.kept),
    *AGENTS.overrides(),
    "TMUX_TMPDIR",
    "XDG_CONFIG_HOME",
    "LANG",
)
#: The file in the state folder with the settings that the next installation keeps.
_KEPT = "service-settings.json"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class UnitSettings:
    """The settings of the service in launchd or systemd. `program` is an absolute path.

    Raises:
        Usage: a text has a line break, another control character, or invalid Unicode.
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
        return [self.program, "serve", "--port", str(self.port)]

    @property
    def state(self) -> Path:
        """The state folder, which is also the service's working directory, because it belongs to no project."""
        return state_of(self.environment)

    @property
    def crash_log(self) -> Path:
        """The file for stdout and stderr of the service's process, beside the service's own log."""
        return self.state / "logs" / "service-crash.log"


def checked_interval(text: str) -> str:
    """Return the indexing interval, such as ``15m`` or five cron fields, in lower case.

    Raises:
        Usage: the interval is not understood, or its time never comes.
    """
    wanted = " ".join(text.lower().split())
    try:
        parsed(wanted)
    except ValueError as error:
        hint = "For example 15m, 1h, 6h, or five cron fields: '*/15 9-18 * * mon-fri'."
        raise Usage(f"{text!r} is not an interval: {error}", hint) from error
    return wanted


def keep(settings: UnitSettings) -> None:
    """Store the settings of this home's service in its state folder, so that the next installation uses them again."""
    replace_file(private_dir(state_home()) / _KEPT, [orjson.dumps(asdict(settings), option=orjson.OPT_INDENT_2)])


def kept() -> UnitSettings:
    """Return the settings that the last installation stored. A person may have edited them.

    Raises:
        ValueError: the file is damaged.
        OSError: the file cannot be read.
        Usage: a text in it cannot be written into a service manager's file.
    """
    given = orjson.loads((state_home() / _KEPT).read_bytes())
    try:
        environment = {str(name): str(text) for name, text in given["environment"].items()}
        return UnitSettings(str(given["program"]), int(given["port"]), environment)
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(str(error)) from error


def new_settings(
    before: UnitSettings | None, env: Mapping[str, str], *, port: int | None = None, every: str | None = None,
    otherwise: int = PORT,
) -> UnitSettings:  # fmt: skip
    """Return settings for an installation: each value from the arguments, else `env`, else `before`, else the default.

    `before` are the installed service's settings, `otherwise` is the default port. A variable that is empty in `env` is
    removed.

    Raises:
        Usage: a value is not acceptable.
    """
    program = own_program(env)
    environment = dict(before.environment) if before else {}
    environment.setdefault(Setting.INDEXING, "true")
    environment[Setting.INDEX_CRON] = checked_interval(
        every or Setting.INDEX_CRON.text(env) or environment.get(Setting.INDEX_CRON) or Setting.INDEX_CRON.default
    )
    for name in PASSED_ON:
        if name in env:
            environment[name] = _absolute(env[name]) if name in _FOLDERS else env[name]
        if not environment.get(name):
            environment.pop(name, None)
    if not is_default_home(state_of(environment)):
        environment[Setting.HOME] = str(state_of(environment))  # HOME is another where the system starts it
    environment["PATH"] = search_path(env, environment.get("PATH", ""))
    chosen = port or wanted_port(env, before.port if before else None, state_of(environment), otherwise)
    return UnitSettings(
        program, chosen, {str(name): text for name, text in environment.items()}
    )  # JSON takes plain keys


def state_of(environment: Mapping[str, str]) -> Path:
    """Return the state folder of a service that runs with the variables `environment`."""
    return Path(_absolute(environment.get(Setting.HOME) or Setting.HOME.default))


def _absolute(folder: str) -> str:
    return os.path.abspath(Path(folder).expanduser()) if folder else ""  # noqa: PTH100 - resolve() would follow links


def _unwritable(character: str) -> bool:
    """Return True for a control character, lone surrogate or non-character, which launchd or systemd misreads."""
    code = ord(character)
    return unicodedata.category(character) in {"Cc", "Cs"} or 0xFDD0 <= code <= 0xFDEF or code & 0xFFFE == 0xFFFE


#: What the service and the agents that it starts run: a job of the system is started with a bare PATH. Those from npm
#: need node.
PROGRAMS = ("uv", "python3", *(agent.command.name for agent in AGENTS if agent.command), "tmux", "git", "node", "qmd")
BASE = ("/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin")
#: Folders of environments that `uvx` and `pipx run` make for one call and throw away.
_FLEETING = {".cache", "archive-v0", "environments-v2", "builds-v0"}
#: Folders that a version manager makes for one shell: links to where the programs really are.
_OF_ONE_SHELL = "fnm_multishells"


def own_program(env: Mapping[str, str], python: str = sys.executable) -> str:
    """Return the path of the ``smart-fork`` command of the Python interpreter `python`, or else the first on PATH.

    Raises:
        ProgramMissing: there is no such command.
        SmartForkError: the command is in a temporary environment.
    """
    folders = [str(Path(python).parent), *_folders(env)]
    found = shutil.which("smart-fork", path=os.pathsep.join(folders))
    install = "Install it: `uv tool install smart-fork` or `pipx install smart-fork`."
    if found is None:
        raise ProgramMissing("No installed smart-fork command was found", install)
    if _FLEETING & set(Path(found).parts):
        raise SmartForkError(f"{found} is in a temporary environment", install)
    return found


def search_path(env: Mapping[str, str], before: str = "", python: str = sys.executable) -> str:
    """Return the PATH for the service: the folders in which `PROGRAMS` (agents, git, tmux …) are found now.

    Existing folders of the earlier PATH `before` stay, so that an installation with a bare PATH loses none. The folder
    of smart-fork's own Python is left out, because agents' programs would use that Python.
    """
    own = str(Path(python).parent) if sys.prefix != sys.base_prefix else ""
    folders = [one for one in _folders(env) if str(Path(one)) != own]
    path = os.pathsep.join(folders)
    found = {str(Path(one).parent) for name in PROGRAMS if (one := shutil.which(name, path=path))}
    folders = [one for one in folders if str(Path(one)) in found]  # their order decides which program is meant
    folders = [os.path.realpath(one) if _OF_ONE_SHELL in one else str(Path(one)) for one in folders]
    folders += [one for one in before.split(os.pathsep) if Path(one).is_absolute() and Path(one).is_dir()]
    return os.pathsep.join(dict.fromkeys((*folders, *BASE)))


def _folders(env: Mapping[str, str]) -> list[str]:
    """Return the absolute folders in which to search for programs: those of PATH, and the user's usual ones."""
    home = env.get("HOME") or str(Path.home())
    folders = [*env.get("PATH", os.defpath).split(os.pathsep), *Program.usual_folders(home)]
    return [one for one in folders if Path(one).is_absolute()]
