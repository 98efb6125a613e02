"""One line for what is left out, so that the model knows what it does not see. What was asked is only quoted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from indexer.masking import Masked, mask, shorten
from indexer.patterns import late
from smart_fork.budget.units import Step, Unit
from smart_fork.snippets import printable

#: Of one title, and of how many; the rest is counted.
TITLE_CHARACTERS, MOST_TITLES, MOST_ACTIONS = 70, 12, 6
#: What could end the element that the line stands in, or pass for something else in it.
_MARKS = str.maketrans({"<": "\u2039", ">": "\u203a", ";": ",", "`": "'", "\\": "/"})
_SPACES = late(r"\s+")
_LEADING = late(r"^[\W_]+")


class Lines:
    """The lines on what is left out of one session, which worked in `directory`.

    What is said of an exchange or of a step is made once, for choosing asks for it again and again.
    """

    def __init__(self, session_id: str, directory: str = "") -> None:
        self._session = _plain(session_id)
        self._below = f"{directory.rstrip('/')}/" if directory.strip("/") else "\0"
        self._titles: dict[int, Masked] = {}
        self._actions: dict[tuple[int, ...], Masked] = {}

    def title(self, unit: Unit) -> Masked:
        """What an exchange was about, from what was asked; where that says little, from what was answered as well."""
        if unit.start not in self._titles:
            self._titles[unit.start] = _title(unit)
        return self._titles[unit.start]

    def line(self, exchanges: Sequence[Unit], steps: Sequence[Step] = ()) -> str:
        """What stands in the place of exchanges, and of steps of those that are kept; of files below the directory."""
        parts = []
        if steps:
            count, actions = len(steps), _listed(map(self._action, steps), MOST_ACTIONS)
            parts.append(f"… {count} {'step' if count == 1 else 'steps'} left out here{actions}")
        if exchanges:
            count, titles = len(exchanges), _listed(map(self.title, exchanges), MOST_TITLES)
            first = min(unit.start for unit in exchanges)
            parts.append(f"… {count} {'exchange' if count == 1 else 'exchanges'} left out here{titles}")
            parts.append(f"They are in session {self._session} from message {first} on.")
        return "\n".join(parts)

    def _action(self, step: Step) -> Masked:
        if step.turns not in self._actions:
            said = step.actions[0].replace(self._below, "") if step.actions else ""
            self._actions[step.turns] = shorten(_plain(said), TITLE_CHARACTERS)
        return self._actions[step.turns]


def _title(unit: Unit) -> Masked:
    asked = _plain(unit.prompt)
    if unit.is_short and (answer := _plain(unit.answer)):
        return shorten(mask(f"{asked or '(nothing asked)'}: {answer}"), TITLE_CHARACTERS)
    return shorten(asked or mask("(nothing asked)"), TITLE_CHARACTERS)


def _listed(texts: Iterable[Masked], most: int) -> str:
    named = list(dict.fromkeys(text for text in texts if text))
    shown, more = named[:most], len(named) - most
    if not shown:
        return "."
    return f": {'; '.join(shown)}{f'; and {more} more' if more > 0 else ''}."


def _plain(text: str) -> Masked:
    """A text on one line, without marks, secrets and what nobody sees."""
    flat = _SPACES.sub(" ", printable(mask(text[:2000]))).translate(_MARKS)
    return mask(_LEADING.sub("", flat).strip())
