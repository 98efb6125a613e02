"""A number means one message in every command: show, --at, read_session, find, the page, lineage and excise."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from smart_fork.excise import Request, check, cut, suggest
from smart_fork.finding import session_lookup
from smart_fork.page.conversation_page import reading
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.forks import codex_path, codex_records, said, text, write_log
from tests.smart_fork.mcp_client import answer
from tests.smart_fork.session_family import branch
from tests.smart_fork.world import World
from tests.support.cases import thorough_except

ANSWERS = ("zebra answer", "walrus answer", "heron answer")


def claude(world: World, shop: Path) -> str:
    """A session with thinking, a call, a sub-agent, rewound turns, a queued prompt, a compaction, and bookkeeping."""
    session = str(uuid.uuid4())
    tool = [{"type": "tool_use", "id": "t1", "name": "Read", "input": {}}]
    result = [{"type": "tool_result", "tool_use_id": "t1", "content": "ok"}]
    records: list[dict] = [
        {"type": "mode", "mode": "normal"},
        {"type": "queue-operation", "operation": "enqueue", "content": "zebra"},
        said("u1", None, "user", "zebra"),
        {"type": "file-history-snapshot", "messageId": "u1", "snapshot": {}},
        {"type": "attachment", "uuid": "x1", "parentUuid": "u1", "attachment": {"type": "skill_listing"}},
        said("a1", "x1", "assistant", [{"type": "thinking", "thinking": "hm", "signature": "s"}]),
        said("a2", "a1", "assistant", tool),
        said("side", None, "user", "of a sub-agent", isSidechain=True),
        said("r1", "a2", "user", result),
        said("a3", "r1", "assistant", text(ANSWERS[0])),
        said("dead", "a3", "user", "rewound"),
        said("a4", "dead", "assistant", text("rewound answer")),
        said("u2", "a3", "user", "walrus"),
        said("a5", "u2", "assistant", text(ANSWERS[1])),
        said("b1", None, "system", "", type="system", subtype="compact_boundary", logicalParentUuid="a5"),
        said("c1", "b1", "user", "so far: zebra and walrus", isCompactSummary=True),
        said("q1", "c1", "user", "", type="attachment", attachment={"type": "queued_command", "prompt": "heron"}),
        said("a6", "q1", "assistant", text(ANSWERS[2])),
        {"type": "last-prompt", "lastPrompt": "heron"},
    ]
    world.write_claude(session, shop, [record | {"sessionId": session, "cwd": str(shop)} for record in records])
    return session


def codex(world: World, shop: Path, *, events: bool = True, before: bool = False) -> str:
    """A session with each message twice: as an item, and as an event, which is shown to people."""
    session = str(uuid.uuid4())
    records: list[dict] = []
    for one in codex_records(session, shop, ["zebra", "walrus", "heron"]):
        payload = one["payload"]
        kind = {"user": "user_message", "assistant": "agent_message"}.get(str(payload.get("role")), "")
        if kind == "agent_message":
            payload["content"][0]["text"] = ANSWERS[
                len([r for r in records if r["payload"].get("role") == "assistant"])
            ]
        event = {"timestamp": one["timestamp"], "type": "event_msg"}
        event["payload"] = {"type": kind, "message": payload["content"][0]["text"]} if kind else {}
        pair = [event, one] if before else [one, event]
        records += pair if kind and events else [one]
    for number, record in enumerate(records):
        record["ordinal"] = number
    write_log(codex_path(world.home, session), records)
    return session


def codex_fork(world: World, shop: Path) -> str:
    """A copy-on-write fork: its beginning is in its parent's file."""
    parent, child = codex(world, shop), str(uuid.uuid4())
    path = next(world.home.glob(f".codex/sessions/**/*{parent}.jsonl"))
    count = len(path.read_text().splitlines())
    base = {"thread_id": parent, "end_ordinal_exclusive": count, "end_byte_offset": path.stat().st_size}
    records = codex_records(child, shop, ["otter"], count, forked_from_id=parent, history_base=base)
    write_log(codex_path(world.home, child), records)
    return child


