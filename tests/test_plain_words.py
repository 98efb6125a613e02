"""The pages that users read are in plain words: short sentences, and none of the words that make them riddles."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parent.parent
#: Pages for those who change smart-fork, and pages that the code writes.
OTHERS = {"agents.md", "architecture.md", "benchmarks.md", "json.md"}
PAGES = [
    ROOT / "README.md",
    *(
        page
        for page in sorted((ROOT / "docs").rglob("*.md"))
        if page.name not in OTHERS and page.parent.name != "reference"
    ),
]
LONGEST = 25
BANNED = re.compile(
    r"\b(?:what (?:is|was|of|has)|whose|(?:that|those) of|none is|somebody|whoever|nobody|anew|at once|as far as"
    r"|go(?:es|ing)? on|(?:is|are) (?:told|said)|stands|lies|any more|take[ns]? back|le(?:aves?|ft) out|not let in)\b",
    re.IGNORECASE,
)
_MARKDOWN = MarkdownIt("commonmark").enable("table")
_END = re.compile(r"(?<=[.!?])[\"”)]*\s+")


def sentences(text: str) -> list[str]:
    """The sentences of a page, without blocks of code; each piece of inline code is one word."""
    found: list[str] = []
    for block in _MARKDOWN.parse(text):
        if block.type == "inline":
            said = {"text": lambda part: part.content, "code_inline": lambda part: "code"}
            words = "".join(said.get(part.type, lambda part: " ")(part) for part in block.children or ())
            found += [sentence for sentence in _END.split(words) if re.search(r"\w", sentence)]
    return found


def long_ones(text: str) -> list[str]:
    return [sentence for sentence in sentences(text) if len(sentence.split()) > LONGEST]


def banned(text: str) -> list[str]:
    """The words that have a plainer one; a message that a page quotes may have them."""
    return [word for sentence in sentences(text) for word in BANNED.findall(re.sub(r"\"[^\"]*\"", "", sentence))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_few_sentences_of_a_page_are_long(page):
    text = page.read_text()

    assert len(long_ones(text)) <= 0.03 * len(sentences(text)), "\n".join(long_ones(text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_says_it_in_plain_words(page):
    assert [] == banned(page.read_text())


def test_a_sentence_ends_with_its_item_cell_or_heading():
    text = (
        "# Fork\n\n* one `a b c` two.\n* three\n\n| A | B |\n| --- | --- |\n| four? Five | six |\n\n    code. code.\n"
    )

    assert sentences(text) == ["Fork", "one code two.", "three", "A", "B", "four?", "Five", "six"]
