"""Templates, style sheets and scripts into answers, whose headers let nothing from elsewhere in; a result's reasons.

Style sheets and scripts are as they were when this program began; an upgrade puts others in place. Their addresses tell
their contents, so a browser asks for each once and not again with every page.
"""

from __future__ import annotations

import base64
import hashlib
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import Field
from hashlib import blake2b
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup, escape
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse

from indexer.export import LABELS
from indexer.lazy import dataclass
from indexer.masking import Masked, beginning, mask
from indexer.masking.view import INVISIBLE
from smart_fork.agents import AGENTS
from smart_fork.agents.log_readers import READERS
from smart_fork.errors import IndexUnavailable, SmartForkError
from smart_fork.finding.fork_worth import cache_in_words
from smart_fork.finding.ranking import percent
from smart_fork.finding.results import place_mark, title
from smart_fork.finding.session_view import outcome_in_words
from smart_fork.page import phrases, prose, steps
from smart_fork.repository.uncommitted import FileChange
from smart_fork.snippets import ago, in_words, printable, tokens_about
from smart_fork.workers.state import Compared

if TYPE_CHECKING:
    from indexer.store.base import Placement, Store
    from smart_fork.finding.session_view import Hit


_TYPES = {
    "page.css": "text/css", "page.js": "text/javascript", "session.css": "text/css", "session.js": "text/javascript",
}  # fmt: skip
#: Of what stands at an address that tells its contents, and of what may be another file next time.
_FOR_EVER, _ASK_AGAIN = "public, max-age=31536000, immutable", "no-cache"


class StaticFile(NamedTuple):
    """One of them, and what tells it from its other versions."""

    content: bytes
    media_type: str
    version: str


def _read(name: str) -> StaticFile:
    content = files(__package__).joinpath("static", name).read_bytes()
    return StaticFile(content, _TYPES[name], blake2b(content, digest_size=8).hexdigest())


FILES: Mapping[str, StaticFile] = {name: _read(name) for name in _TYPES}
#: Their addresses need no token.
PUBLIC = tuple(f"/static/{name}" for name in FILES)


def address(name: str) -> str:
    """Return the URL of this version of a file."""
    return f"/static/{name}?v={FILES[name].version}"


def own_style() -> Mapping[str, str]:
    """The style sheets as they stand in a file that loads nothing, and what its policy knows them by."""
    text = "\n" + "".join(FILES[name].content.decode() for name in ("page.css", "session.css"))
    return {"text": text, "digest": base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}


def answer(name: str, version: str) -> Response:
    """The file of that name, to be kept where that version of it was asked for."""
    file = FILES.get(name)
    if file is None:
        return PlainTextResponse("no such file\n", 404)
    kept = _FOR_EVER if version == file.version else _ASK_AGAIN
    headers = {"X-Content-Type-Options": "nosniff", "Cache-Control": kept}
    return Response(file.content, media_type=file.media_type, headers=headers)


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
    """Return the reasons for a hit: its words, its similarity, its files."""
    return [*_by_words(hit), *_by_meaning(hit), *_by_files(hit)]


def spoken(hits: Iterable[Hit]) -> Mapping[str, tuple[SpokenPart, ...]]:
    """By session the exchange that answers: what was asked, what was said; of those of this machine that have one."""
    from smart_fork.finding.index_access import opened

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
    """Yield the speakers and texts of a passage; after a cut, only the first speaker."""
    starts: list[tuple[int, str]] = [(0, place.role), *(store.voices(place) or ()), (len(text), "")]
    for (start, by), (end, _) in pairwise(starts):
        yield by, text[start:end].removeprefix(LABELS["user"] if by == "user" else "").strip()


#: Nothing from elsewhere, and no script or style that stands in the text of a page.
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'; img-src data:"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "same-origin",  # with no-referrer a form of ours would say that it comes from nowhere
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
}
#: So much is sent at once of a page that is sent while it is made, or less where a template says so by this.
PIECE_CHARACTERS, _NOW = 16_384, "\0"


