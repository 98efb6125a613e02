"""Invisible characters and look-alikes do not prevent a secret from being masked."""

import json
import sys
import unicodedata

import pytest

from indexer.masking import mask
from indexer.masking.alternate_readings import INVISIBLE, View
from smart_fork.display_text import printable
from tests.indexer.masking.invented_secrets import TOKENS, made_up
from tests.support.cases import parametrize_subtests

TOKEN = "ghp" + "_" + made_up(36)
#: Unicode's Default_Ignorable_Code_Point, as DerivedCoreProperties lists it.
IGNORABLE = [
    *(0xAD, 0x34F, 0x61C, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), *range(0x200B, 0x2010)),
    *(*range(0x202A, 0x202F), *range(0x2060, 0x2070), 0x3164, *range(0xFE00, 0xFE10), 0xFEFF, 0xFFA0),
    *(*range(0xFFF0, 0xFFF9), *range(0x1BCA0, 0x1BCA4), *range(0x1D173, 0x1D17B), *range(0xE0000, 0xE1000, 97)),
]
SPACES = [c for c in range(0x10000) if unicodedata.category(chr(c)) == "Zs" and c != 0x20]


@parametrize_subtests("character", [*map(chr, IGNORABLE), *map(chr, SPACES)])
@pytest.mark.slow
def test_a_character_that_nobody_sees_does_not_hide_a_secret(character):
    for place in (2, 4, 11, len(TOKEN) - 1):
        assert "a [REDACTED:github-token] b" == mask(f"a {TOKEN[:place]}{character}{TOKEN[place:]} b")
    assert f"PASS{character}WORD=[REDACTED:password]" == mask(f"PASS{character}WORD=hunter{character}2x")


def test_every_character_between_two_of_a_secret_is_covered_by_the_mask():
    assert "a [REDACTED:github-token] b" == mask(f"a {chr(0x200B).join(TOKEN)} b")
    assert "a [REDACTED:github-token] b" == mask(f"a {chr(0xAD).join(TOKEN)} b")


def test_what_is_left_out_where_a_text_is_shown_does_not_join_a_secret():
    """A control, a private character, half of one: whatever is between, what is shown is no token."""
    for code in (*range(0x20), 0x7F, *range(0x80, 0xA0), 0x378, 0xD800, 0xE000, 0xFDD0, 0x10FFFF, *IGNORABLE):
        shown = printable(mask(f"a {TOKEN[:9]}{chr(code)}{TOKEN[9:]} b"))
        assert TOKEN not in shown.replace("\t", "\ufffd").replace("\n", "\ufffd")


@pytest.mark.thorough
def test_what_is_invisible_is_all_that_unicode_calls_so():
    ours = {code for code in range(sys.maxunicode + 1) if INVISIBLE.match(chr(code))}
    theirs = {code for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) in ("Cc", "Cf")}

    assert not (theirs | set(IGNORABLE)) - {0x09, 0x0A} - ours
    assert not {code for code in ours if unicodedata.category(chr(code)) in ("Lu", "Ll", "Nd", "Po", "Zs", "So")}


@parametrize_subtests(
    "text, masked",
    [
        ("\x1b[31m{}\x1b[0m", "\x1b[31m[REDACTED:github-token]\x1b[0m"),
        ("[31m{}[0m", "[31m[REDACTED:github-token][0m"),
        ("\\u001b[31m{}\\u001b[0m key", "\\u001b[31m[REDACTED:github-token]\\u001b[0m key"),
        ("\x1b]8;;x\x07{}\x1b]8;;\x07", "\x1b]8;;x\x07[REDACTED:github-token]\x1b]8;;\x07"),
    ],
)
def test_the_colours_of_a_terminal_do_not_hide_a_secret(text, masked):
    assert masked == mask(text.format(TOKEN))
    within = text.partition("{}")[0].replace("31", "1")
    for between in ("\x1b[1m", within):
        assert TOKEN[20:] not in mask(text.format(f"{TOKEN[:9]}{between}{TOKEN[9:]}"))


def test_wide_letters_do_not_hide_a_secret():
    wide = "".join(chr(ord(c) + 0xFEE0) for c in TOKEN)
    assert "口令 [REDACTED:github-token]。" == mask(f"口令 {wide}。")
    assert "password：[REDACTED:password]" == mask("password：hunter22")


