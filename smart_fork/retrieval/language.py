"""Tells the language of a text by its commonest words. A text without any, such as a list of names, has none."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

_WORDS: Mapping[str, frozenset[str]] = {
    language: frozenset(words.split())
    for language, words in {
        "English": "the and is are to of it that this with for not we be how what why when which you my our has was",
        "German": "der das den dem und nicht ist ein eine einen mit für auf wie wird auch wir ich sich warum wenn",
        "French": "le la les des est une et pour dans que pas du avec sur nous je comment pourquoi quand il au ce",
        "Spanish": "el los las una que y para con por del se como está no lo cuando cómo qué es al",
        "Portuguese": "os uma não para com por do da em que é como quando você se ao dos na no",
        "Italian": "il lo gli una che per con di è non della come quando perché si nel alla dei del",
        "Dutch": "de het een en van niet met voor op hoe wat waarom wanneer ik wij we zijn dat er",
    }.items()
}
_WORD = re.compile(r"[^\W\d_]+")
#: So many common words tell a language. One can be chance, but in short English questions there is often no other.
_TELLING, _TELLING_ENGLISH = 2, 1


def language_of(text: str) -> str:
    """The language that most of the common words are of; empty where two are as likely, or none."""
    said = Counter(_WORD.findall(text.lower()))
    found = Counter({name: sum(said[word] for word in words) for name, words in _WORDS.items()})
    (first, most), (_, second) = found.most_common(2)
    least = _TELLING_ENGLISH if first == "English" else _TELLING
    return first if most >= least and most > second else ""


def most_are_in(texts: Iterable[str]) -> str:
    """The language of more than half of the texts; empty where there is none."""
    found = Counter(map(language_of, texts))
    (language, number), *_ = found.most_common(1) or [("", 0)]
    return language if number * 2 > found.total() else ""
