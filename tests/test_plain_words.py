"""Pages, help and printed sentences are in plain words: short, and without the words that make riddles.

``python -m tests.test_plain_words`` prints words, lengths of sentences and banned words of each kind of text.
"""

from __future__ import annotations

import re
import statistics
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt

from smart_fork.agents import AGENTS
from tests.support.cases import parametrize_subtests

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SENTENCES = ROOT / "tests/golden/sentences.txt"
HELP = sorted((ROOT / "tests/golden/help").glob("*.txt"))
LONGEST, LONGEST_IN_HELP = 25, 12
_NOT_OURS = "Show completion for the current shell, to copy it or customize the installation."
BANNED = re.compile(
    r"\b(?:what (?:is|was|of|has)|whose|(?:that|those) of|none is|somebody|whoever|nobody|anew|at once|as far as"
    r"|go(?:es|ing)? on|(?:is|are) (?:told|said)|stands|lies|any more|take[ns]? back|le(?:aves?|ft) out|not let in)\b",
    re.IGNORECASE,
)
_MARKDOWN = MarkdownIt("commonmark").enable("table")
_END = re.compile(r"(?<=[.!?])[\"”)]*\s+")


@cache  # for two tests
def sentences(text: str) -> list[str]:
    """The sentences of a page, without blocks of code; each piece of inline code is one word."""
    found: list[str] = []
    for block in _MARKDOWN.parse(text):
        if block.type == "inline":
            said = {"text": lambda part: part.content, "code_inline": lambda part: "code"}
            words = "".join(said.get(part.type, lambda part: " ")(part) for part in block.children or ())
            found += [sentence for sentence in _END.split(words) if re.search(r"\w", sentence)]
    return found


def printed() -> list[str]:
    """Every sentence that people are shown, with its module before it."""
    found: list[str] = []
    module = ""
    for line in SENTENCES.read_text().splitlines():
        if line.startswith("## "):
            module = line.removeprefix("## ")
        elif line:
            found += [f"{module}: {sentence}" for sentence in _END.split(line)]
    return found


#: A list of agents, as they are named on a command line.
_LISTED = re.compile(rf"(?:\b(?:{'|'.join(agent.name for agent in AGENTS)}), )+")


def helped(page: str) -> list[str]:
    """The sentences of a help page, without its usage and examples, and without Typer's own."""
    said: list[str] = []
    for line in page.partition("Examples")[0].splitlines():
        cells = [cell for cell in re.split(r" {2,}", line.strip("│ ─╭╮╰╯")) if cell]
        if line.startswith("│") and len(cells) == 1 and said:  # goes on below
            said[-1] += f" {cells[0]}"
        elif cells and not line.startswith((" Usage:", "╭")):
            said.append(cells[-1])
    return [sentence for one in said for sentence in _END.split(one) if " " in sentence and sentence not in _NOT_OURS]


def long_ones(found: list[str], longest: int = LONGEST) -> list[str]:
    """The sentences with more words. The agents of a list count as one."""
    return [one for one in found if len(_LISTED.sub("all, ", one).split()) > longest]


def banned(found: list[str]) -> list[str]:
    """The sentences with a word that has a plainer one; a message that is quoted may have it."""
    return [sentence for sentence in found if BANNED.search(re.sub(r"\"[^\"]*\"", "", sentence))]


@parametrize_subtests("page", PAGES)
def test_few_sentences_of_a_page_are_long(page):
    found = sentences(page.read_text())

    assert len(long_ones(found)) <= 0.03 * len(found), "\n".join(long_ones(found))


@parametrize_subtests("page", PAGES)
def test_a_page_says_it_in_plain_words(page):
    assert [] == banned(sentences(page.read_text()))


def test_no_printed_sentence_is_long():
    assert [] == long_ones(printed(), LONGEST + 1), "the module before it counts as a word"


def test_a_printed_sentence_says_it_in_plain_words():
    assert [] == banned(printed())


@parametrize_subtests("page", HELP)
def test_a_help_page_is_short_and_plain(page):
    found = helped(page.read_text())

    assert [] == long_ones(found, LONGEST_IN_HELP)
    assert [] == banned(found)


def test_a_sentence_ends_with_its_item_cell_or_heading():
    text = (
        "# Fork\n\n* one `a b c` two.\n* three\n\n| A | B |\n| --- | --- |\n| four? Five | six |\n\n    code. code.\n"
    )

    assert sentences(text) == ["Fork", "one code two.", "three", "A", "B", "four?", "Five", "six"]


def measured(kind: str, found: list[str], words: int) -> str:
    lengths = sorted(len(sentence.split()) for sentence in found)
    return (
        f"{kind}: {words:,} words, {len(found):,} sentences, mean {statistics.mean(lengths):.1f}, "
        f"95th percentile {lengths[len(lengths) * 95 // 100]}, over {LONGEST}: {len(long_ones(found))}, "
        f"with banned words: {len(banned(found))}"
    )


def measures() -> Iterator[str]:
    readme, *docs = PAGES
    for kind, pages, parts in (
        ("README", [readme], sentences),
        ("docs", docs, sentences),
        ("help", HELP, helped),
    ):
        texts = [page.read_text() for page in pages]
        found = [sentence for text in texts for sentence in parts(text)]
        yield measured(kind, found, sum(len(text.split()) for text in texts))
    said = [sentence.partition(": ")[2] for sentence in printed()]
    yield measured("sentences", said, sum(len(sentence.split()) for sentence in said))


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in measures())
