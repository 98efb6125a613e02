"""A question in other words: what may be given, and what of it is asked."""

from __future__ import annotations

from collections.abc import Sequence

from smart_fork.errors import Usage
from smart_fork.retrieval.query import plain
from smart_fork.text.snippets import shown

#: How many further phrasings a question may have, and of how many characters each.
MOST, MAX_CHARACTERS = 8, 300


def check_also(also: object) -> None:
    """Whether these can be further phrasings of a question. `None` are none.

    Raises:
        Usage: they are no list of texts, too many, or one is too long.
    """
    if also is None:
        return
    if isinstance(also, str | bytes) or not isinstance(also, Sequence):
        raise Usage(f"also must be a list of texts, not {shown(also)}", "Each text is the same intent in other words.")
    if len(also) > MOST:
        raise Usage(f"also takes at most {MOST} texts, not {len(also)}", "Four different phrasings are enough.")
    for number, text in enumerate(also, start=1):
        if not isinstance(text, str):
            raise Usage(f"also must be a list of texts; number {number} is {shown(text)}")
        if len(text) > MAX_CHARACTERS:
            raise Usage(
                f"also takes texts of at most {MAX_CHARACTERS} characters; number {number} has {len(text)}",
                "Give a sentence, a title, or a few names.",
            )


def further(intent: str, also: Sequence[str] | None) -> tuple[str, ...]:
    """Those of `also` that ask `intent` in other words: no blank ones, and each once."""
    given = (plain(text) for text in also or ())
    different = {_essence(text): text for text in reversed([*given]) if text}
    return tuple(text for essence, text in reversed(different.items()) if essence and essence != _essence(intent))


def _essence(text: str) -> str:
    """What two texts have in common that differ in case and white space alone."""
    return " ".join(text.casefold().split())
