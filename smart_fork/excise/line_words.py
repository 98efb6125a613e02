"""The words, runs of words and secrets in the texts of lines, and which of some wanted ones lines have."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from collections.abc import Set as AbstractSet
from itertools import chain

from ahocorasick_rs import BytesAhoCorasick

from indexer.transcripts.lines import decode_line
from smart_fork.agents.cuts.ties import texts

#: Words that a search could be made for.
_WORD = re.compile(r"\w{3,64}")
LETTERS = re.compile(r"[^\W\d_]+")
#: No blank, no quote, nothing that a path or a list has.
_SOLID = re.compile(r"[\w!#$%&*+.:=?@^~-]{6,126}[\w!#$%&*+?@^~-]")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
#: An id that an agent makes, as the whole value of a field.
_ID = re.compile(r"(?:[a-z]+_)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
#: The shortest word with a digit that is taken for a secret.
SECRET = 8
#: So many words in a row tell a text, however ordinary each of them is.
_RUN = 4
#: An escape for a character that a word may have. Control characters end words, as their escapes do in a line.
_ESCAPE = re.compile(rb"\\u(?!00[01])")
#: Its lower case depends on what is behind it.
_SIGMA = "Σ".encode()
_Exact = Callable[[list[bytes]], AbstractSet[str]]
_NO_LETTERS = bytes(byte for byte in range(256) if not (byte < 128 and chr(byte).isalpha()))


def all_words(some: Iterable[str]) -> set[str]:
    """The words of texts."""
    return {word.lower() for text in some for word in _WORD.findall(text)}


def words_of(lines: Iterable[bytes]) -> set[str]:
    """The words of the texts in lines of JSON; of other lines all."""
    return all_words(text for line in lines for text in _texts(line))


def runs_of(lines: Iterable[bytes]) -> set[str]:
    """The runs of words in the texts of lines, each with single blanks."""
    return {run for line in lines for text in _texts(line) for run in _runs(text)}


def solid_texts_of(lines: Iterable[bytes]) -> set[str]:
    """The texts without a blank that have letters, digits and more, as passwords do."""
    return _solid_texts(text for line in lines for text in _texts(line))


def secrets_of(lines: Iterable[bytes]) -> set[str]:
    """Return the words and solid texts of lines that look like secrets. Ids that agents make do not."""
    some = [text for line in lines for text in _texts(line) if not _ID.fullmatch(text)]
    long = {one for one in all_words(some) if len(one) >= SECRET}
    return _solid_texts(some) | {one for one in long if any(map(str.isdigit, one)) and any(map(str.isalpha, one))}


def said_in(lines: Iterable[bytes]) -> set[str]:
    """Words and runs of words: those have a blank."""
    some = list(lines)
    return words_of(some) | runs_of(some)


def within(lines: Iterable[bytes], words: Iterable[str]) -> set[str]:
    """Return those of some words that lines have, in a longer word as well."""
    return _found(lines, _Search(words, _lower))


def still_said(lines: Iterable[bytes], wanted: Collection[str], solid: Iterable[str] = ()) -> set[str]:
    """Return those of some words and runs of words, and of some `solid` texts, that are such ones in lines."""
    return _found(
        lines,
        _Search((one for one in wanted if " " not in one), _lower, words_of),
        _Search((one for one in wanted if " " in one), _letters, runs_of),
        _Search(solid, _lower, solid_texts_of),
    )


def still_secret(lines: Iterable[bytes], wanted: Iterable[str]) -> set[str]:
    """Return those of some secrets that look like ones in lines."""
    return _found(lines, _Search(wanted, _lower, secrets_of))


def _found(lines: Iterable[bytes], *searches: _Search) -> set[str]:
    for line in lines if any(one.left for one in searches) else ():
        for one in searches:
            one.look_at(line)
    return set[str]().union(*(one.found for one in searches))


class _Search:
    """One search for all `wanted`, without blanks, in what a line is `spelled` like: most lines need no list of all
    their words. With `exact`, only those count that it returns for the line.
    """

    def __init__(self, wanted: Iterable[str], spelled: Callable[[bytes], bytes], exact: _Exact | None = None) -> None:
        self.left, self.found = list(dict.fromkeys(wanted)), set[str]()
        self._spelled, self._exact, self._lines = spelled, exact, 0

    def look_at(self, line: bytes) -> None:
        """Find what is in a line."""
        if not self._lines & (self._lines - 1):  # after 1, 2, 4, 8 … lines, what was found is no longer searched for
            self.left = [one for one in self.left if one not in self.found]
            self._search = BytesAhoCorasick([one.replace(" ", "").encode("utf-8", "replace") for one in self.left])
        self._lines += 1
        if self.left:
            found = self._search.find_matches_as_indexes(self._spelled(line), overlapping=True)
            hits = {self.left[at] for at, _, _ in found}
            hits -= self.found
            self.found |= hits & self._exact([line]) if hits and self._exact else hits


def _lower(line: bytes) -> bytes:
    """The line in lower case, and its texts where they may have words that are written otherwise in it."""
    if (apart := _ESCAPE.search(line)) is None and line.isascii():
        return line.lower()
    read = list(_texts(line)) if apart or _SIGMA in line else []
    return "\n".join((line.decode("utf-8", "replace"), *read, *all_words(read))).lower().encode("utf-8", "replace")


def _letters(line: bytes) -> bytes:
    text = "\n".join(_texts(line)).lower()
    if text.isascii():
        return text.encode().translate(None, _NO_LETTERS)
    return "".join(LETTERS.findall(text)).encode("utf-8", "replace")


def _is_secret(solid: str) -> bool:
    has = any(map(str.isdigit, solid)) and any(map(str.isalpha, solid))
    return has and _WORD.fullmatch(solid) is None and not _DAY.match(solid)


def _solid_texts(some: Iterable[str]) -> set[str]:
    return {one for text in some for one in _SOLID.findall(text.lower()) if _is_secret(one)}


def _runs(text: str) -> Iterator[str]:
    words = LETTERS.findall(text.lower())
    return (" ".join(words[at : at + _RUN]) for at in range(len(words) - _RUN + 1))


def _texts(line: bytes) -> Iterable[str]:
    objects = [record for _, record in decode_line(line)[0]]
    return chain.from_iterable(map(texts, objects)) if objects else (line.decode("utf-8", "replace"),)
