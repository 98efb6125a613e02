"""A marker in a copy, in the place of what the copy leaves out.

It says how much that is and how to read it, and quotes nothing: a cut in the original has nothing to follow here.
"""

from __future__ import annotations

from indexer.masking import Masked, mask, shorten
from indexer.patterns import late
from smart_fork.budget.units import Unit
from smart_fork.text.snippets import printable

#: Of an exchange's title, by which people choose.
TITLE_CHARACTERS = 70
#: Marks that could end the marker's element, or pass for something else in it.
_MARKS = str.maketrans({"<": "\u2039", ">": "\u203a", ";": ",", "`": "'", "\\": "/"})
_SPACES = late(r"\s+")
_LEADING = late(r"^[\W_]+")


def marker(session: Masked, first: int, *, exchanges: int = 0, steps: int = 0) -> str:
    """The text in the place of so many exchanges and steps of a `session`, from turn `first` on."""
    counted = [
        f"{number} {what}{'s' * (number != 1)}" for number, what in ((steps, "step"), (exchanges, "exchange")) if number
    ]
    return (
        f"… {' and '.join(counted)} dropped here.\n"
        f"They are in session {session}, from message {first}: smart-fork shows them."
    )


def title(unit: Unit) -> Masked:
    """The title of an exchange: its prompt, and where that says little, its answer as well."""
    asked = plain(unit.prompt)
    if unit.is_short and (answer := plain(unit.answer)):
        return shorten(mask(f"{asked or '(nothing asked)'}: {answer}"), TITLE_CHARACTERS)
    return shorten(asked or mask("(nothing asked)"), TITLE_CHARACTERS)


def plain(text: str) -> Masked:
    """A text on one line, without marks, secrets and invisible characters."""
    flat = _SPACES.sub(" ", printable(mask(text[:2000]))).translate(_MARKS)
    return mask(_LEADING.sub("", flat).strip())
