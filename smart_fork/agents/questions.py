"""Whether an agent's screen asks something: the text of the question, and what can be answered. Pure.

What the real programs show (Claude Code 2.1, Codex 0.169): numbered options of which one is marked, below them what the
keys do, and no line to type in. That line, and what was typed before, begins with the same mark.
"""

from __future__ import annotations

import re

from indexer.masking import Masked, beginning, mask, mask_screen
from indexer.shapes import dataclass
from smart_fork.text.snippets import printable

MAX_CHARACTERS = 2000
#: Lines that are looked at above a question's options, or at the screen's end.
_MOST_ABOVE = 20
#: What both put before the option that is chosen, and before the line to type in.
_MARK = "[\u276f\u203a]"
_MARKED = re.compile(rf"^\s*{_MARK}\s*(\d)[.)]\s+\S")
_OPTION = re.compile(rf"^\s*{_MARK}?\s*(\d)[.)]\s+\S")
_LEADING_MARK = re.compile(rf"^{_MARK}\s*", re.MULTILINE)
_TYPED = re.compile(rf"^\s*{_MARK}(\s|$)")
_KEYS = re.compile(
    r"\b(esc|enter)\b.*\b(cancel|confirm|continue|back|select|exit|submit|navigate|amend)\b", re.IGNORECASE
)
#: A line across the screen, or something that was said before.
_ABOVE = re.compile(rf"^\s*([─━═▔╌-]{{10,}}|[●•✗■⎿└].*|{_MARK}.*)$")
_BUSY = re.compile("esc to interrupt")
#: How much of a text tells it from another one, and how both begin the note that stands for a long one.
_ENOUGH, _PASTED = 20, "[Pasted "
_LOGIN = re.compile(r"(Not logged in\b[^·]*(· *(Please )?[Rr]un /login)?|Sign in with ChatGPT\b.*)")


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, with its options as they stand there; their numbers, by which each can be chosen.

    `marked` is the one that Enter would choose.
    """

    text: Masked
    options: tuple[str, ...] = ()
    marked: str = ""

    def is_also(self, other: Question | None) -> bool:
        """Whether the other one asks the same, whichever option is marked."""
        return other is not None and _LEADING_MARK.sub("", self.text) == _LEADING_MARK.sub("", other.text)


class Screen:
    """How the screen of an agent is read that marks what is chosen, and the line to type in, as `_MARK` says."""

    #: The line to type in, and what was typed before where it looks the same.
    typed = _TYPED
    #: A line below the options of a question, which tells it from a list.
    keys = _KEYS
    #: What stands above a question and is no part of it.
    above = _ABOVE
    #: What the agent says of itself while it works, and not while it asks.
    busy = _BUSY

    def question(self, screen: Masked) -> Question | None:
        """What the screen asks, or `None`."""
        return question_on(screen, self)

    def works(self, screen: str) -> bool:
        """Whether the agent says that it works."""
        return works_on(screen, self)

    def hears(self, screen: str) -> bool:
        """Whether there is a line to type in."""
        return hears_on(screen, self)

    def rests(self, screen: str) -> bool:
        """Whether it shows that nothing is done, of an agent whose log does not tell that an answer was broken off."""
        del screen
        return False

    def holds(self, screen: str, text: str) -> bool:
        """Whether `text` stands in the line to type in, and waits for Enter."""
        return holds(screen, text, self)


_SCREEN = Screen()


def question_on(screen: Masked, reading: Screen = _SCREEN) -> Question | None:
    """What the screen asks, or `None`."""
    lines = [printable(line).rstrip() for line in screen.splitlines()]
    while lines and not lines[-1].strip():
        lines.pop()
    marked = next((i for i in reversed(range(len(lines))) if _MARKED.match(lines[i])), None)
    if marked is None or not _asks(lines, marked, reading):
        return _login(lines[-4:])
    first = marked
    while first > 0 and _OPTION.match(lines[first - 1]):
        first -= 1
    above = _above(lines, first, reading)
    text = "\n".join(line.strip() for line in lines[above:] if line.strip())
    options = tuple(found[1] for line in lines[first:] if (found := _OPTION.match(line)))
    chosen = _MARKED.match(lines[marked])
    return Question(beginning(mask(text), MAX_CHARACTERS), options, chosen[1] if chosen else "")


def works_on(screen: str, reading: Screen = _SCREEN) -> bool:
    """Whether the agent says on its screen that it works: both do, and not while they ask."""
    return any(map(reading.busy.search, screen.rstrip().splitlines()[-_MOST_ABOVE:]))


def hears_on(screen: str, reading: Screen = _SCREEN) -> bool:
    """Whether there is a line to type in."""
    return any(reading.typed.match(line) and not _MARKED.match(line) for line in screen.splitlines())


def holds(screen: str, text: str, reading: Screen = _SCREEN) -> bool:
    """Whether `text` stands in the line to type in, and waits for Enter. A long one may be shown as a note instead."""
    asked = question_on(mask_screen(screen), reading)
    if asked and asked.options:
        return False
    lines = screen.splitlines()
    typed = next((i for i in reversed(range(len(lines))) if reading.typed.match(lines[i])), len(lines))
    held = "\n".join(lines[typed:])
    begins = _words(text)[:_ENOUGH]
    return _PASTED in held or (begins or text.strip()) in (_words(held) if begins else held)


def _words(text: str) -> str:
    """Without blanks and signs, which a program lays out and draws as it likes."""
    return re.sub(r"\W+", "", text)


def _asks(lines: list[str], marked: int, reading: Screen) -> bool:
    """Nothing to type in below the marked option, and a line that says what the keys do."""
    below = lines[marked + 1 :]
    typing = any(reading.typed.match(line) for line in below)
    return not typing and any(reading.keys.search(line) for line in below)


def _above(lines: list[str], first: int, reading: Screen) -> int:
    """Where the question begins: behind what is not part of it."""
    for i in range(first - 1, max(-1, first - 1 - _MOST_ABOVE), -1):
        if reading.above.match(lines[i]):
            return i + 1
    return max(0, first - _MOST_ABOVE)


def _login(lines: list[str]) -> Question | None:
    found = next((match for line in lines if (match := _LOGIN.search(line))), None)
    return Question(mask(found[0].strip())) if found else None
