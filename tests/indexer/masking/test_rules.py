"""The rules hold their samples: each is tried on its own, and in `mask`."""

import random
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from indexer.masking import mask
from indexer.masking import rules as reader
from indexer.masking.rules import Rule, compiled, rules_in
from indexer.masking.vendors import VENDORS, Vendor
from tests.indexer.masking.evaluation.expand import Sample, filled

FOLDER = Path(reader.__file__).parent


def vendors() -> list[tuple[Vendor, str]]:
    """Each vendor with a sample: the line below it, or, where letters and digits follow, as many as it needs."""
    lines = (FOLDER / "vendors.rules").read_text(encoding="utf-8").splitlines()
    written = iter([line.removeprefix("  + ") for line in lines if line.startswith("  + ")])
    return [
        (vendor, next(written) if vendor.exact else f"{vendor.beginnings[0]}⟦an:{vendor.length}⟧") for vendor in VENDORS
    ]


SHAPES = rules_in("shapes")


def numbered(kinds: Iterable[str]) -> list[str]:
    return [f"{kind}-{number}" for number, kind in enumerate(kinds)]


NAMES = numbered(rule["rule"] for rule in SHAPES)


def sample_of(rule: Rule) -> Sample:
    return filled(rule["mask"], random.Random(rule["mask"]))  # noqa: S311


@pytest.mark.parametrize(("vendor", "template"), vendors(), ids=numbered(vendor.kind for vendor in VENDORS))
def test_a_vendors_token_is_masked_as_what_it_is(vendor, template):
    follows = template.removeprefix(vendor.beginnings[0])
    for beginning in vendor.beginnings:
        token = beginning + filled(follows, random.Random(template)).text  # noqa: S311

        assert compiled(re.escape(beginning) + vendor.follows).fullmatch(token)
        assert f"see [REDACTED:{vendor.kind}]" == mask(f"see {token}")


@pytest.mark.parametrize("rule", SHAPES, ids=NAMES)
def test_a_rule_finds_the_secrets_of_its_sample(rule):
    sample = sample_of(rule)
    found = [match[match.lastindex or 0] for match in compiled(rule["find"]).finditer(sample.text)]

    assert sample.secrets
    assert all(any(secret in one for one in found) for secret in sample.secrets)


@pytest.mark.parametrize("rule", SHAPES, ids=NAMES)
def test_the_sample_of_a_rule_is_masked(rule):
    sample = sample_of(rule)

    assert not [secret for secret in sample.secrets if secret in mask(sample.text)]
