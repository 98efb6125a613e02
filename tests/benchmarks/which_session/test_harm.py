"""How often smart-fork speaks where no session can know."""

from __future__ import annotations

import json

import pytest

from benchmarks.which_session import harm
from benchmarks.which_session.play import Stage
from benchmarks.which_session.transcripts import transcripts
from tests.benchmarks.which_session.repository import lines, time_of, typed, with_five_before
from tests.indexer.index_inputs import HashEmbedder

pytestmark = pytest.mark.thorough  # of the benchmarks, which no user runs

#: Lays out three projects in a home. In the second one the lines are edited that session 1 of the repository wrote.
LAY_OUT = """
import json, pathlib, subprocess, sys
NAMES = ("ann+yard", "bob+dock", "bob+quay")
to = pathlib.Path(sys.argv[1])
for number, records in enumerate({records}):
    repository = to / "repos" / NAMES[number]
    subprocess.run(["git", "init", "--quiet", str(repository)], check=True)
    log = to / f"home/.claude/projects/yard{{number}}/{{number}}0000000-3333-4333-8333-333333333333.jsonl"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("".join(line.replace("YARD", str(repository)) + "\\n" for line in records))
queries = [{{"query": one, "project": str(to / "repos" / NAMES[number])}} for number, one in enumerate({queries})]
(to / "queries.jsonl").write_text("".join(json.dumps(one) + "\\n" for one in queries))
"""
EDIT = {"file_path": "YARD/a1.py", "old_string": lines("line1"), "new_string": lines("other")}
OTHERS = harm.FIRST.format("other projects")
ERROR = "ValueError: the crane of the yard has no hook\n"


def called(minute: float, name: str, given: dict[str, str], **more: object) -> list[dict[str, object]]:
    call = {"type": "tool_use", "id": f"t{minute}", "name": name, "input": given}
    message = {"id": f"m{minute}", "role": "assistant", "model": "made-up", "content": [call]}
    back = {"type": "tool_result", "tool_use_id": f"t{minute}"} | more
    return [
        {"type": "assistant", "timestamp": time_of(minute), "message": message},
        typed(minute + 0.1, "") | {"message": {"role": "user", "content": [back]}},
    ]


def log(number: int, *records: dict[str, object]) -> list[str]:
    known = {"sessionId": f"{number}0000000-3333-4333-8333-333333333333", "cwd": "YARD"}
    return [
        json.dumps({"uuid": f"{number:04x}{line:04x}-2222-4222-8222-000000000000"} | known | one)
        for line, one in enumerate(records)
    ]


@pytest.fixture
def spoken(tmp_path, monkeypatch):
    """How often what speaks, by what was asked and where."""
    (made_up := tmp_path / "unrelated.txt").write_text("compose poetry for bees\n")
    monkeypatch.setattr(harm, "UNRELATED", made_up)
    records = [
        log(0, typed(1, "Paint the fence of the yard green"), *called(2, "Bash", {"command": "paint"}, content="done")),
        log(
            1,
            typed(1, "Write module a1 about cranes, ships and cargo, part 1"),
            *called(2, "Bash", {"command": "pytest"}, content=ERROR, is_error=True),
            *called(3, "Edit", EDIT, content="done"),
        ),
        log(2, typed(1, "Water the lawn"), *called(2, "Bash", {"command": "water"}, content="done")),
    ]
    (tmp_path / "corpus").mkdir()
    laid_out = LAY_OUT.format(records=records, queries=["Paint the fence of the yard green", "Who feeds dolphins?"])
    (tmp_path / "corpus/lay_out.py").write_text(laid_out)
    clone = with_five_before(tmp_path / "harbor").clone()
    stage = Stage(clone, transcripts(clone), tmp_path / "stage")

    found = harm.measure(
        [stage], tmp_path / "corpus", tmp_path / "lab", HashEmbedder(dimensions=384)
    )  # of so many no two are alike

    assert [("harbor", 5), ("project 1", 1), ("project 2", 1), ("project 3", 1)] == [
        (one["name"], one["sessions"]) for one in found["places"]
    ]
    return {(one["asked"], one["in"]): (one["times"], one["spoken"]) for one in found["speaks"]}


def test_what_happened_in_other_projects_is_asked_in_each_place(spoken):
    assert spoken[harm.LABELLED, "harbor"][0] == 2
    assert (1, {"hint": 0}) == spoken[harm.ERROR, "harbor"], "no session here met it"
    assert spoken[OTHERS, "project 1"][0] == 2
    assert spoken[OTHERS, "project 3"][0] == 1, "those of its owner's other project are not asked"
    assert spoken[harm.FIRST.format("harbor"), "project 1"][0] == 5
    assert (1, {"find": 0, "recall": 0}) == spoken[harm.MADE_UP, "harbor"]
    assert (harm.ERROR, "project 2") not in spoken, "its own are not asked"


def test_a_prompt_is_counted_where_a_session_seems_to_know(spoken):
    times, said = spoken[OTHERS, "harbor"]

    assert times == 3
    assert said["find"] >= 1, "one in the same words as a session's own"
    assert spoken[harm.OWN, "project 1"][1]["find"] == 1


def test_the_unrelated_prompts_are_different_and_of_one_line():
    prompts = harm.UNRELATED.read_text().splitlines()

    assert len(set(prompts)) == len(prompts) >= 40
    assert all(prompt.strip() == prompt != "" for prompt in prompts)


def test_a_hint_about_lines_that_came_from_elsewhere_is_counted(spoken):
    assert (1, {"hint": 1}) == spoken[harm.EDIT, "harbor"]
