"""Adds packages to this installation, with the program that installed it."""

from __future__ import annotations

import shlex
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from importlib.util import find_spec
from pathlib import Path

#: Files in the environment by which uv and pipx know their own.
_UV, _PIPX = "uv-receipt.toml", "pipx_metadata.json"
_NAME = "smart-fork"


def packages_of(extra: str) -> tuple[str, ...]:
    """The packages of an extra of ours, as this installation names them; without them the extra itself."""
    try:
        named = [one.split(";") for one in requires(_NAME) or ()]
    except PackageNotFoundError:
        named = []
    wanted = (f"extra == '{extra}'", f'extra == "{extra}"')
    found = tuple(one[0].strip() for one in named if one[-1].strip() in wanted)
    return found or (f"{_NAME}[{extra}]",)


def adding(*packages: str) -> str:
    """The command that adds `packages`."""
    root = Path(sys.prefix)
    if (receipt := root / _UV).is_file():
        # Without a choice uv takes PyTorch with GPU libraries: 3 GB on Linux.
        backend = ("--torch-backend", "auto") if any(one.startswith("torch") for one in packages) else ()
        added = (word for one in packages for word in ("--with", one))
        return shlex.join(("uv", "tool", "install", *backend, *added, *_source(receipt)))
    if (root / _PIPX).is_file():
        return shlex.join(("pipx", "inject", root.name, *packages))
    if find_spec("pip") is None:  # an environment of uv's has none
        return shlex.join(("uv", "pip", "install", "--python", sys.executable, *packages))
    return shlex.join((sys.executable, "-m", "pip", "install", *packages))


def _source(receipt: Path) -> tuple[str, ...]:
    """Return the source that uv installed: a checkout's directory, editable if it was, else the package's name."""
    try:
        own = tomllib.loads(receipt.read_text(encoding="utf-8"))["tool"]["requirements"][0]
        return ("--editable", str(own["editable"])) if "editable" in own else (str(own.get("directory", _NAME)),)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return (_NAME,)
