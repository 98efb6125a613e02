"""Sessions of Claude Code in the formats of versions 1.0 to 2.1."""

from __future__ import annotations

import json
import os
from pathlib import Path
from uuid import uuid4

import pytest

from indexer.transcripts.base import UNREAD
from indexer.transcripts.lines import bounded
from indexer.transcripts.model import Cache
from smart_fork.agents.claude.log_files import ClaudeAdapter
from tests.indexer.transcripts.records import (
    CWD,
    SESSION,
    actions,
    assistant,
    chained,
    claude_log,
    notes,
    prompts,
    read_claude,
    result,
    texts,
    use,
    user,
    write,
)  # fmt: skip


def skipped(path: Path) -> str:
    outcome = ClaudeAdapter().read(path)
    assert outcome.session is None
    return outcome.skipped


def test_a_conversation_is_what_was_asked_said_and_done(home):
    """F-153: the conversation has no tool output."""
    session = read_claude(
        claude_log(
            home,
            {"type": "mode", "mode": "normal", "sessionId": SESSION},
            user("u1", None, "fix the uploader"),
            chained("attachment", "x1", "u1", attachment={"type": "skill_listing", "content": "not theirs"}),
            assistant("a1", "x1", {"type": "thinking", "thinking": "hm"}, "Looking."),
            assistant("a2", "a1", use("t1", "Bash", command="pytest -q")),
            result("r1", "a2", "t1", "Exit code 1\nAssertionError: in retry_upload", is_error=True),
            assistant("a3", "r1", "Done."),
            chained("system", "s1", "a3", subtype="turn_duration"),
        )
    )

    assert [(turn.role, turn.text) for turn in session.turns] == [
        ("user", "fix the uploader"), ("assistant", "Looking."), ("assistant", ""), ("tool", ""), ("assistant", "Done."),
    ]  # fmt: skip
    assert prompts(session) == ["fix the uploader"]
    assert actions(session) == ["run pytest -q"]
    assert notes(session) == ["exit 1: AssertionError: in retry_upload"]
    assert session.symbols == ("AssertionError", "retry_upload")
    assert (session.session_id, session.cwd, session.git_branch, session.version) == (SESSION, CWD, "main", "2.1.197")
    assert session.turns[2].tool_calls[0].name == "Bash"


def test_rewound_turns_are_not_part_of_the_conversation(home):
    """B-050, F-160."""
    path = claude_log(
        home,
        user("u1", None, "one"),
        assistant("a1", "u1", "first"),
        user("u2", "a1", "abandoned"),
        assistant("a2", "u2", "gone"),
        user("u3", "a1", "two"),
        assistant("a3", "u3", "second"),
    )

    assert texts(read_claude(path)) == ["one", "first", "two", "second"]


def test_parallel_calls_are_kept_with_their_results(home):
    path = claude_log(
        home,
        user("u1", None, "look at both"),
        assistant("a1", "u1", use("t1", "Read", file_path="a.py"), message="m"),
        assistant("a2", "a1", use("t2", "Read", file_path="b.py"), message="m"),
        result("r1", "a1", "t1"),
        result("r2", "a2", "t2"),
        assistant("a3", "r2", "Both read."),
    )

    assert [turn.id for turn in read_claude(path).turns] == ["u1", "a1", "a2", "r1", "r2", "a3"]


def test_a_compaction_keeps_what_was_said_before_and_its_summary_is_not_a_prompt(home):
    boundary = {"subtype": "compact_boundary", "logicalParentUuid": "a1", "content": "Conversation compacted"}
    summary = "Whatever wording a version begins its summary with."
    session = read_claude(
        claude_log(
            home,
            user("u1", None, "one"),
            assistant("a1", "u1", "first"),
            user("dead", "a1", "abandoned"),
            chained("system", "c1", None, **boundary),
            user("c2", "c1", summary, isCompactSummary=True, isVisibleInTranscriptOnly=True),
            user("u2", "c2", "two"),
        )
    )

    assert texts(session) == ["one", "first", "two"]
    assert session.compactions == 1


def test_a_compaction_of_version_1_begins_a_file_with_a_summary(home):
    text = "This session is being continued from a previous conversation that ran out of context."

    assert prompts(read_claude(claude_log(home, user("u1", None, text), user("u2", "u1", "go on")))) == ["go on"]


