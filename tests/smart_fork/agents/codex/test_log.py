"""Sessions of Codex, from records without envelope (2025) to 0.169 (E-005)."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from smart_fork.agents.codex.log_files import CodexAdapter
from tests.indexer.transcripts.records import (
    CWD,
    actions,
    codex_log,
    enveloped,
    event,
    id_of,
    item,
    message,
    meta,
    notes,
    prompts,
    read_codex,
    texts,
    write,
)  # fmt: skip

ONE = id_of(1)


def call(identity: str, name: str, arguments: object, **more: object) -> object:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return item("function_call", call_id=identity, name=name, arguments=text, **more)


def output(identity: str, said: object) -> object:
    return item("function_call_output", call_id=identity, output=said)


def skipped(path: Path) -> str:
    outcome = CodexAdapter().read(path)
    assert outcome.session is None
    return outcome.skipped


def test_a_conversation_with_envelope(home):
    """F-143, F-153, F-154: messages of the developer role are no one's, and each text is taken once."""
    session = read_codex(
        codex_log(
            home,
            ONE,
            meta(ONE, git={"branch": "main"}),
            message("developer", "permissions"),
            message("user", "<environment_context>\n<cwd>/srv/shop</cwd>\n</environment_context>"),
            enveloped("turn_context", cwd="/srv/elsewhere"),
            message("user", "fix the uploader"),
            event("user_message", message="fix the uploader"),
            item("reasoning", summary=[], encrypted_content="gAAAA"),
            event("agent_message", message="Looking."),
            message("assistant", "Looking."),
            call("c1", "exec_command", {"cmd": "pytest -q", "timeout_ms": 9}),
            output("c1", "Chunk ID: 1\nProcess exited with code 1\nOutput:\nE  retry_upload failed"),
            event("token_count", info={"last_token_usage": {"total_tokens": 1234}}),
        )
    )

    assert [(turn.role, turn.text) for turn in session.turns] == [
        ("user", "fix the uploader"), ("assistant", "Looking."), ("assistant", ""), ("tool", ""),
    ]  # fmt: skip
    assert (session.session_id, session.cwd, session.git_branch, session.version) == (ONE, CWD, "main", "0.169.0")
    assert (session.title, session.token_estimate, session.origin) == ("fix the uploader", 1234, "person")
    assert (actions(session), notes(session)) == (["run pytest -q"], ["exit 1: E retry_upload failed"])
    assert session.symbols == ("retry_upload",)


def test_a_conversation_without_envelope(home):
    """Versions of August 2025: bare items, no times, and the directory only in the first message."""
    path = codex_log(
        home,
        ONE,
        {"id": ONE, "timestamp": "2025-08-20T10:00:00.000Z", "instructions": None, "git": {"branch": "dev"}},
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "<environment_context>\nCurrent working directory: /srv/shop\n</environment_context>"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "list the files"}]},
        {"type": "function_call", "call_id": "c1", "name": "shell", "arguments": '{"command":["bash","-lc","ls"]}'},
        {"type": "function_call_output", "call_id": "c1", "output": '{"output":"no such thing","metadata":{"exit_code":2}}'},
        {"record_type": "state"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "None."}]},
    )  # fmt: skip
    os.utime(path, (1e9, 1e9))

    session = read_codex(path)

    assert texts(session) == ["list the files", "None."]
    assert (session.cwd, session.git_branch) == ("/srv/shop", "dev")
    assert (actions(session), notes(session)) == (["run ls"], ["exit 2: no such thing"])
    assert session.started == "2025-08-20T10:00:00.000Z"
    assert session.last_activity == session.started


def test_newer_prompts_in_a_session_of_an_older_version_are_not_lost(home):
    """Up to 0.146 a prompt is written as an item and as an event, in 0.169 only as an item."""
    path = codex_log(
        home,
        ONE,
        meta(ONE),
        message("user", "one"),
        message("user", "context that an old version injected"),
        event("user_message", message="one"),
        message("assistant", "first"),
        message("user", "two", internal_chat_message_metadata_passthrough={"content_item_kinds": ["user.text"]}),
        message("assistant", "second"),
    )

    assert texts(read_codex(path)) == ["one", "first", "two", "second"]