SESSIONS = {
    "claude": claude,
    "codex": codex,
    "codex without events": lambda world, shop: codex(world, shop, events=False),
    "codex with events first": lambda world, shop: codex(world, shop, before=True),
    "a fork of codex": codex_fork,
}


@pytest.fixture(params=thorough_except(SESSIONS, "claude", "codex"))
def session(request, world, shop) -> str:
    return SESSIONS[request.param](world, shop)


def listed(run, session: str) -> list[dict]:  # noqa: F811
    turns: list[dict] = json.loads(run("excise", "list", session, "--json").out)["turns"]
    return turns


def test_every_way_to_read_a_session_numbers_its_messages_alike(world, shop, session, run):  # noqa: F811
    shown = {one["number"]: one["text"] for one in json.loads(run("show", session, "--json").out)["messages"]}
    read = {one["number"]: one["text"] for one in answer(world, "read_session", session_id=session)["messages"]}
    conversation = session_lookup.read(session_lookup.locate(session))
    page = {
        one.number: one.text for exchange in reading(conversation).exchanges for one in exchange.messages if one.text
    }
    cuttable: dict[int, set[str]] = {}
    for one in listed(run, session):
        if one["number"] is not None:
            cuttable.setdefault(one["number"], set()).add(one["preview"])
    plain = {int(line.split()[0].rstrip("^")): line for line in run("excise", "list", session).out.splitlines()}

    assert {"zebra", *ANSWERS} <= set(shown.values())
    assert shown == read == page
    for number, words in shown.items():
        assert {words} == cuttable[number] or words == "heron"  # a queued prompt is a line of bookkeeping elsewhere
        assert words in plain[number] or words == "heron"


def test_the_id_of_a_shown_message_has_its_number_in_the_list(session, run):  # noqa: F811
    shown = {one["message_id"]: one["number"] for one in json.loads(run("show", session, "--json").out)["messages"]}
    numbers = {one["id"]: one["number"] for one in listed(run, session)}

    assert shown == {identity: numbers[identity] for identity in shown}


@pytest.mark.parametrize("by", ["number", "id"])
def test_what_is_cut_by_what_show_said_is_that_message_and_no_other(session, run, by):  # noqa: F811
    shown = json.loads(run("show", session, "--json").out)["messages"]
    (one,) = [one for one in shown if one["text"] == ANSWERS[1]]
    named = [str(one["number"]), session] if by == "number" else [session, "--id", one["message_id"]]
    cutting = ["branch", "--excise", named[0], session] if by == "number" else ["excise", "cut", *named, "--branch"]

    made = json.loads(run(*cutting, "--json").out)

    assert one["number"] in made["numbers"]
    assert ANSWERS[1] not in Path(made["new_path"]).read_text()
    assert ANSWERS[0] in Path(made["new_path"]).read_text()


def test_a_search_and_a_branch_speak_of_the_same_number(world, shop, session, run, command_model):  # noqa: F811
    (hit,) = world.find("walrus answer", shop)["results"]  # of a family the best
    made = branch(hit["session_id"], at=hit["match"]["turn_index"])
    read = run("show", hit["session_id"], "--json").out
    shown = {one["text"]: one["number"] for one in json.loads(read)["messages"]}

    assert hit["match"]["turn_index"] in (shown["walrus"], shown[ANSWERS[1]])
    assert (shown[ANSWERS[1]], shown[ANSWERS[1]]) == (made["at"], hit["match"]["ends_at_message"])


