"""The samples of benchmarks/masking.py, and lines that are none, on a small scale."""

import importlib.util
import sys
from pathlib import Path

from indexer.masking import mask
from tests.cases import first

ROOT = Path(__file__).parents[3]


def loaded(name: str, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    specification = importlib.util.spec_from_file_location(name, ROOT / f"benchmarks/{name}.py")
    module = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, name, module)
    specification.loader.exec_module(module)
    return module


@first("seed", [1, 2, 3])
def test_what_people_paste_is_masked(monkeypatch, seed):
    pasted = loaded("_pasted", monkeypatch)
    samples = list(pasted.samples(seed))
    missed = [sample.shape for sample in samples if pasted.shows(sample.secret, mask(sample.text))]

    assert (80, 400) == (len(pasted.SHAPES), len(samples))
    assert missed == []


def test_every_vendors_token_is_masked_by_its_shape_alone(monkeypatch):
    pasted = loaded("_pasted", monkeypatch)
    for sample in pasted.samples(4):
        if sample.shape.endswith(", told") and sample.shape.split(",")[0] in {
            shape.name for shape in pasted.SHAPES[:36]
        }:
            assert not pasted.shows(sample.secret, mask(sample.text)), sample.shape


@first("path", ["indexer", "smart_fork", "docs"])
def test_our_own_code_and_words_hold_no_secret(path):
    files = [file for file in (ROOT / path).rglob("*") if file.suffix in (".py", ".md", ".html", ".js")]
    lines = [line for file in files for line in file.read_text().splitlines()]
    changed = [line for line in lines if mask(line) != line]

    assert len(lines) > 2000
    assert len(changed) <= len(lines) / 2000, changed