@parametrize_subtests("depth", range(5))
def test_escapes_of_json_in_json_do_not_hide_a_secret(depth):
    text = json.dumps({"db": {"password": "Tr0ub4dor&3"}, "next": "line"}) + "\nTOKEN=" + made_up(30)
    for _ in range(depth):
        text = json.dumps(text)
    assert "Tr0ub4dor" not in mask(text)
    assert made_up(30) not in mask(text)


@parametrize_subtests(
    "text",
    [
        "password%3DTr0ub4dor%26next%3D1",
        "%22password%22%3A%22Tr0ub4dor%22",
        "&quot;password&quot;: &quot;Tr0ub4dor&quot;",
        "password\\u003dTr0ub4dor",
        "https:\\/\\/anna:Tr0ub4dor@host\\/x",
    ],
)
def test_escapes_of_addresses_and_pages_do_not_hide_a_secret(text):
    assert "Tr0ub4dor" not in mask(text)


def test_a_reading_knows_where_everything_stands():
    reading = View("abcdefgh", [(1, 3, ""), (4, 6, "X")])
    assert "adXgh" == reading.text
    assert (0, 4) == reading.original(0, 2)
    assert (3, 6) == reading.original(1, 3)
    assert (4, 7) == reading.original(2, 4)


@parametrize_subtests(
    "text", ["⚠️ done ✅", "naïve café – “quoted” …", "密码管理：请参考文档", "a\u200bb", "10\u00a0000 tokens"]
)
def test_ordinary_text_with_such_characters_stays_as_it_is(text):
    assert text == mask(text)


@parametrize_subtests("kind", ["github-token", "gitlab-token", "anthropic-key"])
@parametrize_subtests("broken", ["\\\n", "=\n", '"\n  "', "' +\r\n    '"])
def test_a_token_that_goes_on_in_the_next_line_is_one_wherever_it_is_broken(kind, broken):
    token = TOKENS[kind][0]
    for place in range(6, len(token) - 8, 3):
        assert f"the key [REDACTED:{kind}] ok" == mask(f"the key {token[:place]}{broken}{token[place:]} ok")


def test_what_a_line_of_prose_ends_with_is_no_part_of_the_token_below():
    for line in ("see the page", "set it=", "key", "x" * 60):
        assert f"{line}\n[REDACTED:github-token]\nok" == mask(f"{line}\n{TOKEN}\nok")


@parametrize_subtests(
    "before, between, after",
    [
        ("│ ", " │\n│ ", " │\n"), ("┃ ", "\n┃ ", "\n"), ("    ", "\n    ", "\n"), ("", "\\\n", "\n"),
        ("\x1b[32m", "\x1b[0m", "\n"), ("\x1b[33m", "\x1b[0m\n\x1b[33m", "\x1b[0m\n"), ("", "=\n", "\n"),
        ('"', '" + "', '"\n'), ("'", "' . '", "'\n"), ("", "\u200b", "\n"),
    ],
)  # fmt: skip
def test_a_token_that_something_breaks_is_masked_on_both_sides(before, between, after):
    for cut in (12, len(TOKEN) // 2, len(TOKEN) - 9):
        masked = mask(f"use\n{before}{TOKEN[:cut]}{between}{TOKEN[cut:]}{after}now")

        assert TOKEN[:cut] not in masked
        assert TOKEN[cut:] not in masked
        assert masked.startswith("use\n")
        assert masked.endswith("now")


@parametrize_subtests("spelled", ["\\x{:02x}", "\\u{:04x}", "%{:02X}", "\\{:03o}", "&#{};", "{:02x}"])
def test_a_token_of_which_each_character_is_spelled_out_is_masked(spelled):
    token = "".join(spelled.format(ord(character)) for character in TOKEN)

    assert token not in mask(f'payload: "{token}"')


@parametrize_subtests("text", ["hello world, this is a text", "no secret is here: 12, 13 and 14"])
def test_a_text_that_is_spelled_out_and_has_no_secret_stays(text):
    for spelled in ("\\x{:02x}", "\\u{:04x}", "%{:02X}", "&#{};"):
        written = "".join(spelled.format(ord(character)) for character in text)

        assert written == mask(written)
