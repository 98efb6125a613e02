"""Questions that an agent shows on its terminal screen, with their options. The screen is given as text.

The real programs (Claude Code 2.1, Codex 0.169) show numbered options with one of them marked, a line about keys below,
and no input line. The input line, and earlier prompts, begin with the same mark. Claude Code 2.1.332 also asks with
options without numbers, where digits do nothing; such options get numbers here.
"""

from __future__ import annotations

import re
from typing import ClassVar

from indexer.lazy_compilation import dataclass
from indexer.masking import Masked, beginning, mask, mask_screen
from smart_fork.display_text import printable

#: The number of lines read above a question's options, or at the screen's end.
_MAX_LINES_ABOVE = 20
#: The mark before the selected option, and before the input line.
_MARK = "[\u276f\u203a]"
_MARKED = re.compile(rf"^\s*{_MARK}\s*(\d)[.)]\s+\S")
_OPTION = re.compile(rf"^\s*{_MARK}?\s*(\d)[.)]\s+\S")
_LEADING_MARK = re.compile(rf"^{_MARK}\s*", re.MULTILINE)
_TYPED = re.compile(rf"^\s*{_MARK}(\s|$)")
_KEYS = re.compile(
    r"\b(esc|enter)\b.*\b(cancel|confirm|continue|back|select|exit|submit|navigate|amend)\b", re.IGNORECASE
)
#: The last line of a question whose options have no numbers.
_CONFIRM = re.compile(r"^\s*Enter to \S.* · Esc to cancel$")
_UNNUMBERED = re.compile(rf"^(\s*(?:{_MARK} | {{2}}))(?=\S)")
#: Claude Code 2.1.332 puts a command between dashed lines, which belong to the question.
_FRAME = " \t╌"
#: A line across the screen, or an earlier message.
_ABOVE = re.compile(rf"^\s*([─━═▔-]{{10,}}|[●•✗■⎿└].*|{_MARK}.*)$")
_BUSY = re.compile("esc to interrupt")
#: The characters that identify a text, and the beginning of the note that replaces a long one.
_ENOUGH, _PASTED = 20, "[Pasted "
_LOGIN = re.compile(r"(Not logged in\b[^·]*(· *(Please )?[Rr]un /login)?|Sign in with ChatGPT\b.*)")


@dataclass(frozen=True, slots=True)
class Question:
    """A question on an agent's screen, with the numbers of its options. Enter chooses the option numbered `marked`.

    With `by_arrows`, only arrow keys mark another option.
    """

    text: Masked
    options: tuple[str, ...] = ()
    marked: str = ""
    by_arrows: bool = False
    MAX_CHARACTERS: ClassVar = 2000

    def is_also(self, other: Question | None) -> bool:
        """Return True if `other` is the same question, even with another option marked."""
        return other is not None and _LEADING_MARK.sub("", self.text) == _LEADING_MARK.sub("", other.text)


