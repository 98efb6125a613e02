"""What stands on Gemini CLI's screen.

Seen with 0.61: a question is in a box, its marked option begins with a dot; the line to type in begins with ``>``
(``*`` where all is allowed, ``!`` for a shell), as what was typed before does, and is gone while something is asked.
"""

from __future__ import annotations

import re

from indexer.masking import Masked, mask_screen
from smart_fork.agents.questions import Question, Screen

_BOX = re.compile(r"^[ \t]*[│┃]?(.*?)[ \t]*[│┃]?[ \t]*$", re.MULTILINE)
_CHOSEN = re.compile(r"^(\s*)●(?=\s+\d[.)]\s)", re.MULTILINE)

_RULE = re.compile(r"^─{10,}$")


class GeminiScreen(Screen):
    """See `Screen`."""

    typed = re.compile(r"^ ?[>*!](\s|$)")
    keys = re.compile(r"\(esc\)|" + Screen.keys.pattern, re.IGNORECASE)
    above = re.compile(r"^\s*([─━═▔╌╭╰]{2,}.*|[✦\u2139✕⚠>?✓].*)$")
    busy = re.compile(r"\(esc to cancel(, \d+[hms][^()]*)?\)")
    shows_rest = True

    def question(self, screen: Masked) -> Question | None:
        """See `Screen.question`."""
        plain = _CHOSEN.sub("\\1\u276f", _BOX.sub(r"\1", screen))
        return super().question(mask_screen(plain))

    def hears(self, screen: str) -> bool:
        """See `Screen.hears`: below a line across the screen; above it stands what was typed before."""
        lines = screen.splitlines()
        rule = next((number for number in reversed(range(len(lines))) if _RULE.match(lines[number])), len(lines))
        return super().hears("\n".join(lines[rule:]))
