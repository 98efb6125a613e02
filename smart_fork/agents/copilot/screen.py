"""What stands on Copilot CLI's screen.

Seen with 1.0.102: the line to type in begins with an arrow between two lines across the screen; while it works, the
last line says so.
"""

from __future__ import annotations

import re

from smart_fork.agents.questions import Screen


class CopilotScreen(Screen):
    """See `Screen`."""

    typed = re.compile(r"^ ?\u276f(\s*|\s+(?!\d[.)]\s).*)$")
    busy = re.compile(r"^\s*[○◉●◎]\s+\w+.*\besc (interrupt|cancel|esc\b)")
    shows_rest = True
