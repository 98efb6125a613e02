"""What is printed and answered is what it was: ``make golden`` writes the files anew, after a change that is meant."""

from __future__ import annotations

import difflib
import importlib.util
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from indexer.masking import mask
from smart_fork.agents import AGENTS
from tests.golden import fixtures, recorded_answers
from tests.golden.demo_home import Scene, scene
from tests.golden.normalize import CHECKOUT, Normal
from tests.indexer.masking.evaluation.expand import samples
from tests.indexer.masking.test_evaluation import SECRETS
from tests.indexer.transcripts.records import FIXTURES

HERE = Path(__file__).parent
MASK = re.compile(r"\[REDACTED:([\w-]+)\]")
SAY = "If that is meant, `make golden` writes the files anew; look at what has changed before you commit it."


@pytest.fixture
def demo(home):
    with scene(home) as one:
        yield one


def compare(folder: str, suffix: str, now: Iterable[tuple[str, str]]) -> None:
    """What is said `now` beside the files, or into them."""
    place = HERE / folder
    said = {f"{name}{suffix}": text for name, text in now}
    if os.environ.get("GOLDEN") == "write":
        place.mkdir(exist_ok=True)
        for path in place.glob(f"*{suffix}"):
            path.unlink()
        for name, text in said.items():
            (place / name).write_text(text, encoding="utf-8")
        return
    kept = {path.name: path.read_text("utf-8") for path in place.glob(f"*{suffix}")}
    lines: list[str] = []
    for name in sorted(kept.keys() | said):
        before, after = (texts.get(name, "").splitlines(keepends=True) for texts in (kept, said))
        lines += difflib.unified_diff(before, after, f"{folder}/{name}, kept", f"{folder}/{name}, now")
    if lines:
        pytest.fail("".join(lines) + SAY, pytrace=False)


def answers(demo: Scene, said: Iterable[tuple[str, Any]]) -> Iterable[tuple[str, str]]:
    return ((name, demo.normal.text(answer)) for name, answer in said)


def test_the_answers_of_the_commands_are_what_they_were(demo):
    compare("json", ".json", answers(demo, recorded_answers.told(demo)))


def test_the_answers_of_the_tools_are_what_they_were(demo):
    compare("tools", ".json", answers(demo, recorded_answers.asked(demo)))


def test_the_list_of_the_tools_and_their_schemas_are_what_they_were(demo):
    compare("lists", ".json", answers(demo, recorded_answers.listed()))


def test_the_help_pages_are_what_they_were(demo):
    compare("help", ".txt", ((name, demo.normal.page(page)) for name, page in recorded_answers.helped(demo)))


def test_what_is_read_of_the_fixtures_is_what_it_was(home):
    compare("agents", ".txt", fixtures.said())


def test_what_is_masked_in_each_sample_is_what_it_was():
    compare("masking", ".txt", masked())


def masked() -> Iterable[tuple[str, str]]:
    """The kinds of what is masked in each sample with a secret, and how much is left of the rest; no file keeps a value."""
    for file in SECRETS:
        texts = [mask(sample.text) for sample in samples(file, seed=1)]
        yield (
            file.stem,
            "".join(
                f"{number}: {' '.join(MASK.findall(text)) or 'nothing'}, {len(MASK.sub('', text))} characters left\n"
                for number, text in enumerate(texts, start=1)
            ),
        )


def test_answers_name_our_program_alike_in_whichever_environment_it_is(monkeypatch, home):
    monkeypatch.setattr("sys.executable", str(CHECKOUT / "build/light/bin/python"))

    said = Normal(home, ()).value({"program": str(CHECKOUT / "build/light/bin/smart-fork"), "folder": str(CHECKOUT)})

    assert said == {"program": "<smart-fork>", "folder": "<checkout>"}


def test_a_short_path_of_the_checkout_is_no_part_of_other_paths(monkeypatch, home):
    monkeypatch.setattr("tests.golden.normalize.CHECKOUT", Path("/src"))

    said = Normal(home, ()).value("edit ~/repos/harbor/src/a.ts in /src, '/src/b.py' and /srcs")

    assert said == "edit ~/repos/harbor/src/a.ts in <checkout>, '<checkout>/b.py' and /srcs"


def test_each_folder_of_fixtures_has_a_readme_with_the_version_and_all_of_them():
    for folder in FIXTURES.iterdir():
        readme = (folder / "README.md").read_text("utf-8")
        files = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file() and path.suffix != ".md"]

        assert [] == [file for file in files if str(file) not in readme]
        assert AGENTS[folder.name].seen in readme


def test_the_sentences_that_people_are_shown_are_those_that_were_read():
    spec = importlib.util.spec_from_file_location("sentences", HERE.parents[1] / "scripts/sentences.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    if os.environ.get("GOLDEN") == "write":
        script.FILE.write_text(script.sentences(), "utf-8")

    assert script.sentences() == script.FILE.read_text("utf-8"), SAY
