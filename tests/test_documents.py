"""The documentation as people see it: rendered, with every table whole and every link leading somewhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.support.cases import parametrize_subtests

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
MARKDOWN = MarkdownIt("commonmark").enable("table")
#: A pipe that parts two cells, wherever it stands.
_BETWEEN = re.compile(r"(?<!\\)\|")


@cache  # for all tests of a page, and for each link to it
def tokens(page: Path) -> list[Token]:
    return MARKDOWN.parse(page.read_text())


def inside(page: Path) -> Iterator[Token]:
    for token in tokens(page):
        yield from token.children or ()


@cache
def anchors(page: Path) -> set[str]:
    """The names by which headings are linked to, as GitHub makes them of their text."""
    found = tokens(page)
    titles = [found[number + 1].content for number, token in enumerate(found) if token.type == "heading_open"]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@parametrize_subtests("page", PAGES)
def test_every_row_of_a_table_is_in_a_table(page):
    lost = [token.content for token in tokens(page) if token.type == "inline" and re.match(r"\s*\|", token.content)]

    assert [] == lost


@parametrize_subtests("page", PAGES)
def test_every_row_of_a_table_has_as_many_cells_as_its_heading(page):
    """One too many is left out when the table is rendered, and a missing one is filled with nothing."""
    lines = page.read_text().splitlines()
    odd, heading = [], 0
    for token in tokens(page):
        if token.type == "tr_open" and token.map:
            line = lines[token.map[0]]
            cells = len(_BETWEEN.findall(line))
            heading = cells if set("".join(lines[token.map[1] : token.map[1] + 1])) <= set("|-: ") else heading
            odd += [line] if cells != heading else []

    assert [] == odd


@parametrize_subtests("page", PAGES)
def test_no_option_or_key_stands_twice_in_one_table(page):
    twice: list[str] = []
    seen: set[str] = set()
    for line in page.read_text().splitlines():
        cell = re.match(r"\| (`[^|]+`) \|", line)
        seen = seen if line.startswith("|") else set()
        if cell:
            twice += [cell[1]] if cell[1] in seen else []
            seen.add(cell[1])

    assert [] == twice


@parametrize_subtests("page", PAGES)
def test_every_link_leads_somewhere(page):
    lost = []
    for token in inside(page):
        target = str(token.attrs.get("href") or token.attrs.get("src") or "")
        parts = urlsplit(target)
        if not target or parts.scheme:
            continue
        file = (page.parent / unquote(parts.path)).resolve() if parts.path else page
        if not file.exists() or (parts.fragment and parts.fragment not in anchors(file)):
            lost.append(target)

    assert [] == lost


@parametrize_subtests("page", PAGES)
def test_code_ends_where_it_is_meant_to(page):
    fences = [token for token in tokens(page) if token.type == "fence"]

    assert page.read_text().count("\n```") + page.read_text().startswith("```") == 2 * len(fences)


@parametrize_subtests(
    ("page", "heading"), [("CONTRIBUTING.md", "Layout"), ("docs/explanation/architecture.md", "The packages of")]
)
def test_a_layout_names_what_is_there(page, heading):
    layout = (ROOT / page).read_text().partition(f"\n## {heading}")[2].partition("\n## ")[0]
    named = re.findall(r"(?<![\w./-])[a-z_]+(?:/|\.py)(?![\w.])", layout)
    there = {
        one.name for package in ("indexer", "smart_fork") for one in (ROOT / package, *(ROOT / package).rglob("*"))
    }

    assert named
    assert [] == [one for one in named if one.strip("/") not in there]


def test_every_page_has_its_place_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    named = re.findall(r"[\w/-]+\.md", navigation)

    assert sorted(named) == sorted(page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md"))


@pytest.mark.thorough  # `make check` builds it too
def test_the_documentation_is_a_site_without_a_broken_link(tmp_path):
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)

    built = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert built.returncode == 0, built.stdout + built.stderr
    assert (tmp_path / "build/site/index.html").is_file()
