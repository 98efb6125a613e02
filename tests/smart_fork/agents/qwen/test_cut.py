"""Tests of cuts of Qwen Code's sessions: links of kept records, records that repeat cut ones, and undo."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from smart_fork.agents import AGENTS
from smart_fork.errors import ForkRefused
from smart_fork.excise import Request, check, cut, load_auto, rollback
from tests.indexer.transcripts.records import FIXTURES, SESSION, answering, calling, linked, qwen_log, read_qwen, texts
from tests.smart_fork.agents.qwen.test_log import fixture
from tests.support.cases import parametrize_subtests


def event(identity: str, parent: str, **said: object) -> dict[str, object]:
    return linked("system", identity, parent, subtype="ui_telemetry", systemPayload={"uiEvent": said})


RECORDS = [
    linked("user", "u1", None, "one"),
    event("e1", "u1", response_text="first"),
    linked("assistant", "a1", "e1", "first"),
    linked("user", "u2", "a1", "two"),
    linked("assistant", "a2", "u2", calling("c2", "run_shell_command", command="ls")),
    event("e2", "a2", call_id="c2", function_args={"command": "ls"}),
    linked("tool_result", "r2", "e2", answering("c2", "run_shell_command", output="secret_name")),
    event("e3", "r2", response_text="second"),
    linked("assistant", "a3", "e3", "second"),
    linked("user", "u3", "a3", "three"),
    linked("assistant", "a4", "u3", "third"),
]


def left(path: Path) -> dict[str, str | None]:
    records = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    return {record["uuid"]: record["parentUuid"] for record in records}


@parametrize_subtests("name", [path.stem for path in sorted((FIXTURES / "qwen").glob("*.jsonl"))])
def test_a_transcript_is_known_by_its_first_line_as_that_of_one_agent(name):
    path = FIXTURES / f"qwen/{name}.jsonl"

    assert ["qwen"] == [cutter.tool for cutter in AGENTS.cutters() if cutter.detect(path)]
    assert load_auto(path).tool == "qwen"


def test_other_agents_transcripts_are_not_taken_for_its_own():
    others = [*(FIXTURES / "claude").glob("*.jsonl"), *(FIXTURES / "codex").glob("*.jsonl")]

    assert [] == [path for path in others if AGENTS["qwen"].cutter.detect(path)]


def test_what_stays_is_linked_past_what_went_and_telemetry_goes_with_what_it_repeats(home):
    path = qwen_log(home, *RECORDS)

    cut(Request(str(path), ids=("u2", "a2", "a3")))

    assert left(path) == {"u1": None, "e1": "u1", "a1": "e1", "u3": "a1", "a4": "u3"}
    assert "secret_name" not in path.read_text()
    assert texts(read_qwen(path)) == ["one", "first", "three", "third"]
    assert check(str(path))["ok"]


def test_a_title_that_quotes_a_prompt_goes_with_it(home):
    title = linked("system", "t1", "a4", subtype="custom_title", systemPayload={"customTitle": "TWO (Branch)"})
    path = qwen_log(home, *RECORDS, title)

    cut(Request(str(path), ids=("u2", "a2", "a3")))

    assert "t1" not in left(path)
    assert read_qwen(path).title == "one"


def test_an_undone_cut_is_there_again_byte_for_byte(home):
    path = qwen_log(home, *RECORDS)
    before = path.read_bytes()

    done = cut(Request(str(path), ids=("u2", "a2", "a3")))
    rollback(done["snapshot"], force=True)

    assert path.read_bytes() == before


def test_what_the_real_program_wrote_is_cut_and_reads_back(home):
    path = fixture(home, "person")
    session = read_qwen(path)

    cut(Request(str(path), ids=tuple(turn.id for turn in session.turns[2:4])))

    assert texts(read_qwen(path)) == ["Please remember zebra", "zebra it is", "and hurry", "Noted: and hurry"]
    assert "take your time" not in path.read_text()


def test_a_session_that_it_has_open_is_left_alone(home, posing):
    path = qwen_log(home, *RECORDS)
    path.with_suffix(".runtime.json").write_text(json.dumps({"pid": posing("qwen"), "session_id": SESSION}))

    with pytest.raises(ForkRefused, match="Qwen Code"):
        cut(Request(str(path), ids=("u2",)))


def test_the_logs_of_sub_agents_go_with_their_calls(home):
    path = qwen_log(home, *RECORDS)
    agents = path.parent.parent / "subagents" / SESSION
    agents.mkdir(parents=True)
    for name in ("agent-look-c2.jsonl", "agent-look-c2.meta.json", "agent-look-c9.jsonl", "agent-look-c2.txt"):
        (agents / name).write_text("{}")
    cutter = AGENTS["qwen"].cutter

    found = cutter.beside(path, cutter.load(path).turns)

    assert [one.name for one in found] == ["agent-look-c2.jsonl", "agent-look-c2.meta.json"]