def test_a_resumed_copy_takes_its_id_from_the_name_of_the_file(home):
    """Older versions resume into a new file, which begins with the old records and their session id."""
    old = "22222222-2222-4222-8222-222222222222"
    session = read_claude(
        claude_log(
            home,
            user("u1", None, "one", sessionId=old),
            assistant("a1", "u1", "x", sessionId=old),
            user("u2", "a1", "two"),
        )
    )

    assert session.session_id == SESSION
    assert session.root_id == "u1"
    assert prompts(session) == ["one", "two"]


def test_a_renamed_file_takes_its_id_from_its_records(home):
    assert read_claude(claude_log(home, user("u1", None, "one"), session="notes")).session_id == SESSION


def test_a_fork_written_with_its_origin_names_its_parent(home):
    path = claude_log(home, user("u1", None, "one", forkedFrom={"sessionId": "parent", "messageUuid": "u1"}))

    assert read_claude(path).parent_id == "parent"


def test_the_tokens_of_a_split_message_count_once(home):
    usage = {"input_tokens": 5, "cache_read_input_tokens": 1000, "cache_creation_input_tokens": 10, "output_tokens": 20}
    parts = [assistant("a1", "u1", "a", message="m"), assistant("a2", "a1", "b", message="m")]
    for part in parts:
        part["message"]["usage"] = usage

    assert read_claude(claude_log(home, user("u1", None, "one"), *parts)).token_estimate == 1035


HOUR, MINUTES = {"ephemeral_1h_input_tokens": 9}, {"ephemeral_5m_input_tokens": 9}
READ = {"cache_read_input_tokens": 1000}


@pytest.mark.parametrize(
    ("usages", "seconds"),
    [
        ([READ | {"cache_creation": HOUR}], 3600),
        ([READ | {"cache_creation": MINUTES}], 300),
        ([READ | {"cache_creation": HOUR | MINUTES}], 300),
        ([{"cache_creation": HOUR}, READ], 3600),
        ([{"cache_creation": HOUR}, READ | {"cache_creation": MINUTES}], 300),
        ([{"cache_creation": HOUR}, {"input_tokens": 9}], 0),
        ([{"cache_creation": HOUR}, READ | {"cache_creation_input_tokens": 9}], 0),
        ([READ], 0),
        ([READ | {"cache_creation": {"ephemeral_1h_input_tokens": "9", "ephemeral_5m_input_tokens": -1}}], 0),
        ([READ | {"cache_creation": 9}], 0),
    ],
)
def test_the_log_says_how_long_a_cache_lives_after_the_last_request_that_used_it(home, usages, seconds):
    records = [user("u0", None, "one")]
    for number, usage in enumerate(usages):
        answer = assistant(f"a{number}", f"u{number}", "said", message=f"m{number}")
        answer["message"]["usage"] = usage
        records += [answer, user(f"u{number + 1}", f"a{number}", "more")]
    session = read_claude(claude_log(home, *records))

    sent = session.turns[2 * len(usages) - 2].timestamp

    assert Cache(*((seconds, sent) if seconds else ())) == session.cache()
    assert Cache() == session.cache(0)


def test_a_request_is_as_old_as_what_it_sent_and_not_as_its_answer(home):
    parts = [assistant("a1", "u1", "a", message="m"), assistant("a2", "a1", "b", message="m")]
    for number, part in enumerate(parts):
        part["message"]["usage"] = READ | {"cache_creation": HOUR}
        part["timestamp"] = f"2026-07-01T10:0{number + 1}:00.000Z"
    session = read_claude(claude_log(home, user("u1", None, "one"), *parts))

    assert len({turn.timestamp for turn in session.turns}) == 3
    assert Cache(3600, session.turns[0].timestamp) == session.cache()


def test_after_a_compaction_nothing_of_what_is_left_was_sent(home):
    answer = assistant("a1", "u1", "a")
    answer["message"]["usage"] = READ | {"cache_creation": HOUR}
    summary = user("s1", "a1", "This session is being continued from a previous conversation", isCompactSummary=True)

    assert Cache() == read_claude(claude_log(home, user("u1", None, "one"), answer, summary)).cache()


