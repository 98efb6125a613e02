import json
import stat
import subprocess
from datetime import UTC, datetime, timedelta

import pytest

from indexer.masking import mask
from indexer.project import project_of
from smart_fork.agents.claude.log_files import ClaudeAdapter, slug
from smart_fork.agents.codex.log_files import CodexAdapter
from smart_fork.cli.demo import run_git, write_demo_home
from smart_fork.errors import ProgramFailed, ProgramMissing
from tests.demo_logs import session_id

NOW = datetime(2026, 3, 9, 17, 30, tzinfo=UTC)
#: The repository and the branch of each session.
SESSIONS = {
    "retries": ("parcel", "retry-uploads"),
    "spreadsheet": ("parcel", "main"),
    "spreadsheet-fork": ("parcel", "main"),
    "review": ("parcel", "main"),
    "settings": ("parcel", "main"),
    "settings-fork": ("parcel", "main"),
    "flaky-login": ("harbor", "main"),
    "leak": ("harbor", "fix/leak"),
    "ci-cache": ("harbor", "main"),
    "migration": ("harbor", "search-index"),
}
#: How ids end that begin with a time.
CODEX = {
    "d039599d2e2a": "settings",
    "fcc3c7019f4c": "settings-fork",
    "4d9d4b94a6c2": "ci-cache",
    "92e46fcd8a7e": "migration",
}
FORKS = {"spreadsheet-fork", "settings-fork"}


