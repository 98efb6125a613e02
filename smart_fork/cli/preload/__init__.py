"""Processes that have everything imported and wait for a command, which then starts without importing anything."""

from __future__ import annotations

import os
import sys

#: Switches the preloader off, as all switches of `indexer.settings`; to import that takes as long as all else here.
VARIABLE = "SMART_FORK_PRELOAD"
_OFF = ("0", "false", "no", "off", "never")


def may_hand_over() -> bool:
    """Return whether commands may ask a preloader. macOS may not fork a process that has used its frameworks.

    A Python that was started with options of its own, such as ``-W error``, runs its command itself.
    """
    options = sys.warnoptions or sys._xoptions or sys.flags.optimize  # noqa: SLF001 - its documented name
    return sys.platform == "linux" and not options and os.environ.get(VARIABLE, "").strip().lower() not in _OFF
