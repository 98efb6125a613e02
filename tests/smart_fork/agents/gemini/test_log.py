"""Tests of reading Gemini CLI's sessions, from logs written by version 0.61.0 and from records in its form."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.transcripts.model import Proof, Session
from smart_fork.agents import AGENTS
from smart_fork.agents.gemini.log_files import GeminiAdapter
from smart_fork.agents.gemini.session_writer import Replay
from tests.indexer.transcripts.records import (
    CWD,
    FIXTURES,
    SESSION,
    actions,
    gemini_head,
    gemini_log,
    id_of,
    listed,
    notes,
    prompts,
    ran,
    read_gemini,
    spoken,
    texts,
)

ONE = id_of(1)
ADA = "/home/ada/shop"


def fixture(home: Path, name: str, cwd: str = ADA) -> Path:
    source = FIXTURES / f"gemini/{name}.jsonl"
    session = json.loads(source.read_text().splitlines()[0])["sessionId"]
    path = home / f".gemini/tmp/{Path(cwd).name}/chats/session-2026-11-23T10-00-{session[:8]}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    (path.parents[1] / ".project_root").write_text(cwd)
    shutil.copy(source, path)
    return path


def conversation(*records: object, home: Path) -> Session:
    return read_gemini(gemini_log(home, *records))


ASKED, ANSWERED = "add a retry with backoff", "PONG 1: ession_context> add a retry with backoff"
RAN = 'Look: CALL run_shell_command {"command":"echo zebra; exit 3","description":"x"}'
TOUCH = 'run CALL run_shell_command {"command":"touch q","description":"x"}'
RAN_ANSWERED = 'PONG 3: :"echo zebra; exit 3","description":"x"}'


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("person", [ASKED, ANSWERED, "second one", "PONG 3: second one"]),
        ("tools", [RAN, RAN_ANSWERED]),
        ("imported", [RAN, RAN_ANSWERED, "go on please", "PONG 5: go on please"]),
        ("compressed", [
            "first step", "PONG 1: ──.git/... </session_context> first step", "second step", "PONG 3: second step",
            TOUCH, 'PONG 7:  {"command":"touch q","description":"x"}',
        ]),
    ],
)  # fmt: skip
def test_what_was_said_is_read_once_and_in_order(home, name, said):
    """A compressed session has its compressed messages too. Interrupted and rewound messages are left out."""
    session = read_gemini(fixture(home, name))

    assert texts(session) == said
    assert prompts(session) == said[::2]
    assert (session.cwd, session.inferred_from, session.copied) == (ADA, "", name == "imported")


def test_what_a_command_gave_back_is_noted(home):
    session = read_gemini(fixture(home, "tools"))

    assert actions(session) == ["run echo zebra; exit 3"]
    assert notes(session) == ["exit 3: zebra"]
    assert session.token_estimate == 326


def test_names_in_its_commands_are_what_it_wrote_and_those_in_their_output_are_not(home):
    calls = [ran("c", "run_shell_command", "Output: shown_only", command="make check_all")]
    session = conversation(spoken("user", "u", "one"), spoken("gemini", "a", toolCalls=calls), home=home)

    assert (session.symbols, session.wrote) == (("check_all", "shown_only"), ("check_all",))


def test_a_commit_is_seen(home):
    calls = [ran("c", "run_shell_command", "<untrusted_context>\nOutput: [main 1a2b3c4] One\n</untrusted_context>", command="git commit -m One")]  # fmt: skip
    session = conversation(spoken("user", "u", "one"), spoken("gemini", "a", toolCalls=calls), home=home)

    (result,) = [one for turn in session.turns for one in turn.tool_results]
    assert (result.proof, result.is_error) == (Proof.COMMITTED, False)


def test_what_is_left_of_a_compression_is_loaded_and_not_said(home):
    session = read_gemini(fixture(home, "compressed"))

    (left,) = [turn for turn in session.turns if turn.role == "system" and turn.loaded]
    assert (session.compactions, left.text, session.turns[3].text) == (1, "", "")
    assert session.token_estimate == 226


def test_a_cancelled_answer_is_seen_as_that_until_something_is_asked(home):
    cancelled = [spoken("user", "u1", "one"), spoken("info", "i") | {"content": "Request cancelled."}]

    assert conversation(*cancelled, home=home).interrupted
    assert not conversation(*cancelled, spoken("user", "u2", "two"), home=home).interrupted


def test_the_directory_is_told_by_the_model_s_context_where_its_folder_is_gone(home):
    log = fixture(home, "tools")
    (log.parents[1] / ".project_root").unlink()

    session = read_gemini(log)

    assert (session.cwd, session.inferred_from) == (ADA, "environment_context")


@pytest.mark.parametrize("root", ["", "/x\0y", "/" + "x" * 5000, b"\xff\xfe"])
def test_a_folder_that_says_nonsense_of_its_directory_says_nothing(home, root):
    log = gemini_log(home, spoken("user", "u", "one"))
    (log.parents[1] / ".project_root").write_bytes(root if isinstance(root, bytes) else root.encode())

    assert read_gemini(log).cwd == ""


def test_an_unknown_message_to_rewind_to_leaves_nothing(home):
    """Gemini CLI itself forgets all messages then."""
    log = gemini_log(home, spoken("user", "u", "one"), {"$rewindTo": "unknown"})

    assert GeminiAdapter().read(log).session is None


def test_files_of_old_versions_are_read(home):
    whole = gemini_head() | {"messages": [spoken("user", "u", "one"), spoken("gemini", "a", "two")]}
    log = gemini_log(home).with_suffix(".json")
    log.with_suffix(".jsonl").unlink()
    log.write_text(json.dumps(whole, indent=2))
    reader = GeminiAdapter()

    assert [file.path for file in reader.discover()] == [log]
    assert reader.log_at(str(log)) is not None
    assert texts(read_gemini(log)) == ["one", "two"]
    assert (reader.locate(SESSION), reader.glance(log).session_id) == ((log,), SESSION)


def test_a_log_from_the_future_is_read_as_far_as_it_is_understood(home):
    """Unknown records, fields and kinds are skipped without an error."""
    session = conversation(
        {"$merge": {"a": 1}}, {"version": 9}, spoken("user", "u", "one", mood="good"),
        spoken("oracle", "o", "not heard"), spoken("gemini", "a", "two", {"hologram": "x"}),
        home=home,
    )  # fmt: skip

    assert texts(session) == ["one", "two"]


def test_of_a_resumed_session_the_empty_file_beside_it_is_not_meant(home):
    log = gemini_log(home, spoken("user", "u", "one"))
    stub = gemini_log(home, listed(spoken("user", "c", "<session_context></session_context>")), name="x-11111111")
    os.utime(log, (1, 1))
    reader = GeminiAdapter()

    assert (reader.locate(SESSION), reader.read(stub).session) == ((log,), None)


def test_a_log_with_two_names_is_one_under_the_one_that_stays(home):
    log = gemini_log(home, spoken("user", "u", "one"))
    lasting = AGENTS["gemini"].storage.second_path(log, SESSION, Path(CWD))
    lasting.hardlink_to(log)
    reader = GeminiAdapter()

    assert lasting.name == f"session-2026-07-01T10-00-{SESSION}.jsonl"
    assert [file.path for file in reader.discover()] == [lasting] == list(reader.locate(SESSION))
    assert (reader.log_at(str(log)), reader.log_at(str(lasting)).path) == (None, lasting)
    assert AGENTS["gemini"].storage.second_path(lasting, SESSION, Path(CWD)) is None


def test_a_person_is_told_a_command_that_loses_nothing(home):
    log = gemini_log(home, spoken("user", "u", "one"))
    reader = GeminiAdapter()
    assert reader.resume_command(SESSION) == ("smart-fork", "resume", SESSION)

    log.rename(AGENTS["gemini"].storage.second_path(log, SESSION, Path(CWD)))

    assert reader.resume_command(SESSION) == ("gemini", "--resume", SESSION)


def test_another_session_of_the_same_eight_characters_is_another_one(home):
    other = f"{SESSION[:8]}-2222-4222-8222-222222222222"
    log = gemini_log(home, spoken("user", "u", "one"))
    later = gemini_log(home, spoken("user", "v", "two"), session=other, name=f"later-{SESSION[:8]}")
    later.rename(later.with_name(f"session-2026-07-01T10-01-{SESSION[:8]}.jsonl"))
    reader = GeminiAdapter()

    assert reader.locate(SESSION) == (log,)
    assert {reader.id_of(file.path) for file in reader.discover()} == {SESSION, other}


def test_its_own_forks_are_of_the_family_of_what_they_were_forked_from(home):
    parent, fork = fixture(home, "tools"), fixture(home, "imported", "/home/ada/other")
    heads, reader = AGENTS.ancestry_of("gemini"), GeminiAdapter()
    ids = {path: reader.id_of(path) for path in (parent, fork)}

    family = {kin.session_id: kin for kin in heads.family(ids[parent], CWD, {})}

    above = read_gemini(parent)
    assert set(ids.values()) == set(family)
    assert heads.shared(family[ids[fork]], family[ids[parent]], above, lambda: None) > 0
    assert above.root_id == read_gemini(fork).root_id


def test_what_gemini_cli_itself_says_first_makes_no_family_of_two_sessions(home):
    """The id of Gemini CLI's own first message depends on its text. Sessions of one directory and day share that id."""
    context = listed(spoken("user", "c", "<session_context>\n- **Workspace Directories:**\n  - /srv/shop\n"))
    one, other = (
        read_gemini(gemini_log(home, context, spoken("user", prompt, prompt), session=session))
        for prompt, session in (("retry", SESSION), ("docs", id_of(2)))
    )

    assert one.turns[0].id == other.turns[0].id
    assert set(one.beginnings).isdisjoint(other.beginnings)