class Screen:
    """Reads an agent's screen, where a mark is before the selected option and the input line."""

    #: The input line, and earlier prompts that look the same.
    typed = _TYPED
    #: A line below a question's options, which tells it from a list.
    keys = _KEYS
    #: A line above a question that is not part of it.
    above = _ABOVE
    #: A line that the agent shows while it works, and not while it asks.
    busy = _BUSY

    #: `True` if an idle screen tells, for agents that do not log an interrupted answer.
    shows_rest = False

    def question(self, screen: Masked) -> Question | None:
        """Return the question on the screen; `None` if the screen shows no question."""
        lines = [printable(line).rstrip() for line in screen.splitlines()]
        while lines and not lines[-1].strip():
            lines.pop()
        marked = next((i for i in reversed(range(len(lines))) if _MARKED.match(lines[i])), None)
        if marked is None or not self._asks(lines, marked):
            return self._unnumbered(lines) or _login(lines[-4:])
        first = marked
        while first > 0 and _OPTION.match(lines[first - 1]):
            first -= 1
        above = self._above(lines, first)
        text = "\n".join(line.strip() for line in lines[above:] if line.strip(_FRAME))
        options = tuple(found[1] for line in lines[first:] if (found := _OPTION.match(line)))
        chosen = _MARKED.match(lines[marked])
        return Question(beginning(mask(text), Question.MAX_CHARACTERS), options, chosen[1] if chosen else "")

    def works(self, screen: str) -> bool:
        """Return True if the screen shows that the agent works; it never does while a question is open."""
        return any(map(self.busy.search, screen.rstrip().splitlines()[-_MAX_LINES_ABOVE:]))

    def hears(self, screen: str) -> bool:
        """Return True if the screen has an input line, so that a prompt can be typed."""
        return any(self.typed.match(line) and not _MARKED.match(line) for line in screen.splitlines())

    def rests(self, screen: str) -> bool:
        """Return True if the screen shows that the agent is idle; False for agents whose screens cannot show it."""
        return self.shows_rest and self.hears(screen) and not self.works(screen)

    def holds(self, screen: str, text: str) -> bool:
        """Return True if the input line has the typed `text`, or a note such as "[Pasted text]", and Enter sends it."""
        asked = self.question(mask_screen(screen))
        if asked and asked.options:
            return False
        lines = screen.splitlines()
        typed = next((i for i in reversed(range(len(lines))) if self.typed.match(lines[i])), len(lines))
        held = "\n".join(lines[typed:])
        begins = words(text)[:_ENOUGH]
        return _PASTED in held or (begins or text.strip()) in (words(held) if begins else held)

    def _asks(self, lines: list[str], marked: int) -> bool:
        """Return True if a question is open: after the line `marked` comes a line about keys, and no input line."""
        below = lines[marked + 1 :]
        typing = any(self.typed.match(line) for line in below)
        return not typing and any(self.keys.search(line) for line in below)

    def _above(self, lines: list[str], first: int) -> int:
        """Return the number of a question's first line, found by searching up from `first`, its first option's line."""
        for i in range(first - 1, max(-1, first - 1 - _MAX_LINES_ABOVE), -1):
            if self.above.match(lines[i]):
                return i + 1
        return max(0, first - _MAX_LINES_ABOVE)

    def _unnumbered(self, lines: list[str]) -> Question | None:
        """Return a question whose options lack numbers, with numbers added; `None` if the last line names no keys."""
        end = len(lines) - 1
        if end < 0 or not _CONFIRM.match(lines[end]):
            return None
        last = end - 1
        while last > 0 and not lines[last].strip():
            last -= 1
        first = last + 1
        while first > 0 and _UNNUMBERED.match(lines[first - 1]):
            first -= 1
        heads = [found[1] for line in lines[first : last + 1] if (found := _UNNUMBERED.match(line))]
        chosen = [number for number, head in enumerate(heads, 1) if head.strip()]
        if len(chosen) == 1 and 1 < len(heads) < 10 and len({len(head) for head in heads}) == 1:
            numbered = [f"{head}{n}. {lines[first + n - 1][len(head) :]}" for n, head in enumerate(heads, 1)]
            lines = [*lines[:first], *numbered, *lines[last + 1 :]]
            options, marked = tuple(str(n) for n in range(1, len(heads) + 1)), str(chosen[0])
        elif any(self.typed.match(line) for line in lines[self._above(lines, end) - 1 :]):
            return None
        else:
            first, options, marked = end, (), ""
        text = "\n".join(line.strip() for line in lines[self._above(lines, first) :] if line.strip(_FRAME))
        return Question(beginning(mask(text), Question.MAX_CHARACTERS), options, marked, bool(options))


def words(text: str) -> str:
    """Return a text without whitespace and punctuation, to find it on a screen that wraps or frames it."""
    return re.sub(r"\W+", "", text)


def _login(lines: list[str]) -> Question | None:
    found = next((match for line in lines if (match := _LOGIN.search(line))), None)
    return Question(mask(found[0].strip())) if found else None
