"""Cuts (removes) turns out of a transcript, so that its agent can still resume the session. See docs/how-to/excise.md.

Names for scripts, such as `smart_fork.excise.cut`, are imported from the module `api` at their first use.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import Any


def __getattr__(name: str) -> Any:
    if find_spec(f"{__name__}.{name}"):  # a module of this package, which is about to be imported
        raise AttributeError(name)
    return getattr(import_module(f"{__name__}.api"), name)
