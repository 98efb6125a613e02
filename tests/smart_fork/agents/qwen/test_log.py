"""Tests of reading Qwen Code's sessions, from logs written by version 0.24.4 and from records in its form."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from indexer.transcripts.model import Proof, Session
from smart_fork.agents import AGENTS
from smart_fork.agents.qwen.log_files import QwenAdapter
from tests.indexer.transcripts.records import (
    CWD,
    FIXTURES,
    SESSION,
    actions,
    answering,
    calling,
    id_of,
    linked,
    notes,
    prompts,
    qwen_log,
    read_qwen,
    texts,
)

ONE = id_of(1)


def fixture(home: Path, name: str) -> Path:
    source = FIXTURES / f"qwen/{name}.jsonl"
    session = json.loads(source.read_text().splitlines()[0])["sessionId"]
    path = home / f".qwen/projects/-home-ada-shop/chats/{session}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, path)
    return path


def conversation(*records: object, home: Path) -> Session:
    return read_qwen(qwen_log(home, *records))


ZEBRA = ["Please remember zebra", "zebra it is"]
STEERED = ["SLEEP 4 take your time", "Noted:", "and hurry", "Noted: and hurry"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("person", [*ZEBRA, *STEERED]),
        ("print", ["Summarise the repository", "Noted: Summarise the repository"]),
        ("fork", [*ZEBRA, *STEERED, "Go on there", "Noted: Go on there"]),
        ("compressed", ["Describe the uploader", "Noted: Describe the uploader", "Where are the tests", "Noted: Where are the tests"]),
        ("rewound-idle", ["Name the parts", "Noted: Name the parts"]),
        ("rewound", ["Name the parts", "Noted: Name the parts", "Rename the second part", "Noted: Rename the second part"]),
    ],
)  # fmt: skip
def test_what_qwen_code_wrote_down_is_said_once_and_in_order(home, name, said):
    session = read_qwen(fixture(home, name))

    assert texts(session) == said
    assert prompts(session) == said[::2]
    assert (session.cwd, session.git_branch, session.version) == ("/home/ada/shop", "main", "0.24.4")
    asked = said[-2] if name == "fork" else said[0]
    assert (session.title, session.origin, session.copied) == (asked, "person", False)


def test_a_fork_names_its_parent_and_shares_its_beginning(home):
    person, fork = read_qwen(fixture(home, "person")), read_qwen(fixture(home, "fork"))

    assert (fork.parent_id, fork.root_id) == (person.session_id, person.root_id)
    assert [turn.id for turn in fork.turns[: len(person.turns)]] == [turn.id for turn in person.turns]
    assert person.parent_id is None


def test_the_tools_are_described_with_what_came_of_them(home):
    session = read_qwen(fixture(home, "tools"))

    assert actions(session) == [
        "read /home/ada/shop/README.md",
        "edit /home/ada/shop/uploader.py",
        "run git add . && git commit -m Retry",
        'run python3 -c "import sys; print(5); sys.exit(3)"; pytest -q',
        "agent look",
    ]
    assert [note for note in notes(session) if note] == ["exit 127: 5"]
    results = [result for turn in session.turns for result in turn.tool_results]
    assert [result.proof for result in results if result.proof] == [Proof.COMMITTED]
    assert [call.edits for turn in session.turns for call in turn.tool_calls if call.edits] == [
        ("/home/ada/shop/uploader.py",)
    ]


def test_what_a_background_agent_reports_was_asked_by_nobody(home):
    session = read_qwen(fixture(home, "tools"))

    assert "count the files" not in " ".join(text for text in texts(session) if not text.startswith("Ask another"))
    assert prompts(session)[-1].startswith("Ask another")
    assert [turn.text for turn in session.turns if turn.role == "system"] == [""]


def test_a_sub_agents_own_file_is_no_session(home):
    path = fixture(home, "subagent")

    assert QwenAdapter().read(path).skipped == "only sub-agent records"


def test_what_a_compaction_left_is_what_is_loaded(home):
    session = read_qwen(fixture(home, "compressed"))

    assert session.compactions == 1
    assert session.loads() == (6, 9090, 7336, 7341, 9254)


def test_a_call_that_the_person_did_not_allow_proves_nothing(home):
    session = conversation(
        linked("user", "u1", None, "commit"),
        linked("assistant", "a1", "u1", calling("c", "run_shell_command", command="git commit -m x")),
        linked("tool_result", "r1", "a1", answering("c", "run_shell_command", error="[Operation Cancelled] Reason: x")),
        home=home,
    )

    (result,) = session.turns[-1].tool_results
    assert (result.is_error, result.proof, session.unfinished) == (True, Proof.NOTHING, True)
    assert read_qwen(fixture(home, "declined")).turns[2].tool_results[0].note.startswith("[Operation Cancelled]")


def test_a_session_ends_in_the_middle_while_it_asks(home):
    assert read_qwen(fixture(home, "asking")).unfinished
    assert not read_qwen(fixture(home, "person")).unfinished


def test_after_a_rewinding_nothing_of_what_it_left_is_remembered(home):
    """Cases include a rewind to before the first message, and a session without a message after the rewind."""
    records = [
        linked("user", "u1", None, "one"),
        linked("assistant", "a1", "u1", "first"),
        linked("user", "u2", "a1", "two"),
        linked("system", "w", None, subtype="rewind"),
    ]
    assert QwenAdapter().read(qwen_log(home, *records)).skipped == "it has no prompt"

    session = conversation(*records, linked("user", "u3", "w", "three"), home=home)

    assert texts(session) == ["three"]


def test_what_stands_before_a_missing_record_is_forgotten(home):
    session = conversation(
        linked("user", "u1", None, "one"),
        linked("assistant", "a1", "gone", "first"),
        linked("user", "u2", "a1", "two"),
        home=home,
    )

    assert texts(session) == ["first", "two"]


def test_system_records_are_links_and_never_said(home):
    session = conversation(
        linked("user", "u1", None, "one"),
        linked("system", "s1", "u1", subtype="ui_telemetry", systemPayload={"uiEvent": {"response_text": "twice"}}),
        linked("system", "s2", "s1", subtype="slash_command", systemPayload={"rawCommand": "/compress"}),
        linked("assistant", "a1", "s2", "first"),
        home=home,
    )

    assert texts(session) == ["one", "first"]


@pytest.mark.parametrize(
    "more",
    [
        {"subtype": "notification", "provenance": "system"},
        {"subtype": "cron", "provenance": "system"},
        {"subtype": "goal_runtime", "provenance": "goal_runtime"},
        {"provenance": "system"},
    ],
)
def test_what_qwen_code_asks_by_itself_is_no_prompt(home, more):
    session = conversation(
        linked("user", "u1", None, "one"),
        linked("user", "n1", "u1", "by itself", **more),
        linked("assistant", "a1", "n1", "first"),
        home=home,
    )

    assert (texts(session), prompts(session)) == (["one", "first"], ["one"])


def test_a_persons_words_are_those_that_were_shown(home):
    """Hooks add text to the message."""
    session = conversation(
        linked("user", "u1", None, "one", "context of a hook", systemPayload={"displayText": "one"}),
        home=home,
    )

    assert texts(session) == ["one"]


def test_thoughts_are_not_said(home):
    session = conversation(
        linked("user", "u1", None, "one"),
        linked("assistant", "a1", "u1", {"text": "hm", "thought": True}, "first"),
        home=home,
    )

    assert texts(session) == ["one", "first"]


def test_a_session_is_called_as_it_was_named_and_found_by_its_other_names(home):
    titles = [("Uploader", "manual"), ("Retries", "manual"), ("About retries", "auto")]
    session = conversation(
        linked("user", "u1", None, "one"),
        *(
            linked("system", f"s{n}", "u1", subtype="custom_title", systemPayload={"customTitle": t, "titleSource": by})
            for n, (t, by) in enumerate(titles)
        ),
        home=home,
    )

    assert (session.title, session.named) == ("Retries", True)
    assert session.also_called.splitlines() == ["Uploader", "About retries"]


def test_a_glance_knows_the_name_that_stands_at_the_end(home):
    long = [linked("system", f"s{n}", f"s{n - 1}", subtype="ui_telemetry", pad="x" * 4000) for n in range(1, 90)]
    path = qwen_log(
        home,
        linked("user", "s0", None, "one"),
        *long,
        linked("system", "t", "s89", subtype="custom_title", systemPayload={"customTitle": "Uploader"}),
    )

    glanced = QwenAdapter().glance(path)

    assert glanced is not None
    assert (glanced.title, glanced.cwd) == ("Uploader", CWD)


def test_a_session_that_another_one_began_is_not_a_persons(home):
    session = conversation(
        linked("system", "s1", None, subtype="parent_session"), linked("user", "u1", "s1", "one"), home=home
    )

    assert session.origin == "subagent"


def test_only_what_is_in_a_projects_chats_is_found(home):
    path = qwen_log(home, linked("user", "u1", None, "one"))
    project = path.parent.parent
    for other in ("", "memory", "chats/old", "subagents/archive", f"subagents/{SESSION}"):
        (project / other).mkdir(parents=True, exist_ok=True)
        shutil.copy(path, project / other / f"{ONE}.jsonl")

    reader = QwenAdapter()

    assert [file.path for file in reader.discover()] == [path]
    assert (reader.locate(SESSION), reader.locate(ONE)) == ((path,), ())
    assert reader.log_at(str(path)) is not None
    assert reader.log_at(str(project / f"{ONE}.jsonl")) is None
    assert reader.log_at(str(project / "chats/old" / f"{ONE}.jsonl")) is None


def test_what_was_put_away_is_found_and_comes_back_where_qwen_code_looks(home):
    path = qwen_log(home, linked("user", "u1", None, "one"))
    archived = path.parent / "archive" / path.name
    archived.parent.mkdir()
    path.rename(archived)

    reader = QwenAdapter()

    assert [file.path for file in reader.discover()] == [archived]
    assert reader.locate(SESSION) == (archived,)
    assert reader.log_at(str(archived)) is not None
    place = str(archived.relative_to(home / ".qwen"))
    assert str(path) == str(home / ".qwen" / AGENTS["qwen"].storage.restored(place, SESSION))


@pytest.mark.parametrize(
    ("named", "folder"), [("{}/else", "else"), ("~/else", "else"), ("else", ".qwen"), ("", ".qwen")]
)
def test_its_sessions_may_be_elsewhere_than_its_settings(home, monkeypatch, named, folder):
    monkeypatch.setenv("QWEN_RUNTIME_DIR", named.format(home))

    assert home / folder / "projects" == QwenAdapter().projects
    assert home / ".qwen/settings.json" == AGENTS["qwen"].hooks.path()


def test_its_folder_may_be_elsewhere(home, monkeypatch):
    monkeypatch.setenv("QWEN_HOME", str(home / "else"))

    assert QwenAdapter().home() == home / "else"


def test_a_copy_in_another_projects_folder_is_known_as_one(home):
    records = [linked("user", "u1", None, "one")]
    own, copy = qwen_log(home, *records), qwen_log(home, *records, cwd="/srv/shop-w1")

    reader = QwenAdapter()

    assert [reader.is_copy(path) for path in (own, copy)] == [False, True]
    assert read_qwen(copy).cwd == CWD


@pytest.mark.parametrize(
    ("directory", "name"), [("/srv/my.shop_1", "-srv-my-shop-1"), ("/srv/ü", "-srv--"), ("/srv/😀", "-srv---")]
)
def test_a_projects_folder_is_named_as_qwen_code_names_it(home, directory, name):
    assert QwenAdapter().place_of(directory) == f"{home}/.qwen/projects/{name}"
