"""How OpenCode's screen is read: a box to type in above the last line, which says whether it works.

Seen with 1.18: ``esc interrupt`` stands in the last line while it works, and a permission is asked for by
``△ Permission required`` above ``Allow once   Allow always   Reject``.
"""

from __future__ import annotations

import re

from indexer.masking import Masked, beginning, mask
from smart_fork.agents.questions import MAX_CHARACTERS, Question, Screen, words
from smart_fork.text.snippets import printable

#: The border of a box at the left, and the lower end of the one to type in.
_BORDER, _END = "┃", re.compile(r"^\s*╹▀{10,}")
_ASKS = re.compile(r"^\W*△\s*(\S.*)$")
_WORKS = re.compile(r"\besc (?:again to )?interrupt\b")
_LAST = 4


class OpenCodeScreen(Screen):
    """See `Screen`."""

    def question(self, screen: Masked) -> Question | None:
        """See `Screen.question`. Its options have no numbers: nothing of ours chooses among them."""
        lines = [printable(line).strip(f" {_BORDER}") for line in screen.splitlines()]
        first = next((i for i in reversed(range(len(lines))) if _ASKS.match(lines[i])), None)
        if first is None:
            return None
        text = "\n".join(line for line in lines[first:] if line)
        return Question(beginning(mask(text), MAX_CHARACTERS))

    def works(self, screen: str) -> bool:
        """See `Screen.works`."""
        return any(_WORKS.search(line) for line in screen.rstrip().splitlines()[-_LAST:])

    def hears(self, screen: str) -> bool:
        """See `Screen.hears`."""
        return any(_END.match(line) for line in screen.splitlines()) and not any(
            _ASKS.match(line) for line in screen.splitlines()
        )

    def holds(self, screen: str, text: str) -> bool:
        """See `Screen.holds`: what is typed stands in the lowest box, a long text as a note in its place."""
        lines = screen.splitlines()
        end = next((i for i in reversed(range(len(lines))) if _END.match(lines[i])), None)
        if end is None:
            return False
        first = end
        while first > 0 and lines[first - 1].lstrip().startswith(_BORDER):
            first -= 1
        held = words("".join(lines[first:end]))
        return "Pasted" in held or words(text)[:20] in held
