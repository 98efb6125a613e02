"""How much of a long test is tried. ``SMART_FORK_DRILLS=all`` tries all of it, otherwise a sample finds nearly the same."""

from __future__ import annotations

import os
from typing import TypeVar

#: Read at import: later, no test sees a variable of whoever runs the suite.
EXHAUSTIVE = os.environ.get("SMART_FORK_DRILLS") == "all"

T = TypeVar("T")


def full_or_sample(full: T, sample: T) -> T:
    return full if EXHAUSTIVE else sample
