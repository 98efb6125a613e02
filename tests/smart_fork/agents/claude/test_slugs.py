"""The folder that Claude Code makes for a working directory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from smart_fork.agents.claude.log_files import slug


def test_a_slug_is_the_folder_that_claude_code_uses(tmp_path):
    """F-170, F-171."""
    assert slug("/srv/my.shop/a_b c") == "-srv-my-shop-a-b-c"
    assert slug("/srv/ä😀") == "-srv----"
    assert slug("/srv/a\u0308") == slug("/srv/ä") == "-srv--"
    (tmp_path / "link").symlink_to("/srv")
    assert slug(str(tmp_path / "link/x")) == "-srv-x"


def test_a_long_slug_is_cut_and_told_apart_by_a_hash():
    """F-171; the numbers are JavaScript's."""
    assert slug("/" + "a" * 199) == "-" + "a" * 199
    assert slug("/" + "a" * 200) == "-" + "a" * 199 + "-" + hashed("/" + "a" * 200)
    assert slug("/" + "ä" * 200 + "b") != slug("/" + "ä" * 200 + "c")


def hashed(text: str) -> str:
    number = 0
    for character in text:
        number = ((number << 5) - number + ord(character)) & 0xFFFFFFFF
    number = abs(number - (1 << 32) if number >> 31 else number)
    digits = ""
    while number:
        number, rest = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[rest] + digits
    return digits


@given(st.text(st.characters(exclude_characters="\0"), max_size=300))
def test_a_slug_is_a_plain_file_name_of_bounded_length(text):
    name = slug("/" + text)

    assert name.replace("-", "a").isalnum()
    assert name.isascii()
    assert len(name) <= 208
