"""Whether an agent's screen asks something: the text of the question, and what can be answered. Pure.

What the real programs show (Claude Code 2.1, Codex 0.169): numbered options of which one is marked, below them what the
keys do, and no line to type in. That line, and what was typed before, begins with the same mark.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from smart_fork.snippets import printable

MAX_CHARACTERS = 2000
#: Lines that are looked at above a question's options, or at the screen's end.
_MOST_ABOVE = 20
#: What both put before the option that is chosen, and before the line to type in.
_MARK = "[\u276f\u203a]"
_MARKED = re.compile(rf"^\s*{_MARK}\s*(\d)[.)]\s+\S")
_OPTION = re.compile(rf"^\s*{_MARK}?\s*(\d)[.)]\s+\S")
_TYPED = re.compile(rf"^\s*{_MARK}(\s|$)")
_KEYS = re.compile(
    r"\b(esc|enter)\b.*\b(cancel|confirm|continue|back|select|exit|submit|navigate|amend)\b", re.IGNORECASE
)
#: A line across the screen, or something that was said before.
_ABOVE = re.compile(rf"^\s*([─━═▔╌-]{{10,}}|[●•✗■⎿└].*|{_MARK}.*)$")
_LOGIN = re.compile(r"(Not logged in\b[^·]*(· *(Please )?[Rr]un /login)?|Sign in with ChatGPT\b.*)")


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, with its options as they stand there; their numbers, by which each can be chosen."""

    text: str
    options: tuple[str, ...] = ()


def question_on(screen: str) -> Question | None:
    """What the screen asks, or `None`."""
    lines = [printable(line).rstrip() for line in screen.splitlines()]
    while lines and not lines[-1].strip():
        lines.pop()
    marked = next((i for i in reversed(range(len(lines))) if _MARKED.match(lines[i])), None)
    if marked is None or not _asks(lines, marked):
        return _login(lines[-4:])
    first = marked
    while first > 0 and _OPTION.match(lines[first - 1]):
        first -= 1
    above = _above(lines, first)
    text = "\n".join(line.strip() for line in lines[above:] if line.strip())
    options = tuple(found[1] for line in lines[first:] if (found := _OPTION.match(line)))
    return Question(text[:MAX_CHARACTERS], options)


def works_on(screen: str) -> bool:
    """Whether the agent says on its screen that it works: both do, and not while they ask."""
    return "esc to interrupt" in "\n".join(screen.rstrip().splitlines()[-_MOST_ABOVE:])


def hears_on(screen: str) -> bool:
    """Whether there is a line to type in."""
    return any(_TYPED.match(line) and not _MARKED.match(line) for line in screen.splitlines())


def _asks(lines: list[str], marked: int) -> bool:
    """Nothing to type in below the marked option, and a line that says what the keys do."""
    below = lines[marked + 1 :]
    typing = any(_TYPED.match(line) for line in below)
    return not typing and any(_KEYS.search(line) for line in below)


def _above(lines: list[str], first: int) -> int:
    """Where the question begins: behind what is not part of it."""
    for i in range(first - 1, max(-1, first - 1 - _MOST_ABOVE), -1):
        if _ABOVE.match(lines[i]):
            return i + 1
    return max(0, first - _MOST_ABOVE)


def _login(lines: list[str]) -> Question | None:
    found = next((match for line in lines if (match := _LOGIN.search(line))), None)
    return Question(found[0].strip()) if found else None
