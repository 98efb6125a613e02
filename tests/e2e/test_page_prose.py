"""What was said, read by a real browser's own parser: it sees no element that we did not write."""

from __future__ import annotations

import random

import pytest

from smart_fork.page.prose import prose
from tests.smart_fork.service.test_page_prose import ALLOWED, PIECES

pytestmark = pytest.mark.e2e

ELEMENTS = """(texts) => texts.map((text) => [...new DOMParser().parseFromString(text, "text/html").body.querySelectorAll("*")]
  .flatMap((one) => [one.localName, ...[...one.attributes].map((its) => `${one.localName} ${its.name}`),
    ...(one.href === undefined ? [] : [`to ${one.protocol}`])]))"""


def test_a_browser_sees_no_element_that_is_not_ours(opened):
    chance = random.Random(91)  # noqa: S311 - it chooses texts
    texts = ["".join(chance.choices(PIECES, k=chance.randint(1, 5))) for _ in range(1_000)]
    shown = [str(prose(text, ("retry",))).encode("utf-8", "replace").decode() for text in texts]
    seen = opened("/open").evaluate(ELEMENTS, shown)

    allowed = {*ALLOWED, *(f"{tag} {name}" for tag, names in ALLOWED.items() for name in names)}
    allowed |= {f"to {scheme}:" for scheme in ("http", "https", "mailto")}
    assert {} == {text: wrong for text, those in zip(texts, seen, strict=True) if (wrong := set(those) - allowed)}
