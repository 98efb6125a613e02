"""The harness for LoCoMo and LongMemEval, on made-up files in their forms."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough  # of the benchmarks, which no user runs

CONVERSATIONS = Path(__file__).resolve().parent.parent / "benchmarks/conversations"
SAMPLE = CONVERSATIONS / "sample"


@pytest.fixture
def harness(monkeypatch):
    """A script of the folder, which is no package, as a module."""
    monkeypatch.syspath_prepend(str(CONVERSATIONS))
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if str(CONVERSATIONS) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def run(harness, monkeypatch, tmp_path):
    """Runs the script on a folder by words alone and gives the figures that it writes."""

    def run(folder: Path, *options: str) -> list[dict]:
        figures = tmp_path / "figures.json"
        monkeypatch.setenv("SMART_FORK_HOME", str(tmp_path / "state"))
        for name in ("HOME", "CLAUDE_CONFIG_DIR"):  # the script sets or takes them away: put back afterwards
            monkeypatch.setenv(name, str(tmp_path / "home"))
        monkeypatch.setattr(sys, "argv", ["run.py", str(folder), "--words", "--json", str(figures), *options])
        harness("run").main()
        return json.loads(figures.read_text())

    return run


def test_both_forms_are_read_by_their_keys_and_every_question_with_evidence_is_asked(run):
    figures = {one["benchmark"]: one for one in run(SAMPLE)}
    assert {"LoCoMo", "LongMemEval"} == set(figures)
    assert 5 == figures["LoCoMo"]["rows"]["words alone"]["questions"]
    assert 3 == figures["LongMemEval"]["rows"]["words alone"]["questions"]
    assert 4 == figures["LongMemEval"]["rows"]["words alone, with abstention questions"]["questions"]
    assert {"adversarial", "multi-hop", "open-domain", "single-hop", "temporal"} == set(figures["LoCoMo"]["kinds"])


def test_the_session_with_the_evidence_is_found_through_the_products_own_reader(run):
    assert [1.0, 1.0] == [one["rows"]["words alone"]["hit@5"][0] for one in run(SAMPLE)]


def test_figures_stand_beside_those_that_others_publish_with_their_source(run, capsys):
    run(SAMPLE)
    printed = capsys.readouterr().out
    assert "deja-vu" in printed
    assert "published, not measured here" in printed
    assert "Ingrid" not in printed, "nothing of the chats is printed"


def test_a_figure_is_the_share_of_questions_and_of_evidence(harness):
    rates = harness("run").rates
    right = frozenset({"a", "b"})
    assert (1.0, 1.0, 0.5, 1.0) == rates(["a", "x"], right)
    assert (0.0, 1.0, 1.0, 0.5) == rates(["x", "a", "b"], right)
    assert (0.0, 0.0, 0.0, 1 / 6) == rates([*"vwxyz", "a"], right)
    assert (0.0, 0.0, 0.0, 0.0) == rates(["x"], right)


def test_a_run_goes_on_with_the_homes_that_it_kept(run, tmp_path):
    before = run(SAMPLE, "--home", str(tmp_path / "kept"))
    logs = {path: path.stat().st_mtime_ns for path in (tmp_path / "kept").rglob("*.jsonl")}
    after = run(SAMPLE, "--home", str(tmp_path / "kept"))
    assert [one["rows"] for one in before] == [one["rows"] for one in after]
    assert logs == {path: path.stat().st_mtime_ns for path in (tmp_path / "kept").rglob("*.jsonl")}
    assert logs


def test_odd_evidence_and_turns_are_read_as_far_as_they_go(harness, tmp_path):
    turns = [{"speaker": "A", "text": "Hello \ud800"}, {"speaker": "B"}, "no turn", {"text": 7}]
    sample = {
        "conversation": {"session_2": turns, "session_02_date_time": 5, "session_1": None, "session_1_summary": "x"},
        "qa": [
            {"question": "One?", "evidence": ["D2:1; D11:26", "D"], "category": 3},
            {"question": "Two?", "evidence": "D:11:26", "category": 9},
            {"question": "", "evidence": ["D2:1"]},
            "no question",
        ],
    }
    (tmp_path / "odd.json").write_text(json.dumps({"data": [sample, 3]}))
    (stack,) = harness("forms").read(tmp_path / "odd.json").haystacks
    assert [("user", "A: Hello \ud800"), ("assistant", "7")] == [
        (turn.role, turn.text) for turn in stack.chats[0].turns
    ]
    assert [("One?", "open-domain", {"2", "11"})] == [(one.text, one.kind, one.right) for one in stack.questions]


def test_dates_of_both_forms_are_the_dates_of_the_logs(harness, tmp_path):
    locomo, longmemeval = (harness("forms").read(SAMPLE / f"{name}.json") for name in ("locomo", "longmemeval_s"))
    assert "2023-05-08 13:56" == f"{locomo.haystacks[0].chats[0].began:%Y-%m-%d %H:%M}"
    assert "2023-05-01 01:15" == f"{longmemeval.haystacks[0].chats[0].began:%Y-%m-%d %H:%M}"
    harness("logs").write(locomo.haystacks[0], tmp_path, tmp_path / "project")
    written = "".join(log.read_text() for log in (tmp_path / ".claude").rglob("*.jsonl"))
    assert "2023-05-08T13:56:00.000Z" in written


@pytest.mark.parametrize("text", ["[]", "{}", "no JSON", '[{"question": "?"}]', "3"])
def test_a_folder_without_either_form_ends_with_a_reason(run, tmp_path, text):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/other.json").write_text(text)
    with pytest.raises(SystemExit, match="no file in the form of LoCoMo or LongMemEval"):
        run(tmp_path / "data")
