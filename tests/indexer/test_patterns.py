"""Patterns that are compiled on their first use."""

import importlib
import pkgutil
import re

import pytest

import indexer
import smart_fork
from indexer.patterns import _Late, late


def test_a_late_pattern_does_what_a_compiled_one_does():
    text, data = late(r"(?P<word>\w+) b", re.IGNORECASE), late(rb"\d+")

    assert "A" == text.search("A B")["word"]
    assert [b"1", b"23"] == data.findall(b"1 23")
    assert (r"(?P<word>\w+) b", {"word": 1}) == (text.pattern, dict(text.groupindex))


def test_nothing_is_compiled_before_the_first_use(monkeypatch):
    compiled = []
    real = re.compile
    monkeypatch.setattr(re, "compile", lambda *given: compiled.append(given) or real(*given))
    pattern = late("never compiled before: [0-9]+")
    assert [] == compiled

    assert [pattern.match("other"), pattern.match("else")] == [None, None]
    assert [("never compiled before: [0-9]+", 0)] == compiled


def _all_late() -> list[_Late]:
    found: dict[int, _Late] = {}
    for package in (indexer, smart_fork):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                named = vars(importlib.import_module(module.name)).values()
                parts = [one for value in named for one in (value if isinstance(value, tuple) else (value,))]
                found |= {id(one): one for one in parts if isinstance(one, _Late)}
    return list(found.values())


def test_every_late_pattern_of_the_program_is_right():
    """A wrong one would be noticed by whoever uses it first."""
    patterns = _all_late()

    assert len(patterns) > 50
    for pattern in patterns:
        try:
            assert pattern.pattern
        except re.error as error:
            pytest.fail(f"{pattern._given[0]!r}: {error}")
