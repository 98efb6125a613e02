"""How often something is tried. `SMART_FORK_DRILLS=all` tries all that takes long; else a part says nearly the same."""

from __future__ import annotations

import os
from typing import TypeVar

#: Read at once: later, no test sees a variable of whoever runs the suite.
ALL = os.environ.get("SMART_FORK_DRILLS") == "all"

T = TypeVar("T")


def drilled(everything: T, part: T) -> T:
    return everything if ALL else part
