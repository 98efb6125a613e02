"""The agents' programs: where they are installed, whether they can fork sessions, and whether they are logged in."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

from indexer import state_db
from indexer.lazy_compilation import dataclass
from indexer.transcripts.model import AgentName
from smart_fork.agents import AGENTS
from smart_fork.agents.login import PROFILE_VARIABLES, Login, LoginShell, LoginState
from smart_fork.errors import ProgramFailed, ProgramMissing, SmartForkError
from smart_fork.system.processes import Processes

#: A checked program: its file and version, the arguments of its help, and the expression searched for.
Sign = tuple[str, int, int, int, tuple[str, ...], str]
HELP_SECONDS = 60.0
#: The longest time for an agent to report its version, or whether it is logged in.
STATUS_SECONDS = 30.0

_VERSION = re.compile(r"\d+(?:\.\d+)+(?:[-+][\w.+-]{1,40})?")
#: The results by program version.
_seen: dict[Sign, bool] = {}
#: The file with positive results for later processes, and the most it keeps.
_KEPT, _MAX_KEPT = "programs", 100


@dataclass(frozen=True, slots=True)
class Program:
    """An agent's program: its path, and whether it can fork sessions. If not, `problem` and `hint` say why."""

    agent: AgentName
    path: str = ""
    can_fork: bool = False
    can_fork_headless: bool = False
    problem: str = ""
    hint: str = ""
    #: Searched after PATH: services are started with a bare PATH. A leading ``~`` is HOME.
    USUAL_FOLDERS: ClassVar = (
        *("~/.local/bin", "~/.claude/local", "~/.npm-global/bin", "~/.volta/bin", "~/.asdf/shims", "~/.bun/bin"),
        *("~/.local/share/mise/shims", "~/.local/share/pnpm", "~/Library/pnpm", "~/.nix-profile/bin"),
        *("~/.nvm/versions/node/*/bin", "/opt/homebrew/bin", "/usr/local/bin"),
    )

    def version(self, processes: Processes, env: Mapping[str, str] | None = None) -> str:
        """Return the version that the program prints; empty if the program is missing or prints none."""
        try:
            done = self.path and processes.run(
                [self.path, "--version"], cwd=Path(os.sep), env=env, timeout=STATUS_SECONDS
            )
        except SmartForkError:
            return ""
        said = _VERSION.search((done.stdout or done.stderr).decode("utf-8", "replace")) if done else None
        return said[0] if done and done.ok and said else ""

    @classmethod
    def find(cls, agent: AgentName, env: Mapping[str, str] | None = None) -> str:
        """Return the absolute path of an agent's program. Its own variable comes first, then PATH, then usual folders.

        Raises:
            ProgramMissing: The program was not found.
        """
        env = os.environ if env is None else env
        command = AGENTS.command_of(agent)
        wanted = env.get(command.override) or command.name
        home = env.get("HOME") or str(Path.home())
        if wanted.startswith("~/"):
            wanted = wanted.replace("~", home, 1)
        paths = (env.get("PATH", os.defpath), os.pathsep.join(cls.usual_folders(home)))
        found = next(filter(None, (shutil.which(wanted, path=_absolute(path)) for path in paths)), None)
        found = found or shutil.which(wanted, path=_absolute(_shell_path(env)))
        if found is None or not os.path.isabs(found):  # noqa: PTH117
            raise ProgramMissing(f"{wanted} was not found", _install(agent))
        return found

    @classmethod
    def usual_folders(cls, home: str) -> list[str]:
        """Return the usual folders of a person's programs. Of several versions of Node.js, the newest comes first."""
        found: list[str] = []
        for folder in cls.USUAL_FOLDERS:
            plain, pattern = folder.replace("~", home, 1), folder.replace("~", glob.escape(home), 1)
            found += _newest_first(pattern) if "*" in folder else [plain]
        return found

    @staticmethod
    def path_for(program: str, env: Mapping[str, str]) -> dict[str, str]:
        """Return a PATH with the program's folder, where a script's interpreter often is; empty if `env` has it."""
        path, folder = env.get("PATH", os.defpath), os.path.dirname(program)  # noqa: PTH120 - a string
        if not folder or folder in path.split(os.pathsep):
            return {}
        return {"PATH": os.pathsep.join(filter(None, (folder, _shell_path(env) or path)))}

    @classmethod
    def is_found(cls, agent: AgentName) -> bool:
        """Return True if the agent's program is installed."""
        try:
            cls.find(agent)
        except SmartForkError:
            return False
        return True

    @classmethod
    def of(cls, agent: AgentName, processes: Processes, env: Mapping[str, str] | None = None) -> Program:
        """Return an agent's program, even if it is missing or cannot fork. Each version is run once to find out."""
        try:
            path, signs = cls.find(agent, env), AGENTS.command_of(agent).signs
            can, can_headless = (
                all(cls.lists(path, one.arguments, one.listed, processes, env) for one in asked)
                for asked in ([one for one in signs if not one.headless], signs)
            )
        except SmartForkError as error:
            return cls(agent, problem=error.message, hint=error.hint)
        except OSError as error:
            return cls(agent, problem=str(error))
        problem = hint = ""
        if not can_headless:
            what = "fork sessions" if not can else "fork a session without a terminal"
            problem, hint = f"This version of {agent} cannot {what}: {path}", f"Update it. {_install(agent)}"
        return cls(agent, path, can, can_headless, problem, hint)

    @classmethod
    def problems_of(cls, agents: Iterable[AgentName], env: Mapping[str, str]) -> dict[AgentName, str]:
        """Return, by agent, the reason why its program cannot fork sessions; empty if it can."""
        before = len(_seen)
        found = [cls.of(agent, Processes(), env) for agent in agents]
        if len(_seen) > before:
            cls.keep()
        return {one.agent: "" if one.can_fork else one.problem for one in found}

    @classmethod
    def require(
        cls, agent: AgentName, processes: Processes, env: Mapping[str, str] | None = None, *, headless: bool = False
    ) -> str:
        """Return the path of an agent's program that can fork.

        Raises:
            ProgramMissing: The program is not installed, or too old.
        """
        program = cls.of(agent, processes, env)
        if not (program.can_fork_headless if headless else program.can_fork):
            raise ProgramMissing(program.problem, program.hint)
        return program.path

    @staticmethod
    def lists(path: str, args: tuple[str, ...], sign: str, processes: Processes, env: Mapping[str, str] | None) -> bool:
        """Return True if the program's output with `args` (its help) matches the pattern `sign`.

        A version that is known from an earlier call, or a saved result (see `keep`), is not run again.

        Raises:
            ProgramFailed: The program does not answer.
        """
        file = Path(path).stat()  # what npm unpacks has the same time in all versions
        key = (path, file.st_ino, file.st_ctime_ns, file.st_size, args, sign)
        if key not in _seen and key in _kept():
            _seen[key] = True
        if key not in _seen:
            answer = processes.run([path, *args], cwd=Path(os.sep), env=env, timeout=HELP_SECONDS)
            if not answer.ok and args == ("--help",):
                complaint = f": {answer.complaint}" if answer.complaint else ""
                raise ProgramFailed(f"{path} does not run ({answer.ending}){complaint}", "Reinstall it.")
            said = answer.stdout + answer.stderr  # some print their help there
            _seen[key] = answer.ok and re.search(sign, said.decode("utf-8", "replace")) is not None
        return _seen[key]

    @staticmethod
    def keep() -> None:
        """Save the positive results of `lists` for later processes: running a program takes a second. Ignore errors."""
        found, kept = [key for key, listed in _seen.items() if listed], _kept()
        if new := [key for key in found if key not in kept]:
            with contextlib.suppress(OSError):
                state_db.keep(_KEPT, [*kept, *new][-_MAX_KEPT:])

    @staticmethod
    def login_state(login: Login, env: Mapping[str, str], program: str, processes: Processes) -> LoginState:
        """Return the login state that an agent has with the environment `env`, if needed by running its `program`.

        Without a status command the state is unknown. An old program would take the status command for a prompt, so the
        program's help is checked first.
        """
        if login.is_plain(env):
            return LoginState(logged_in=True)
        if required := login.required():
            return LoginState(logged_in=False, lacks=tuple(one for one in required if not env.get(one)))
        try:
            if not login.status or not Program.lists(program, ("--help",), login.listed, processes, env):
                return LoginState(None)
            said = processes.run(
                [program, *login.status], cwd=login.of.home.folder().parent, env=env, timeout=STATUS_SECONDS
            )
        except (SmartForkError, OSError):
            return LoginState(None)
        return LoginState(login.answered(said))


