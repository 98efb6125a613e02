"""Programs that tests run, or write."""

from __future__ import annotations

import os
import shlex
import sys
from typing import NoReturn

import pytest

#: Leave out what runs the real agents, and other tests of programs that are missing. Read at import: no test sees a
#: variable of whoever runs the suite.
SKIP_MISSING = os.environ.get("SMART_FORK_E2E") == "skip"
#: The longest first line that Linux reads to its end.
_LONGEST = 120


def fail_or_skip(reason: str) -> NoReturn:
    """Fail the test because a program is missing, or skip it with ``SMART_FORK_E2E=skip``."""
    if SKIP_MISSING:
        pytest.skip(f"{reason}, and SMART_FORK_E2E is skip")
    pytest.fail(f"{reason}. Without it: SMART_FORK_E2E=skip", pytrace=False)


def shebang(*options: str) -> str:
    """Return the first lines of a Python program that this interpreter runs, also if its path has blanks."""
    if not any(map(str.isspace, sys.executable)) and len(sys.executable) < _LONGEST:
        return "\n".join([" ".join(["#!" + sys.executable, *options]), ""])
    # To the shell it begins as another program, and to Python with a text.
    return f"#!/bin/sh\n'''exec' {shlex.join([sys.executable, *options])} \"$0\" \"$@\"\n' '''\n"