@pytest.mark.parametrize("number", [True, -7, 2**63, 2**64 - 1, "9", None])
def test_numbers_that_are_no_tokens_are_not_counted(home, number):
    answer = assistant("a1", "u1", "four")
    answer["message"]["usage"] = {"input_tokens": number, "output_tokens": number}

    assert read_claude(claude_log(home, user("u1", None, "abcd"), answer)).token_estimate == 2


def test_what_was_typed_while_the_agent_worked_is_a_prompt(home):
    def queued(identity: str, parent: str, prompt: object) -> object:
        return chained("attachment", identity, parent, attachment={"type": "queued_command", "prompt": prompt})

    session = read_claude(
        claude_log(
            home,
            user("u1", None, "one"),
            queued("q1", "u1", "also this"),
            queued("q2", "q1", [{"type": "text", "text": "and a picture"}, {"type": "image"}]),
            queued("q3", "q2", "<task-notification>done</task-notification>"),
        )
    )

    assert prompts(session) == ["one", "also this", "and a picture"]


def test_of_a_slash_command_the_arguments_are_the_prompt(home):
    text = "<command-message>fix</command-message>\n<command-name>/fix</command-name>\n<command-args>the race</command-args>"
    session = read_claude(
        claude_log(home, user("u1", None, text), user("u2", "u1", "<command-name>/clear</command-name>"))
    )

    assert prompts(session) == ["the race"]


def test_meta_records_and_synthetic_answers_say_nothing(home):
    synthetic = assistant("a1", "u2", "API Error")
    synthetic["message"]["model"] = "<synthetic>"
    session = read_claude(
        claude_log(home, user("u1", None, "injected", isMeta=True), user("u2", "u1", "one"), synthetic)
    )

    assert texts(session) == ["one"]


MACHINES = [
    {"origin": {"kind": "cron"}}, {"origin": {"kind": "task-notification"}}, {"origin": {"kind": "channel"}},
    {"promptSource": "system"}, {"subtype": "cron"}, {"subtype": "notification"}, {"isMeta": True},
    {"isCompactSummary": True},
]  # fmt: skip


@pytest.mark.parametrize("mark", MACHINES, ids=str)
def test_what_no_person_asked_gives_no_title_and_is_no_prompt(home, mark):
    log = claude_log(
        home,
        user("u1", None, "Run the nightly report", **mark),
        assistant("a1", "u1", "The report is done"),
        user("u2", "a1", "fix the race", origin={"kind": "human"}),
        {
            "type": "attachment",
            "uuid": "q",
            "parentUuid": "u2",
            "attachment": {"type": "queued_command", "prompt": "again", "origin": {"kind": "cron"}},
        },
        assistant("a2", "q", "Fixed"),
    )
    session = read_claude(log)

    assert "fix the race" == session.title
    assert ["fix the race"] == [turn.text for turn in session.turns if turn.prompt]


def test_sub_agents_in_the_main_file_are_left_out(home):
    """F-149: version 1.0 writes sub-agents' records between the others."""
    session = read_claude(
        claude_log(
            home,
            user("u1", None, "one"),
            user("x1", None, "task of the sub-agent", isSidechain=True),
            assistant("x2", "x1", "its answer", isSidechain=True),
            assistant("a1", "u1", "done"),
        )
    )

    assert texts(session) == ["one", "done"]


def test_why_a_log_is_no_session(home):
    assert skipped(claude_log(home)) == "no conversation"
    assert skipped(claude_log(home, {"type": "file-history-snapshot"})) == "no conversation"
    assert skipped(claude_log(home, user("x1", None, "task", isSidechain=True))) == "only sub-agent records"
    assert skipped(claude_log(home, user("u1", None, "<command-name>/clear</command-name>"))) == "it has no prompt"


TITLE = [
    ([], "fix the uploader"),
    (
        [{"type": "ai-title", "aiTitle": "Uploader"}, {"type": "ai-title", "aiTitle": "Uploader retry"}],
        "Uploader retry",
    ),
    ([{"type": "ai-title", "aiTitle": "By model"}, {"type": "custom-title", "customTitle": "By hand"}], "By hand"),
    ([{"type": "agent-name", "agentName": "worker"}], "worker"),
    ([{"type": "custom-title", "customTitle": "  "}], "fix the uploader"),
    ([{"type": "summary", "summary": "Of this", "leafUuid": "a1"}], "Of this"),
    ([{"type": "summary", "summary": "Of another session", "leafUuid": "elsewhere"}], "fix the uploader"),
    (
        [{"type": "custom-title", "customTitle": 7}, {"type": "summary", "summary": None, "leafUuid": "a1"}],
        "fix the uploader",
    ),
]