def _shell_path(env: Mapping[str, str]) -> str:
    """Return the PATH that the person's login shell sets; empty if a shell made `env`, or if that shell fails."""
    return "" if "SHLVL" in env else _path_in(tuple((name, env[name]) for name in PROFILE_VARIABLES if name in env))


@lru_cache(maxsize=4)  # a profile may take a second
def _path_in(env: tuple[tuple[str, str], ...]) -> str:
    return LoginShell(dict(env)).values(["PATH"], Processes()).get("PATH", "")


def _absolute(path: str) -> str:
    """Return a PATH without relative entries, with which the working directory would decide which program is found."""
    return os.pathsep.join(folder for folder in path.split(os.pathsep) if os.path.isabs(folder))  # noqa: PTH117 - a string


def _newest_first(folders: str) -> list[str]:
    return sorted(glob.glob(folders), key=lambda one: [*map(int, re.findall(r"\d+", one))], reverse=True)  # noqa: PTH207


def _install(agent: AgentName) -> str:
    command = AGENTS.command_of(agent)
    return f"Install {AGENTS.title_of(agent)} (npm install -g {command.package}), or set {command.override} to it."


def _kept() -> tuple[Sign, ...]:
    """Return the saved positive results of `lists`. Each names the program's file, and is void if that has changed."""
    try:
        rows = state_db.fact(_KEPT) or ()
    except OSError:
        return ()
    return tuple((path, node, time, size, tuple(args), sign) for path, node, time, size, args, sign in rows)
