"""Chooses what to quote from a found passage: the matching sentence and what follows, with the speaker."""

from __future__ import annotations

import logging
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from indexer.embedder import Embedder
from indexer.lazy_compilation import late
from indexer.masking import NOTHING, Masked, between, mask, shorten
from indexer.session_export import LABELS
from indexer.store.base import bigrams
from smart_fork.display_text import printable
from smart_fork.finding.candidates import Candidate

SNIPPET_CHARACTERS = 500
_WORD = late(r"\w+")
_HEADING = late(r"^\s*#{2,6}(?:\s+|$)")
#: A line of Markdown marks only: a heading, rule, quotation, list or table, or the fence around a block of code.
_MARKS = late(r"[\s#>*+=_|:~`.-]*|\s*(?:`{3,}|~{3,})[\w+-]*\s*")
#: The end of a sentence within a line. In scripts without spaces no space follows. Numbers of a list and common
#: abbreviations do not end a sentence.
_END = late(
    r"[\u3002\uff01\uff1f\uff61]+[\u300d\u300f\uff09\u3011\u201d\u2019]*|"
    r"(?<!\be\.g)(?<!\bi\.e)(?<!\betc)(?<!\bvs)(?<!\bcf)(?<!^\d)(?<!^\d\d)[.!?\u2026]+[\"'\u201d\u2019)\]*_`]*(?=\s)",
    re.MULTILINE,
)
_LINE = late(r"[^\n]+")
#: A line of at least this length that continues in lower case was wrapped to fit a screen.
_WRAPPED = 40
#: The weight of a word that begins like an asked word and ends differently.
_BEGINNING = 0.8

log = logging.getLogger(__name__)

Speaker = Literal["user", "assistant"]
#: A function that returns the cosine of each given text to the question.
Nearness = Callable[[Sequence[str]], Sequence[float]]
#: The number of hits that are compared by meaning, and of sentences in each: so few texts are embedded without loading
#: a large framework.
_COMPARED, _SENTENCES = 2, 5


class Quotation(NamedTuple):
    """A text quoted from a passage of a session. `said_by` is the speaker; `None` if unknown."""

    said_by: Speaker | None
    text: Masked


class SpokenPart(NamedTuple):
    """One speaker's text in a passage. It is not masked yet, because most of it is never shown."""

    said_by: Speaker | None
    text: str
    is_action: bool = False


def quotations(hits: Sequence[Candidate], limit: int, nearness: Nearness | None) -> list[Quotation]:
    """Quote the passage of each hit in at most `limit` characters, from the sentence that matches the asked words best.

    Without a match, the quotation begins at the sentence nearest in meaning to the question, or at the first.
    """
    said = [_spoken_parts(hit) for hit in hits]
    telling = [_best_sentence(parts, hit.asked) for parts, hit in zip(said, hits, strict=True)]
    if nearness is not None:
        silent = [number for number, place in enumerate(telling) if place is None and said[number]][:_COMPARED]
        for number, place in zip(silent, _nearest_sentences([said[one] for one in silent], nearness), strict=True):
            telling[number] = place
    return [
        _quoted(parts, place or (0, 0), hit.asked, limit)
        for parts, place, hit in zip(said, telling, hits, strict=True)
    ]  # fmt: skip


def _spoken_parts(hit: Candidate) -> list[SpokenPart]:
    """Split a hit's passage into the texts of its speakers. Lines about an agent's actions are the agent's."""
    if hit.place is None:
        return [SpokenPart(None, said)] if (said := tidied(hit.text)) else []
    role = hit.place.role
    voices = hit.voices
    if voices is None:  # something was taken out of it: behind the prompt may be its answer
        first = hit.text.find("\n") + 1
        voices = ((first, None),) if role == "user" and first else ()
    starts: list[tuple[int, str | None]] = [(0, role), *voices, (len(hit.text), None)]
    parts = [
        SpokenPart(
            None if by is None else "user" if by == "user" else "assistant",
            tidied(hit.text[start:end].removeprefix(LABELS["user"] if by == "user" else "")),
            is_action=by == "action",
        )
        for (start, by), (end, _) in pairwise(starts)
    ]
    return [part for part in parts if part.text]


def _best_sentence(parts: Sequence[SpokenPart], words: Sequence[str]) -> tuple[int, int] | None:
    found, most = None, 0.0
    for number, part in enumerate(parts):
        for place, (start, end) in enumerate(sentences(part.text)):
            if (one := evidence(part.text[start:end], words)) > most:
                found, most = (number, place), one
    return found


def _nearest_sentences(passages: Sequence[Sequence[SpokenPart]], nearness: Nearness) -> list[tuple[int, int] | None]:
    """Return the place (part, sentence) of each passage's sentence with the largest `nearness` to the question."""
    candidates = [_sentences_to_compare(parts) for parts in passages]
    near = iter(nearness([text for among in candidates for *_, text in among]) if any(candidates) else ())
    found: list[tuple[int, int] | None] = []
    for among in candidates:
        ranked = [(next(near), -order) for order in range(len(among))]
        found.append(among[-max(ranked)[1]][:2] if ranked else None)
    return found


def _sentences_to_compare(parts: Sequence[SpokenPart]) -> list[tuple[int, int, str]]:
    """Return (part, sentence, text) of a passage's first sentences; about actions only if there are no others."""
    first = [
        (number, place, part.text[start:end])
        for number, part in enumerate(parts) for place, (start, end) in enumerate(sentences(part.text))
    ][:_SENTENCES]  # fmt: skip
    return [one for one in first if not parts[one[0]].is_action] or first


def _quoted(parts: Sequence[SpokenPart], place: tuple[int, int], words: Sequence[str], limit: int) -> Quotation:
    number, sentence = place
    if number >= len(parts):
        return Quotation(None, NOTHING)
    return Quotation(parts[number].said_by, snippet(parts[number].text, words, limit, nearest=sentence))


