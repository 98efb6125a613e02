"""The language of a text, told by its commonest words, and what is said where a model does not know it.

A text without any of these words, such as a list of names, has no language.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from indexer.embedder import DEFAULT_MODEL
from smart_fork.finding.query import Candidate

_ENGLISH = (
    "The default model knows mainly English: search by meaning hardly worked. Add English phrasings (also), or set "
    "SMART_FORK_MODEL to a multilingual model (docs/how-to/languages.md)."
)
_SAME = (
    "The default model hardly knows this script: search by meaning hardly worked. Set SMART_FORK_MODEL to a "
    "multilingual model (docs/how-to/languages.md)."
)
_THEIRS = (
    "The default model hardly knows the script of most sessions here. Add phrasings in their language (also), or "
    "set SMART_FORK_MODEL to a multilingual model (docs/how-to/languages.md)."
)
_OTHER = (
    "Most sessions here are in {0}, and the intent is not. Add phrasings in {0} (also), or set SMART_FORK_MODEL to "
    "a multilingual model (docs/how-to/languages.md)."
)
_COMMONEST: Mapping[str, frozenset[str]] = {
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
#: The languages that have a word among their commonest.
_LANGUAGES_OF = defaultdict[str, list[str]](list)
for _language, _words in _COMMONEST.items():
    for _word in _words:
        _LANGUAGES_OF[_word].append(_language)
_LETTERS = re.compile(r"[^\W\d_]+")
_ASCII, _NO_ASCII_LETTER = re.compile(r"[\0-\x7f]+"), re.compile(r"[^A-Za-z]+")
#: So many common words tell a language. One can be chance, but in short English questions there is often no other.
_TELLING, _TELLING_ENGLISH = 2, 1


def language_of(text: str) -> str:
    """The language that most of the common words are of; empty where two are as likely, or none."""
    said = filter(None, map(_LANGUAGES_OF.get, _LETTERS.findall(text.lower())))
    found = Counter(chain.from_iterable(said))
    (first, most), (_, second) = [*found.most_common(2), ("", 0), ("", 0)][:2]
    least = _TELLING_ENGLISH if first == "English" else _TELLING
    return first if most >= least and most > second else ""


def most_are_in(texts: Iterable[str]) -> str:
    """The language of more than half of the texts; empty where there is none."""
    found = Counter(map(language_of, texts))
    (language, number), *_ = found.most_common(1) or [("", 0)]
    return language if number * 2 > found.total() else ""


def is_mostly_not_latin(text: str) -> bool:
    """Whether most letters of `text` are of another script than Latin; one without letters is not."""
    others = Counter(filter(str.isalpha, _ASCII.sub("", text)))
    latin = sum([count for char, count in others.items() if unicodedata.name(char, "").startswith("LATIN")])
    return len(_NO_ASCII_LETTER.sub("", text)) + latin < others.total() - latin


def language_notice(phrasings: Sequence[str], found: Sequence[Candidate], model: str) -> str:
    """Say that a question and the passages found are not in one language, or in a script that the default model does
    not know; empty if they are.
    """
    if model.partition("@")[0] != DEFAULT_MODEL:
        return ""
    passages = [f"{hit.session.title} {hit.text}" for hit in found]
    foreign = [is_mostly_not_latin(phrasing) for phrasing in phrasings]
    theirs = [is_mostly_not_latin(passage) for passage in passages]
    mostly = sum(theirs) * 2 > len(theirs)
    if all(foreign):
        return _SAME if mostly else _ENGLISH
    if mostly and not any(foreign):
        return _THEIRS
    language, spoken = most_are_in(passages), {language_of(phrasing) for phrasing in phrasings} - {""}
    best = language_of(passages[0]) if passages else ""
    return _OTHER.format(language) if language and spoken and not {language, best} & spoken else ""
