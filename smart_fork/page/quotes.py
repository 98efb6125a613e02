"""What was said, in a Markdown file of ours: nothing in it passes for a heading, a step or a message of the file.

Every line is quoted, so that no block of it reaches beyond its own message; and what would be HTML is text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache

from markdown_it import MarkdownIt

#: What begins a tag, a comment or an instruction, and the backslashes before it: an odd one makes it text already.
_TAG = re.compile(r"(\\*)<(?=[A-Za-z/!?])")
_CODE = ("fence", "code_block")
#: A longer text is not looked at for its code: what finds it takes the square of that for some.
_MOST = 40_000


def quoted_lines(text: str) -> Iterator[str]:
    """`text` as the lines of a quotation; what is HTML in it is text, but for code, where it is that already."""
    lines = [f"> {line}".rstrip() for line in text.splitlines()]
    in_code = _code_lines(lines)
    yield from (
        lines
        if in_code is None
        else (line if number in in_code else _as_text(line) for number, line in enumerate(lines))
    )


def in_line(text: str) -> str:
    """`text` as part of a line that is not code."""
    return _as_text(" ".join(text.split()))


def code(text: str) -> str:
    """`text` in a line as code, whatever marks are in it."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    marks, room = "`" * (longest + 1), " " if longest else ""
    return f"{marks}{room}{text}{room}{marks}" if text else ""


def _as_text(line: str) -> str:
    return _TAG.sub(lambda found: found[0] if len(found[1]) % 2 else f"{found[1]}\\<", line)


def _code_lines(lines: Sequence[str]) -> frozenset[int] | None:
    """The lines that are in blocks of code, `None` where there is no HTML in any line."""
    if not any(_TAG.search(line) for line in lines):
        return None
    if sum(map(len, lines)) > _MOST:
        return frozenset()
    blocks = _reader().parse("\n".join(lines))
    tokens = (token for block in blocks for token in (block, *(block.children or ())))
    if not any(token.type.startswith("html") for token in tokens):
        return None
    return frozenset(n for block in blocks if block.type in _CODE and block.map for n in range(*block.map))


@cache
def _reader() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": True})
