"""Tests of the fields of Qwen Code's records that are shared."""

from __future__ import annotations

from smart_fork.agents import AGENTS
from tests.indexer.transcripts.records import linked
from tests.support.cases import parametrize_subtests

FORMS = AGENTS.converter_of("qwen")


@parametrize_subtests(
    ("result", "left"),
    [
        ({"callId": "c", "status": "success", "resultDisplay": "secret"}, {"callId": "c", "status": "success", "resultDisplay": "*"}),
        ({"executionStatus": "done", "error": {"message": "secret"}}, {"executionStatus": "done", "error": {"message": "*"}}),
        ("secret", "*"),
        (["secret"], "*"),
    ],
)  # fmt: skip
def test_of_a_withheld_call_what_it_gave_back_is_not_sent_in_whatever_form_it_is(result, left):
    answer = {"functionResponse": {"id": "c", "name": "read_file", "response": {"output": "secret"}}}
    record = linked("tool_result", "r1", "a1", message={"role": "user", "parts": [answer]}, toolCallResult=result)

    hidden = FORMS.withheld(record, {"c"}, "*")

    assert left == hidden["toolCallResult"]
    assert {"output": "*"} == hidden["message"]["parts"][0]["functionResponse"]["response"]
    assert record is FORMS.withheld(record, {"d"}, "*")
