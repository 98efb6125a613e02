"""Tests of messages rendered as HTML: hostile Markdown cannot set classes, ids or styles."""

from __future__ import annotations

import random
import re
from html.parser import HTMLParser

import pytest
from pygments.lexers import get_lexer_by_name

from smart_fork.page import renderer as rendering
from smart_fork.page.renderer import MAX_CHARACTERS, code, prose
from tests.support.exhaustive import full_or_sample

#: Every element that may be there, with its attributes and what these may be; `None` is what stands in an address.
ALLOWED = {
    "p": {"class": {"heading", "as-written"}, "dir": {"auto"}, "data-level": set("123456")},
    "pre": {"class": {"code"}, "dir": {"ltr"}, "tabindex": {"0"}},
    "div": {"class": {"table"}, "tabindex": {"0"}},
    "span": {"class": {"image", *(name for _, name in rendering._COLOURS)}},
    "a": {"href": None, "rel": {"noopener noreferrer nofollow"}},
    "ol": {"start": None},
    "th": {"class": {"center", "right"}},
    "td": {"class": {"center", "right"}},
    **{
        name: {}
        for name in [
            "br",
            "hr",
            "strong",
            "em",
            "s",
            "ul",
            "li",
            "blockquote",
            "code",
            "table",
            "thead",
            "tbody",
            "tr",
            "mark",
        ]
    },
}
PIECES = (
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<svg/onload=alert(1)>", "<iframe srcdoc='<b>'>", "</p></div>",
    "<!--", "-->", "<![CDATA[", "]]>", "<?php", "&lt;script&gt;", "&#60;b&#62;", "&#x202e;", "<style>*{}</style>", "<a href=javascript:alert(1)>",
    "[here](javascript:alert(1))", "[x](JaVaScRiPt&colon;alert(1))", "[x](data:text/html,<b>)", "[x](vbscript:x)", "[x](//evil.example)",
    '[x](https://a.example/"onclick="x)', '[x]( <https://a.example/ "> "title" )', "![i](https://evil.example/x.png)", '![<b>](x "onerror=")',
    '<https://a.example/?"><b>>', "<javascript:alert(1)>", "<mailto:a@b>", "[r]: javascript:alert(1) 'x\" onclick=\"'", "[r]", "[^1]",
    '```html" onload="x\n<b>\n```', "```py\nx = '</code>'\n", "~~~", "`</code><script>`", "    <script>", "# <b>", "#" * 7, "Setext\n===",
    '| a | b |\n|:-:|--:|\n| <b> | " style=x |', "|", "|-", "> " * 9, "* " * 9, "1. x", "999999999. x", "-1. x", "- [x] <input>", "---",
    "**", "__", "*_", "~~", "\\", "\\<", "\x1b[31m", "\x1b]8;;https://evil.example\x07", "\u202e", "\u2066", "\ufeff", "\0", "\ud800",
    "\u2028", "\r", "\n", "\n\n", "\t", " ", '"', "'", "=", "retry", "onmouseover=alert(1)", "{{ 7 * 7 }}", "{% raw %}", "style=x", "expression(1)",
)  # fmt: skip


class Elements(HTMLParser):
    """A parser that collects forbidden elements and attributes of a rendered text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.wrong: list[object] = []
        self.said: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        if self._open:
            self.wrong.append(self._open)

    def handle_starttag(self, tag, attrs):
        allowed = ALLOWED.get(tag)
        for name, value in attrs:
            values = allowed.get(name, ()) if allowed is not None else ()
            fits = value.startswith(("https://", "http://", "mailto:")) if name == "href" else (value or "").isdigit()
            if not (fits if values is None else value in values):
                self.wrong.append((tag, name, value))
        if allowed is None:
            self.wrong.append(tag)
        if tag not in ("br", "hr"):
            self._open.append(tag)

    def handle_endtag(self, tag):
        if not self._open or self._open.pop() != tag:
            self.wrong.append(f"/{tag}")

    def handle_data(self, data):
        self.said.append(data)

    def handle_comment(self, data):
        self.wrong.append(data)

    handle_decl = handle_pi = unknown_decl = handle_comment


@pytest.mark.slow
def test_no_text_becomes_an_element_that_is_not_ours():
    chance = random.Random(19)  # noqa: S311 - it chooses texts
    texts = ["".join(chance.choices(PIECES, k=chance.randint(1, 4))) for _ in range(full_or_sample(10_000, 2_000))]

    found = {text: wrong for text in texts if (wrong := Elements(rendering._prose.__wrapped__(text, ("retry",))).wrong)}

    assert {} == found


@pytest.mark.parametrize(
    "piece", ["[", "a](", "*a **a ", "> ", "<a ", "`" * 3 + "\n", "|", "![", "_a__", "x", "- ", "\n- a"]
)
def test_a_text_of_a_megabyte_is_shown_as_it_was_written(piece):
    text = piece * (1_000_000 // len(piece))

    shown = Elements(prose(text))

    assert [] == shown.wrong
    assert len(text) > MAX_CHARACTERS
    assert text.replace("\r", "\n") == "".join(shown.said)


def test_markdown_is_shown_as_what_it_means():
    shown = str(
        prose(
            "# A *title*\n\n1. one\n2. `two`\n\n|a|b|\n|-|-:|\n|1|2|\n\n```py\ndef f(): return 'x'  # y\n```",
            ("title",),
        )
    )

    assert '<p class="heading" data-level="1">A <em><mark>title</mark></em></p>' in shown
    assert "<ol>\n<li>one</li>\n<li><code>two</code></li>\n</ol>" in shown
    assert '<th>a</th>\n<th class="right">b</th>' in shown
    assert '<span class="c-keyword">def</span>' in shown
    assert "<span class=\"c-string\">'x'</span>" in shown
    assert '<span class="c-comment"># y</span>' in shown


def test_links_lead_to_the_web_or_stay_words_and_images_are_never_loaded():
    assert '<a href="https://a.example/x" rel="noopener noreferrer nofollow">here</a>' in prose(
        "[here](https://a.example/x)"
    )
    assert "[here](javascript:x)" in prose("[here](javascript:x)")
    assert "[here](../etc/passwd)" in prose("[here](../etc/passwd)")
    assert '<span class="image">[image: a plot]</span>' in prose("![a plot](https://a.example/x.png)")


def test_code_of_an_unknown_language_is_code():
    assert "&lt;b&gt;" == str(code("<b>", "brainfuck"))
    assert "&lt;b&gt;" == str(code("<b>"))
    assert "<b>" not in code("<b>", "html")


def test_each_language_that_has_colors_has_a_lexer():
    for name in sorted(rendering._LANGUAGES.union(rendering._NEAREST_LANGUAGES.values())):
        assert get_lexer_by_name(name)
    assert '<span class="' in code('{"a": 1} // why', "JSONC")


def test_nothing_is_lost_where_words_of_a_question_are_marked():
    shown = str(prose("Retry retries <b>the</b> retry_policy", ["retry", "the"]))

    assert "Retry retries &lt;b&gt;the&lt;/b&gt; retry_policy" == re.sub("<[^>]+>", "", shown).strip()
    assert ["Retry", "the", "retry_policy"] == re.findall("<mark>(.*?)</mark>", shown)
