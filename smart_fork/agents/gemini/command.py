"""How Gemini CLI is started.

Seen with 0.61:

* the id of a new session can be chosen, that of a fork (``--session-file``) cannot. So what is forked is a copy of
  ours, which lies where it is found from the fork's directory;
* **a session that was resumed is deleted** when Gemini CLI is next started in that directory, together with all logs
  whose names end in the same 8 characters. A log that is named after the whole id stays: so are ours, and one that is
  gone on with gets such a name first;
* a prompt that begins with ``/`` or ``?`` is a command of its own, blanks before it or not, and is left out of what a
  resumed session remembers.
"""

from __future__ import annotations

import re

from indexer.masking import Masked, mask_screen
from smart_fork.agents.questions import Question, Screen
from smart_fork.agents.starter import OptionStarter

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


class GeminiStarter(OptionStarter):
    """The command lines of Gemini CLI. Its own way to fork deletes what it has made."""

    asking = ("--approval-mode", "default")
    unasked = ("--yolo",)
    resumed = "name"
