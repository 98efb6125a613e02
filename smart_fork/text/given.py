"""Refuses empty values and contradictory ones by the names that their caller knows: options, arguments, JSON keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from smart_fork.errors import Usage


def empty_among(given: Mapping[str, object]) -> str | None:
    """Return the name of the first value without a visible character, or of a list with such an element."""
    return next((name for name, value in given.items() if is_empty(value)), None)


def refuse_empty(given: Mapping[str, object]) -> None:
    """Refuse a blank value: a variable of a shell that is not set, a field that a program left empty.

    Raises:
        Usage: one is blank.
    """
    if (name := empty_among(given)) is not None:
        raise Usage(f"{name} is empty", "Give it a value, or drop it.")


def refuse_both(given: Mapping[str, object], pairs: Sequence[tuple[str, str]]) -> None:
    """Refuse two values that contradict each other.

    Raises:
        Usage: both of a pair are given.
    """
    for one, other in pairs:
        if _is_given(given.get(one)) and _is_given(given.get(other)):
            raise Usage(f"{one} and {other} are mutually exclusive", "Give one of them.")


def _is_given(value: object) -> bool:
    return isinstance(value, str | int | list | tuple) and value is not False


def is_empty(value: object) -> bool:
    """Return whether `value` is text without a visible character, or a list with such an element."""
    # Half a surrogate pair is a character that a program has cut; it is shown as one.
    if isinstance(value, list | tuple):
        return any(is_empty(one) for one in value)
    return isinstance(value, str) and not any(
        (one.isprintable() and not one.isspace()) or "\ud800" <= one <= "\udfff" for one in value
    )
