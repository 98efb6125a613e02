"""What was said, cut into prose and code, as a page shows it. Pure; it is text, and stays text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal

from indexer.shapes import dataclass

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)")
_RUN = re.compile(r"`([^`\n]+)`|\*\*(\S[^*\n]*)\*\*")
_WORD = re.compile(r"\w+", re.UNICODE)
#: A word of the question shorter than this is only that word, not the beginning of a longer one.
_STEM = 4


@dataclass(frozen=True, slots=True)
class Block:
    """Prose, or code between fences."""

    text: str
    code: bool = False
    language: str = ""


@dataclass(frozen=True, slots=True)
class TextRun:
    """A stretch of a line that is shown in one way."""

    text: str
    kind: Literal["plain", "code", "strong", "mark"] = "plain"


def blocks(text: str) -> list[Block]:
    """`text` in order. Code whose fence is never closed goes on to the end."""
    found: list[Block] = []
    lines: list[str] = []
    fence, language = "", ""

    def close(*, code: bool) -> None:
        joined = "\n".join(lines) if code else "\n".join(lines).strip("\n")
        if joined.strip():
            found.append(Block(joined, code, language))
        lines.clear()

    for line in text.split("\n"):
        opening = _FENCE.match(line)
        if fence and opening and opening[1].startswith(fence) and not opening[2]:
            close(code=True)
            fence, language = "", ""
        elif not fence and opening:
            close(code=False)
            fence, language = opening[1], opening[2]
        else:
            lines.append(line)
    close(code=bool(fence))
    return found


def runs(text: str) -> Iterator[TextRun]:
    """Prose with its `code` and **strong** stretches."""
    end = 0
    for match in _RUN.finditer(text):
        if match.start() > end:
            yield TextRun(text[end : match.start()])
        yield TextRun(match[1], "code") if match[1] else TextRun(match[2], "strong")
        end = match.end()
    if end < len(text):
        yield TextRun(text[end:])


def marked(text: str, words: Iterable[str]) -> Iterator[TextRun]:
    """`text` with the words of a question marked, also where they begin longer ones."""
    wanted = {word.lower() for word in words}
    stems = tuple(word for word in wanted if len(word) >= _STEM)
    end = 0
    for match in _WORD.finditer(text):
        word = match[0].lower()
        if word in wanted or (stems and word.startswith(stems)):
            if match.start() > end:
                yield TextRun(text[end : match.start()])
            yield TextRun(match[0], "mark")
            end = match.end()
    if end < len(text):
        yield TextRun(text[end:])
