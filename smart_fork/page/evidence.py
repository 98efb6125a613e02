"""Why a session was found, in words; and the exchange that answers, both sides of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

from indexer.chunks import LABELS
from indexer.masking import Masked, beginning, mask
from indexer.shapes import dataclass
from smart_fork.errors import IndexUnavailable
from smart_fork.text.snippets import printable

if TYPE_CHECKING:
    from indexer.store.base import Placement, Store
    from smart_fork.retrieval.answer import Hit

#: How near a passage is in meaning, by its cosine, in words.
_NEAR = ((0.6, "very near"), (0.45, "near"), (0.3, "somewhat near"))
#: Words that are named; how much of a title has to be in the question to be said, in points.
_NAMED, _TITLE_POINTS, _SESSION_POINTS, _FILES_POINTS = 6, 1.0, 1.0, 1.0
#: In so many passages of an exchange, at its beginning or its end, the other side is looked for.
_LOOKED_AT = 8
#: How much is shown of the side of an exchange that the passage is not of.
OTHER_CHARACTERS = 240


@dataclass(frozen=True, slots=True)
class SpokenPart:
    """One side of an exchange; `found` is the passage itself."""

    by: str
    text: Masked
    found: bool


def why(hit: Hit) -> list[str]:
    """What speaks for it: its words, how near it is in meaning, its files."""
    return [*_by_words(hit), *_by_meaning(hit), *_by_files(hit)]


def spoken(hits: Iterable[Hit]) -> Mapping[str, tuple[SpokenPart, ...]]:
    """By session the exchange that answers: what was asked, what was said; of those of this machine that have one."""
    from smart_fork.retrieval.index_access import opened

    wanted = [hit for hit in hits if hit.snippet and hit.origin is None and hit.match.exchange is not None]
    try:
        with opened() as store:
            return {hit.session_id: tuple(_exchange(hit, store)) for hit in wanted}
    except IndexUnavailable:
        return {}


def _by_words(hit: Hit) -> Iterator[str]:
    points = hit.explain.points if hit.explain is not None else {}
    words = hit.match.words
    if words:
        more = f" and {len(words) - _NAMED} more" if len(words) > _NAMED else ""
        yield f"its words {', '.join(words[:_NAMED])}{more}"
    elif points.get("session_words", 0.0) >= _SESSION_POINTS:
        yield "its words elsewhere in the session"
    if points.get("title", 0.0) >= _TITLE_POINTS:
        yield "its title"


def _by_meaning(hit: Hit) -> Iterator[str]:
    near = hit.match.similarity or 0.0
    word = next((word for least, word in _NEAR if near >= least), "")
    if word:
        yield f"{word} in meaning ({near:.2f})"


def _by_files(hit: Hit) -> Iterator[str]:
    if hit.explain is not None and hit.explain.points.get("files", 0.0) >= _FILES_POINTS:
        yield "it edited files that are in play"
    if hit.drift is not None:
        yield f"{hit.drift.files} {'file' if hit.drift.files == 1 else 'files'} edited here"


def _exchange(hit: Hit, store: Store) -> Iterator[SpokenPart]:
    """Both sides, what was asked first. Of an answer its end; of one that says nothing, what was done."""
    found = SpokenPart(hit.said_by or "", mask(hit.snippet or ""), found=True)
    roles = {"user": ("assistant", "action"), "assistant": ("user",)}.get(found.by, ())
    row = store.session(hit.agent_type, hit.session_id) if roles else None
    places = [
        one for one in (store.placements_of(row.row) if row else ()) if one.exchange == (hit.match.exchange or 1) - 1
    ]
    near = places[:_LOOKED_AT] if found.by == "assistant" else places[-_LOOKED_AT:]
    texts = store.texts([place.chunk for place in near])
    parts = [part for place in near for part in _parts(place, texts.get(place.chunk, ""), store)]
    if found.by == "user":
        parts.reverse()
    said = next((said for role in roles for by, said in parts if by == role and said), "")
    text = mask(printable(said))
    other = "user" if found.by == "assistant" else "assistant"
    beside = [SpokenPart(other, beginning(text, OTHER_CHARACTERS), found=False)] if text else []
    yield from (*beside, found) if found.by == "assistant" else (found, *beside)


def _parts(place: Placement, text: str, store: Store) -> Iterator[tuple[str, str]]:
    """Who says what in a passage; of one from which something was taken out, only who begins."""
    starts: list[tuple[int, str]] = [(0, place.role), *(store.voices(place) or ()), (len(text), "")]
    for (start, by), (end, _) in pairwise(starts):
        yield by, text[start:end].removeprefix(LABELS["user"] if by == "user" else "").strip()
