"""One line for what is left out, so that the model knows what it does not see. What was asked is only quoted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from indexer.masking import Masked, mask, shorten
from smart_fork.budget.units import Step, Unit
from smart_fork.snippets import printable

#: Of one title, and of how many; the rest is counted.
TITLE_CHARACTERS, MOST_TITLES, MOST_ACTIONS = 70, 12, 6
#: What could end the element that the line stands in, or pass for something else in it.
_MARKS = str.maketrans({"<": "\u2039", ">": "\u203a", ";": ",", "`": "'", "\\": "/"})
_SPACES = re.compile(r"\s+")
_LEADING = re.compile(r"^[\W_]+")


def title(unit: Unit) -> Masked:
    """What an exchange was about, from what was asked; where that says little, from what was answered as well."""
    asked = _plain(unit.prompt)
    if unit.is_short and (answer := _plain(unit.answer)):
        return shorten(mask(f"{asked or '(nothing asked)'}: {answer}"), TITLE_CHARACTERS)
    return shorten(asked or mask("(nothing asked)"), TITLE_CHARACTERS)


def line(exchanges: Sequence[Unit], steps: Sequence[Step], session_id: str, directory: str = "") -> str:
    """What stands in the place of exchanges, and of steps of those that are kept, in files below that `directory`."""
    below = f"{directory.rstrip('/')}/" if directory.strip("/") else "\0"
    parts = []
    if steps:
        count, actions = (
            len(steps),
            _listed((_plain(step.actions[0].replace(below, "")) for step in steps if step.actions), MOST_ACTIONS),
        )
        parts.append(f"… {count} {'step' if count == 1 else 'steps'} left out here{actions}")
    if exchanges:
        count, titles = len(exchanges), _listed(map(title, exchanges), MOST_TITLES)
        first = min(unit.start for unit in exchanges)
        parts.append(f"… {count} {'exchange' if count == 1 else 'exchanges'} left out here{titles}")
        parts.append(f"They are in session {_plain(session_id)} from message {first} on.")
    return "\n".join(parts)


def _listed(texts: Iterable[str], most: int) -> str:
    named = list(dict.fromkeys(text for text in texts if text))
    shown, more = [shorten(mask(text), TITLE_CHARACTERS) for text in named[:most]], len(named) - most
    if not shown:
        return "."
    return f": {'; '.join(shown)}{f'; and {more} more' if more > 0 else ''}."


def _plain(text: str) -> Masked:
    """A text on one line, without marks, secrets and what nobody sees."""
    flat = _SPACES.sub(" ", printable(mask(text[:2000]))).translate(_MARKS)
    return mask(_LEADING.sub("", flat).strip())