ORDERS = {
    "the item first": lambda text: [message("user", text), event("user_message", message=text)],
    "the event first": lambda text: [event("user_message", message=text), message("user", text)],
    "the item with a picture": lambda text: [
        event("user_message", message=text, images=["x"]), message("user", f"<image name=[Image #1]>\n\n</image>\n\n{text}"),
    ],
    "the item alone": lambda text: [message("user", text)],
    "the event alone": lambda text: [event("user_message", message=text)],
}  # fmt: skip
ANSWERS = {
    "the item first": lambda text: [message("assistant", text), event("agent_message", message=text)],
    "the event first": lambda text: [event("agent_message", message=text), message("assistant", text)],
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("answering", ANSWERS)
def test_what_was_said_once_is_told_once_whichever_copy_was_written_first(home, order, answering):
    records = [
        record
        for asked, answered in (("one", "first"), ("two", "second"), ("one", "first"))
        for record in (*ORDERS[order](asked), *ANSWERS[answering](answered))
    ]

    assert texts(read_codex(codex_log(home, ONE, meta(ONE), *records))) == [
        "one",
        "first",
        "two",
        "second",
        "one",
        "first",
    ]


@pytest.mark.parametrize("order", ORDERS)
def test_the_last_prompt_is_told_once_while_nobody_has_answered_it(home, order):
    records = [*ORDERS["the item first"]("one"), message("assistant", "first"), *ORDERS[order]("two")]

    assert texts(read_codex(codex_log(home, ONE, meta(ONE), *records))) == ["one", "first", "two"]


@pytest.mark.parametrize(
    "copies",
    [
        [("item", "again"), ("item", "again"), ("event", "again"), ("event", "again")],
        [("event", "again"), ("event", "again"), ("item", "again"), ("item", "again")],
        [("event", "again"), ("item", "again"), ("item", "again"), ("event", "again")],
        [("item", "again"), ("event", "again"), ("event", "again"), ("item", "again")],
    ],
)
def test_what_was_said_twice_on_purpose_is_told_twice(home, copies):
    records = [
        message("user", text) if kind == "item" else event("user_message", message=text) for kind, text in copies
    ]

    assert texts(read_codex(codex_log(home, ONE, meta(ONE), *records))) == ["again", "again"]
    path = codex_log(home, ONE, meta(ONE), *records, event("thread_rolled_back", num_turns=1))
    assert texts(read_codex(path)) == ["again"], "only one of them is rolled back"


def test_an_event_that_comes_after_the_answer_is_no_prompt_of_its_own(home):
    records = [message("user", "one"), message("assistant", "first"), event("user_message", message="one")]

    assert texts(read_codex(codex_log(home, ONE, meta(ONE), *records))) == ["one", "first"]


def test_prompts_of_a_session_without_events_stay_where_one_with_events_follows(home):
    """A merged session is such a session; both parts may have the same prompt."""
    records = [
        message("user", "one"),
        message("assistant", "first"),
        message("user", "two"),
        message("assistant", "second"),
    ]
    more = [
        record for text in ("two", "three")
        for record in (message("user", text), event("user_message", message=text), message("assistant", f"done {text}"))
    ]  # fmt: skip

    assert texts(read_codex(codex_log(home, ONE, meta(ONE), *records, *more))) == [
        "one", "first", "two", "second", "two", "done two", "three", "done three",
    ]  # fmt: skip


def test_what_a_newer_version_injects_is_marked_and_left_out(home):
    kinds = {"content_item_kinds": ["something.new"]}
    path = codex_log(
        home,
        ONE,
        meta(ONE),
        message("user", "injected", internal_chat_message_metadata_passthrough=kinds),
        message("user", "one"),
    )

    assert prompts(read_codex(path)) == ["one"]


def test_answers_that_are_only_events_are_read(home):
    path = codex_log(
        home, ONE, meta(ONE), event("user_message", message="one"), event("agent_message", message="first")
    )

    assert texts(read_codex(path)) == ["one", "first"]


def test_of_an_editor_s_prompt_the_request_is_kept(home):
    text = "# Context from my IDE setup:\n\n## Active file: a.py\n\n## My request for Codex:\nfix it"

    assert prompts(read_codex(codex_log(home, ONE, meta(ONE), message("user", text)))) == ["fix it"]


@pytest.mark.parametrize(
    ("record", "action"),
    [
        (call("c", "shell", {"command": ["bash", "-lc", "ls"]}), "run ls"),
        (call("c", "shell", "not json"), "run not json"),
        (
            item("custom_tool_call", call_id="c", name="apply_patch", input="*** Begin Patch\n*** Update File: a.py\n"),
            "edit a.py",
        ),
        (
            item("local_shell_call", call_id="c", action={"type": "exec", "command": ["git", "status"]}),
            "run git status",
        ),
        (item("tool_search_call", call_id="c", arguments={"query": "calendar"}), "tool_search_call calendar"),
        (call("c", "update_plan", {"plan": []}), ""),
    ],
)
def test_calls_of_all_kinds_are_actions(home, record, action):
    assert actions(read_codex(codex_log(home, ONE, meta(ONE), message("user", "go"), record))) == [action]


@pytest.mark.parametrize(
    ("name", "namespace"),
    [
        ("smart_fork", "mcp__smart_fork"),
        ("smart_fork", "mcp__smart-fork"),
        ("mcp__smart-fork__smart_fork", None),
        ("read_session", "mcp__smart_fork"),
        ("shell", None),
    ],
)
def test_our_own_answers_leave_no_trace(home, name, namespace):
    given = (
        {"command": ["bash", "-lc", "smart-fork find secret_intent"]}
        if name == "shell"
        else {"intent": "secret_intent"}
    )
    session = read_codex(
        codex_log(
            home,
            ONE,
            meta(ONE),
            message("user", "who knows"),
            call("c1", name, given, namespace=namespace),
            output("c1", "Exit code: 1\nWall time: 0.1\nOutput:\nfound_before"),
        )
    )

    assert (actions(session), notes(session), session.symbols) == ([""], [""], ())


def test_a_compaction_is_counted_and_its_copy_of_the_history_is_not_read(home):
    old = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "one"}]}
    path = codex_log(
        home,
        ONE,
        meta(ONE),
        message("user", "one"),
        enveloped("compacted", message="", replacement_history=[old]),
        message("user", "two"),
    )

    assert prompts(read_codex(path)) == ["one", "two"]
    assert read_codex(path).compactions == 1


