"""Tests of the shared form of a record, and of the record that another machine makes of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from smart_fork.agents import AGENTS
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.portable_records import HOME, LITERAL, ROOT, HomePlace, TargetSession
from smart_fork.errors import Usage
from smart_fork.forking.record_masking import RecordMasker
from smart_fork.sharing.canonical import encode
from smart_fork.sharing.outgoing import _Steps
from tests.indexer.transcripts.records import (
    FIXTURES,
    SESSION,
    assistant,
    chained,
    claude_log,
    codex_log,
    enveloped,
    message,
    meta,
    read_claude,
    read_codex,
    user,
)
from tests.support.cases import parametrize_subtests

HERE = HomePlace("/home/ada/shop", "/home/ada")
THERE = HomePlace("/Users/bob/src/shop", "/Users/bob")
SHARED = [agent.name for agent in AGENTS if agent.converter]
LOGS = [(agent, log) for agent in SHARED for log in sorted((FIXTURES / agent).glob("*.jsonl"))]
#: What of these was rewound, is not finished, or is a sub-agent's, is another session when it is read again.
OTHERS = {"rewound", "rewound-idle", "subagent", "asking"}
SESSIONS = [
    (agent, log)
    for agent, log in LOGS
    if f"{agent}-{log.stem}" != "gemini-compressed" and (agent != "qwen" or log.stem not in OTHERS)
]
#: Of each agent the first, and a fork or what was compacted, which begin in another way; the others are like these.
MAIN = [
    *dict(reversed(SESSIONS)).values(),
    *(log for _, log in SESSIONS if "fork" in log.stem or "compact" in log.stem),
]
sessions = pytest.mark.parametrize(
    ("agent", "log"),
    [
        pytest.param(agent, log, id=f"{agent}-{log.stem}", marks=() if log in MAIN else pytest.mark.thorough)
        for agent, log in SESSIONS
    ],
)
NEW = "22222222-2222-4222-8222-222222222222"
#: Where each agent keeps a session, and what its first record calls it.
PLACES = {
    "claude": ".claude/projects/-home-ada-shop/{}.jsonl",
    "codex": ".codex/sessions/2026/11/21/rollout-2026-11-21T07-22-33-{}.jsonl",
    "qwen": ".qwen/projects/-home-ada-shop/chats/{}.jsonl",
    "gemini": ".gemini/tmp/{0}/chats/session-2026-11-23T10-00-{0}.jsonl",
    "copilot": ".copilot/session-state/{}/events.jsonl",
}
_ID = {agent: "id" if agent == "codex" else "sessionId" for agent in PLACES}


def records_in(log: Path) -> list[dict]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def shared(agent: str, record: dict, place: HomePlace = HERE) -> dict:
    return AGENTS.converter_of(agent).outgoing(record, place)


def text_of(text: str, place: HomePlace = HERE) -> str:
    return shared(SHARED[0], {"text": text}, place)["text"]


@parametrize_subtests(("agent", "log"), LOGS)
def test_every_record_comes_back_as_it_was_with_its_own_identity(agent, log):
    converter = AGENTS.converter_of(agent)
    for record in records_in(log):
        assert record == converter.incoming(shared(agent, record), HERE, converter.own_fields(record))


@parametrize_subtests(("agent", "log"), LOGS)
def test_what_is_shared_says_neither_whose_a_record_is_nor_where_it_was_written(agent, log):
    for record in records_in(log):
        out = shared(agent, record)
        assert not {"sessionId", "parentUuid", "logicalParentUuid", "forkedFrom", "ordinal"} & set(out)
        assert b"/home/ada" not in encode(out)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/ada/shop", ROOT),
        ("/home/ada/shop/", f"{ROOT}/"),
        ("cd /home/ada/shop/src && ls", f"cd {ROOT}/src && ls"),
        ("see /home/ada/shop.", f"see {ROOT}."),
        ("see /home/ada/shop...", f"see {ROOT}..."),
        ('{"path":"/home/ada/shop/a.py"}', f'{{"path":"{ROOT}/a.py"}}'),
        (r'{"out":"a\n/home/ada/shop/a.py"}', rf'{{"out":"a\n{ROOT}/a.py"}}'),
        ("file:///home/ada/shop/a.py:12", f"file://{ROOT}/a.py:12"),
        ("PATH=/home/ada/bin:/home/ada/shop/bin", f"PATH={HOME}/bin:{ROOT}/bin"),
        ("/home/ada/shop-old/x", f"{HOME}/shop-old/x"),
        ("/home/ada/shop.old", f"{HOME}/shop.old"),
        ("/home/ada/shopping", f"{HOME}/shopping"),
        ("/home/adam/shop", "/home/adam/shop"),
        ("/mnt/home/ada/shop", "/mnt/home/ada/shop"),
        ("x/home/ada/shop", "x/home/ada/shop"),
        ("--git a/home/ada/shop/x b/home/ada/y", f"--git a{ROOT}/x b{HOME}/y"),
        ("//home/ada/shop", "//home/ada/shop"),
        ("~/home/ada", "~/home/ada"),
        ("nothing", "nothing"),
        (f"{ROOT} /home/ada", f"{LITERAL}{ROOT} {HOME}"),
    ],
)
def test_a_path_is_found_where_it_begins_and_ends_as_one(text, expected):
    assert expected == text_of(text)


TEXT = st.lists(
    st.sampled_from(["/home/ada", "/home/ada/shop", ROOT, HOME, LITERAL, "/", "-", ".", "x", " ", "\\n", "://", "é"]),
    max_size=8,
).map("".join)


@given(
    TEXT,
    st.sampled_from(
        [
            HERE,
            HomePlace("/home/ada", "/home/ada"),
            HomePlace("/", "/home/ada"),
            HomePlace("", ""),
            HomePlace("/a.b/(c", "/a.b"),
        ]
    ),
)
@example(f"{LITERAL}{LITERAL}{ROOT}", HERE)
def test_any_text_comes_back_as_it_was(text, place):
    converter = AGENTS.converter_of(SHARED[0])

    assert {text: text} == converter.incoming(converter.outgoing({text: text}, place), place)


@given(TEXT)
def test_what_somebody_sent_is_read_whatever_marks_are_in_it(text):
    read = AGENTS.converter_of(SHARED[0]).incoming({"text": text, "kept": "x"}, THERE)

    assert {"text", "kept"} == read.keys()
    assert (True, "x") == (isinstance(read["text"], str), read["kept"])
    if not any(mark in text for mark in (ROOT, HOME, LITERAL)):
        assert text == read["text"]


def test_a_project_at_the_root_of_everything_hides_no_slash():
    assert "/etc /" == text_of("/etc /", HomePlace("/", "/"))


def test_paths_become_those_of_the_other_machine():
    converter = AGENTS.converter_of("claude")
    record = {"cwd": "/home/ada/shop/web", "files": {"/home/ada/shop/a.py": ["/home/ada/.cache"]}}

    there = converter.incoming(converter.outgoing(record, HERE), THERE)

    assert {"cwd": "/Users/bob/src/shop/web", "files": {"/Users/bob/src/shop/a.py": ["/Users/bob/.cache"]}} == there


@pytest.mark.parametrize(
    "part",
    [
        {"type": "thinking", "thinking": "in /home/ada/shop", "signature": "x"},
        {"tool_use_id": "/home/ada/shop"},
        {"thoughtSignature": "/home/ada/shop"},
        {"encrypted_content": "/home/ada/shop"},
        {"data": "/home/ada/shop"},
    ],
)
def test_thoughts_and_what_ties_records_together_stay_as_they_are(part):
    assert {"message": [part]} == shared("claude", {"message": [part]})


def test_what_a_server_says_of_whose_a_record_is_does_not_count():
    record = {"uuid": "a", "sessionId": "evil", "forkedFrom": {"sessionId": "evil"}, "logicalParentUuid": "evil"}

    assert {"uuid": "a", "sessionId": NEW} == AGENTS.converter_of("claude").incoming(record, THERE, {"sessionId": NEW})


def test_an_agent_whose_records_are_not_shared_is_said_so():
    other = next(agent for agent in AGENTS if not agent.converter)

    with pytest.raises(Usage, match=other.title):
        AGENTS.converter_of(other.name)


NAMES = st.sampled_from(
    ["type", "payload", "message", "content", "output", "uuid", "subtype", "name", "call_id", "cwd"]
)
WORDS = st.sampled_from(
    [
        "response_item",
        "function_call_output",
        "reasoning",
        "tool_result",
        "thinking",
        "user",
        "system",
        "compact_boundary",
        "",
    ]
)
HOSTILE = st.recursive(
    st.none() | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
)


@pytest.mark.parametrize("agent", SHARED)
@given(records=st.lists(st.dictionaries(NAMES, HOSTILE, max_size=5), max_size=3))
def test_records_that_no_agent_wrote_are_taken_as_they_are(agent, records):
    converter = AGENTS.converter_of(agent)
    made = converter.anew([converter.outgoing(record, HERE) for record in records], TargetSession(NEW, THERE, "x"))

    for record in made:
        item = converter.decode(record)
        assert all(isinstance(one, str) for one in item.thoughts)
        assert item.images >= 0


@pytest.mark.parametrize("agent", SHARED)
@pytest.mark.parametrize("odd", [["x"], {"x": 1}, 7, None], ids=str)
def test_a_type_that_is_none_is_no_type(agent, odd):
    blocks = [
        {"type": odd, "name": odd, "text": odd},
        {"type": "tool_result", "tool_use_id": odd, "content": [{"type": odd}]},
    ]
    codex = {"type": odd, "name": odd, "call_id": odd, "content": blocks, "output": blocks}
    record = {"type": "response_item", "payload": codex, "message": {"content": blocks}}
    item = AGENTS.converter_of(agent).decode(AGENTS.converter_of(agent).outgoing(record, HERE))

    assert ((), 0, ()) == (item.thoughts, item.images, item.calls)


# Whole sessions


def told(turn, place):
    return turn.role, turn.text.replace(place.root, "ROOT"), [(call.id, call.name) for call in turn.tool_calls]


def tell_root(agent: str, log: Path, place: HomePlace) -> None:
    """Note the project's root in the folder of a log, for an agent whose logs do not contain it."""
    if agent == "gemini":
        (log.parents[1] / ".project_root").write_text(place.root)


