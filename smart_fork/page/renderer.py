"""Renders templates, Markdown and code as HTML. The headers of a page keep it from loading anything of other sites.

Style sheets, scripts and templates are read when the program starts, since an upgrade replaces the files. HTML in a
message's Markdown is shown as text. Templates escape all text that is not `Markup`. Links lead only to the web or to
mail, an image becomes its description, and no message can set a class, an id or a style.
"""

from __future__ import annotations

import base64
import hashlib
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import Field
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b
from html import escape
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol
from urllib.parse import quote, urlencode

from jinja2 import DictLoader, Environment, StrictUndefined
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from markupsafe import Markup
from markupsafe import escape as escaped
from pygments.lexers import get_lexer_by_name
from pygments.token import Token as Kind
from pygments.util import ClassNotFound
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse

from indexer.masking import mask, shorten
from indexer.masking.alternate_readings import INVISIBLE
from smart_fork.agents import AGENTS
from smart_fork.agents.log_readers import READERS
from smart_fork.display_text import ago, in_words, printable, time_of, tokens_about
from smart_fork.errors import SmartForkError
from smart_fork.finding.fork_suitability import cache_in_words
from smart_fork.finding.hit import outcome_in_words
from smart_fork.finding.ranking import percent
from smart_fork.finding.results import place_mark, title
from smart_fork.forking.worker_spec import name_of
from smart_fork.page import agent_steps
from smart_fork.workers.results import Compared
from smart_fork.workers.uncommitted import FileChange

_TYPES = {
    "page.css": "text/css", "page.js": "text/javascript", "session.css": "text/css", "session.js": "text/javascript",
}  # fmt: skip
#: Cache headers: for an address with a digest of its content, and for other addresses.
_FOR_EVER, _ASK_AGAIN = "public, max-age=31536000, immutable", "no-cache"


class StaticFile(NamedTuple):
    """A style sheet or script of the page. Its `version` is a digest of its content."""

    content: bytes
    media_type: str
    version: str


def _read(name: str) -> StaticFile:
    content = files(__package__).joinpath("static", name).read_bytes()
    return StaticFile(content, _TYPES[name], blake2b(content, digest_size=8).hexdigest())


FILES: Mapping[str, StaticFile] = {name: _read(name) for name in _TYPES}
#: The addresses of the static files, which need no token.
PUBLIC = tuple(f"/static/{name}" for name in FILES)


def address(name: str) -> str:
    """Return the URL of the style sheet or script `name`. It contains a digest of the content."""
    return f"/static/{name}?v={FILES[name].version}"


def own_style() -> Mapping[str, str]:
    """Return the style sheets to embed in a file, as `text` with its `digest` for the content security policy."""
    text = "\n" + "".join(FILES[name].content.decode() for name in ("page.css", "session.css"))
    return {"text": text, "digest": base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}


def answer(name: str, version: str) -> Response:
    """Answer with the style sheet or script `name`. A browser may cache the current `version` forever."""
    file = FILES.get(name)
    if file is None:
        return PlainTextResponse("no such file\n", 404)
    kept = _FOR_EVER if version == file.version else _ASK_AGAIN
    headers = {"X-Content-Type-Options": "nosniff", "Cache-Control": kept}
    return Response(file.content, media_type=file.media_type, headers=headers)


#: The words for a search result's score, each with the lowest score for which it is used.
_CHANCES = ((0.75, "very likely"), (0.5, "likely"), (0.3, "possible"), (0.0, "unlikely"))
#: The periods of a list of sessions, by their age in days.
_PERIODS, _EARLIER = ((0, "Today"), (1, "Yesterday"), (7, "Last 7 days"), (30, "Last 30 days")), 31
#: The characters of a prompt that name its worker.
NAME_CHARACTERS = 100


def period(moment: str | None) -> str:
    """Return the heading under which a list shows a session of time `moment`, such as "Today" or "Last 7 days"."""
    then = time_of(moment)
    days = (datetime.now(UTC).astimezone().date() - then.date()).days if then else _EARLIER
    return next((name for most, name in _PERIODS if days <= most), "Earlier")


def exact(moment: str | None) -> str:
    """Format `moment` to the minute, in this machine's time: "Thu 3 Dec 2026, 14:05"."""
    then = time_of(moment)
    return f"{then:%a} {then.day} {then:%b %Y, %H:%M}" if then else ""


def day(moment: str | None) -> str:
    """Format `moment` as a day: "3 Dec 2026"."""
    then = time_of(moment)
    return f"{then.day} {then:%b %Y}" if then else ""