def live_in(written, patch):
    patch.setenv("CLAUDE_CONFIG_DIR", str(written.home / ".claude"))
    patch.setenv("CODEX_HOME", str(written.home / ".codex"))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A home that all tests here look at."""
    return write_demo_home(tmp_path_factory.mktemp("demo") / "demo", now=NOW)


@pytest.fixture(scope="module")
def found(written):
    with pytest.MonkeyPatch.context() as patch:
        live_in(written, patch)
        return read_all()


@pytest.fixture
def demo(written, monkeypatch):
    live_in(written, monkeypatch)
    return written


@pytest.fixture
def sessions(demo, found):
    """Every session that a reader finds, by its name."""
    return found


def read_all():
    found = {}
    for adapter in (ClaudeAdapter(), CodexAdapter()):
        for file in adapter.discover():
            result = adapter.read(file.path)
            assert () == result.broken
            assert result.session is not None, result.skipped
            found[name_of(result.session)] = result.session
    return found


def name_of(session):
    if session.agent == "claude":
        return next(name for name in SESSIONS if session_id(name) == session.session_id)
    return CODEX[session.session_id[-12:]]


def records_of(session):
    return [json.loads(line) for line in session.source_path.read_text("utf-8").splitlines()]


def git(folder, *arguments):
    return subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def test_every_scripted_session_is_read_and_nothing_else(demo, sessions):
    found = [file.path for adapter in (ClaudeAdapter(), CodexAdapter()) for file in adapter.discover()]
    assert sorted(found) == sorted(session.source_path for session in sessions.values())
    assert [6, 4] == [sum(s.agent == agent for s in sessions.values()) for agent in ("claude", "codex")]


def test_going_on_in_a_session_only_adds_to_what_it_loads(sessions):
    for session in sessions.values():
        loads = [tokens for turn, tokens in zip(session.turns, session.loads(), strict=True) if turn.loaded]
        assert loads == sorted(loads), session.title


def test_two_repositories_are_real_ones_with_the_commits_of_their_sessions_and_nothing_to_commit(demo):
    assert ["parcel", "harbor"] == [folder.name for folder in demo.repositories]
    for folder in demo.repositories:
        assert project_of(folder).git
        assert "main" == git(folder, "branch", "--show-current")
        assert [f"Start {folder.name}"] == git(folder, "log", "--format=%s", "--max-parents=0").splitlines()
        times = [int(one) for one in git(folder, "log", "--format=%ct", "--reverse").splitlines()]
        assert sorted(times) == times
        assert len(times) > 4
        assert times[-1] < NOW.timestamp()
        assert "" == git(folder, "status", "--porcelain")


def test_each_session_is_of_a_repository_and_says_so_in_its_folders_name(demo, sessions):
    folders = {folder.name: str(folder) for folder in demo.repositories}
    assert SESSIONS.keys() == sessions.keys()
    for name, (repository, branch) in SESSIONS.items():
        session = sessions[name]
        assert (folders[repository], branch) == (session.cwd, session.git_branch)
        if session.agent == "claude":
            assert slug(session.cwd) == session.source_path.parent.name


def test_the_expected_answer_is_a_session_of_the_project_mostly_in_other_words(demo, sessions):
    answer = sessions["retries"]
    assert demo.expected_session_id == answer.session_id
    assert str(demo.project) == answer.cwd
    said = " ".join(turn.text for turn in answer.turns).lower()
    for word in ("downloader", "shaky", "network"):
        assert word in demo.intent
        assert word not in said


def test_sessions_have_several_exchanges_actions_and_commands_that_failed(sessions):
    for name in SESSIONS.keys() - FORKS:
        turns = sessions[name].turns
        assert any(turn.tool_calls for turn in turns)
        assert name == "review" or 3 <= sum(bool(turn.prompt) for turn in turns) <= 8
    failed = {
        name for name, session in sessions.items() if any(r.is_error for t in session.turns for r in t.tool_results)
    }
    assert {"retries", "spreadsheet", "settings", "flaky-login", "leak", "ci-cache", "migration"} <= failed


def test_every_answer_is_finished_so_that_it_can_be_gone_on_with(sessions):
    for session in sessions.values():
        turn = session.turns[-1]
        assert "assistant" == turn.role
        assert turn.text


def test_actions_are_told_by_file_command_and_exit_status(sessions):
    for name, edit, run, note in (
        ("retries", "parcel/retry.py", "run pytest -q tests/test_retry.py", "exit 1: F.."),
        (
            "migration",
            "edit db/migrate.ts",
            "run npm run migrate -- --dry-run",
            "exit 1: ERROR: CREATE INDEX CONCURRENTLY",
        ),
    ):
        turns = sessions[name].turns
        actions = [call.action for turn in turns for call in turn.tool_calls]
        assert any(action.startswith("edit ") and action.endswith(edit.removeprefix("edit ")) for action in actions)
        assert run in actions
        assert any(result.note.startswith(note) for turn in turns for result in turn.tool_results)


def test_every_call_has_its_result(sessions):
    for session in sessions.values():
        calls = [call.id for turn in session.turns for call in turn.tool_calls]
        assert len(calls) == len(set(calls))
        assert calls == [result.tool_use_id for turn in session.turns for result in turn.tool_results]


def test_what_was_taken_back_is_in_the_log_but_not_in_the_conversation(sessions):
    session = sessions["flaky-login"]
    taken_back = "Just let the test retry three times, we need the build green today."
    assert taken_back in [record["message"]["content"] for record in records_of(session) if record["type"] == "user"]
    assert taken_back not in [turn.text for turn in session.turns]


def test_a_claude_fork_shares_its_parents_records_but_for_the_session_id(sessions):
    parent, fork = (records_of(sessions[name]) for name in ("spreadsheet", "spreadsheet-fork"))
    inherited = [record for record in parent if "uuid" in record]
    taken_over = [record for record in fork if "uuid" in record][: len(inherited)]
    own = sessions["spreadsheet-fork"].session_id
    assert own != sessions["spreadsheet"].session_id
    assert [record | {"sessionId": own} for record in inherited] == taken_over
    assert not any("forkedFrom" in record for record in fork)
    assert sessions["spreadsheet"].root_id == sessions["spreadsheet-fork"].root_id
    assert len(sessions["spreadsheet"].turns) < len(sessions["spreadsheet-fork"].turns)


def test_a_codex_fork_holds_only_what_came_after_and_is_read_with_its_parent(sessions):
    parent, fork = sessions["settings"], sessions["settings-fork"]
    before, after = records_of(parent), records_of(fork)
    assert list(range(len(before))) == [record["ordinal"] for record in before]
    assert list(range(len(before), len(before) + len(after))) == [record["ordinal"] for record in after]
    base = after[0]["payload"]["history_base"]
    assert parent.source_path.stat().st_size == base["end_byte_offset"]
    assert (parent.session_id, parent.session_id) == (fork.parent_id, base["thread_id"])
    prompts = [turn.text for turn in fork.turns if turn.prompt]
    assert prompts[:3] == [turn.text for turn in parent.turns if turn.prompt]
    assert 5 == len(prompts)
    assert parent.root_id == fork.root_id


def test_codex_sessions_that_share_nothing_have_the_older_form(sessions):
    for name in ("ci-cache", "migration"):
        records = records_of(sessions[name])
        assert not any("ordinal" in record for record in records)
        kinds = [record["payload"].get("type") for record in records if record["type"] == "event_msg"]
        assert {"user_message", "agent_message", "token_count", "task_complete"} <= set(kinds)


def test_the_sub_agents_file_lies_beside_its_session_and_is_not_one(demo, sessions):
    leak = sessions["leak"]
    [file] = (leak.source_path.with_suffix("") / "subagents").iterdir()
    records = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    assert file.name == f"agent-{records[0]['agentId']}.jsonl"
    assert all(record["isSidechain"] and record["sessionId"] == leak.session_id for record in records)
    assert ClaudeAdapter().read(file).session is None


def test_only_the_automated_session_was_not_started_by_a_person(sessions):
    assert {"review"} == {name for name, session in sessions.items() if session.origin != "person"}
    assert {"sdk-cli"} == {record["entrypoint"] for record in records_of(sessions["review"]) if "entrypoint" in record}


def test_claude_records_form_one_chain_to_the_leaf(sessions):
    for session in sessions.values():
        if session.agent == "codex":
            continue
        records = records_of(session)
        chained = [record for record in records if "uuid" in record]
        known = {record["uuid"] for record in chained}
        assert len(chained) == len(known)
        assert [None] == [record["parentUuid"] for record in chained if record["parentUuid"] not in known]
        assert records[-1]["leafUuid"] == chained[-1]["uuid"]
        assert {session.session_id} == {record["sessionId"] for record in records if "sessionId" in record}


def test_dates_are_recent_in_order_and_those_of_the_files(sessions):
    for session in sessions.values():
        last = datetime.fromisoformat(session.last_activity)
        assert NOW - timedelta(days=21) < datetime.fromisoformat(session.started) <= last < NOW
        assert abs(session.source_path.stat().st_mtime - last.timestamp()) < 1
        stamps = [record["timestamp"] for record in records_of(session) if "timestamp" in record]
        assert sorted(stamps) == stamps


def test_logs_are_for_their_owner_alone(sessions):
    assert {0o600} == {stat.S_IMODE(session.source_path.stat().st_mode) for session in sessions.values()}


def test_the_same_now_gives_the_same_home(demo, home):
    def contents(folder):
        return {path.name: path.read_text("utf-8") for path in folder.rglob("*.jsonl")}

    def nowhere(arguments, *_):
        return "0" * 40 if arguments[0] == "rev-parse" else ""

    first, second = (write_demo_home(home / "x", now=NOW, git=nowhere) for _ in range(2))
    assert first == second
    assert contents(demo.home).keys() == contents(first.home).keys()
    once = contents(first.home)
    write_demo_home(home / "x", now=NOW, git=nowhere)
    assert once == contents(first.home)


def test_without_a_date_the_sessions_are_of_the_last_weeks(home):
    written = write_demo_home(home / "demo", git=lambda *_: "")
    newest = max(path.stat().st_mtime for path in written.home.rglob("*.jsonl"))
    assert 0 < datetime.now(UTC).timestamp() - newest < 3 * 24 * 3600


def test_nothing_in_the_demo_looks_like_a_secret(demo):
    for path in demo.home.rglob("*.jsonl"):
        text = path.read_text("utf-8")
        assert text == mask(text)


def test_git_is_deaf_to_the_settings_of_whoever_runs_it(home, monkeypatch):
    (home / ".gitconfig").write_text("[commit]\n\tgpgsign = true\n[init]\n\tdefaultBranch = odd\n")
    monkeypatch.delenv("GIT_CONFIG_GLOBAL")
    monkeypatch.setenv("GIT_DIR", str(home / "elsewhere"))
    written = write_demo_home(home / "demo", now=NOW)
    assert all((folder / ".git").is_dir() for folder in written.repositories)
    assert not (home / "elsewhere").exists()


def test_a_git_that_fails_or_is_missing_says_so(home, monkeypatch):
    with pytest.raises(ProgramFailed, match="git rev-parse failed"):
        run_git(["rev-parse", "--verify", "nothing"], home)
    monkeypatch.setenv("PATH", str(home / "nothing"))
    with pytest.raises(ProgramMissing):
        run_git(["--version"], home)


def test_a_home_with_an_odd_name_has_sound_logs(home, monkeypatch):
    written = write_demo_home(home / 'say "hi" \\ \u00e9', now=NOW)
    live_in(written, monkeypatch)
    found = read_all()
    assert SESSIONS.keys() == found.keys()
    assert {str(folder) for folder in written.repositories} == {session.cwd for session in found.values()}
    base = records_of(found["settings-fork"])[0]["payload"]["history_base"]
    assert found["settings"].source_path.stat().st_size == base["end_byte_offset"]
    [command] = [
        json.loads(record["payload"]["arguments"])
        for record in records_of(found["migration"])
        if "--dry-run" in record["payload"].get("arguments", "")
    ]
    assert found["migration"].cwd == command["workdir"]
