"""A session's outcome and its edited files, from logs as the agents write them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from indexer.pipeline import document_of
from indexer.session_work import MAX_FILES, KnownFiles, Outcome, edits_of, known_files
from indexer.store.sqlite import Store
from indexer.transcripts.base import UNREAD
from indexer.transcripts.model import Session, ToolCall, ToolResult, Turn
from smart_fork.agents.log_readers import READERS
from tests.indexer.index_inputs import moment, reading_of, save, session_of
from tests.smart_fork.world import Did, World

EDIT = Did("Edit", {"file_path": "/shop/a.py"})
COMMIT = Did("Bash", {"command": "git commit -m x"}, "[main 1a2b3c4] x")
PASS, FAIL = (Did("Bash", {"command": "pytest | tail -1"}, said) for said in ("5 passed", "1 failed"))
STOPPED = "> [Request interrupted by user]"


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "index.db")
    yield store
    store.close()


@pytest.fixture
def read(home):
    world = World(home)

    def read_(agent, *steps):
        session_id = world.worked(agent, "/shop", *steps)
        return READERS[agent].read(world.log_of(session_id)).session

    return read_


@pytest.mark.parametrize("agent", ["claude", "codex"])
@pytest.mark.parametrize(
    ("steps", "outcome"),
    [
        ((EDIT, "done"), Outcome.UNKNOWN),
        (("talk",), Outcome.UNKNOWN),
        ((EDIT, COMMIT, "done"), Outcome.COMMITTED),
        ((EDIT, PASS, "done"), Outcome.TESTS_PASSED),
        ((EDIT, FAIL, "sorry"), Outcome.FAILED),
        ((FAIL, EDIT, PASS, "done"), Outcome.TESTS_PASSED),
        ((PASS, EDIT, FAIL, "sorry"), Outcome.FAILED),
        ((EDIT, FAIL, EDIT, COMMIT, "done"), Outcome.COMMITTED),
        ((EDIT, COMMIT, PASS, "done"), Outcome.COMMITTED),
        ((EDIT, COMMIT, FAIL, "sorry"), Outcome.FAILED),
        ((EDIT, COMMIT, "> more", EDIT, "done"), Outcome.COMMITTED),
        ((EDIT,), Outcome.ABANDONED),
        ((EDIT, PASS), Outcome.ABANDONED),
        ((EDIT, "done", "> and now this"), Outcome.ABANDONED),
        ((EDIT, COMMIT), Outcome.COMMITTED),
        ((EDIT, COMMIT, "done", "> and now this"), Outcome.COMMITTED),
        ((EDIT, COMMIT, EDIT), Outcome.ABANDONED),
    ],
)
def test_the_last_that_a_session_has_shown_is_its_outcome(read, agent, steps, outcome):
    patch = "*** Begin Patch\n*** Update File: a.py\n*** End Patch"
    if agent == "codex":
        own = {"Edit": ("apply_patch", patch), "Bash": ("exec_command", {"cmd": "git commit -m x"})}
        tests = {"cmd": "pytest | tail -1"}
        steps = [
            Did(own[one.name][0], tests if "pytest" in str(one.arguments) else own[one.name][1], one.result)
            if isinstance(one, Did)
            else one
            for one in steps
        ]

    assert Outcome.of(read(agent, "> mend it", *steps)) is outcome


def test_an_interrupted_session_is_abandoned_until_it_goes_on(read):
    assert Outcome.of(read("claude", "> mend it", EDIT, "I will now", STOPPED)) is Outcome.ABANDONED
    assert Outcome.of(read("claude", "> mend it", EDIT, "I will now", STOPPED, "> do", "done")) is Outcome.UNKNOWN
    assert Outcome.of(read("claude", "> mend it", EDIT, COMMIT, "Shall I", STOPPED)) is Outcome.COMMITTED


def test_an_interrupted_session_of_codex_is_abandoned_until_it_goes_on(home):
    world = World(home)
    path = world.log_of(world.codex("/shop", "mend it", "I will now"))
    whole = path.read_text()
    aborted = {"timestamp": moment(99), "ordinal": 9, "type": "event_msg", "payload": {"type": "turn_aborted"}}
    path.write_text(whole + json.dumps(aborted) + "\n")

    first = READERS["codex"].read(path, UNREAD)
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]}
    more = {"timestamp": moment(100), "ordinal": 10, "type": "response_item", "payload": said}
    path.write_text(path.read_text() + json.dumps(more) + "\n")

    assert Outcome.of(first.session) is Outcome.ABANDONED
    assert Outcome.of(READERS["codex"].read(path, first.checkpoint).session) is Outcome.UNKNOWN


def test_how_a_test_run_that_takes_long_has_gone_is_asked_later(read):
    running = "Chunk ID: 1\nProcess running with session ID 77\nOutput:\n"
    later = Did("write_stdin", {"session_id": 77}, "Chunk ID: 2\nProcess exited with code 0\nOutput:\nok")

    still = read("codex", "> mend", Did("exec_command", {"cmd": "go test ./..."}, running), "it runs")
    ended = read("codex", "> mend", Did("exec_command", {"cmd": "go test ./..."}, running), later, "done")

    assert (Outcome.of(still), Outcome.of(ended)) == (Outcome.UNKNOWN, Outcome.TESTS_PASSED)


def test_a_log_that_grows_between_a_test_run_and_its_answer_is_read_as_one(home, monkeypatch):
    world = World(home)
    path = world.log_of(world.worked("claude", "/shop", "> mend it", EDIT, PASS, "done"))
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:4]))
    before = READERS["claude"].read(path, UNREAD)
    path.write_text("".join(lines))

    after = READERS["claude"].read(path, before.checkpoint)

    assert (after.resumed, Outcome.of(after.session)) == (True, Outcome.TESTS_PASSED)
    assert after.session == READERS["claude"].read(path).session


def test_what_a_rewind_has_thrown_away_is_not_its_outcome(home):
    world = World(home)
    path = world.log_of(world.worked("claude", "/shop", "> mend it", "so", "> again", EDIT, COMMIT, "done"))
    records = [json.loads(line) for line in path.read_text().splitlines()]
    other = records[2] | {"uuid": "other", "timestamp": moment(600)}
    answer = records[1] | {"uuid": "answer", "parentUuid": "other", "timestamp": moment(601)}
    path.write_text("".join(json.dumps(record) + "\n" for record in (*records, other, answer)))

    session = READERS["claude"].read(path).session

    assert (Outcome.of(session), edits_of(session, "/shop").files) == (Outcome.UNKNOWN, ())


def test_edited_files_are_absolute_paths_of_what_succeeded(read):
    failed = Did("Edit", {"file_path": "/shop/b.py"}, "<tool_use_error>no</tool_use_error>")
    session = read(
        "claude", "> mend", EDIT, Did("Write", {"file_path": "sub/../c.py"}), EDIT, Did("Read", {"file_path": "/shop/d"}),
        Did("NotebookEdit", {"notebook_path": "/other/n.ipynb"}), Did("Edit", {"file_path": ["x"]}), failed, "done",
    )  # fmt: skip

    assert edits_of(session, "/real/shop").files[:3] == ("/real/shop/c.py", "/real/shop/a.py", "/other/n.ipynb")


def test_a_patch_edits_all_of_its_files_from_where_it_is_applied(read):
    patch = (
        "*** Begin Patch\n*** Update File: a.py\n*** Move to: b.py\n*** Add File: /else/c.py\n*** Delete File: d\n"
        "*** End Patch"
    )
    shell = Did(
        "shell", {"command": ["bash", "-lc", f"apply_patch <<'EOF'\n{patch}\nEOF"], "workdir": "sub"}, "exit_code: 0\n"
    )

    by_tool = read("codex", "> mend", Did("apply_patch", patch, "Exit code: 0\nOutput:\nSuccess."), "done")
    by_shell = read("codex", "> mend", shell, "done")
    refused = read("codex", "> mend", Did("apply_patch", patch, "apply_patch verification failed: no"), "done")

    assert set(edits_of(by_tool, "/shop").files) == {"/shop/a.py", "/shop/b.py", "/else/c.py", "/shop/d"}
    assert set(edits_of(by_shell, "/shop").files) == {"/shop/sub/a.py", "/shop/sub/b.py", "/else/c.py", "/shop/sub/d"}
    assert edits_of(refused, "/shop").files == ()


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("/shop/a\nb", ()),
        ("/shop/a\0b", ()),
        ("/shop/\x1b[31m", ()),
        ("C:\\a.py", ("/shop/C:\\a.py",)),
        ("", ()),
        ("/shop/" + "AKIAIOSFODNN7QXMPLT2", ()),
    ],
)
def test_a_path_that_is_no_text_of_one_line_or_holds_a_secret_is_not_kept(read, path, kept):
    session = read("claude", "> mend", Did("Edit", {"file_path": path}), "done")

    assert kept == edits_of(session, "/shop").files


def test_the_directory_of_a_session_may_have_several_lines(home):
    world = World(home)
    edited = [Did("Edit", {"file_path": f"/sh\nop/{name}"}) for name in ("a.py", "b\nc.py")]
    session_id = world.worked("claude", "/sh\nop", "> mend", *edited, "done")

    session = READERS["claude"].read(world.log_of(session_id)).session
    assert edits_of(session, "/sh\nop").files == ("/sh\nop/a.py",)


def test_of_very_many_files_the_last_edited_are_kept(read):
    paths = [f"f{number}" for number in range(MAX_FILES + 5)]
    first, second = ("\n".join(f"*** Add File: {path}" for path in some) for some in (paths[:900], paths[900:]))
    steps = [Did("apply_patch", f"*** Begin Patch\n{one}\n*** End Patch", "Exit code: 0\n") for one in (first, second)]

    files = edits_of(read("codex", "> mend", *steps, "done"), "/shop").files

    assert (len(files), files[-1]) == (MAX_FILES, f"/shop/{paths[-1]}")


def test_edits_last_until_the_session_s_own_commit_of_them(read):
    session = read("claude", "> mend", EDIT, COMMIT, "done")
    times = [turn.timestamp for turn in session.turns if turn.tool_results]

    assert edits_of(session, "/shop").until == times[1] > times[0]


class TestInTheIndex:
    def test_outcome_and_edits_are_kept_and_go_with_the_session(self, store, read):
        document, _ = document_of(read("claude", "> mend", EDIT, COMMIT, "done"), READERS)
        store.save(reading_of(document.session), document)
        row = store.session("claude", document.session.session_id)

        assert row.outcome is Outcome.COMMITTED
        assert store.edits([row.row]) == {row.row: document.edits}

        store.forget_session("claude", row.session_id)

        assert store.db.execute("SELECT count(*) FROM edits").get == 0

    def test_edits_that_are_no_more_leave_the_index(self, store, read):
        document, _ = document_of(read("claude", "> mend", EDIT, "done"), READERS)
        store.save(reading_of(document.session), document)
        save(store, session_of("mend", "no", session_id=document.session.session_id))

        assert store.db.execute("SELECT count(*) FROM edits").get == 0

    def test_what_a_damaged_index_says_of_an_outcome_is_not_known(self, store):
        save(store, session_of("mend", "done"))
        store.db.execute("UPDATE sessions SET outcome = 'nonsense'")

        assert store.session("claude", "s1").outcome is Outcome.UNKNOWN


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_what_a_session_worked_on_is_its_files_and_the_names_that_it_wrote(read, agent):
    patch = "*** Begin Patch\n*** Update File: src/a.py\n+def retryUpload(): pass\n*** End Patch"
    edit = {"file_path": "src/a.py", "old_string": "", "new_string": "def retryUpload(): pass"}
    edited = Did("apply_patch", patch) if agent == "codex" else Did("Edit", edit)
    ran = ("exec_command", {"cmd": "make check_all"}) if agent == "codex" else ("Bash", {"command": "make check_all"})
    steps = (edited, Did(*ran, "shown_only ok"))
    words = document_of(read(agent, "> mend it", *steps, "seenInTalk"), READERS)[0].words

    assert words.work.split() == ["src/a.py", "retryUpload", "check_all"]
    assert {"retryUpload", "check_all", "shown_only"} <= set(words.symbols.split())


def test_what_was_read_and_edited_is_known_the_most_edited_first():
    calls = (
        ToolCall("1", "Read", reads=("a.py", "/shop/b.py")),
        ToolCall("2", "Edit", edits=("c.py",)),
        ToolCall("3", "Edit", edits=("/shop/b.py",)),
        ToolCall("4", "Edit", edits=("b.py",)),
        ToolCall("5", "Read", reads=("failed.py",)),
        ToolCall("6", "Read", reads=("unanswered.py",)),
    )
    results = tuple(ToolResult(call.id, call.id == "5") for call in calls[:5])
    turns = tuple(
        Turn(f"t{number}", None, "assistant", f"2026-01-0{number + 1}T00:00:00Z", **more)
        for number, more in enumerate(({"tool_calls": calls}, {"tool_results": results}, {"text": "Done."}))
    )
    session = Session("claude", "s", Path("log"), turns, "/shop", last_activity="2026-02-01T00:00:00Z")

    known = known_files(session, "/shop")

    assert list(known.edits.items()) == [("/shop/b.py", 2), ("/shop/c.py", 1), ("/shop/a.py", 0)]
    assert known.until == "2026-02-01T00:00:00Z"
    assert known_files(session, "/shop", 0) == KnownFiles({}, "2026-01-01T00:00:00Z")
    assert known_files(session, "/shop", 1) == KnownFiles(known.edits, "2026-01-02T00:00:00Z")
