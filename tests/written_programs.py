"""Programs that tests write."""

from __future__ import annotations

import shlex
import sys

#: The longest first line that Linux reads to its end.
_LONGEST = 120


def first_lines(*options: str) -> str:
    """Lines with which a program in Python begins that this interpreter runs, also one whose path has blanks."""
    if not any(map(str.isspace, sys.executable)) and len(sys.executable) < _LONGEST:
        return "\n".join([" ".join(["#!" + sys.executable, *options]), ""])
    # To the shell it begins as another program, and to Python with a text.
    return f"#!/bin/sh\n'''exec' {shlex.join([sys.executable, *options])} \"$0\" \"$@\"\n' '''\n"
