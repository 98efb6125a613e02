"""How a further package is added to this installation: by the program that has made it."""

from __future__ import annotations

import shlex
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

#: Files in the environment by which uv and pipx know their own.
_UV, _PIPX = "uv-receipt.toml", "pipx_metadata.json"
_NAME = "smart-fork"


def adding(package: str) -> str:
    """The command that adds `package`."""
    root = Path(sys.prefix)
    if (receipt := root / _UV).is_file():
        return shlex.join(("uv", "tool", "install", "--with", package, *_source(receipt)))
    if (root / _PIPX).is_file():
        return shlex.join(("pipx", "inject", root.name, package))
    if find_spec("pip") is None:  # an environment of uv's has none
        return shlex.join(("uv", "pip", "install", "--python", sys.executable, package))
    return shlex.join((sys.executable, "-m", "pip", "install", package))


def _source(receipt: Path) -> tuple[str, ...]:
    """What uv has installed: a checkout by its directory, as an editable one where it was, else by its name."""
    try:
        own = tomllib.loads(receipt.read_text(encoding="utf-8"))["tool"]["requirements"][0]
        return ("--editable", str(own["editable"])) if "editable" in own else (str(own.get("directory", _NAME)),)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return (_NAME,)
