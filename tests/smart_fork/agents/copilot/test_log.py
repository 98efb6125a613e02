"""Tests of reading Copilot CLI's sessions, from logs written by version 1.0.102 and from events in its form."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from indexer.transcripts.model import Proof, Session
from smart_fork.agents import AGENTS
from smart_fork.agents.ancestry import FamilyLog
from smart_fork.agents.copilot.log_files import CopilotAdapter
from smart_fork.agents.copilot.session_reader import CODEC, TAIL, CopilotAncestry
from smart_fork.agents.fork_plan import ForkPlan
from smart_fork.agents.start_command import LaunchRequest
from smart_fork.workers.hook_events import WorkerEvent
from tests.indexer.transcripts.records import (
    FIXTURES,
    SESSION,
    actions,
    copilot_log,
    happened,
    id_of,
    notes,
    prompts,
    read_copilot,
    requested,
    texts,
)

ADA = "/home/ada/shop"
ADDED = 'Add a retry to the download. CALL bash {"command":"cat retry.py; exit 3","description":"look"}'
READ = 'Now read it. CALL view {"path":"/home/ada/shop/retry.py"}'


def fixture(home: Path, name: str) -> Path:
    source = FIXTURES / f"copilot/{name}.jsonl"
    session = json.loads(source.read_text().splitlines()[0])["data"]["sessionId"]
    path = home / f".copilot/session-state/{session}/events.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, path)
    return path


def conversation(*records: object, home: Path) -> Session:
    return read_copilot(copilot_log(home, *records))


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("tools", [ADDED, READ]),
        ("compacted", ["add a retry", "second step"]),
        ("fork", ["add a retry", "second step"]),
    ],
)
def test_what_was_said_is_read_once_and_in_order(home, name, asked):
    session = read_copilot(fixture(home, name))

    assert prompts(session) == asked
    assert texts(session)[::2] == asked
    assert all(text.startswith("PONG ") for text in texts(session)[1::2])
    assert (session.cwd, session.git_branch, session.version, session.copied) == (ADA, "master", "1.0.102", False)


def test_what_tools_gave_back_is_noted_with_its_exit_status(home):
    session = read_copilot(fixture(home, "tools"))

    assert actions(session) == ["run cat retry.py; exit 3", "read /home/ada/shop/retry.py"]
    assert "exit 3: retry = 1" in notes(session)
    assert session.token_estimate == 5804


def test_a_call_that_was_denied_is_not_taken_for_done(home):
    denied = {"message": "Permission denied because no interactive user response was available.", "code": "denied"}
    asked = happened("assistant.message", "a", toolRequests=[requested("t", "bash", command="git commit -m One")])
    back = happened("tool.execution_complete", "c", toolCallId="t", success=False, error=denied)

    session = conversation(happened("user.message", "u", content="one"), asked, back, home=home)

    (result,) = [one for turn in session.turns for one in turn.tool_results]
    assert (result.is_error, result.proof) == (True, Proof.NOTHING)


def test_what_a_sub_agent_says_is_no_part_of_the_conversation(home):
    session = read_copilot(fixture(home, "subagent"))

    assert (len(prompts(session)), "look at it" in texts(session)) == (1, False)
    assert len(texts(session)) == 2


def test_what_a_compaction_left_is_loaded_and_all_before_it_is_still_found(home):
    session = read_copilot(fixture(home, "compacted"))

    (left,) = [turn for turn in session.turns if turn.role == "system" and turn.loaded]
    assert (session.compactions, left.loaded, left.text, texts(session)[0]) == (1, 12343, "", "add a retry")


def test_a_fork_that_the_program_made_says_of_whom_it_is(home):
    assert read_copilot(fixture(home, "fork")).parent_id == "44444444-4444-4444-8444-444444444444"
    assert read_copilot(fixture(home, "compacted")).parent_id is None


@pytest.mark.parametrize(
    ("beside", "title"),
    [
        ("name: Uploader\nuser_named: true\n", "Uploader"),
        ("name: 'It''s: mine'\nuser_named: true\n", "It's: mine"),
        ('name: "two\\twords"\nuser_named: true\n', "two words"),
        ("name: Uploader\nuser_named: false\n", "one"),
        ("name: |-\n  long\nuser_named: true\n", "one"),
    ],
)
def test_the_name_that_a_person_gave_is_beside_the_log(home, beside, title):
    log = copilot_log(home, happened("user.message", "u", content="one"))
    log.with_name("workspace.yaml").write_text(beside)

    assert read_copilot(log).title == title


def test_nobody_has_asked_what_the_program_itself_put_there(home):
    session = conversation(
        happened("user.message", "u", content="one"),
        happened("user.message", "s", content="a skill's text", source="skill-x"),
        home=home,
    )

    assert texts(session) == ["one"]


def test_what_was_broken_off_is_seen_as_that_until_something_is_asked(home):
    broken = [happened("user.message", "u", content="one"), happened("abort", "x", reason="user_initiated")]

    assert conversation(*broken, home=home).interrupted
    assert not conversation(*broken, happened("user.message", "v", content="two"), home=home).interrupted


def test_a_log_from_the_future_is_read_as_far_as_it_is_understood(home):
    """Unknown events, fields and kinds, and half a line at the end, are skipped without an error."""
    log = copilot_log(
        home, happened("session.start", "s", version=9, sessionId=SESSION), happened("oracle.message", "o", content="x"),
        happened("user.message", "u", content="one", mood="good"), happened("assistant.message", "a", content="two", toolRequests={"a": 1}),
    )  # fmt: skip
    with log.open("a") as file:
        file.write('{"type":"user.message","data":{"con')

    assert texts(read_copilot(log)) == ["one", "two"]


def test_a_session_is_found_by_its_folder_alone(home):
    log = fixture(home, "tools")
    (log.parents[1] / "events.jsonl").write_text(log.read_text())
    (log.parent / "other-events.jsonl").write_text(log.read_text())
    reader = CopilotAdapter()

    assert [file.path for file in reader.discover()] == [log]
    assert reader.locate(SESSION) == (log,)
    assert [reader.locate(one) for one in ("", "..", ".", "../session-state", id_of(7))] == [()] * 5


def test_its_state_is_what_its_last_events_say(home):
    signs = [TAIL.sign(record).status for record in TAIL.records(fixture(home, "tools"))]

    said = [one for one in signs if one]
    assert (said[0], said[-1], "idle" in said, "working" in said) == ("working", "idle", True, True)
    assert TAIL.written(TAIL.records(fixture(home, "tools"))) == 28


def test_its_events_are_those_of_claude_code():
    hooks = AGENTS.hooks_of("copilot")
    asks = {"sessionId": SESSION, "message": "Run command: touch made", "title": "Permission needed"}

    told = WorkerEvent.of(
        hooks.event({**asks, "hook_event_name": "Notification", "notification_type": "permission_prompt"})
    )

    assert (told.session_id, told.notification_type) == (SESSION, "permission_prompt")
    assert WorkerEvent.of(hooks.event({"hook_event_name": "Stop", "session_id": SESSION})).session_id == SESSION
    assert list(hooks.notes(json.dumps({"disableAllHooks": True})))
    assert not list(hooks.notes("{}"))


def test_a_fork_of_others_sessions_asks_before_it_acts():
    of_others = LaunchRequest("copilot", SESSION, Path("/srv/shop"), "/bin/copilot", id_of(9), of_others=True)

    assert ForkPlan.of(of_others).argv[1:] == (f"--resume={id_of(9)}", "--mode=interactive")


def test_a_tool_that_is_given_a_text_edits_the_files_of_its_patch(home):
    patch = "*** Begin Patch\n*** Update File: retry.py\n@@\n-x\n+attempts\n*** End Patch"
    calls = [
        requested("c1", "apply_patch") | {"arguments": patch, "type": "custom"},
        requested("c2", "other") | {"arguments": "x"},
    ]
    session = conversation(
        happened("user.message", "u1", content="mend it"),
        happened("assistant.message", "a1", content="", toolRequests=calls),
        home=home,
    )

    edit, other = session.turns[-1].tool_calls
    assert (("retry.py",), "edit retry.py") == (edit.edits, edit.action)
    assert ((), "") == (other.edits, other.action)


def test_an_event_whose_type_is_no_text_is_no_message(tmp_path):
    log = tmp_path / "events.jsonl"
    hostile, said = {"type": {"type": {}}, "id": "e1", "data": {}}, {"type": "user.message", "id": "e2", "data": {}}
    log.write_text("".join(json.dumps(one) + "\n" for one in (hostile, said)))
    of_the_log = FamilyLog("copilot", "s1", log)

    assert not CODEC.is_sent(hostile)
    assert ["e2"] == [message.id for message in CopilotAncestry(AGENTS["copilot"]).messages(of_the_log)]