IDS = st.sampled_from("abcde")
MESSAGES = st.builds(spoken, st.sampled_from(["user", "gemini", "info"]), IDS, st.sampled_from(["x", "y", "z"]))
RECORDS = st.one_of(
    MESSAGES, st.builds(lambda one: {"$rewindTo": one}, IDS), st.lists(MESSAGES, max_size=5).map(lambda some: listed(*some))
)  # fmt: skip


def remembered(records: list[dict]) -> list[tuple[str, str]]:
    """Return the messages that Gemini CLI remembers, computed as in its own source: a map by id, in order."""
    known: dict[str, dict] = {}
    for record in records:
        if "$rewindTo" in record:
            names = list(known)
            start = names.index(record["$rewindTo"]) if record["$rewindTo"] in known else 0
            known = {name: known[name] for name in names[:start]}
        elif "$set" in record:
            known = {}
            for message in record["$set"]["messages"]:
                known[message["id"]] = message
        else:
            known[record["id"]] = record
    return [(one["id"], one["content"][0]["text"]) for one in known.values() if one["type"] != "info"]


@given(records=st.lists(RECORDS, max_size=12))
def test_a_copy_of_all_has_what_gemini_cli_remembers(tmp_path_factory, records):
    log = gemini_log(tmp_path_factory.mktemp("parts"), *records)
    now = remembered(records)
    replay = Replay(log)

    if now:
        assert [(one["id"], one["content"][0]["text"]) for one in replay.up_to(now[-1][0])] == now
    session = GeminiAdapter().read(log).session
    if session is not None:
        assert [turn.id for turn in session.turns][len(session.turns) - len(now) :] == [one for one, _ in now]
        assert [turn.id for turn in session.turns] == list(replay.all)
