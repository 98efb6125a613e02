"""Which of several sessions that are about as likely is to be forked: whoever can be asked is asked."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

from indexer.masking import mask, shorten
from indexer.masking.invisible import BRACKETS
from indexer.patterns import late
from smart_fork.errors import NotFound, advice
from smart_fork.finding.hit import Hit
from smart_fork.finding.worth import least_close  # a server that is started need not import the search
from smart_fork.text.snippets import minute, printable

#: Gives the id of the one among these results that somebody has chosen. It may raise `NotFound`, and `Later`.
Ask = Callable[[Sequence[Hit]], str]
#: Of a title, how much stands in a list to choose from.
TITLE_CHARACTERS = 60
#: What a renderer of Markdown or HTML might act upon, and what stands between the parts of a label.
_MARKUP = str.maketrans(f"{BRACKETS}[]`|\\·", f"{'()' * (len(BRACKETS) // 2)}()'//-", "*")
_ENTITY = late(r"&(?=#?\w+;)")
#: Marks that begin or end a word, and headings: inside words they belong to names of code.
_EMPHASIS = late(r"(?<!\w)[_~]+|[_~]+(?!\w)|^\s*#+\s*")


class Later(Exception):
    """Whoever was asked answers in a request of its own: until then nothing is forked, and nothing answered."""


def about_as_likely(hits: Sequence[Hit]) -> list[Hit]:
    """Those of `hits` whose chance is about that of the likeliest."""
    least = least_close(max((hit.score for hit in hits), default=0.0))
    return [hit for hit in hits if hit.score >= least]


def labels(hits: Sequence[Hit]) -> dict[str, str]:
    """One line for each, by id, that tells them apart: title, agent, when, chance. Titles are untrusted quotations."""
    told = {hit.session_id: _label(hit) for hit in hits}
    often = Counter(told.values())
    return {one: label if often[label] == 1 else f"{label} · {one}" for one, label in told.items()}


def nobody_chose(number: int, why: str) -> NotFound:
    """What is said where the form was left, or could not be shown."""
    return NotFound(
        f"Nothing was forked: {number} sessions have about the same score, and {why}",
        advice(
            'Name one of them: smart-fork fork ID "…".',
            tool="Ask the user which one. If you cannot ask, choose by their work. Then call again with its "
            "fork_session_id.",
        ),
    )


def none_wanted() -> NotFound:
    """What is said where somebody wants none of them."""
    return NotFound(
        "Nothing was forked: the user chose none of the sessions",
        advice(
            'Name another one: smart-fork fork ID "…".',
            tool="Ask the user what to do instead. fork_session_id forks another session.",
        ),
    )


def _label(hit: Hit) -> str:
    words = _ENTITY.sub("+", shorten(printable(mask(hit.title)), TITLE_CHARACTERS).translate(_MARKUP))
    named = _EMPHASIS.sub("", words).strip() or "(no title)"
    when = minute(hit.last_activity or hit.date)
    chance = f"{math.floor(hit.score * 100 + 1e-9)} %"
    return " · ".join(filter(None, (named, hit.agent_type, when, chance)))