def nearness(embedder: Embedder, asked: Callable[[], Sequence[bytes]]) -> Nearness:
    """Return a function that computes the cosines of texts to the nearest of the vectors that `asked` returns."""

    def near(texts: Sequence[str]) -> list[float]:
        from indexer.one_thread_numpy import np

        try:
            given, vectors = asked(), embedder.embed(texts)
        except Exception as error:  # noqa: BLE001 - the model is the user's choice: then the first sentences are shown
            log.info("sentences are not compared: %s", error)
            return [0.0] * len(texts)
        phrasings = np.frombuffer(b"".join(given), np.float32).reshape(len(given), -1)
        return [float((phrasings @ one).max()) for one in vectors]

    return near


# The part of a text that is shown.


def snippet(text: str, words: Iterable[str], limit: int = SNIPPET_CHARACTERS, *, nearest: int | None = None) -> Masked:
    """Return at most `limit` characters of `text`, masked, from the sentence that matches `words` best.

    Without a match it begins at sentence `nearest`, else at the first. Control characters are removed: snippets are
    shown in terminals.
    """
    text, words = mask(tidied(text)), tuple(words)
    spans = sentences(text)
    if not spans:
        return shorten(text, limit)
    chosen = best(text, spans, words)
    if chosen is None:
        chosen = nearest if nearest is not None and nearest < len(spans) else 0
    start, end = spans[chosen]
    if end - start > limit:  # no sentence, or a very long one: around where most of the words stand
        start += _densest(text[start:end], frozenset(words), limit - 2)
        space = text.find(" ", start, start + 40) if start > spans[chosen][0] else start - 1
        start = space + 1 if space >= 0 else start
        return between(text, start, min(end, start + limit - 2), cut=(start > spans[chosen][0], True))
    for _, after in spans[chosen + 1 :]:
        if after - start > limit:
            break
        end = after
    return between(text, start, end)


def tidied(text: str) -> str:
    """Return `text` without control characters, blank lines, and lines that are only Markdown marks."""
    lines = (_HEADING.sub("", line.rstrip()) for line in printable(text).strip().splitlines())
    return "\n".join(line for line in lines if not _MARKS.fullmatch(line))


def matched_words(text: str, words: Iterable[str]) -> tuple[str, ...]:
    """Return the `words` that occur in `text`, also as the beginning of a longer word."""
    text = bigrams(text.lower())
    there = {*_WORD.findall(text), *_WORD.findall(text.replace("_", " "))}
    in_order = sorted(there)
    return tuple(word for word in words if word in there or (len(word) > 3 and _begins_one(word, in_order)))


def _begins_one(word: str, in_order: Sequence[str]) -> bool:
    place = bisect_left(in_order, word)
    return place < len(in_order) and in_order[place].startswith(word)


def _densest(text: str, words: frozenset[str], width: int) -> int:
    """Return where an excerpt of `width` characters begins that has as many different query words as possible."""
    stems = tuple(word[: max(4, len(word) - 2)] for word in words)
    places = (
        [(m.start(), m[0].lower()) for m in _WORD.finditer(text) if m[0].lower().startswith(stems)] if stems else []
    )
    best, start = 0, 0
    for first, (begin, _) in enumerate(places):
        inside = {word for at, word in places[first:] if at < begin + width - 60}
        if len(inside) > best:
            best, start = len(inside), max(0, begin - 60)
    return min(start, max(0, len(text) - width))


def sentences(text: str) -> list[tuple[int, int]]:
    """Return the start and end of each sentence in `text`, in order, without surrounding white space."""
    spans = []
    for start, end in _paragraphs(text):
        cuts = [start, *(found.end() for found in _END.finditer(text, start, end) if found.end() < end), end]
        spans += [_trimmed(text, *span) for span in pairwise(cuts)]
    return [(start, end) for start, end in spans if start < end]


def evidence(sentence: str, words: Iterable[str]) -> float:
    """Return how many of the `words` a sentence has. A word with another ending counts less than 1."""
    text = sentence.lower()
    tokens = {*_WORD.findall(text), *_WORD.findall(text.replace("_", " "))}
    beginnings = f" {' '.join(tokens)}"
    return sum([_found(word, tokens, beginnings, text) for word in words])


def best(text: str, spans: Sequence[tuple[int, int]], words: Sequence[str]) -> int | None:
    """Return the index of the sentence that has most of the `words`, among equals the first; `None` if none has any.

    `spans` are the start and end of each sentence.
    """
    given = [evidence(text[start:end], words) for start, end in spans]
    return given.index(max(given)) if any(given) else None


def _paragraphs(text: str) -> list[tuple[int, int]]:
    """Return the start and end of each line; a wrapped sentence counts as one line."""
    found: list[tuple[int, int]] = []
    for line in _LINE.finditer(text):
        start, end = line.span()
        if found and _goes_on(text, found[-1], start):
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found


def _goes_on(text: str, before: tuple[int, int], start: int) -> bool:
    line = text[text.rfind("\n", 0, before[1]) + 1 : before[1]].rstrip()
    return before[1] == start - 1 and len(line) >= _WRAPPED and line[-1] not in ".!?:;{}()[]" and text[start].islower()


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    whole = text[start:end]
    return start + len(whole) - len(whole.lstrip()), start + len(whole.rstrip())


def _found(word: str, tokens: set[str], beginnings: str, text: str) -> float:
    word = word.lower()
    if word in tokens or (not word.isascii() and word in text):  # many scripts have no spaces
        return 1.0
    stem = word[: max(4, len(word) - 2)]
    return _BEGINNING if len(word) > 3 and f" {stem}" in beginnings else 0.0
