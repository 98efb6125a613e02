"""Limits of masking: how long and mixed a secret must be, and how far from the word that tells of it.

The first value of each pair is a secret, and the second one is just not.
"""

import random
import string
from collections.abc import Callable

import pytest

from indexer.masking import mask, value_checks

VALUES: list[tuple[Callable[[str], bool], str, str]] = [
    (value_checks._is_jumbled, "aB1aB1aB1aAB", "aB1aB1aB1a1"),
    (value_checks._is_jumbled, "aB-1aB-1aB-1", "abcdE1abcdAB"),
    (value_checks.is_chosen, "aBcDe11!", "aaaa1a@"),
    (value_checks.is_chosen, "abc1zZ9!", "Abc1Abc1"),
    (value_checks.is_chosen, "A!bA!bA!", "aBaBaBaB@"),
    (value_checks.is_chosen, "abc1zZ9!", "@qm7kqm7"),
    (value_checks.is_tangled, "BBBeeaFHFaaF", "cGHHBGDHeaHH"),
    (value_checks.is_tangled, "BBBeeaFHFaaF", "cGFBeeGacaHe"),
    (value_checks.is_tangled, "DcFHBaHeDDHH", "DcFHBaHeDDH"),
    (value_checks.is_strong, "A1aa", "A7Q"),
    (value_checks.is_alone, "1f" * 16, "a1" * 15 + "a"),
    (value_checks.is_unlike_words, "f1f1@", "f1Z9"),
    (value_checks.is_unlike_words, "f1f1@", "a@1a@1A1"),
    (value_checks.is_unlike_words, "1!1a", "!Qm7"),
    (value_checks.is_unlike_words, "11a@", "@a1b/"),
    (value_checks.is_unlike_words, "kQ7" * 6 + "kQ", "kQ7" * 6 + "k"),
    (value_checks.is_strange, "aBcDe11!", "aaaa1a@"),
    (value_checks.is_strange, "aB1vbn12", "kQm7kQma"),
    (value_checks.is_made_up, "aBcDe11!", "kQm7kQm"),
    (value_checks.is_made_up, "aB1vbn12", "Azxvbn12q"),
    (value_checks.is_made_up, "aB1vbn12", "horsehorsehZ9"),
    (value_checks.is_thrown, "kQ7" * 6 + "kQ", "kQm7" * 4 + "kA1"),
    (value_checks.is_thrown, "qzxvbn12qzxvbn12qzxv1", "abcdefg1abcdefg1abcAB"),
    (value_checks.is_thrown, "1f" * 16, "a1" * 15 + "a"),
    (value_checks.is_thrown_together, "Ab1AA", "aBaBA1"),
    (value_checks.is_thrown_together, "kQ7kAB", "Ab1A1"),
    (value_checks.is_dense, "A!bA!A", "a#a#a"),
    (value_checks.is_dense, "1#a#a#", "1#a#"),
    *((value_checks.is_number, "a1" * half, "a1" * half + "a") for half in (16, 20, 24, 32)),
    *((value_checks.is_number, "a1" * half, "a1" * (half - 1) + "a") for half in (16, 20, 24, 32)),
    *((value_checks.is_identity, "a1" * half, "a1" * half + "a") for half in (20, 32)),
    *((value_checks.is_identity, "a1" * half, "a1" * (half - 1) + "a") for half in (20, 32)),
    (value_checks.is_worded, "aaaaaB", "ABcDe"),
    (value_checks.is_long, "face1" * 3 + "f", "kQm7kQm7kQmzZ9!"),
    (value_checks.is_long, "abcdefg1abcdefga", "qzqzqzqzqzqzqz1!"),
    (value_checks.looks_random, "A1a1a!", "A1A1!"),
    (value_checks.looks_random, "QzxQzxQzxQzxQzxQzxQ1", "aB1zQzQzQzQzQzQzQzQ"),
    (value_checks.looks_random, "QzxQzxQzxQzxQzxQzxQ1", "12121212121212121211"),
    (value_checks.looks_random, "a1A1", "A1aa"),
    (lambda text: value_checks.looks_random(text, lenient=True), "A1aa", "xA1"),
    (lambda text: value_checks.looks_random(text, lenient=True), "ab!cd#ef$gh%ijklmnop", "ab!cd#ef$gh%ijklmno"),
    (lambda text: value_checks.looks_random(text, lenient=True), "ab!cd#ef$gh%ijklmnop", "ab!cd#ef$ghijklmnopq"),
    (value_checks.is_opaque, "a+1bcdefghijk" * 2 + "a+1bcd", "a+1bcdefghijk" * 2 + "a+1bc"),
    (value_checks.is_key_pair, "anna:k7Q2m9X4aB3dE5fG", "anna:k7Q2m9X4aB3dE5f"),
    (
        value_checks.is_key_pair,
        "anna:" + "k7Q2m9X4aB3dE5fG7hJ9" * 9 + "k7Q2m9X4aB3dE5fG7hJ",
        "anna:" + "k7Q2m9X4aB" * 20,
    ),
    (value_checks.is_base64_pair, "YW5uYTp4", "YW5uYTo="),
]