def clock(moment: str | None) -> str:
    """Format `moment` for a message of a conversation: "3 Dec, 14:05"."""
    then = time_of(moment)
    return f"{then.day} {then:%b, %H:%M}" if then else ""


def chance(score: float) -> str:
    """Return a search result's score (0 to 1) in words, from "very likely" to "unlikely"."""
    return next(word for least, word in _CHANCES if score >= least)


def place(path: str | None) -> str:
    """Shorten the path of a directory: ``~`` stands for the home directory. Return "" for `None`."""
    text, start = " ".join(printable(path or "").splitlines()), str(Path.home())
    return f"~{text[len(start) :]}" if text == start or text.startswith(f"{start}/") else text


def with_tilde(command: str) -> str:
    """Shorten the home directory to ``~`` in a command that begins with `cd` to a directory below it.

    A shell does not expand ``~`` in quotes, so a quoted directory stays.
    """
    start = f"cd {Path.home()}/"
    return f"cd ~/{command[len(start) :]}" if command.startswith(start) else command


def link(path: str, **query: Any) -> str:
    """Return `path` with a query string, without empty values. A list gives one parameter for each element."""
    given = {name: value for name, value in query.items() if value not in (None, "", [])}
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


def is_named(one: Any) -> bool:
    """Return True if the worker `one` has a name from the user, not its id or the start of its prompt."""
    return one.name not in ("", one.worker_id, name_of(getattr(one, "prompt", "")))


def worker_title(one: Any) -> str:
    """Return the name of the worker `one` on the page: the user's name for it, the start of its prompt, or its id."""
    asked = "" if is_named(one) else shorten(mask(getattr(one, "prompt", "")), NAME_CHARACTERS)
    return printable(asked or one.name or one.worker_id or "")


class Addressed(Protocol):
    """A value that identifies a session: its agent and its id."""

    @property
    def agent_type(self) -> str:
        """Return the session's agent."""

    @property
    def session_id(self) -> str:
        """Return the session's id, as its agent writes it."""


def session_link(one: Addressed, at: int | None = None, kind: str = "session", **query: Any) -> str:
    """Return the address of the session `one`, at message `at` if given, or with the `kind` "family", of its family."""
    path = "/".join(quote(part, safe="") for part in (one.agent_type, one.session_id))
    return link(f"/{kind}/{path}", at=at, **query) + (f"#message-{at}" if at is not None else "")


def subagent_link(one: Addressed, name: str, **query: Any) -> str:
    """Return the address of the conversation of a sub-agent, called `name`, of the session `one`."""
    return link(f"{session_link(one)}/agents/{quote(name, safe='')}", **query)


#: The limits of Markdown, and of code in colors by characters, lines and columns. Beyond them text is shown plain,
#: since parsing takes quadratic time for some texts.
MAX_CHARACTERS, MAX_COLOURED, _MAX_LINES, _MAX_COLUMNS = 40_000, 8_000, 400, 400
#: The names of languages that are shown in colors.
_LANGUAGES = frozenset(
    """
    bash c c++ console cpp cs csharp css diff docker dockerfile go golang graphql haskell html http ini java javascript
    js json json5 jsx kotlin lua nginx objc perl php powershell proto protobuf ps1 py py3 pycon python python3 r rb rs
    ruby rust scala sh shell shell-session sql swift toml ts tsx typescript vue xml yaml yml zig zsh
    """.split()  # noqa: SIM905 - easier to read than so many quotes
)
#: Names that Pygments lacks, with the nearest language that it has.
_NEAREST_LANGUAGES = {"jsonc": "json5", "kt": "kotlin", "svelte": "html"}
_LINK = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)
_WORD = re.compile(r"(\w+)")
#: The shortest word of a question that also matches the beginning of a longer word.
_STEM = 4
#: The deepest nesting of brackets and quotations.
_DEPTH = 20
#: Signs of Markdown, and their largest number in a text. Some combinations take long to parse.
_SIGNS, _MAX_SIGNS = re.compile(r"[\[\]<>*_`~!|]"), 8_000


def prose(text: str, words: Sequence[str] = ()) -> Markup:
    """Render Markdown as HTML, and highlight the `words` of a search question in it."""
    return _prose(text, tuple(words))


