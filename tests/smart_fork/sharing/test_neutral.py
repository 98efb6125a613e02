from __future__ import annotations

import pytest

from indexer.handover_action_lines import ASKED_US
from indexer.transcripts.model import GivenBack, Item, Proof, ToolCall, ToolResult, Turn
from smart_fork.agents.log_readers import READERS
from smart_fork.forking.handover_text import (
    EDIT_CHARACTERS,
    NAMES_CHARACTERS,
    OUTPUT_CHARACTERS,
    HandedOverAction,
    NeutralMessage,
    changed_lines,
    neutral,
    read_neutral,
)
from tests.indexer.transcripts.records import (
    FIXTURES,
    assistant,
    chained,
    claude_log,
    codex_log,
    enveloped,
    item,
    message,
    meta,
    read_claude,
    read_codex,
    result,
    use,
    user,
)

SESSION = "11111111-1111-4111-8111-111111111111"
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}


def test_a_session_of_claude_is_told_with_how_its_actions_went(home):
    log = claude_log(
        home,
        user("u1", None, [{"type": "text", "text": "make it pass"}, IMAGE]),
        assistant("a1", "u1", {"type": "thinking", "thinking": "hm", "signature": "s"}),
        assistant("a2", "a1", "I look.", use("t1", "Bash", command="pytest -q")),
        result("r1", "a2", "t1", "1 failed\n"),
        assistant("a3", "r1", use("t2", "Edit", file_path="/srv/shop/a.py")),
        result("r2", "a3", "t2", [{"type": "text", "text": "edited"}, IMAGE]),
        assistant("a4", "r2", use("t3", "Task", description="look around", prompt="x")),
        result("r3", "a4", "t3", "x" * (OUTPUT_CHARACTERS + 1), is_error=True),
        user("m", "r3", "from the system", isMeta=True),
        assistant("a5", "m", "It passes."),
    )  # fmt: skip
    told = read_neutral(read_claude(log))

    looked, passes = told.messages[1:]
    assert NeutralMessage("user", 0, "make it pass") == told.messages[0]
    assert ("assistant", "I look.") == (looked.role, looked.text)
    tested = HandedOverAction("run pytest -q", "1 failed", proof=Proof.TESTS_PASSED)  # by its exit status
    assert (tested, HandedOverAction("edit /srv/shop/a.py", "edited")) == looked.actions[:2]
    assert (True, OUTPUT_CHARACTERS + 1) == (looked.actions[2].failed, len(looked.actions[2].outcome))
    assert ("It passes.", ()) == (passes.text, passes.actions)
    assert {"images": 2, "sub-agents": 1, "system text": 1, "thinking": 1, "tool output": 1} == told.lost


def test_a_session_of_codex_is_told_with_how_its_actions_went(home):
    call = item("function_call", name="shell", arguments='{"command":["pytest","-q"]}', call_id="c1")
    log = codex_log(
        home,
        SESSION,
        meta(SESSION),
        message("user", "make it pass"),
        item("reasoning", summary=[], encrypted_content="x"),
        call,
        item("function_call_output", call_id="c1", output='{"output":"1 passed","metadata":{"exit_code":0}}'),
        item("function_call", name="spawn_agent", arguments='{"message":"look"}', call_id="c2"),
        message("assistant", "It passes."),
        enveloped("event_msg", type="task_complete"),
    )
    told = read_neutral(read_codex(log))

    assert ["user", "assistant", "assistant"] == [one.role for one in told.messages]
    assert HandedOverAction("run pytest -q", "1 passed", proof=Proof.TESTS_PASSED) == told.messages[1].actions[0]
    assert {"sub-agents": 1, "thinking": 1} == told.lost


def test_of_what_is_cut_off_the_names_are_told_each_once_and_so_many(home):
    long = f"retryOnce\n{'x ' * OUTPUT_CHARACTERS}\nretryOnce uploadInParts MAX_RETRY_COUNT\nsecret_key = 's3cr3tWordsInIt'"
    many = " ".join(f"name_{number}" for number in range(999))
    log = claude_log(
        home,
        user("u1", None, "go"),
        assistant("a1", "u1", use("t1", "Read", file_path="/a.py")),
        result("r1", "a1", "t1", long),
        assistant("a2", "r1", use("t2", "Read", file_path="/a.py")),
        result("r2", "a2", "t2", long),
        assistant("a3", "r2", use("t3", "Edit", file_path="/a.py", old_string="x", new_string=f"{'x ' * 999}{many}")),
        result("r3", "a3", "t3", "The file has been updated."),
    )
    first, again, edit = read_neutral(read_claude(log)).messages[1].actions

    assert {"uploadInParts", "MAX_RETRY_COUNT"} <= set(first.names)
    assert not {"retryOnce", "s3cr3tWordsInIt"} & set(first.names)
    assert again.names == ()
    assert edit.names[0] == "name_0"
    assert NAMES_CHARACTERS - 20 < len(" ".join(edit.names)) <= NAMES_CHARACTERS


def test_only_what_was_said_up_to_the_turn_is_told(home):
    log = claude_log(
        home,
        user("u1", None, "one"),
        assistant("a1", "u1", "first"),
        user("u2", "a1", "two"),
        assistant("a2", "u2", {"type": "thinking", "thinking": "hm", "signature": "s"}),
        assistant("a3", "a2", "second"),
    )
    told = read_neutral(read_claude(log), 1)

    assert ["one", "first"] == [one.text for one in told.messages]
    assert {} == told.lost


