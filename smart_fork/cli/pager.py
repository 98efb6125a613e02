"""Prints a conversation on a terminal: as rendered Markdown, wrapped at words, in the person's pager."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import RenderableType
from rich.markdown import Markdown
from rich.padding import Padding

from smart_fork.cli.output import out, plain, write
from smart_fork.display_text import printable
from smart_fork.system.call_context import calling
from smart_fork.system.processes import Processes

#: The indentation of messages, so that no text in them looks like the heading of a message.
_INDENT = 4
#: The most columns of a line: longer lines are hard to read.
_MAX_WIDTH = 100
_BLANKS_AT_END = re.compile(r" +$", re.MULTILINE)
#: Rules of Markdown that are switched off: they hide written text, or show something else.
_HIDING = ("reference", "image", "html_block", "html_inline")


class _Rendered(Markdown):
    """Markdown from a log in a form that is safe on a terminal: no hidden text, links or control characters."""

    def __init__(self, text: str) -> None:
        super().__init__("", code_theme="ansi_dark", hyperlinks=False)
        self.parsed = [
            _cleaned(one) for one in MarkdownIt().enable(["strikethrough", "table"]).disable(_HIDING).parse(text)
        ]


def _cleaned(token: Token) -> Token:
    """Return the Markdown `token` without control characters, also those from HTML (``&#27;``). Line breaks stay."""
    token.content = printable(token.content)
    token.attrs = {name: printable(str(value)) for name, value in token.attrs.items()}
    token.type = "hardbreak" if token.type == "softbreak" else token.type
    token.tag = "h2" if token.tag == "h1" else token.tag  # rich has the others where their text begins
    token.children = [_cleaned(one) for one in token.children] if token.children else token.children
    return token


def show(parts: Iterable[tuple[str, str]], *, pages: bool) -> None:
    """Print a conversation, pairs of text and role, on this terminal; with `pages` in the person's pager."""
    texts, argv = _rendered(parts), _pager() if pages else []
    if not argv:
        for text in texts:
            write(text)
        return
    usual = {"LESS": "FRX", "LV": "-c", "LESSCHARSET": "utf-8"}  # as git has it
    with Processes.pager(argv, usual | os.environ) as given:
        for text in texts:
            given.write(text.encode("utf-8", "replace"))


def _rendered(parts: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield the rendered `parts` of a conversation one by one, so that the first page appears immediately."""
    console = out.console
    for text, role in parts:
        # What a person typed is no Markdown: a log that was pasted keeps its lines.
        body: RenderableType = plain(text).__rich__() if role == "user" else _Rendered(text)
        with console.capture() as captured:
            around = (1, 0, 0, _INDENT if role else 0)
            console.print(Padding(body, around), soft_wrap=False, width=min(console.width, _MAX_WIDTH))
        yield _BLANKS_AT_END.sub("", captured.get())


def _pager() -> list[str]:
    """Return the command of the person's pager; empty if it is not to be used, as when an agent runs this command."""
    if calling.get() is not None or os.environ.get("TERM") == "dumb":
        return []
    words = os.environ.get("PAGER", "less").split()
    return words if words and words[0] != "cat" and shutil.which(words[0]) else []