def session_of(agent: str, log: Path, home: Path):
    """Write a fixture to its agent's folder, with the sessions that it was forked from."""
    for one in (*log.parent.glob("*.jsonl"), log):  # several may have one id
        first = records_in(one)[0]
        path = home / PLACES[agent].format({**first, **first.get("payload", {}), **first.get("data", {})}[_ID[agent]])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(one.read_bytes())
        tell_root(agent, path, HERE)
    return READERS[agent].read(path).session


@sessions
def test_what_was_pushed_after_a_finished_turn_is_what_a_later_push_begins_with(agent, log, home):
    session = session_of(agent, log, home)
    converter = AGENTS.converter_of(agent)
    later = [encode(shared(agent, record)) for record in converter.records_of(session)]

    assert session.branch_points()
    for point in session.branch_points():
        sooner = [encode(shared(agent, record)) for record in converter.records_of(session, point)]
        assert sooner
        assert sooner == later[: len(sooner)]


@sessions
def test_a_log_as_it_was_when_a_turn_was_finished_is_what_the_later_one_begins_with(agent, log, home):
    session = session_of(agent, log, home)
    converter = AGENTS.converter_of(agent)
    later = [shared(agent, record) for record in converter.records_of(session)]
    lines = session.source_path.read_bytes().splitlines(keepends=True)
    seen = 0
    for end in range(1, len(lines)):
        session.source_path.write_bytes(b"".join(lines[:end]))
        then = READERS[agent].read(session.source_path).session
        if then and not then.unfinished:
            sooner = [shared(agent, record) for record in converter.records_of(then)]
            assert sooner == later[: len(sooner)]
            seen += 1

    assert seen or len(lines) == 1