@pytest.mark.parametrize(("records", "title"), TITLE)
def test_a_title_is_the_person_s_the_model_s_or_the_first_prompt(home, records, title):
    path = claude_log(home, *records, user("u1", None, "fix the uploader"), assistant("a1", "u1", "ok"))

    assert read_claude(path).title == title


def test_the_directory_is_the_one_in_which_the_session_was_started(home):
    """F-150: `cd` changes the records, not the folder."""
    drifted = claude_log(home, user("u1", None, "one"), user("u2", "u1", "two", cwd="/srv/shop/api"))
    fork = claude_log(home, user("u1", None, "one"), user("u2", "u1", "two", cwd="/srv/tree"), cwd="/srv/tree")

    assert read_claude(drifted).cwd == CWD
    assert read_claude(fork).cwd == "/srv/tree"


def test_a_worktree_s_copy_belongs_to_the_directory_of_its_records(home):
    """F-103: a session copied for a fork is no second session elsewhere."""
    copy = claude_log(home, user("u1", None, "one"), cwd="/srv/other")

    assert (read_claude(copy).session_id, read_claude(copy).cwd) == (SESSION, CWD)


@pytest.fixture
def plain_directory():
    """Return a directory with letters and digits only in its path, so that its folder's name can be decoded."""
    directory = Path("/tmp").resolve() / uuid4().hex  # noqa: S108 - pytest's own folders have dashes
    directory.mkdir()
    yield directory
    directory.rmdir()


def test_without_any_directory_in_the_records_the_folder_s_name_is_tried(home, plain_directory):
    """F-150; F-172: only if the directory exists, since the name cannot be decoded safely."""
    there = plain_directory
    record = user("u1", None, "one") | {"cwd": ""}

    assert read_claude(claude_log(home, record, cwd=str(there))).cwd == str(there)
    assert read_claude(claude_log(home, record, cwd="/srv/not there")).cwd == ""


def test_a_directory_that_the_system_would_not_accept_is_none(home):
    assert read_claude(claude_log(home, user("u1", None, "one", cwd="/srv/\0"), user("u2", "u1", "two"))).cwd == CWD


def test_times_are_the_earliest_and_latest_whatever_the_order(home):
    """F-146: the order of lines is not the order of times."""
    session = read_claude(
        claude_log(
            home,
            user("u1", None, "one", timestamp="2026-07-01T12:00:00+02:00"),
            user("u2", "u1", "two", timestamp="2026-07-01T09:59:00"),
            user("u3", "u2", "three", timestamp="[REDACTED]"),
        )
    )

    assert (session.started, session.last_activity) == ("2026-07-01T09:59:00.000Z", "2026-07-01T10:00:00.000Z")


WHO = [
    ([{"entrypoint": "cli", "promptSource": "typed", "origin": {"kind": "human"}}], [], "person"),
    ([{}], [], "person"),
    ([{"entrypoint": "sdk-cli", "promptSource": "sdk"}], [], "automated"),
    ([{"entrypoint": "sdk-py"}], [], "automated"),
    (
        [{"entrypoint": "sdk-cli", "promptSource": "typed"}, {"entrypoint": "sdk-cli", "promptSource": "sdk"}],
        [],
        "person",
    ),
    ([{"entrypoint": "cli", "promptSource": "sdk"}], [], "automated"),
    ([{"entrypoint": "sdk-cli", "origin": {"kind": "human"}}], [], "person"),
    ([{"promptSource": "sdk"}, {"promptSource": "system", "origin": {"kind": "task-notification"}}], [], "automated"),
    ([{"promptSource": "sdk"}], [{"type": "custom-title", "customTitle": "nightly"}], "person"),
    ([{"teamName": "red", "promptSource": "typed"}], [], "subagent"),
    ([{"promptSource": 7, "origin": [], "entrypoint": None}], [], "person"),
]


