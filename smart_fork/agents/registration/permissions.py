"""Rules in an agent's settings (``permissions.allow``) that allow some tools without asking: text to text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from smart_fork.agents.registration.base import UnsuitableError
from smart_fork.text import json_text

_WAY = ("permissions", "allow")


class Added(NamedTuple):
    """The added rules, the containers `made` for them, and the text inside those that were `empty`."""

    rules: tuple[str, ...]
    made: tuple[str, ...] = ()
    empty: tuple[tuple[str, str], ...] = ()


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
    outer, inner = _WAY
    if text is None:
        return json.dumps({outer: {inner: list(new)}}, indent=2) + "\n", Added(new, _WAY)
    top = json_text.root(text)
    permissions = json_text.member(text, top, outer)
    if permissions is None:
        made = json_text.append(text, top, {inner: list(new)}, outer)
        return made, Added(new, _WAY, _interior(text, top, ""))
    allow = json_text.member(text, permissions.value, inner)
    if allow is None:
        made = json_text.append(text, permissions.value, list(new), inner)
        return made, Added(new, (inner,), _interior(text, permissions.value, outer))
    added = Added(new, (), _interior(text, allow.value, inner))
    for rule in new:
        text = json_text.append(text, _found(text, inner).value, rule)
    return text, added


def restore(text: str, added: Added) -> str:
    """Return `text` without the added rules, and without containers made for them that are empty now.

    Raises:
        UnsuitableError: The settings are not understood.
    """
    outer, inner = _WAY
    empty = dict(added.empty)
    for rule in added.rules:
        if rule in _list(text):
            at = _found(text, inner).value
            item = next(one for one in json_text.items(text, at) if json.loads(text[one.value : one.end]) == rule)
            text = json_text.remove(text, at, item, empty.get(inner, ""))
    for name in [one for one in (inner, outer) if one in added.made]:
        container = _search(text, name)
        if container is None or json_text.items(text, container.value):
            return text
        above, around = (_found(text, outer).value, outer) if name == inner else (json_text.root(text), "")
        text = json_text.remove(text, above, container, empty.get(around, ""))
    return text


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


def _search(text: str, name: str) -> json_text.Item | None:
    """Return one of the two containers."""
    outer, inner = _WAY
    permissions = json_text.member(text, json_text.root(text), outer)
    return permissions if name == outer or permissions is None else json_text.member(text, permissions.value, inner)


def _found(text: str, name: str) -> json_text.Item:
    found = _search(text, name)
    if found is None:
        raise AssertionError("it was there")
    return found


def _interior(text: str, at: int, name: str) -> tuple[tuple[str, str], ...]:
    return () if json_text.items(text, at) else ((name, json_text.interior(text, at)),)
