"""Rules in an agent's settings (``permissions.allow``) that allow some tools without asking: text to text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from smart_fork.agents.registration.base import UnsuitableError
from smart_fork.text import json_text

_WAY = ("permissions", "allow")


class Added(NamedTuple):
    """The added rules, and the container that was empty before them, with its white space."""

    rules: tuple[str, ...]
    empty: tuple[tuple[tuple[str, ...], str], ...] = ()


def missing(text: str | None, rules: Sequence[str]) -> tuple[str, ...]:
    """Return the rules that the settings lack.

    Raises:
        UnsuitableError: The settings are not understood.
    """
    there = _list(text)
    return tuple(rule for rule in rules if rule not in there)


def put(text: str | None, rules: Sequence[str]) -> tuple[str, Added]:
    """Return `text` with these rules after the existing ones.

    Raises:
        UnsuitableError: The settings are not understood.
    """
    new = missing(text, rules)
    if text is None:
        return json.dumps({_WAY[0]: {_WAY[1]: list(new)}}, indent=2) + "\n", Added(new)
    added = Added(new, tuple(json_text.empty_on(text, _WAY).items()))
    for rule in new:
        text = json_text.insert(text, _WAY, rule)
    return text, added


def restore(text: str, added: Added) -> str:
    """Return `text` without the added rules, and without containers that are empty because of that.

    Raises:
        UnsuitableError: The settings are not understood.
    """
    for rule in added.rules:
        if rule in _list(text):
            item = next(one for one in _items(text) if json.loads(text[one.value : one.end]) == rule)
            text = json_text.withdraw(text, _WAY, item, dict(added.empty))
    return text


def _items(text: str) -> list[json_text.Item]:
    outer = json_text.member(text, json_text.root(text), _WAY[0])
    inner = json_text.member(text, outer.value, _WAY[1]) if outer else None
    return json_text.items(text, inner.value) if inner else []


def _list(text: str | None) -> list[object]:
    if text is None:
        return []
    try:
        permissions = json_text.read_object(text).get(_WAY[0], {})
    except (ValueError, RecursionError) as error:
        raise UnsuitableError(f"it is not plain JSON: {error}") from error
    found = permissions.get(_WAY[1], []) if isinstance(permissions, dict) else None
    if not isinstance(found, list):
        raise UnsuitableError(f'"{".".join(_WAY)}" in it is not a list')
    return found
