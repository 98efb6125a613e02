"""What the person typed -> a full-text query. Every word is quoted: nothing typed can be an operator."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from smart_fork.errors import Usage
from smart_fork.text.given import is_empty
from smart_fork.text.snippets import shown

#: What is asked in more characters than this is answered by its beginning.
MAX_CHARACTERS = 4000
MAX_WORDS = 48
#: Longer words are random data, and a phrase of more words than this is found by its beginning.
MAX_WORD_CHARACTERS, MAX_PHRASE_WORDS = 64, 8

_WORD = re.compile(r"\w+")
_COMPOUND = re.compile(r"[\w./:-]+")
#: Paths, names of files, and names of code: snake_case, camelCase. Each begins where a word does, so that a long text
#: is read once.
_NAME = re.compile(
    r"(?<![\w.~@-])(?:[\w.~@-]*+/)+[\w.@-]+"
    r"|(?<![\w.-])[\w-]++(?:\.[\w-]++)*\.[A-Za-z]\w{0,4}\b"
    r"|\b[A-Za-z]\w*(?:_\w|[a-z0-9][A-Z])\w*"
)
#: How a question speaks of the branch that is checked out, without its name; a number names another one.
_THIS_BRANCH = re.compile(
    r"\b(?:(?:this|my|our|current|local) (?:\w+ )?branch"
    r"|(?:this|that|the|my|our) (?:\w+ )?(?:prs?|pull request|merge request|mr)|prs? (?:comments?|feedback|review))\b"
    r"(?! ?#?\d)|\bwhere (?:were|are) we\b|\b(?:we|i) (?:left|leave) off\b",
    re.IGNORECASE,
)
#: More names of one question are not looked for.
MAX_NAMES = 64
#: Words that say nothing about what a session is about; left out unless nothing else was typed.
_STOP = frozenset(
    """
    a about after all also am an and any are as at be because been before being but by can cannot could did do does
    doing don down each few for from further had has have having he her here hers him his how i if in into is it its
    itself just let like make me more most my need no nor not now of off on once only or other our out over own
    please same she should so some such than that the their them then there these they this those through to too
    under until up us use using very want was we were what when where which while who whom why will with would you
    your
    """.split()  # noqa: SIM905 - easier to read than so many quotes
)


def plain(intent: str) -> str:
    """`intent` as it can be searched, embedded and repeated: without NUL and half surrogates, of bounded length."""
    text = intent[:MAX_CHARACTERS].replace("\0", " ").encode("utf-8", "replace").decode("utf-8").strip()
    return "" if is_empty(text) else text


def words_of(text: str) -> tuple[str, ...]:
    """The words to search for, in order, once each, lower case, without stop words where that leaves any."""
    words = list(dict.fromkeys(word.lower()[:MAX_WORD_CHARACTERS] for word in _WORD.findall(text)))
    telling = [word for word in words if word not in _STOP and (len(word) > 1 or not word.isascii())]
    return tuple((telling or words)[:MAX_WORDS])


def is_long(text: str) -> bool:
    """Whether it has more telling words than are looked for."""
    return len(words_of(text)) == MAX_WORDS


def terms_of(text: str) -> tuple[str, ...]:
    """The words, and whole compounds (``src/upload.py``) as phrases, each quoted as FTS5 wants it."""
    phrases = dict.fromkeys(_phrase(compound) for compound in _COMPOUND.findall(text.lower()))
    compounds = [" ".join(phrase) for phrase in phrases if len(phrase) > 1][:MAX_WORDS]
    return tuple(dict.fromkeys(f'"{term}"' for term in (*words_of(text), *compounds)))


def names_of(text: str) -> tuple[str, ...]:
    """The files and names of code that `text` speaks of, as `quoted_names`."""
    return quoted_names(_NAME.findall(text))


def quoted_names(given: Iterable[str]) -> tuple[str, ...]:
    """Files and names of code, each quoted as FTS5 wants it; of a long path its end."""
    names = (_WORD.findall(name.lower().replace("_", " ")) for name in given)
    phrases = dict.fromkeys(" ".join(word[:MAX_WORD_CHARACTERS] for word in name[-MAX_PHRASE_WORDS:]) for name in names)
    return tuple(f'"{phrase}"' for phrase in phrases if phrase)[:MAX_NAMES]


def is_of_this_branch(text: str) -> bool:
    """Whether `text` asks for what was done on the branch that is checked out."""
    return _THIS_BRANCH.search(text) is not None


def _phrase(compound: str) -> tuple[str, ...]:
    words = _WORD.findall(compound.replace("_", " "))
    return tuple(word[:MAX_WORD_CHARACTERS] for word in words[:MAX_PHRASE_WORDS])


# A question in other words: what may be given, and what of it is asked.


#: How many further phrasings a question may have, and of how many characters each.
MAX_PHRASINGS, MAX_PHRASING_CHARACTERS = 8, 300


def check_also(also: object) -> None:
    """Whether these can be further phrasings of a question. `None` are none.

    Raises:
        Usage: they are no list of texts, too many, or one is too long.
    """
    if also is None:
        return
    if isinstance(also, str | bytes) or not isinstance(also, Sequence):
        raise Usage(f"also must be a list of texts, not {shown(also)}", "Each text is the same intent in other words.")
    if len(also) > MAX_PHRASINGS:
        raise Usage(
            f"also takes at most {MAX_PHRASINGS} texts, not {len(also)}", "Four different phrasings are enough."
        )
    for number, text in enumerate(also, start=1):
        if not isinstance(text, str):
            raise Usage(f"also must be a list of texts; number {number} is {shown(text)}")
        if len(text) > MAX_PHRASING_CHARACTERS:
            raise Usage(
                f"also takes texts of at most {MAX_PHRASING_CHARACTERS} characters; number {number} has {len(text)}",
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