@pytest.mark.parametrize(("agent", "log"), SESSIONS, ids=[f"{agent}-{log.stem}" for agent, log in SESSIONS])
def test_a_session_is_read_on_another_machine_as_it_was(agent, log, home):
    session = session_of(agent, log, home)
    converter = AGENTS.converter_of(agent)
    out = [shared(agent, record) for record in converter.records_of(session)]
    target = home / PLACES[agent].format(NEW)
    target.parent.mkdir(parents=True, exist_ok=True)
    made = list(converter.anew(out, TargetSession(NEW, THERE, session.session_id)))
    target.write_text("".join(json.dumps(record) + "\n" for record in made))
    tell_root(agent, target, THERE)

    copy = READERS[agent].read(target).session

    assert copy
    assert (NEW, session.session_id) == (copy.session_id, copy.parent_id)
    assert session.cwd.replace(HERE.root, THERE.root) == copy.cwd
    ids = {identity for record in out for identity in converter.ids(record)} or {turn.id for turn in session.turns}
    assert [told(turn, HERE) for turn in session.turns if turn.id in ids] == [told(turn, THERE) for turn in copy.turns]
    assert out == [shared(agent, record, THERE) for record in converter.records_of(copy)]


def test_a_fork_that_the_agent_made_begins_with_the_records_of_the_session_that_it_is_of(home):
    converter = AGENTS.converter_of("codex")
    parent, fork = (session_of("codex", FIXTURES / "codex" / name, home) for name in ("person.jsonl", "fork.jsonl"))
    of_parent, of_fork = ([shared("codex", r) for r in converter.records_of(one)] for one in (parent, fork))

    assert of_parent == of_fork[: len(of_parent)]
    assert len(of_parent) < len(of_fork)