@pytest.mark.parametrize(("check", "enough", "less"), VALUES)
def test_a_value_is_one_from_a_length_and_a_mixture_on(check, enough, less):
    assert check(enough)
    assert not check(less)


@pytest.mark.parametrize(
    ("kind", "form", "enough", "less"),
    [
        ("password", "line", "Ab1Aba", "!!bA!"),
        ("password", "line", "/" + "b1A" * 10 + "b", "/" + "Q7k" * 10),
        ("password", "line", "aB1DefaBcDefaBcDefaBcDe", "aBcDefaBcDefaBcDA1"),
        ("password", "line", "a!cde!", "abcde!"),
        ("password", "code", "abA1B2", "!.B1a"),
        ("password", "code", "!aaaB1", "@f1ff"),
        ("password", "string", "qzxvbA", "QzQzA"),
        ("secret", "string", "Abc1Abc1", "kQm7kQm"),
        ("secret", "entry", "Abc1Abc1AA", "AQ7kQ7kQ7"),
        ("secret", "line", "k7Q2k7Q2k7Z9", "k7Q2k7Q2k7a"),
        ("secret", "code", "abc1xabc1xabc11!", "aB-1aB-1aB-1a1!"),
        ("secret", "literal", "QzxQzxQz", "QzxQzxQ"),
        ("api-key", "literal", "wordwordwordwor!", "!YxYxYxYxYxYxYx"),
        ("api-key", "literal", "abc1zZ9!", "kQm7kQm"),
    ],
)
def test_what_is_assigned_is_a_secret_from_a_length_on_by_how_it_is_written(kind, form, enough, less):
    assert value_checks.is_secret(enough, kind, form)
    assert not value_checks.is_secret(less, kind, form)


STRANGE, KEY, LONG_KEY = "xK9mQ2!zR4", "k7Q2m9X4aB3d", "k7Q2m9X4aB3dE5fG7hJ9kL2mN4pQ6rS8"