def test_a_compaction_loses_nothing_of_what_was_said_before(home):
    log = claude_log(
        home,
        user("u1", None, "one"),
        assistant("a1", "u1", "first"),
        chained("system", "b", None, subtype="compact_boundary", logicalParentUuid="a1"),
        user("s", "b", "This session is being continued", isCompactSummary=True),
        user("u2", "s", "two"),
        assistant("a2", "u2", "second"),
    )
    told = read_neutral(read_claude(log))

    assert ["one", "first", "two", "second"] == [one.text for one in told.messages]
    assert {"system text": 1} == told.lost


def turn(role="assistant", text="", calls=(), results=()) -> Turn:
    return Turn("t", None, role, "", text, tool_calls=calls, tool_results=results)


def test_of_an_agent_whose_records_are_not_known_the_note_is_told():
    turns = [
        turn("user", "go"),
        turn(calls=(ToolCall("c", "Bash", "run make"),)),  # type: ignore[arg-type]
        turn("tool", results=(ToolResult("c", is_error=True, note="exit 2"),)),  # type: ignore[arg-type]
    ]

    told = neutral(turns)
    assert (
        NeutralMessage("assistant", 1, "", (HandedOverAction("run make", "exit 2", failed=True),)),
    ) == told.messages[1:]
    assert {"tool output": 1} == told.lost


def test_a_call_that_says_nothing_has_its_name_and_one_without_a_result_no_outcome():
    told = neutral([turn("user", "go"), turn(text="so", calls=(ToolCall("c", "TodoWrite"),))])

    assert (HandedOverAction("TodoWrite", answered=False),) == told.messages[1].actions


def test_of_questions_that_the_agent_asked_us_it_is_told_that_it_asked():
    told = neutral([turn("user", "go"), turn(text="so", calls=(ToolCall("c", "smart_fork", ours=True),))])

    assert (HandedOverAction(ASKED_US, answered=False),) == told.messages[1].actions


@pytest.mark.parametrize(("length", "cut"), [(OUTPUT_CHARACTERS, 0), (OUTPUT_CHARACTERS + 1, 1)])
def test_an_output_is_told_up_to_its_limit(length, cut):
    turns = [turn(text="so", calls=(ToolCall("c", "x"),)), turn("tool", results=(ToolResult("c"),))]
    told = neutral(turns, [Item(results=(GivenBack("c", "x" * length),))])

    assert cut == told.lost.get("tool output", 0)
    assert OUTPUT_CHARACTERS + cut == len(told.messages[0].actions[0].outcome)


@pytest.mark.parametrize("agent", ["gemini", "copilot"])
def test_of_an_agent_without_forms_is_told_what_its_calls_gave_back(agent, tmp_path):
    log = tmp_path / "7d0b6b0e-0000-4000-8000-000000000001" / "events.jsonl"
    log.parent.mkdir()
    log.write_bytes((FIXTURES / agent / "tools.jsonl").read_bytes())
    session = READERS[agent].read(log).session
    asked = {call.id: call.action or call.name for turn in session.turns for call in turn.tool_calls}
    failed = [result for turn in session.turns for result in turn.tool_results if result.is_error]

    done = [action for message in read_neutral(session).messages for action in message.actions]

    assert done
    assert list(asked.values()) == [action.line for action in done]
    assert all(action.outcome for action in done if action.line.startswith(("run ", "read ")))
    assert len(failed) == sum(action.failed for action in done)


@pytest.mark.parametrize(
    ("given", "patch", "expected"),
    [
        ({"old_string": "a\nb", "new_string": "c"}, "", ["-a", "-b", "+c"]),
        ({"edits": [{"old_string": "a", "new_string": "b"}, {"new_string": "c"}, "odd"]}, "", ["-a", "+b", "+c"]),
        ({"content": "one\ntwo"}, "", ["+one", "+two"]),
        ({"content": "one"}, "--- a\n+++ b\n@@ -1 +1 @@\n-old\n same\n+one", ["-old", "+one"]),
        ("*** Begin Patch\n*** Update File: a\n@@\n-x\n y\n+z\n*** End Patch", "", ["*** Update File: a", "-x", "+z"]),
        ({"patchText": "*** Begin Patch\n*** Add File: a\n+z\n*** End Patch"}, "", ["*** Add File: a", "+z"]),
        ({"command": ["apply_patch", "*** Begin Patch\n*** Add File: a\n+z\n*** End Patch"]}, "", ["*** Add File: a", "+z"]),
        ({"old_string": 7, "edits": 7}, "", []),
    ],
)  # fmt: skip
def test_of_an_edit_is_told_what_it_changed(given, patch, expected):
    assert expected == changed_lines(given, patch)


def test_of_an_edit_is_told_what_it_changed_and_of_a_call_that_says_nothing_what_it_was_given(home):
    plan = "First the uploader, then the downloader, then all that is left of it."
    log = claude_log(
        home,
        user("u1", None, "go"),
        assistant("a1", "u1", use("t1", "Edit", file_path="/a.py", old_string="old", new_string="x" * 1000)),
        result("r1", "a1", "t1", "The file has been updated."),
        assistant("a2", "r1", use("t2", "TodoWrite", todos=[plan])),
        result("r2", "a2", "t2", "ok"),
        assistant("a3", "r2", use("t3", "Edit", file_path="/a.py", old_string="old", new_string="new")),
        result("r3", "a3", "t3", "No, let us rename it.", is_error=True),
    )
    edit, given, refused = read_neutral(read_claude(log)).messages[1].actions

    assert edit.outcome == f"-old\n+{'x' * (EDIT_CHARACTERS - 6)}…"
    assert given == HandedOverAction("TodoWrite", f'given {{"todos":["{plan}"]}}\nok')
    assert refused == HandedOverAction("edit /a.py", "No, let us rename it.", failed=True)
