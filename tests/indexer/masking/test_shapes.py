"""Secrets as people paste them, and lines that are none."""

from pathlib import Path

import pytest

from indexer.masking import mask
from tests.indexer.masking.pasted_secrets import SHAPES, samples, shows
from tests.support.cases import thorough_except_first

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("seed", thorough_except_first([1, 2, 3]))
def test_what_people_paste_is_masked(seed):
    pasted = list(samples(seed))
    missed = [sample.shape for sample in pasted if shows(sample.secret, mask(sample.text))]

    assert (80, 400) == (len(SHAPES), len(pasted))
    assert missed == []


def test_every_vendors_token_is_masked_by_its_shape_alone():
    for sample in samples(4):
        if sample.shape.endswith(", told") and sample.shape.split(",")[0] in {shape.name for shape in SHAPES[:36]}:
            assert not shows(sample.secret, mask(sample.text)), sample.shape


@pytest.mark.parametrize("path", thorough_except_first(["indexer", "smart_fork", "docs"]))
def test_our_own_code_and_words_hold_no_secret(path):
    files = [file for file in (ROOT / path).rglob("*") if file.suffix in (".py", ".md", ".html", ".js")]
    lines = [line for file in files for line in file.read_text().splitlines()]
    changed = [line for line in lines if mask(line) != line]

    assert len(lines) > 2000
    assert len(changed) <= len(lines) / 2000, changed