class PageValues:
    """Values of a template: a dataclass whose fields are the template's names."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


#: The same, or the names in a template with their values.
Shown = PageValues | Mapping[str, Any]


def rendered(template: str, *shown: Shown, status: int = 200) -> Response:
    """A page that has the fields of what is shown."""
    return HTMLResponse(written(template, *shown), status, HEADERS)


def written(template: str, *shown: Shown) -> str:
    """The text of a template that has the fields of what is shown."""
    return _environment.get_template(template).render(_known(shown))


def streamed(template: str, *shown: Shown, status: int = 200) -> Response:
    """The same, sent while it is made: what stands first is seen first."""
    return StreamingResponse(_pieces(template, _known(shown)), status, HEADERS, "text/html")


def _pieces(template: str, known: dict[str, Any]) -> Iterator[str]:
    """The text of a template, in pieces that are worth sending."""
    pieces, size = list[str](), 0
    for piece in _environment.get_template(template).generate(known):
        if piece != _NOW:
            pieces.append(piece)
            size += len(piece)
        if size >= PIECE_CHARACTERS or (piece == _NOW and pieces):
            yield "".join(pieces)
            pieces, size = [], 0
    yield "".join(pieces)


def _known(shown: Iterable[Shown]) -> dict[str, Any]:
    time.tzset()  # the computer may be in another time zone by now
    known: dict[str, Any] = {}
    for one in shown:
        known |= one if isinstance(one, Mapping) else {name: getattr(one, name) for name in one.__dataclass_fields__}
    return known


def problem(error: SmartForkError, status: int | None = None) -> Response:
    """A page that says what is wrong, and what to do."""
    return rendered("problem.html", {"problem": error}, status=status or error.http_status)


def stranger(status: int = 401) -> Response:
    """Return the page for a browser that has not signed in: its state, and where to enter a code."""
    return rendered("enter.html", status=status)


def way_in(address: str, code: str) -> bytes:
    """A file that sends `code` to the page at `address` as soon as a browser opens it."""
    return _environment.get_template("way_in.html").render(address=address, code=code).encode()


def as_given(text: str) -> Markup:
    """Escape a value that a form sends again unchanged: invisible characters are written as their numbers."""
    return Markup(INVISIBLE.sub(lambda one: f"&#{ord(one[0])};", str(escape(text))))  # noqa: S704 - escaped


def _seen(value: object) -> object:
    """Return a text of a page without control, direction and invisible characters."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


#: How many signs the style sheet has to tell agents by.
_MARKS = 6

#: Read now: an upgrade puts others in their place while this program runs. Each is compiled when it is first shown.
_SOURCES = {file.name: file.read_text("utf-8") for file in Path(__file__).with_name("templates").iterdir()}

_environment = Environment(
    loader=DictLoader(_SOURCES), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    auto_reload=False, finalize=_seen,
)  # fmt: skip
_environment.globals |= {
    "agents": {agent.name: agent.title for agent in AGENTS},
    "agent_marks": {agent.name: number % _MARKS for number, agent in enumerate(AGENTS)},
    "readable": AGENTS.readable(),
    "readable_titles": AGENTS.titles(AGENTS.readable()),
    "log_folders": [f"~/{place}" for agent in READERS for place in agent.places],
    "link": phrases.link,
    "send_now": Markup(_NOW),  # noqa: S704 - ours
    "session_link": phrases.session_link,
    "static": address,
    "told_agents": AGENTS.handed_to(),
}
_environment.filters |= {
    "ago": ago,
    "called": phrases.called,
    "chance": phrases.chance,
    "clock": phrases.clock,
    "counted": FileChange.counted,
    "day": phrases.day,
    "exact": phrases.exact,
    "file_diffs": steps.diffs_in,
    "given": as_given,
    "homely": phrases.homely,
    "place_mark": place_mark,
    "known_facts": Compared.facts,
    "lasted": in_words,
    "inside": phrases.inside,
    "is_named": phrases.is_named,
    "code": prose.code,
    "own_style": Markup,  # the style sheets that stand beside this
    "prose": prose.prose,
    "outcome_word": outcome_in_words,
    "percent": percent,
    "place": phrases.place,
    "safe_title": title,
    "cached": cache_in_words,
    "tokens": tokens_about,
    "total": Counter.total,
    "why": why,
}
