"""Tests of sharing OpenCode's messages: the shared fields, and the session on another machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from smart_fork.agents import AGENTS
from smart_fork.agents.opencode.log_files import OpenCodeAdapter
from smart_fork.agents.opencode.session_reader import document_at
from smart_fork.agents.portable_records import HomePlace, TargetSession
from smart_fork.errors import ForkRefused, NotFound
from smart_fork.sharing.canonical import encode
from smart_fork.sharing.round_trip import read_back
from tests.smart_fork.agents.opencode.database import ALL, COMPACTED, FAILED, TAKEN_BACK, TOOLS, change, make
from tests.support.cases import parametrize_subtests, thorough_except_first

HERE, THERE = HomePlace("/work/depot", "/work"), HomePlace("/Users/bob/shop", "/Users/bob")
FORMS = AGENTS.converter_of("opencode")
NEW = "ses_00112233445566778899aabbcc"


@pytest.fixture
def path() -> Path:
    return make()


def session(path: Path, identity: str):
    return OpenCodeAdapter().read(path / identity).session


def records_of(read, end: int | None = None, place: HomePlace = HERE) -> list[dict]:
    return [FORMS.outgoing(one, place) for one in FORMS.records_of(read, end)]


def said(*parts: dict, role: str = "user", **more: object) -> dict:
    return {"info": {"role": role, "time": {"created": 1}, **more}, "parts": list(parts)}


def call(**state: object) -> dict:
    return {"type": "tool", "tool": "read", "callID": "c", "state": {"status": "completed", "output": "x", **state}}


@pytest.mark.parametrize("identity", thorough_except_first(ALL, 2))
def test_it_is_read_again_as_it_was_shared(path, identity):
    read = session(path, identity)

    again = read_back("opencode", [encode(one) for one in records_of(read)])

    def told(turn):
        calls = [(one.id, one.name, one.edits) for one in turn.tool_calls]
        results = [(one.tool_use_id, one.is_error) for one in turn.tool_results]
        return turn.role, turn.timestamp, bool(turn.text), turn.prompt, calls and len(calls), results

    assert [told(turn) for turn in read.turns] == [told(turn) for turn in again.turns]
    assert (read.compactions, read.interrupted) == (again.compactions, again.interrupted)
    if HERE.root not in read.turns[0].text:  # by its first words a family is known
        assert read.root_id == again.root_id


@pytest.mark.parametrize("identity", thorough_except_first(ALL, 2))
def test_a_session_is_read_on_another_machine_as_it_was(path, identity, tmp_path):
    read = session(path, identity)
    (document,) = FORMS.anew(records_of(read), TargetSession(NEW, THERE))
    log = tmp_path / NEW
    log.write_text(json.dumps(document))

    copy = OpenCodeAdapter().read(log).session

    assert (NEW, THERE.root) == (copy.session_id, copy.cwd)
    here = [turn.text.replace(HERE.root, "ROOT") for turn in read.turns]
    assert here == [turn.text.replace(THERE.root, "ROOT") for turn in copy.turns]
    assert records_of(read) == records_of(copy, place=THERE)
    ids = [one["info"]["id"] for one in document["messages"]]
    assert sorted(ids) == ids
    assert all(one["info"]["parentID"] in ids for one in document["messages"] if one["info"]["role"] == "assistant")


@pytest.mark.parametrize("identity", thorough_except_first(ALL, 2))
def test_a_message_comes_back_as_it_was_with_its_own_identity(path, identity):
    for message in document_at(path / identity)["messages"]:
        known = FORMS.own_fields(message)
        back = FORMS.incoming(FORMS.outgoing(message, HERE), HERE, known)
        shared = FORMS.sent(message)
        assert [part["id"] for part in message["parts"] if part["type"] != "patch"] == [
            one["id"] for one in back["parts"]
        ]
        assert {name: message["info"][name] for name in known["info"]} | shared["info"] == back["info"]
        assert shared == FORMS.sent(back)


@pytest.mark.parametrize("identity", thorough_except_first(ALL, 2))
def test_what_is_shared_says_neither_whose_it_is_nor_where_it_was_written_nor_more_than_is_shared(path, identity):
    spelled = json.dumps(records_of(session(path, identity)))

    private = ("ses_", "msg_", "prt_", "/work", "snapshot", "preview", "filediff", "responseHeaders", '"model"')
    known = {"ses_": spelled.count('<task id=\\"ses_')}
    assert [] == [one for one in private if spelled.count(one) != known.get(one, 0)]


@pytest.mark.parametrize("identity", thorough_except_first(ALL, 2))
def test_what_was_shared_after_a_finished_turn_is_what_is_shared_later_begins_with(path, identity):
    read = session(path, identity)
    later = records_of(read)
    for point in read.branch_points():
        sooner = records_of(read, point)
        assert sooner == later[: point + 1]
    change(path, "UPDATE part SET data = json_set(data, '$.state.time.compacted', 7) WHERE data ->> '$.type' = 'tool'")
    change(path, "UPDATE message SET data = json_set(data, '$.summary.title', 'x') WHERE data ->> '$.role' = 'user'")
    assert later == records_of(session(path, identity))


def test_an_answer_that_is_not_complete_is_not_shared_yet(path):
    last = session(path, TOOLS).turns[-1].id
    change(path, "UPDATE message SET data = json_remove(data, '$.time.completed') WHERE id = ?", last)
    read = session(path, TOOLS)

    assert 8 == len(records_of(read, len(read.turns) - 2))
    with pytest.raises(ForkRefused, match="not complete"):
        records_of(read, len(read.turns) - 1)


def test_a_session_that_is_gone_is_not_found(path):
    read = session(path, TOOLS)
    change(path, "DELETE FROM session WHERE id = ?", TOOLS)
    with pytest.raises(NotFound):
        list(FORMS.records_of(read))


def test_what_was_taken_back_is_in_no_record_and_an_error_and_a_summary_are(path):
    assert "second try" not in json.dumps(records_of(session(path, TAKEN_BACK)))
    assert "asked to fail" in json.dumps(records_of(session(path, FAILED)))
    assert [True] == [
        one["info"]["summary"] for one in records_of(session(path, COMPACTED)) if "summary" in one["info"]
    ]


@parametrize_subtests(
    "part",
    [
        {"type": "text", "text": "obey", "synthetic": True},
        {"type": "file", "mime": "text/plain", "url": "file:///etc/passwd"},
        {"type": "subtask", "prompt": "obey"},
        {"type": "snapshot", "snapshot": "x"},
        {"type": ["text"]},
    ],
)
def test_what_would_steer_the_agent_or_names_a_file_is_taken_from_nobody(part):
    for record in (FORMS.sent(said(part)), FORMS.arrived(said(part), others=True)):
        assert [] == record["parts"]


@pytest.mark.parametrize(
    "record", [{"info": {"role": "system", "time": {"created": 1}}}, {"info": {"role": "user"}}, {}]
)
def test_what_is_no_message_is_not_shared(record):
    assert FORMS.sent(record) is None


def test_thoughts_and_signatures_of_others_go():
    signed = {"anthropic": {"signature": "x==", "other": 1}, "plain": {}}
    thought = {"type": "reasoning", "text": "hm", "metadata": signed}
    ours = {
        "type": "text",
        "text": "left out",
        "metadata": {"smart-fork": {"root": "opencode-1", "sessionID": "ses_1"}},
    }
    record = FORMS.sent(said(thought, call(metadata={"exit": 0}) | {"metadata": signed}, ours, role="assistant"))

    assert [{"anthropic": {"signature": "x=="}}] * 2 == [part["metadata"] for part in record["parts"][:2]]
    tool, line = FORMS.arrived(record, others=True)["parts"]
    assert "metadata" not in tool
    assert {"exit": 0} == tool["state"]["metadata"]
    assert {"smart-fork": {"root": "opencode-1"}} == line["metadata"]
    assert record == FORMS.arrived(record, others=False)
    assert 1 == len(FORMS.decode(record).thoughts)


def test_of_a_withheld_call_neither_what_it_was_given_nor_what_came_back_is_sent():
    record = said(
        call(input={"filePath": "secret"}, output="secret", title="secret", metadata={"diff": "secret", "exit": 0}),
        role="assistant",
    )

    hidden = FORMS.withheld(record, ("c",), "*")

    assert "secret" not in json.dumps(hidden)
    assert 0 == hidden["parts"][0]["state"]["metadata"]["exit"]
    assert record is FORMS.withheld(record, ("d",), "*")


def test_in_the_place_of_an_image_a_note_is_shared_that_is_no_prompt():
    picture = {"type": "file", "mime": "image/png", "url": "data:image/png;base64,QUJD", "id": "prt_1"}
    record = FORMS.sent(said(picture, call(attachments=[picture])))

    assert ["file", "tool"] == [part["type"] for part in record["parts"]]
    image, state = FORMS.image(record["parts"][0]), FORMS.image(record["parts"][1]["state"])
    note = image.instead("[image dropped]")
    assert ("image/png", "image/png") == (image.kind, state.kind)
    assert {"status": "completed", "output": "x\n[image dropped]"} == state.instead("[image dropped]")
    assert "" == FORMS.decode(said(note)).text
    assert note == FORMS.sent(said(note))["parts"][0]
    (document,) = FORMS.anew([record], TargetSession(NEW, THERE))
    shown = document["messages"][0]["parts"][1]["state"]["attachments"]
    assert [NEW] == [one["sessionID"] for one in shown]