@pytest.mark.parametrize(
    ("count", "left"),
    [(1, ["one"]), (2, []), (9, []), (0, ["one", "two"]), (-1, ["one", "two"]), ("x", ["one", "two"])],
)
def test_prompts_that_were_rolled_back_are_gone(home, count, left):
    """Both copies of each prompt are gone, so that none returns if no event is left."""
    records = []
    for text in ("one", "two"):
        records += [message("user", text), event("user_message", message=text), message("assistant", f"done {text}")]
    outcome = CodexAdapter().read(
        codex_log(home, ONE, meta(ONE), *records, event("thread_rolled_back", num_turns=count))
    )

    assert (prompts(outcome.session) if outcome.session else []) == left


def test_a_name_that_somebody_gave_is_the_title(home):
    path = codex_log(home, ONE, meta(ONE), event("thread_name_updated", thread_name="Uploader"), message("user", "one"))

    assert read_codex(path).title == "Uploader"


@pytest.mark.parametrize(
    ("about", "origin"),
    [
        ({"source": "cli"}, "person"),
        ({"source": "vscode", "thread_source": "user"}, "person"),
        ({"source": None, "originator": "codex_cli_rs"}, "person"),
        ({"source": "exec", "originator": "codex-tui"}, "automated"),
        ({"source": "mcp"}, "automated"),
        ({"source": None, "originator": "codex_exec"}, "automated"),
        ({"source": {"custom": "my-editor"}}, "person"),
    ],
)
def test_who_started_a_session_is_told_by_its_source(home, about, origin):
    assert read_codex(codex_log(home, ONE, meta(ONE, **about), message("user", "one"))).origin == origin


def test_a_run_that_somebody_named_is_shown(home):
    records = [meta(ONE, source="exec"), event("thread_name_updated", thread_name="Nightly"), message("user", "one")]

    assert read_codex(codex_log(home, ONE, *records)).origin == "person"


@pytest.mark.parametrize(
    "about",
    [
        {
            "source": {"subagent": {"thread_spawn": {"parent_thread_id": id_of(2), "depth": 1}}},
            "forked_from_id": id_of(2),
        },
        {"source": {"subagent": "review"}, "id": id_of(2)},
        {"thread_source": "subagent"},
    ],
    ids=["spawned", "review thread under its parent's id", "thread source"],
)
def test_sub_agents_and_review_threads_are_no_sessions(home, about):
    path = codex_log(home, ONE, meta(ONE, **about), message("user", "review this"))

    assert skipped(path) == "a sub-agent's"
    assert CodexAdapter().glance(path) is None


def test_a_session_that_was_never_used_is_none(home):
    assert skipped(codex_log(home, ONE, meta(ONE))) == "it has no prompt"


def test_logs_are_discovered_at_all_depths_and_located_by_id(home, monkeypatch):
    """F-144, F-173, F-100: archived logs too, newest first."""
    plain = codex_log(home, ONE, meta(ONE))
    archived = codex_log(home, ONE, meta(ONE), folder="archived_sessions")
    write(home / ".codex/sessions/2026/07/01/notes.jsonl", {})
    write(home / ".codex/sessions/2026/07/01/rollout-x.json", {})
    os.utime(archived, (1, 1))
    reader = CodexAdapter()

    assert {file.path for file in reader.discover()} == {plain, archived}
    assert reader.locate(ONE) == (plain, archived)
    assert reader.id_of(plain) == ONE
    for nonsense in ("", ONE[:8], "../x", f"*{ONE[1:]}", id_of(2)):
        assert reader.locate(nonsense) == ()
    monkeypatch.setenv("CODEX_HOME", str(home / "elsewhere"))
    assert list(reader.discover()) == []
    assert reader.resume_command(ONE) == ("codex", "resume", ONE)
