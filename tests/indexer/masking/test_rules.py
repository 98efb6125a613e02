"""Each rule's samples are found by the rule alone, and by `mask`."""

import random
import re
from pathlib import Path

import pytest

from indexer.masking import mask
from indexer.masking import rules as reader
from indexer.masking.phrases import found_at, phrases_of
from indexer.masking.rules import VENDORS, Vendor, compiled, rules_in
from tests.indexer.masking.evaluation.expand import HOLE, Sample, filled
from tests.support.cases import parametrize_subtests

FOLDER = Path(reader.__file__).parent


def vendors() -> list[tuple[Vendor, str]]:
    """Yield each vendor with a sample: the line below it or, where letters and digits follow, as many as needed."""
    lines = (FOLDER / "vendors.rules").read_text(encoding="utf-8").splitlines()
    written = iter([line.removeprefix("  + ") for line in lines if line.startswith("  + ")])
    return [
        (vendor, next(written) if vendor.exact else f"{vendor.beginnings[0]}⟦an:{vendor.length}⟧") for vendor in VENDORS
    ]


PHRASES = [
    (phrase, rule["mask"])
    for name in ("phrases", "prose", "commands")
    for phrase, rule in zip(phrases_of(name), rules_in(name), strict=True)
]
SHAPES = [(rule["find"], rule["mask"]) for rule in rules_in("shapes")]
LEFT = [
    rule["leave"] for name in ("shapes", "phrases", "prose", "commands") for rule in rules_in(name) if "leave" in rule
]
SAMPLES = [template for _, template in (*SHAPES, *PHRASES)]


def sample_of(template: str) -> Sample:
    return filled(template.replace("⏎", "\n").replace("␉", "\t"), random.Random(template))  # noqa: S311


@parametrize_subtests("vendor, template", vendors())
@pytest.mark.slow
def test_a_vendors_token_is_masked_as_what_it_is(vendor, template):
    follows = template.removeprefix(vendor.beginnings[0])
    for beginning in vendor.beginnings:
        token = beginning + filled(follows, random.Random(template)).text  # noqa: S311

        assert compiled(re.escape(beginning) + vendor.follows).fullmatch(token)
        assert f"see [REDACTED:{vendor.kind}]" == mask(f"see {token}")


@parametrize_subtests("pattern, template", SHAPES)
def test_a_shape_is_found_in_its_sample(pattern, template):
    sample = sample_of(template)
    found = [match[match.lastindex or 0] for match in compiled(pattern).finditer(sample.text)]

    assert sample.secrets
    assert all(any(secret in one for one in found) for secret in sample.secrets)


@parametrize_subtests("phrase, template", PHRASES)
def test_a_phrase_finds_the_secrets_of_its_sample(phrase, template):
    sample = sample_of(template)
    found = [sample.text[span.start : span.end] for span in found_at(phrase, sample.text, [(0, len(sample.text))])]

    assert any(anchor.decode() in sample.text.lower() for anchor in phrase.anchors)
    assert sample.secrets
    assert all(any(secret in one or one in secret for one in found) for secret in sample.secrets)


@parametrize_subtests("template", SAMPLES)
def test_the_sample_of_a_rule_is_masked(template):
    sample = sample_of(template)

    assert not [secret for secret in sample.secrets if secret in mask(sample.text)]


@parametrize_subtests("phrase, template", PHRASES)
def test_a_variable_in_the_place_of_a_phrases_secret_stays(phrase, template):
    text = HOLE.sub("${SECRET}", template)

    assert not list(found_at(phrase, text, [(0, len(text))]))
    assert text == mask(text)


@parametrize_subtests("text", LEFT)
def test_what_a_rule_leaves_stays(text):
    assert text == mask(text)
