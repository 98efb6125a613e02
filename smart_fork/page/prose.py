"""Renders messages as HTML: Markdown without its own HTML, code in colors. Pure.

Its `Markup` is the only text that templates take as it is. Links lead to the web or to mail alone, images are words,
nothing that was said names a class, an id or a style.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from html import escape
from itertools import groupby
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from markupsafe import Markup
from pygments.lexers import get_lexer_by_name
from pygments.token import Token as Kind
from pygments.util import ClassNotFound

#: A longer text is shown as it was written, and code without colours that is longer, or of more or longer lines: what
#: finds its words takes the square of that for some.
MOST_CHARACTERS, MOST_COLOURED, _MOST_LINES, _MOST_COLUMNS = 40_000, 8_000, 400, 400
#: How people write the languages whose colours are worth waiting for; others are shown without.
_LANGUAGES = frozenset(
    """
    bash c c++ console cpp cs csharp css diff docker dockerfile go golang graphql haskell html http ini java javascript
    js json json5 jsonc jsx kotlin kt lua nginx objc perl php powershell proto protobuf ps1 py py3 pycon
    python python3 r rb rs ruby rust scala sh shell shell-session sql svelte swift toml ts tsx typescript
    vue xml yaml yml zig zsh
    """.split()  # noqa: SIM905 - easier to read than so many quotes
)
_LINK = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)
_WORDS = re.compile(r"(\w+)")
#: A word of the question shorter than this is only that word, not the beginning of a longer one.
_STEM = 4
#: What brackets and quotation marks may be nested in each other.
_DEPTH = 20
#: Of these signs a text has so many at most: some of their combinations take long to read.
_SIGNS, _MOST_SIGNS = re.compile(r"[\[\]<>*_`~!|]"), 8_000


def prose(text: str, words: Sequence[str] = ()) -> Markup:
    """`text` as HTML, the `words` of a question marked in it."""
    return _prose(text, tuple(words))


@lru_cache(maxsize=4096)
def _prose(text: str, words: tuple[str, ...]) -> Markup:
    if len(text) > MOST_CHARACTERS or len(_SIGNS.findall(text)) > _MOST_SIGNS:
        return Markup('<p class="as-written" dir="auto">{}</p>').format(_marked(text, words))
    try:
        return Markup(_MARKDOWN.render(text, {"words": words}))  # noqa: S704 - what `_Renderer` has written
    except (RecursionError, ValueError, IndexError, KeyError):  # whatever it is, it can be read as it was written
        return Markup('<p class="as-written" dir="auto">{}</p>').format(_marked(text, words))


def code(text: str, language: str = "") -> Markup:
    """Code with classes for its colours, where its language is known."""
    name = language.lower()
    if name not in _LANGUAGES or len(text) > MOST_COLOURED or not _has_short_lines(text):
        return Markup(escape(text, quote=False))  # noqa: S704 - escaped
    try:
        lexer = get_lexer_by_name(name, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return Markup(escape(text, quote=False))  # noqa: S704 - escaped
    return Markup("".join(_coloured(lexer.get_tokens(text))))  # noqa: S704 - each of them escaped


def _has_short_lines(text: str) -> bool:
    lines = text.split("\n")
    return len(lines) <= _MOST_LINES and all(len(line) <= _MOST_COLUMNS for line in lines)


def _coloured(tokens: Iterable[tuple[Any, str]]) -> Iterator[str]:
    """The words of a program, neighbours of one colour together."""
    for name, group in groupby(tokens, key=lambda token: _colour_of(token[0])):
        words = escape("".join(word for _, word in group), quote=False)
        yield f'<span class="{name}">{words}</span>' if name else words


@lru_cache(maxsize=512)
def _colour_of(kind: Any) -> str:
    return next((name for kinds, name in _COLOURS if any(kind in one for one in kinds)), "")


def _marked(text: str, words: Sequence[str]) -> Markup:
    """`text` with the words of a question marked, also where they begin longer ones."""
    wanted = {word.lower() for word in words}
    stems = tuple(word for word in wanted if len(word) >= _STEM)

    def shown(word: str) -> str:
        found = word.lower() in wanted or (stems and word.lower().startswith(stems))
        return f"<mark>{escape(word)}</mark>" if found else escape(word)

    return Markup("".join(map(shown, _WORDS.split(text)))) if wanted else Markup.escape(text)  # noqa: S704 - escaped


class _Renderer(RendererHTML):
    """The output for each kind of token. Others only have a tag from `_TAGS`."""

    def text(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return str(_marked(tokens[idx].content, env.get("words", ())))

    def softbreak(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """A line's end stays one: logs are written line by line."""
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
        """The headings of the page are its exchanges."""
        return f'<p class="heading" data-level="{int(tokens[idx].tag[1:])}">'

    def heading_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return "</p>\n"

    def table_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return '<div class="table" tabindex="0"><table>\n'

    def table_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return "</table></div>\n"

    def th_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """Render a cell without its alignment, which would be a style, and no page of ours has one."""
        align = str(tokens[idx].attrGet("style") or "").removeprefix("text-align:")
        return f'<{tokens[idx].tag} class="{align}">' if align in ("center", "right") else f"<{tokens[idx].tag}>"

    td_open = th_open


#: The classes of the style sheet; what comes first counts.
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
