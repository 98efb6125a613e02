"""Programs that tests run. Where one is missing the suite fails, unless whoever runs it says to do without."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

#: Leave out what runs the real agents, and whatever else this machine has no programs for. Read at once: later, no test
#: sees a variable of whoever runs the suite.
SKIPS = os.environ.get("SMART_FORK_E2E") == "skip"


def missing(what: str) -> NoReturn:
    """A test cannot run here, and why."""
    if SKIPS:
        pytest.skip(f"{what}, and SMART_FORK_E2E is skip")
    pytest.fail(f"{what}. Without it: SMART_FORK_E2E=skip", pytrace=False)
