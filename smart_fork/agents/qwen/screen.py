"""What stands on Qwen Code's screen.

Seen with 0.24: the line to type in begins with ``>`` (``*`` where all is allowed, ``!`` for a shell) at the screen's
edge, what was typed before stands further in; it is gone while something is asked.
"""

from __future__ import annotations

import re

from smart_fork.agents.questions import Screen


class QwenScreen(Screen):
    """See `Screen`."""

    typed = re.compile(r"^[>*!](\s|$)")
    keys = re.compile(r"Waiting for user confirmation|" + Screen.keys.pattern, re.IGNORECASE)
    above = re.compile(r"^\s*([─━]{10,}|[>◆●✦✓✕╭╰│].*)$")
    busy = re.compile(r"\(\d+[hms][^()]* · esc to cancel\)|\(\d+[hms] · esc to cancel\)")
    shows_rest = True
