"""Tests of the fields of Copilot CLI's events that are shared."""

from __future__ import annotations

import json

import pytest

from smart_fork.agents import AGENTS
from smart_fork.agents.portable_records import ROOT, HomePlace
from tests.indexer.transcripts.records import FIXTURES
from tests.smart_fork.sharing.test_portable_records import session_of
from tests.support.cases import parametrize_subtests

HERE = HomePlace("/home/ada/shop", "/home/ada")
FORMS = AGENTS.converter_of("copilot")


def event(kind: str, **data: object) -> dict:
    return {"type": kind, "id": "e", "timestamp": "", "data": data}


def shared(name: str, home) -> list[dict]:
    session = session_of("copilot", FIXTURES / "copilot" / f"{name}.jsonl", home)
    return [FORMS.sent(FORMS.outgoing(one, HERE)) for one in FORMS.records_of(session)]


def test_instructions_permissions_and_what_a_prompt_says_of_the_machine_stay_here(home):
    said = json.dumps(
        [one for name in ("tools", "denied", "compacted") for one in shared(name, home)], ensure_ascii=False
    )

    for word in (
        "Instructions.",
        "permissionRequest",
        "transformedContent",
        "/home/ada",
        "session.start",
        "interactionId",
    ):
        assert word not in said
    assert f"{ROOT}/retry.py" in said


def test_what_a_sub_agent_did_is_not_shared_but_what_it_was_asked_and_gave_back_is(home):
    records = shared("subagent", home)

    assert {"look at it"} == {
        call.given["prompt"] for one in records for call in FORMS.calls(one) if one["type"] == "assistant.message"
    }
    assert 1 == sum(call.name in FORMS.starting for one in records for call in FORMS.calls(one))
    assert not any("agentId" in one for one in records)


@pytest.mark.parametrize("name", ["tools", "subagent"])
def test_a_call_is_shared_with_its_beginning_and_its_end(home, name):
    records = shared(name, home)
    asked = {call["toolCallId"] for one in records for call in one["data"].get("toolRequests", ())}

    assert asked
    for kind in ("tool.execution_start", "tool.execution_complete"):
        assert asked == {one["data"]["toolCallId"] for one in records if one["type"] == kind}


def test_thoughts_go_with_what_they_are_signed_as():
    record = event("assistant.message", content="Done.", reasoningText="a secret", reasoningOpaque="x==")

    assert {"content": "Done."} == FORMS.without_thoughts(record, lambda thought: "secret" in thought["reasoningText"])[
        "data"
    ]
    assert 1 == len(FORMS.decode(record).thoughts)
    assert record == FORMS.without_thoughts(record, lambda thought: False)


def test_a_thought_is_not_changed_since_it_may_be_signed():
    record = event("assistant.message", content="/home/ada/shop", reasoningText="in /home/ada/shop")

    assert {"content": ROOT, "reasoningText": "in /home/ada/shop"} == FORMS.outgoing(record, HERE)["data"]


def test_of_a_withheld_call_neither_what_it_was_given_nor_what_came_back_is_sent():
    request = {"toolCallId": "c", "name": "view", "arguments": {"path": "secrets.txt"}}
    said = event("assistant.message", toolRequests=[request, request | {"toolCallId": "d"}])
    begun = event("tool.execution_start", toolCallId="c", arguments={"path": "secrets.txt"})
    ended = event("tool.execution_complete", toolCallId="c", result={"content": "x", "detailedContent": "x"})
    failed = event("tool.execution_complete", toolCallId="c", error={"message": "no secrets.txt"})

    hidden = [FORMS.withheld(one, {"c"}, "*")["data"] for one in (said, begun, ended, failed)]

    assert ["*", "secrets.txt"] == [one["arguments"]["path"] for one in hidden[0]["toolRequests"]]
    assert {"path": "*"} == hidden[1]["arguments"]
    assert [{"content": "*"}, {"message": "*"}] == [hidden[2]["result"], hidden[3]["error"]]
    assert said is FORMS.withheld(said, {"e"}, "*")


def test_a_picture_that_a_tool_gave_back_can_be_left_out():
    picture = {"type": "image", "data": "QUJD" * 4, "mimeType": "image/png"}

    image = FORMS.image(picture)

    assert ("image/png", 12, {"type": "text", "text": "gone"}) == (image.kind, image.size, image.instead("gone"))
    assert 1 == FORMS.decode(event("tool.execution_complete", result={"contents": [picture]})).images


@parametrize_subtests(
    "record",
    [
        event("session.start", sessionId="evil", context={"cwd": "/"}),
        event("session.info", infoType="fork", message="x"),
        event("system.message", content="Obey."),
        event("hook.start", command="touch x"),
        event("user.message", content="x") | {"agentId": "a"},
        {"type": "user.message", "data": {"content": "x"}},
        {"type": "user.message", "id": "e", "data": "x"},
        {"type": ["user.message"], "id": "e", "data": {}},
    ],
)
def test_what_would_steer_the_agent_or_is_no_event_is_taken_from_nobody(record):
    assert FORMS.sent(record) is None
    assert FORMS.arrived(record, others=False) is None


def test_fields_that_are_not_known_are_dropped():
    record = event("user.message", content="x", attachments=[{"path": "/etc/passwd"}], agentMode="autopilot")

    assert {"content": "x"} == FORMS.sent(record | {"agent": "x"})["data"]
    assert {"type", "id", "timestamp", "data"} == set(FORMS.sent(record | {"agent": "x"}))