@pytest.mark.parametrize(("signs", "records", "origin"), WHO)
def test_who_started_a_session_is_told_by_several_signs(home, signs, records, origin):
    asked = [user(f"u{i}", f"u{i - 1}" if i else None, "go", **more) for i, more in enumerate(signs)]

    assert read_claude(claude_log(home, *records, *asked)).origin == origin


@pytest.mark.parametrize("name", ["mcp__smart-fork__smart_fork", "mcp__smart_fork__read_session", "Bash"])
def test_our_own_answers_leave_no_trace(home, name):
    """Search results must not be found again as if an agent had worked on them."""
    given = {"command": "smart-fork find secret_intent"} if name == "Bash" else {"intent": "secret_intent"}
    session = read_claude(
        claude_log(
            home,
            user("u1", None, "who knows"),
            assistant("a1", "u1", use("t1", name, **given)),
            result("r1", "a1", "t1", '{"snippet": "found_before"}', is_error=True),
        )
    )

    assert actions(session) == [""]
    assert notes(session) == [""]
    assert session.symbols == ()


def test_marks_and_stop_hooks_of_a_parent_are_not_a_fork_s_words(home):
    """F-105."""
    session = read_claude(
        claude_log(
            home,
            user("u1", None, "<!smart-fork-session:ab12!>\nparent's task"),
            assistant("a1", "u1", "done"),
            chained("system", "s1", "a1", subtype="stop_hook_summary", hookCount=1),
            user("u2", "s1", "Stop hook feedback:\n[worker-done:ab12]"),
            user("u3", "u2", "the fork's task"),
        )
    )

    assert prompts(session) == ["parent's task", "the fork's task"]


def test_a_glance_sees_the_beginning_and_the_time_of_the_last_record(home):
    """F-136."""
    path = claude_log(home, {"type": "ai-title", "aiTitle": "Uploader"}, user("u1", None, "one"))
    with path.open("a") as file:
        file.writelines(json.dumps(assistant(f"a{i}", "u1", "x" * 1000)) + "\n" for i in range(400))
        file.write(json.dumps(assistant("a400", "u1", "x") | {"timestamp": "2026-09-09T01:46:40.000Z"}) + "\n")

    os.utime(path, (1e9, 1e9))

    session = ClaudeAdapter().glance(path)

    assert session is not None
    assert (session.title, session.cwd, session.origin) == ("Uploader", CWD, "person")
    assert len(session.turns) < 300
    assert session.last_activity == "2026-09-09T01:46:40.000Z"
    assert ClaudeAdapter().glance(claude_log(home, {"type": "mode"})) is None


def test_logs_are_discovered_and_located_in_all_folders(home, monkeypatch):
    """F-100, F-149: newest first, sub-agents left out; F-173."""
    first, second = claude_log(home, user("u", None, "x")), claude_log(home, user("u", None, "x"), cwd="/srv/b")
    write(first.parent / "agent-1234567.jsonl", user("u", None, "x"))
    write(first.parent / SESSION / "subagents/agent-1.jsonl", user("u", None, "x"))
    write(first.parent.parent / f"{SESSION}.jsonl", user("u", None, "x"))
    os.utime(first, (1, 1))
    reader = ClaudeAdapter()

    assert {file.path for file in reader.discover()} == {first, second}
    assert reader.locate(SESSION) == (second, first)
    assert reader.id_of(first) == SESSION
    for nonsense in ("", "..", "../x", "/etc/passwd", "x\0", "*", "agent-1234567"):
        assert reader.locate(nonsense) == ()
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(home / "elsewhere"))
    assert list(reader.discover()) == []
    assert reader.resume_command("x") == ("claude", "--resume", "x")


def test_a_look_at_a_session_finds_no_names_of_code_and_the_index_does(home):
    log = claude_log(
        home,
        user("u1", None, "fix the uploader"),
        assistant("a1", "u1", use("t1", "Bash", command="grep retry_upload")),
    )

    with bounded():
        looked_at, indexed = ClaudeAdapter().read(log), ClaudeAdapter().read(log, UNREAD)

    assert ((), ("retry_upload",)) == (looked_at.session.symbols, indexed.session.symbols)
    assert looked_at.session.turns == indexed.session.turns
