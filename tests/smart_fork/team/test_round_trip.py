"""A session is not sent if an agent could not load it, or would load another one."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from smart_fork.errors import Unshareable
from smart_fork.sharing.canonical import encode
from smart_fork.sharing.outgoing import SentBefore, prepare
from smart_fork.sharing.round_trip import check_outgoing
from tests.indexer.transcripts.records import enveloped, item, message, meta
from tests.smart_fork.team.outgoing_logs import NEW, assistant, claude, codex_log, result, use, user

GITHUB = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo" * 100}}


@pytest.fixture
def log(home, root):
    return claude(
        home,
        root,
        user("u0", None, [PNG]),
        user("u1", "u0", f"the token is {GITHUB} in {root}"),
        assistant("a1", "u1", {"type": "thinking", "thinking": "hm", "signature": "c2ln"}, use("t", "Bash", command="ls")),
        result("r1", "a1", "t", [PNG]),
        assistant("a2", "r1", {"type": "thinking", "thinking": GITHUB, "signature": "c2ln"}),
        assistant("a3", "a2", "done"),
    )  # fmt: skip


def changed(out, position, change):
    record = json.loads(out.records[position])
    change(record)
    return replace(out, records=(*out.records[:position], encode(record), *out.records[position + 1 :]))


def test_what_was_masked_and_left_out_loads_and_is_the_same_session(log, root):
    out = prepare(log, "claude", root)
    check_outgoing(out)

    assert (1, 2, 3, 4, 6) == out.numbers


def block(record):
    return record["message"]["content"][0]


@pytest.mark.parametrize(
    ("position", "change", "said"),
    [
        (2, lambda record: block(record).update(signature="c2lm"), "Record 3 would have another id or signature"),
        (3, lambda record: block(record).update(tool_use_id="x"), "Record 4 would have another id or signature"),
        (4, lambda record: record.update(uuid="x"), "Record 6 would have another id or signature"),
        (4, lambda record: record["message"].update(content=GITHUB, x=1), "Record 5 contains a field"),
        (4, lambda record: record.update(isMeta=True, type="user"), "Turn 4 would change on the way"),
        (1, lambda record: record["message"].update(content=f"[REDACTED:x] {GITHUB}"), "Record 2 would be masked again"),
        (2, lambda record: record["message"]["content"].pop(), "Turn 2 would change on the way"),
    ],
)  # fmt: skip
def test_what_is_another_than_here_is_refused_and_named(log, root, position, change, said):
    with pytest.raises(Unshareable, match=said):
        check_outgoing(changed(prepare(log, "claude", root), position, change))


def test_a_record_that_is_missing_is_noticed_where_it_holds_a_turn(log, root):
    out = prepare(log, "claude", root)
    left = {name: getattr(out, name)[:2] + getattr(out, name)[3:] for name in ("records", "numbers", "here")}
    with pytest.raises(Unshareable, match=r"Turn .* result of t|no earlier turn calls"):
        check_outgoing(replace(out, **left))


def test_of_codex_turns_are_compared_by_their_place(home, root):
    url = "data:image/png;base64," + "AAAA" * 100
    log = codex_log(
        home,
        NEW,
        meta(NEW, cwd=str(root)),
        item("message", role="user", content=[{"type": "input_image", "image_url": url}]),
        message("user", f"use {GITHUB}"),
        item("function_call", call_id="c", name="shell", arguments='{"cmd":"ls"}'),
        item("function_call_output", call_id="c", output="a.py"),
        message("assistant", "done"),
    )
    out = prepare(log, "codex", root)
    check_outgoing(out)

    with pytest.raises(Unshareable, match="Turn"):
        check_outgoing(changed(out, 4, lambda record: record["payload"].update(content=[])))


def test_the_end_of_a_turn_that_went_out_before_is_read_together_with_it(home, root):
    begun = [
        meta(NEW, cwd=str(root)),
        message("user", "one"),
        message("assistant", "done"),
    ]
    first = prepare(codex_log(home, NEW, *begun), "codex", root)
    log = codex_log(home, NEW, *begun, enveloped("event_msg", type="task_complete", last_agent_message="done"))
    out = prepare(log, "codex", root, since=first.local)

    assert 1 == len(out.records)
    check_outgoing(out)
    with pytest.raises(Unshareable):
        check_outgoing(replace(out, whole=None))


def test_what_is_new_is_looked_at_alone(home, root, log):
    out = prepare(log, "claude", root)
    more = [json.loads(line) for line in log.read_text().splitlines()]
    more += [user("u2", "a3", "two"), assistant("a4", "u2", "done")]
    second = prepare(claude(home, root, *more), "claude", root, since=out.local)
    check_outgoing(replace(second, whole=lambda: pytest.fail("all was looked at")))

    assert ["u2", "a4"] == [json.loads(record)["uuid"] for record in second.records]


def test_nothing_new_is_nothing_to_look_at(log, root):
    out = prepare(log, "claude", root)
    check_outgoing(prepare(log, "claude", root, since=SentBefore(out.local.count, out.local.digest)))