def test_a_compaction_stays_between_the_records_that_it_was_between(tmp_path):
    log = claude_log(
        tmp_path,
        user("u1", None, "first"),
        assistant("a1", "u1", "done"),
        chained("system", "b", None, subtype="compact_boundary", logicalParentUuid="a1", content="Conversation compacted"),
        chained("attachment", "x", "b", attachment={"type": "skill_listing"}),
        user("s", "x", "This session is being continued", isCompactSummary=True),
        user("u2", "s", "second"),
        assistant("a2", "u2", "done too"),
    )  # fmt: skip
    session, converter = read_claude(log), AGENTS.converter_of("claude")
    out = [shared("claude", record) for record in converter.records_of(session)]
    made = list(converter.anew(out, TargetSession(NEW, THERE)))

    assert ["u1", "a1", "b", "s", "u2", "a2"] == [record["uuid"] for record in out]
    assert [None, "u1", None, "b", "s", "u2"] == [record["parentUuid"] for record in made]
    assert [("b", "a1")] == [(r["uuid"], r["logicalParentUuid"]) for r in made if "logicalParentUuid" in r]
    assert not any("forkedFrom" in record for record in made)
    assert SESSION not in json.dumps(made)


def test_what_was_rewound_and_what_sub_agents_did_is_not_shared(tmp_path):
    log = claude_log(
        tmp_path,
        user("u1", None, "first"),
        assistant("a1", "u1", "done"),
        user("u2", "a1", "no, other"),
        assistant("a2", "u2", "dropped"),
        user("side", None, "sub", isSidechain=True),
        user("u3", "a1", "second"),
        assistant("a3", "u3", "done too"),
    )  # fmt: skip
    session = read_claude(log)

    assert ["u1", "a1", "u3", "a3"] == [r["uuid"] for r in AGENTS.converter_of("claude").records_of(session)]
    assert ["u1", "a1"] == [r["uuid"] for r in AGENTS.converter_of("claude").records_of(session, 1)]


def test_of_qwen_what_was_rewound_is_not_shared(home):
    session = session_of("qwen", FIXTURES / "qwen" / "rewound.jsonl", home)
    records = list(AGENTS.converter_of("qwen").records_of(session))

    assert [turn.id for turn in session.turns if turn.role != "system"] == [record["uuid"] for record in records]
    assert {"user", "assistant"} == {record["type"] for record in records}


def test_of_codex_the_records_up_to_a_turn_end_before_the_next_one(home):
    log = codex_log(
        home,
        NEW,
        meta(NEW),
        message("user", "one"),
        message("assistant", "first"),
        enveloped("event_msg", type="token_count"),
        message("user", "two"),
        message("assistant", "second"),
    )
    session = read_codex(log)

    assert 3 == len(list(AGENTS.converter_of("codex").records_of(session, 1)))
    assert 5 == len(list(AGENTS.converter_of("codex").records_of(session)))


@pytest.mark.parametrize("agent", SHARED)
def test_what_stands_in_the_place_of_an_id_is_withheld_from_nobody_and_breaks_nothing(agent):
    odd = {"id": ["x"], "toolCallId": ["x"], "call_id": ["x"], "tool_use_id": ["x"], "name": "x", "type": "tool_use"}
    parts = [{"functionCall": odd}, {"functionResponse": odd}, odd, odd | {"type": "tool_result"}]
    message = {"content": parts, "parts": parts}
    record = {
        "id": "a", "type": "gemini", "data": odd | {"toolRequests": [odd]}, "message": message, "content": parts,
        "toolCalls": [odd], "payload": odd | {"type": "function_call"},
    }  # fmt: skip

    steps = _Steps(AGENTS.converter_of(agent), HERE, "", None, RecordMasker(), images=False)
    steps._ids.add("y")

    for kind in ("gemini", "assistant.message", "assistant", "response_item"):
        assert record | {"type": kind} == steps._without_files(record | {"type": kind})