def filled(length: int, by: str = "a ") -> str:
    return (by * (length // len(by) + 1))[:length]


#: A text with so many characters, lines or words between a secret and what tells of it; the secret; the most of them.
WINDOWS: list[tuple[Callable[[int], str], str, int]] = [
    (lambda most: f"wlan{filled(most, ' of')} {STRANGE}", STRANGE, 79),
    (lambda most: f"wlan {'abcdefgh ' * most}{STRANGE}", STRANGE, 7),
    (lambda most: f"use {STRANGE} {filled(most, 'to ')} the wlan here", STRANGE, 70),
    (lambda most: f"signing {filled(most)} {LONG_KEY} x", LONG_KEY, 191),
    (lambda most: f"{LONG_KEY} {filled(most)} signing", LONG_KEY, 91),
    (lambda most: "the signing key:\n" + "x\n" * most + LONG_KEY, LONG_KEY, 2),
    (lambda most: f"the signing key: {filled(most)}\n{LONG_KEY}", LONG_KEY, 154),
    (lambda most: f"the signing key:\n{filled(most)} {LONG_KEY}", LONG_KEY, 39),
    (lambda most: "signing:\n" + filled(most, "  x: y\n") + f"\n  v: {LONG_KEY}", LONG_KEY, 590),
    (lambda most: f"signing:\n  v: {LONG_KEY} {filled(most, 'b ')}", LONG_KEY, 34),
    (lambda most: f"webhook {(LONG_KEY * 20)[:most]}", LONG_KEY, 600),
    (lambda most: f"webhook {(LONG_KEY * 20)[:most]}", LONG_KEY[:20], 39),
    (lambda most: f"recovery codes{filled(most)}\na1b2-c3d4\nb2c3-d4e5", "a1b2-c3d4", 79),
    (lambda most: f"recovery codes:\na1b2-c3d4{filled(most)} b2c3-d4e5", "b2c3-d4e5", 24),
    (lambda most: "recovery codes:\n" + "a1b2-c3d4\n" * 147 + " " * most + "b2c3-d4e5", "b2c3-d4e5", 19),
    (lambda most: f'[{{"keyName": "x", "n": "{filled(most)}", "value": "{KEY}"}}]', KEY, 375),
    (lambda most: f'[{{"value": "{KEY}", "n": "{filled(most)}", "keyName": "x"}}]', KEY, 380),
    (lambda most: "kind: Secret\n" + filled(most, "x: y\n") + "\ndata:\n  p: aHVudGVy\n", "aHVudGVy", 19_971),
    (lambda most: "data:\n  p: aHVudGVy\n" + filled(most, "x: y\n") + "\nkind: Secret\n", "aHVudGVy", 19_979),
    (lambda most: f"$ cat token {filled(most)} token\n{KEY}\n", KEY, 481),
]


@pytest.mark.parametrize(("text_with", "secret", "most"), WINDOWS)
def test_what_tells_of_a_secret_is_at_most_so_far_away(text_with, secret, most):
    assert secret not in mask(text_with(most))
    assert secret in mask(text_with(most + 1))


def test_of_a_private_key_without_its_beginning_a_part_of_a_known_length_is_masked():
    line = "k7Q2m9X4aB3dE5fG7hJ9kL2mN4pQ6rS8k7Q2m9X4aB3dE5fG7hJ9kL2mN4pQ6rS8\n"
    end = "\n-----END PRIVATE" + " KEY-----"

    assert mask(filled(4095, line) + end) == "[REDACTED:private-key]"
    assert mask(filled(4096, line) + end).startswith("k[REDACTED:")


@pytest.mark.parametrize(
    ("text_with", "secret", "least"),
    [
        (lambda least: f"wlan {STRANGE} {filled(least)}commit", STRANGE, 283),
        (lambda least: f"webhook {(LONG_KEY * 2)[:least]}", LONG_KEY, 41),
        (lambda least: f"name,password\nanna,{KEY[:least]}\n", KEY[:6], 6),
        (lambda least: f"wlan {'xK9!mQ2zR4'[:least]}", "xK9!mQ2z", 8),
    ],
    ids=["far-from-what-denies-it", "no-sum-of-git", "in-a-table", "near-a-word"],
)
def test_a_secret_is_masked_from_a_length_or_a_distance_on(text_with, secret, least):
    assert secret not in mask(text_with(least))
    assert secret[:-1] in mask(text_with(least - 1))


def test_of_a_strange_word_of_any_length_no_end_is_left():
    letters = random.Random(4).choices(string.ascii_letters + string.digits + "@%", k=140)  # noqa: S311 - the same each time
    for length in (127, 128, 129, 131, 135, 136, 140):
        word = "".join(letters[:length])
        assert mask(f"my password {word} and more").endswith("] and more"), length