def test_a_range_takes_what_stands_between_its_messages_and_nothing_of_how_the_session_is_kept(world, shop, run):  # noqa: F811
    session = claude(world, shop)
    shown = {one["text"]: one["number"] for one in json.loads(run("show", session, "--json").out)["messages"]}

    outcome = cut(Request(session, f"{shown['zebra']}-{shown[ANSWERS[0]]}", dry_run=True))

    assert ["u1", "x1", "a1", "a2", "side", "r1", "a3"] == [one for one in outcome["removed"] if "line" not in one]
    assert [0, None, 1, 2, None, 3, 4] == [
        number for number, one in zip(outcome["numbers"], outcome["removed"], strict=True) if "line" not in one
    ]
    assert {"line-2", "line-4"} == {one for one in outcome["removed"] if "line" in one}  # they repeat what goes
    assert ["a3"] == cut(Request(session, str(shown[ANSWERS[0]]), dry_run=True))["removed"]


def test_lines_without_a_number_are_listed_with_their_ids_where_all_are_asked_for(world, shop, run):  # noqa: F811
    session = claude(world, shop)

    shown, everything = run("excise", "list", session).out, run("excise", "list", session, "--all").out

    assert "rewound" not in shown
    assert {"dead", "side", "line-1"} <= {line.split()[0] for line in everything.splitlines()}


def test_what_nobody_can_be_shown_is_counted_from_0(world, shop, run):  # noqa: F811
    """In a sub-agent's own file."""
    records = [said(f"s{n}", None, "user", f"step {n}", isSidechain=True) for n in range(3)]
    path = write_log(world.home / "agent-1234567.jsonl", records)

    assert [0, 1, 2] == [one["number"] for one in listed(run, str(path))]
    assert ["s1"] == cut(Request(str(path), "1", dry_run=True))["removed"]


def test_a_suggestion_names_by_their_ids_the_turns_without_a_number(world, shop, run):  # noqa: F811
    session = str(uuid.uuid4())
    records = world.claude_records(session, shop, *"ab")
    for n in ("1", "2"):
        records += [
            said(f"c{n}", None, "assistant", [{"type": "tool_use", "id": n, "name": "Bash", "input": {}}], isSidechain=True),
            said(f"r{n}", None, "user", [{"type": "tool_result", "tool_use_id": n, "content": "the same\n" * 99}], isSidechain=True),
        ]  # fmt: skip
    path = world.write_claude(session, shop, records)

    (one,) = [one for one in suggest(session)["suggestions"] if one["kind"] == "repeated"]

    assert ("", ["c1", "r1"]) == (one["range"], one["ids"])
    assert 0 == run(*one["command"].split()[1:], "-y").code
    assert '"c1"' not in path.read_text()
    assert check(session)["ok"]


def test_a_message_that_a_log_has_twice_is_cut_and_masked_twice(world, shop):
    session, token = str(uuid.uuid4()), "ghp_" + "a1B2" * 9
    header, *records = ({**one, "ordinal": None} for one in codex_records(session, shop, ["zebra", "walrus"]))
    path = write_log(codex_path(world.home, session), [header, *records, *records])
    path.write_text(path.read_text().replace('"text": "zebra"', f'"text": "{token}"'))
    shown = session_lookup.read(session_lookup.locate(session)).turns
    masked, gone = (next(str(n) for n, turn in enumerate(shown) if turn.text == text) for text in (token, "walrus"))

    done = cut(Request(session, gone, force=True))

    assert 2 == len(done["removed"])
    assert '"text": "walrus"' not in path.read_text()
    assert {"github-token": 2} == cut(Request(session, masked, secrets=True))["masked"]


@pytest.mark.thorough
def test_what_was_rewound_and_still_says_a_secret_that_was_cut_is_named(world, shop):
    session = claude(world, shop)
    path = world.log_of(session)
    secret = "swordfish77zq"
    said_so = path.read_text().replace('"walrus"', f'"walrus {secret}"').replace('"rewound"', f'"rewound {secret}"')
    path.write_text(said_so)

    done = cut(Request(session, ids=["u2"], force=True))

    assert [str(path)] == [one["path"] for one in done["left"]]
    assert not check(session)["ok"]
    cut(Request(session, ids=["dead"], force=True))
    assert check(session)["ok"]
