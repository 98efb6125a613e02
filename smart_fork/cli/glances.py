"""``statusline`` and ``welcome``, as JSON: without options `__main__` answers them, in a tenth of the time."""

from __future__ import annotations

import json
import sys

from smart_fork.cli.output import print_json, wants_json


def statusline() -> None:
    """One segment of a status line, for the JSON that an agent gives on stdin: whose fork it is, what workers do."""
    from smart_fork.terminal.statusline import MAX_BYTES, main, segment

    if not wants_json():
        main()
    try:
        status = json.loads(sys.stdin.buffer.read(MAX_BYTES))
    except ValueError:
        status = {}
    print_json({"segment": segment(status)})


def welcome() -> None:
    """For the plugin's hook: one line on how many sessions came before, or nothing."""
    from smart_fork.terminal.welcome import line, main

    if not wants_json():
        main()
    print_json({"line": line()})
