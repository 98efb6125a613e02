"""Where the service's programs are: a job of the system is started with a bare PATH."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from smart_fork.agents import AGENTS
from smart_fork.agents.programs import USUAL_FOLDERS
from smart_fork.errors import ProgramMissing, SmartForkError

#: What the service and the agents that it starts run. Those from npm need node.
PROGRAMS = ("uv", "python3", *(agent.command.name for agent in AGENTS if agent.command), "tmux", "git", "node", "qmd")
BASE = ("/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin")
#: Folders of environments that `uvx` and `pipx run` make for one call and throw away.
_FLEETING = {".cache", "archive-v0", "environments-v2", "builds-v0"}
#: Folders that a version manager makes for one shell: links to where the programs really are.
_OF_ONE_SHELL = "fnm_multishells"


def own_program(env: Mapping[str, str], python: str = sys.executable) -> str:
    """The absolute path of the `smart-fork` command that belongs to the Python that runs, else of that on PATH.

    Raises:
        ProgramMissing: there is none.
        SmartForkError: it lies where it will not stay.
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
    """PATH for the service: the folders of `PROGRAMS` as they are found now, then those of `before` that still exist.

    An installer that is run with a bare PATH itself, so, takes nothing away. Our own environment is left out: what
    agents run would find our Python there.
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
    """Where programs are looked for. Relative entries would let the current directory choose them."""
    home = env.get("HOME") or str(Path.home())
    folders = [*env.get("PATH", os.defpath).split(os.pathsep), *(one.replace("~", home, 1) for one in USUAL_FOLDERS)]
    return [one for one in folders if Path(one).is_absolute()]