@lru_cache(maxsize=4096)
def _prose(text: str, words: tuple[str, ...]) -> Markup:
    if len(text) <= MAX_CHARACTERS and len(_SIGNS.findall(text)) <= _MAX_SIGNS:
        with suppress(RecursionError, ValueError, IndexError, KeyError):  # it can be read as it was written
            return Markup(_MARKDOWN.render(text, {"words": words}))  # noqa: S704 - what `_Renderer` has written
    return Markup('<p class="as-written" dir="auto">{}</p>').format(_marked(text, words))


def code(text: str, language: str = "") -> Markup:
    """Render code as HTML, in colors if the language is known and the code is short enough."""
    name = _NEAREST_LANGUAGES.get(language.lower(), language.lower())
    if name in _LANGUAGES and len(text) <= MAX_COLOURED and _has_short_lines(text):
        with suppress(ClassNotFound):  # an older version of the library
            lexer = get_lexer_by_name(name, stripnl=False, ensurenl=False)
            return Markup("".join(_coloured(lexer.get_tokens(text))))  # noqa: S704 - each of them escaped
    return Markup(escape(text, quote=False))  # noqa: S704 - escaped


def _has_short_lines(text: str) -> bool:
    lines = text.split("\n")
    return len(lines) <= _MAX_LINES and all(len(line) <= _MAX_COLUMNS for line in lines)


def _coloured(tokens: Iterable[tuple[Any, str]]) -> Iterator[str]:
    """Render a lexer's tokens of code as HTML. Neighboring tokens of one color share an element."""
    for name, group in groupby(tokens, key=lambda token: _colour_of(token[0])):
        words = escape("".join(word for _, word in group), quote=False)
        yield f'<span class="{name}">{words}</span>' if name else words


@lru_cache(maxsize=512)
def _colour_of(kind: Any) -> str:
    return next((name for kinds, name in _COLOURS if any(kind in one for one in kinds)), "")


def _marked(text: str, words: Sequence[str]) -> Markup:
    """Escape `text`, and highlight the `words` of a search question in it, also as beginnings of longer words."""
    wanted = {word.lower() for word in words}
    stems = tuple(word for word in wanted if len(word) >= _STEM)

    def shown(word: str) -> str:
        found = word.lower() in wanted or (stems and word.lower().startswith(stems))
        return f"<mark>{escape(word)}</mark>" if found else escape(word)

    return Markup("".join(map(shown, _WORD.split(text)))) if wanted else Markup.escape(text)  # noqa: S704 - escaped


