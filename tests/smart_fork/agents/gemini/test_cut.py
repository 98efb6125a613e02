"""Tests of cuts of Gemini CLI's sessions: messages in records and lists, and undo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from smart_fork.agents import AGENTS
from smart_fork.errors import ForkRefused
from smart_fork.excise import Request, check, cut, erasure, load_auto, rollback, writing
from tests.indexer.transcripts.records import FIXTURES, SESSION, gemini_log, read_gemini, texts
from tests.support.cases import parametrize_subtests

WORD = "walrus"
MOMENT = "2026-07-01T10:00:0{}.000Z"
RESULT = {"functionResponse": {"id": "c2", "name": "run_shell_command", "response": {"output": WORD}}}


def says(identity: str, text: str, kind: str = "user", at: int = 1, **more: object) -> dict[str, object]:
    content = [{"text": text}] if kind == "user" else text
    return {"id": identity, "timestamp": MOMENT.format(at), "type": kind, "content": content} | more


CALLED = [{"id": "c2", "name": "run_shell_command", "args": {"command": f"echo {WORD}"}}]
CONTEXT = says("context", "<session_context>Here.</session_context>")
RECORDS = [
    {"$set": {"messages": [CONTEXT]}},
    says("u1", "one"),
    says("a1", "first", "gemini"),
    says("u2", f"two {WORD}", at=2),
    says("a2", "", "gemini", 3, toolCalls=CALLED),
    says("a2", "", "gemini", 3, toolCalls=[CALLED[0] | {"result": [RESULT], "status": "success"}]),
    {"id": "r2", "timestamp": MOMENT.format(4), "type": "user", "content": [RESULT]},
    says("a3", f"second {WORD}", "gemini", 5),
    {"$set": {"summary": f"About a {WORD}", "memoryScratchpad": {"toolSequence": [WORD]}}},
    says("u3", "three", at=6),
    says("a4", "third", "gemini", 7),
]
CUT = ("u2", "a2", "a3")


def records(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@parametrize_subtests("name", [path.stem for path in sorted((FIXTURES / "gemini").glob("*.jsonl"))])
def test_a_transcript_is_known_by_its_first_line_as_that_of_one_agent(name):
    path = FIXTURES / f"gemini/{name}.jsonl"

    assert ["gemini"] == [cutter.tool for cutter in AGENTS.cutters() if cutter.detect(path)]
    assert load_auto(path).tool == "gemini"


@pytest.mark.parametrize("name", [path.stem for path in sorted((FIXTURES / "gemini").glob("*.jsonl"))])
def test_every_message_that_is_shown_can_be_cut(home, name):
    source = FIXTURES / f"gemini/{name}.jsonl"
    shown = [turn.id for turn in read_gemini(source).turns]
    session = load_auto(source)

    assert set(shown) <= {one for turn in session.turns for one in (turn.id, *turn.aliases)}


def test_a_message_goes_from_every_record_with_the_results_of_its_calls(home):
    path = gemini_log(home, *RECORDS)

    done = cut(Request(str(path), ids=CUT))

    assert [one.get("id") for one in records(path)][2:] == ["u1", "a1", "u3", "a4"]
    assert list(done["dependents"]) == ["r2"]
    assert WORD not in path.read_text()
    assert texts(read_gemini(path)) == ["one", "first", "three", "third"]
    assert check(str(path))["ok"]


def test_a_message_goes_from_lists_of_all_that_is_remembered_also_under_another_id(home):
    listed = [CONTEXT, says("u1", "one"), says("other", f"two {WORD}"), says("a3", f"second {WORD}", "gemini", 5)]
    path = gemini_log(home, *RECORDS, {"$set": {"messages": listed}}, says("u4", "four"))

    cut(Request(str(path), ids=("u2", "a2", "a3")))

    assert WORD not in path.read_text()
    assert [one["id"] for one in records(path)[-2]["$set"]["messages"]] == ["context", "u1"]


def test_what_stands_for_compressed_messages_can_be_cut_by_its_id_and_is_named_until_then(home):
    secret = "hunter77swordfish"
    listed = [CONTEXT, says("sum", f"They said {secret}"), says("got", "Got it.", "gemini"), says("u3", "three", at=6)]
    path = gemini_log(home, *json.loads(json.dumps(RECORDS).replace(WORD, secret)), {"$set": {"messages": listed}})

    left = cut(Request(str(path), ids=CUT, force=True))["left"]
    cut(Request(str(path), ids=("sum",), force=True))

    assert ["Line sum is not" in one["reason"] for one in left] == [True]
    assert secret not in path.read_text()
    assert check(str(path))["ok"]


def test_a_log_that_is_rewound_to_what_went_is_rewound_to_what_stays(home):
    rewound = [says("x1", f"wrong {WORD}"), says("x2", "so wrong", "gemini"), {"$rewindTo": "x1"}]
    path = gemini_log(home, *RECORDS, *rewound, says("u4", "four"))

    cut(Request(str(path), ids=("x1", *CUT)))

    assert records(path)[-2] == {"$rewindTo": "x2"}
    assert texts(read_gemini(path)) == ["one", "first", "three", "third", "four"]
    cut(Request(str(path), ids=("x2",)))
    assert records(path)[-2] == {"$set": {}}
    assert texts(read_gemini(path)) == ["one", "first", "three", "third", "four"]


def beside(home) -> tuple[Path, Path, Path, Path]:
    """Make a log with files beside it: prompts, a long result and a sub-agent."""
    calls = [CALLED[0] | {"agentId": "helper"}]
    path = gemini_log(home, *RECORDS[:4], says("a2", "", "gemini", 3, toolCalls=calls), *RECORDS[7:])
    prompts, project = path.parents[1] / "logs.json", path.parents[1]
    asked = [{"sessionId": SESSION, "message": text} for text in ("one", f"two {WORD}")]
    asked.append({"sessionId": "other", "message": f"two {WORD}"})
    prompts.write_text(json.dumps(asked))
    long, helper = (
        project / f"tool-outputs/session-{SESSION}/run_shell_command_c2.txt",
        path.parent / SESSION / "helper.jsonl",
    )
    for one in (long, helper):
        one.parent.mkdir(parents=True)
        one.write_text(WORD)
    return path, prompts, long, helper


def test_prompts_and_long_results_and_sub_agents_beside_the_log_go_and_come_back(home):
    path, prompts, long, helper = beside(home)
    before = [one.read_bytes() for one in (path, prompts, long, helper)]

    prompts.chmod(0o640)
    done = cut(Request(str(path), ids=CUT))

    assert [one["message"] for one in json.loads(prompts.read_text())] == ["one", f"two {WORD}"]
    assert 0o640 == prompts.stat().st_mode & 0o777
    assert not long.exists()
    assert not helper.exists()
    rollback(done["snapshot"])
    assert [one.read_bytes() for one in (path, prompts, long, helper)] == before


def test_what_a_killed_cut_has_left_beside_the_log_goes_with_what_is_erased_next(home, monkeypatch):
    path, prompts, long, helper = beside(home)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(writing, "write_or_delete", killed)
        with pytest.raises(KeyboardInterrupt):
            cut(Request(str(path), ids=CUT))
    assert [True, True, True] == [WORD in one.read_text() for one in (prompts, long, helper)]
    assert erasure.run_pending()

    assert [one["message"] for one in json.loads(prompts.read_text())] == ["one", f"two {WORD}"]
    assert [False, False] == [one.exists() for one in (long, helper)]
    assert WORD not in path.read_text()


def test_a_log_that_claims_a_path_as_its_id_has_no_files_beside_it(home):
    path, *own = beside(home)
    cutter = AGENTS.cutter_of("gemini")
    assert {*own[1:]} == {*cutter.files_of(path)}
    claims = gemini_log(home, session=f"../chats/{SESSION}", name="other")

    assert [] == cutter.files_of(claims)


def test_the_other_name_of_a_log_goes(home):
    path = gemini_log(home, *RECORDS, name=SESSION)
    other = path.with_name("session-2026-07-01T10-00-11111111.jsonl")
    os.link(path, other)

    cut(Request(str(path), ids=CUT))

    assert not other.exists()


def test_a_secret_is_masked_in_every_record_and_list(home):
    secret = f"ghp_{'a1B2' * 9}"
    path = gemini_log(
        home, *json.loads(json.dumps([*RECORDS, {"$set": {"messages": [RECORDS[3]]}}]).replace(WORD, secret))
    )
    prompts = path.parents[1] / "logs.json"
    prompts.write_text(json.dumps([{"sessionId": SESSION, "message": secret}]))

    cut(Request(str(path), secrets=True))

    assert secret not in path.read_text()
    assert json.loads(prompts.read_text()) == []
    assert len(records(path)) == len(RECORDS) + 2


def test_nothing_is_cut_while_it_runs_in_the_session_s_directory(home, tmp_path):
    path = gemini_log(home, *RECORDS, cwd=str(tmp_path))
    words = ["gemini", "-c", "import sys; print(flush=True); sys.stdin.read()"]
    with subprocess.Popen(
        words, executable=sys.executable, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path
    ) as process:
        process.stdout.readline()

        with pytest.raises(ForkRefused, match="Gemini CLI"):
            cut(Request(str(path), ids=CUT))

        process.stdin.close()
