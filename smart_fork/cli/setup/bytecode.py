"""Our own modules, compiled ahead: not every installer does it, and an agent waits for the first start."""

from __future__ import annotations

import compileall
from importlib.util import find_spec

_PACKAGES = ("indexer", "smart_fork")


def compile_ahead() -> None:
    """Compile what has changed. Where nothing may be written, each start does it, as ever."""
    for name in _PACKAGES:
        spec = find_spec(name)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            compileall.compile_dir(folder, quiet=2)