class _Renderer(RendererHTML):
    """The Markdown renderer of markdown-it, with other HTML for headings, images, links, code and tables."""

    def text(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return str(_marked(tokens[idx].content, env.get("words", ())))

    def softbreak(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """Render a line break as ``<br>``, because agents' logs are written line by line."""
        return "<br>\n"

    hardbreak = softbreak

    def fence(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        language = tokens[idx].info.split(maxsplit=1)
        inside = code(tokens[idx].content.removesuffix("\n"), *language[:1])
        return f'<pre class="code" dir="ltr" tabindex="0"><code>{inside}</code></pre>\n'

    code_block = fence

    def image(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        said = self.renderInlineAsText(tokens[idx].children, options, env)
        return f'<span class="image">[image{": " if said else ""}{escape(said)}]</span>'

    def link_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return f'<a href="{escape(str(tokens[idx].attrGet("href") or ""))}" rel="noopener noreferrer nofollow">'

    def heading_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """Render a heading as a paragraph, because the headings of the page are its exchanges."""
        return f'<p class="heading" data-level="{int(tokens[idx].tag[1:])}">'

    def heading_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return "</p>\n"

    def table_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return '<div class="table" tabindex="0"><table>\n'

    def table_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return "</table></div>\n"

    def th_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """Render a table cell with a class for its alignment: the page's policy allows no style attribute."""
        align = str(tokens[idx].attrGet("style") or "").removeprefix("text-align:")
        return f'<{tokens[idx].tag} class="{align}">' if align in ("center", "right") else f"<{tokens[idx].tag}>"

    td_open = th_open


#: The class in the style sheet for each kind of token. The first match counts.
_COLOURS = (
    ((Kind.Comment, Kind.Generic.Output), "c-comment"),
    ((Kind.Literal.String, Kind.Generic.Inserted), "c-string"),
    ((Kind.Literal.Number, Kind.Keyword.Constant), "c-number"),
    ((Kind.Keyword, Kind.Operator.Word, Kind.Generic.Prompt), "c-keyword"),
    ((Kind.Name.Function, Kind.Name.Class, Kind.Name.Tag, Kind.Generic.Heading, Kind.Generic.Subheading), "c-name"),
    ((Kind.Name.Builtin, Kind.Name.Attribute, Kind.Name.Decorator, Kind.Name.Variable), "c-known"),
    ((Kind.Generic.Deleted,), "c-deleted"),
)
_MARKDOWN = MarkdownIt(
    "commonmark",
    {"html": False, "xhtmlOut": False, "linkify": False, "typographer": False, "maxNesting": _DEPTH},
    renderer_cls=_Renderer,
).enable(["table", "strikethrough"])
_MARKDOWN.validateLink = lambda address: _LINK.match(address) is not None  # type: ignore[method-assign, assignment]


#: The policy of a page: nothing from elsewhere, and no inline script or style.
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
#: The size of a piece of a streamed page, and the mark with which a template sends a smaller piece immediately.
PIECE_CHARACTERS, _NOW = 16_384, "\0"


class PageValues:
    """The base class of dataclasses with a template's values. The template uses each field by its name."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


#: The values of a template, as an object or as a mapping.
Shown = PageValues | Mapping[str, Any]


def rendered(template: str, *shown: Shown, status: int = 200) -> Response:
    """Render a template as an HTML response. The template uses the fields or keys of `shown` by their names."""
    return HTMLResponse(written(template, *shown), status, HEADERS)


def written(template: str, *shown: Shown) -> str:
    """Render a template as text. The template uses the fields or keys of `shown` by their names."""
    return _environment.get_template(template).render(_known(shown))


def streamed(template: str, *shown: Shown, status: int = 200) -> Response:
    """Render a template as a response that is sent piece by piece, so that a browser shows its beginning early."""
    return StreamingResponse(_pieces(template, _known(shown)), status, HEADERS, "text/html")


def _pieces(template: str, known: dict[str, Any]) -> Iterator[str]:
    """Yield a template, rendered with the values `known`, in pieces of `PIECE_CHARACTERS`, smaller at ``send_now``."""
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
    """Return a page that shows an error and what the user can do."""
    return rendered("problem.html", {"problem": error}, status=status or error.http_status)


def sign_in_page(status: int = 401) -> Response:
    """Return the page where a user types the sign-in code of ``smart-fork open``."""
    return rendered("enter.html", status=status)


def code_file(address: str, code: str) -> bytes:
    """Return an HTML file that sends the sign-in `code` to the page at `address` when a browser opens it."""
    return _environment.get_template("way_in.html").render(address=address, code=code).encode()


def as_given(text: str) -> Markup:
    """Escape the value of a hidden field, invisible characters too, so that the browser returns it unchanged."""
    return Markup(INVISIBLE.sub(lambda one: f"&#{ord(one[0])};", str(escaped(text))))  # noqa: S704 - escaped


def _printable(value: object) -> object:
    """Remove control, direction and invisible characters from a template's value if it is plain text."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


#: The number of signs in the style sheet that distinguish agents.
_MARKS = 6

#: The templates, read at the start since an upgrade replaces the files. Each is compiled at its first use.
_SOURCES = {file.name: file.read_text("utf-8") for file in Path(__file__).with_name("templates").iterdir()}

_environment = Environment(
    loader=DictLoader(_SOURCES), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    auto_reload=False, finalize=_printable,
)  # fmt: skip
_environment.globals |= {
    "agents": {agent.name: agent.title for agent in AGENTS},
    "agent_marks": {agent.name: number % _MARKS for number, agent in enumerate(AGENTS)},
    "readable": AGENTS.readable(),
    "readable_titles": AGENTS.titles(AGENTS.readable()),
    "log_folders": [f"~/{place}" for agent in READERS for place in agent.places],
    "link": link,
    "send_now": Markup(_NOW),  # noqa: S704 - ours
    "session_link": session_link,
    "static": address,
    "told_agents": AGENTS.handed_to(),
}
_environment.filters |= {
    "ago": ago,
    "called": worker_title,
    "chance": chance,
    "clock": clock,
    "counted": FileChange.counted,
    "day": day,
    "exact": exact,
    "file_diffs": agent_steps.diffs_in,
    "given": as_given,
    "with_tilde": with_tilde,
    "place_mark": place_mark,
    "known_facts": Compared.facts,
    "lasted": in_words,
    "inside": agent_steps.shorten_paths,
    "is_named": is_named,
    "code": code,
    "own_style": Markup,  # the style sheets that stand beside this
    "prose": prose,
    "outcome_word": outcome_in_words,
    "percent": percent,
    "place": place,
    "safe_title": title,
    "cached": cache_in_words,
    "tokens": tokens_about,
    "total": Counter.total,
}
