"""Regular expressions that are compiled on first use."""

import importlib
import pkgutil
import re
from re import _constants as codes
from re import _parser as parser

import pytest

import indexer
import smart_fork
from indexer.lazy_compilation import _Pattern, late
from indexer.masking import phrases, rules

#: What matches one character, of which nothing can be given back.
ONE = {codes.ANY, codes.IN, codes.LITERAL, codes.NOT_LITERAL}


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


def _all(kind) -> list:
    found = {}
    for package in (indexer, smart_fork):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                named = vars(importlib.import_module(module.name)).values()
                parts = [one for value in named for one in (value if isinstance(value, tuple) else (value,))]
                found |= {id(one): one for one in parts if isinstance(one, kind)}
    return list(found.values())


def test_every_late_pattern_of_the_program_is_right():
    """A wrong pattern would only fail when it is used."""
    patterns = _all(_Pattern)

    assert len(patterns) > 50
    for pattern in patterns:
        try:
            assert pattern.pattern
        except re.error as error:
            pytest.fail(f"{pattern._given[0]!r}: {error}")


def possessive_groups(parsed):
    """Return repeated groups of several characters that never backtrack."""
    for code, given in parsed:
        if code is codes.POSSESSIVE_REPEAT and (len(given[2]) > 1 or given[2][0][0] not in ONE):
            yield given[2]
        for part in given if isinstance(given, tuple | list) else (given,):
            for inner in part if isinstance(part, list) else (part,):
                if isinstance(inner, parser.SubPattern):
                    yield from possessive_groups(inner)


@pytest.mark.slow
def test_no_group_is_repeated_possessively():
    """Python before 3.11.5 does not restore the end of the last repetition, and masked private keys only in part
    (gh-106052).
    """
    assert any(possessive_groups(parser.parse(r"x(?:a|(?:bc)?(?:ab?c){2,}+)")))
    assert not any(possessive_groups(parser.parse(r"(?>(?:ab?c)+)[a-z]++")))
    ours = [*_all(_Pattern), *_all(re.Pattern), *map(rules.compiled, {phrase.pattern for phrase in phrases._TOLD})]
    found = {one.pattern for one in ours if any(possessive_groups(parser.parse(one.pattern, one.flags)))}
    assert set() == found
    assert [] == [one for one in rules.VENDORS if any(possessive_groups(parser.parse(one.follows)))]
