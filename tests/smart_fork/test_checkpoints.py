"""Sessions that a repository keeps as checkpoints are sessions of their authors: found, listed, shown and forked."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from smart_fork.agents import repository_session_sources, repository_sessions
from smart_fork.agents.log_readers import OWN, READERS
from smart_fork.agents.request_fields import Options
from smart_fork.errors import ForkRefused
from smart_fork.finding import session_lookup
from smart_fork.finding.index_refresh import Engine
from smart_fork.finding.request import FindRequest
from smart_fork.forking.plan import fork_session
from smart_fork.forking.request import ForkRequest
from smart_fork.forking.results import NotSpawned
from smart_fork.forking.resume import newest_session
from smart_fork.forking.source_sessions import is_others
from smart_fork.forking.spawn import spawn
from smart_fork.sharing import local_logs
from smart_fork.system.processes import Machine
from tests.indexer.transcripts.records import FIXTURES
from tests.smart_fork.checkpoint_repository import THERE, Entry, claude, commit, frozen, jsonl, session
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.forks import FakeClock, FakeProcesses, choosing
from tests.smart_fork.searches import find_and_fork
from tests.smart_fork.world import World, git
from tests.support.cases import thorough_except_first

RETRY = "add retry with backoff to the uploader"
DONE = "The uploader retries five times"
ALICES = "60309e1e-0000-4000-8000-0000000000a1"
SECOND = "70309e1e-0000-4000-8000-0000000000a2"


@pytest.fixture
def kept(world: World, shop: Path) -> Path:
    """A clone with one checkpoint of Alice's."""
    commit(shop, "a1b2c3d4e5f6", session(ALICES, claude(world, ALICES, RETRY, DONE)), session_id=ALICES)
    return shop


def test_it_is_found_as_its_authors_and_works_here(kept, world):
    found = world.find(RETRY, kept)

    (hit,) = found["results"]
    assert (ALICES, "Alice", str(kept)) == (hit["session_id"], hit["author"], hit["working_directory"])
    assert f"smart-fork fork {ALICES}" == hit["fork_command"]
    assert "written by others (Alice)" in found["notice"]


def test_it_is_listed_before_and_after_it_is_indexed(kept, world, run):  # noqa: F811
    for title in ("add retry", RETRY):
        (one,) = json.loads(run("list", "--json").out)["sessions"]
        assert (ALICES, "Alice", title) == (one["session_id"], one["author"], one["title"])
        assert "(shared by Alice)" in run("list").out
        world.find(RETRY, kept)


def test_it_is_shown_as_its_authors(kept, run):  # noqa: F811
    run("list")
    shown = json.loads(run("show", ALICES[:8], "--json").out)

    assert ("Alice", [RETRY, DONE]) == (shown["owner"], [one["text"] for one in shown["messages"]])
    assert "written by others (Alice)" in shown["notice"]


def test_where_no_ref_has_moved_git_is_not_asked(kept, world, monkeypatch):
    world.find(RETRY, kept)

    def refused(*_, **__):
        raise AssertionError("git was asked")

    monkeypatch.setattr(repository_session_sources, "_git", refused)
    assert [ALICES] == world.ids(RETRY, kept)


@pytest.mark.thorough
def test_a_session_in_several_checkpoints_is_one_in_its_newest_form(kept, world):
    longer = claude(world, ALICES, RETRY, DONE, "and a jitter", "A tenth of jitter was added")
    commit(kept, "b1b2c3d4e5f6", session(ALICES, longer, created="2026-01-03T03:04:05Z"), session_id=ALICES)
    older = claude(world, ALICES, RETRY, "Half of it is there")
    commit(kept, "c1b2c3d4e5f6", session(ALICES, older, created="2026-01-01T03:04:05Z"), session_id=ALICES)

    (hit,) = world.find("jitter", kept)["results"]
    assert (ALICES, 2) == (hit["session_id"], hit["turns"] // 2)


@pytest.mark.slow
def test_a_branch_that_moves_is_noticed_and_what_it_has_no_more_is_gone(kept, world, home):
    assert [ALICES] == world.ids(RETRY, kept)
    commit(kept, "b1b2c3d4e5f6", session(SECOND, claude(world, SECOND, "paginate the list", "It has pages")))
    assert SECOND in world.ids("paginate the list", kept)

    commit(kept, "a1b2c3d4e5f6", [], remove="a1/b2c3d4e5f6")
    assert [SECOND] == world.ids(RETRY, kept)
    assert [f"{SECOND}.md"] == [path.name for path in (home / ".smart-fork/index/claude").iterdir()]
    git(kept, "update-ref", "-d", "refs/heads/entire/checkpoints/v1")
    assert [] == world.ids(RETRY, kept)


@pytest.mark.thorough
def test_one_that_is_among_the_persons_own_is_theirs(kept, world):
    assert [ALICES] == world.ids(RETRY, kept)
    world.claude(kept, "my own words about retry", DONE, session_id=ALICES)

    os.utime(world.log_of(ALICES), (1.7e9, 1.7e9))
    newer = claude(world, ALICES, RETRY, DONE, "and a jitter", "A tenth of jitter was added")
    commit(kept, "b1b2c3d4e5f6", session(ALICES, newer, created="2026-01-03T03:04:05Z"))

    (hit,) = world.find("my own words about retry", kept)["results"]
    assert "author" not in hit
    assert ".claude" in hit["jsonl_path"]


@pytest.mark.thorough
def test_what_a_person_forgot_does_not_come_back(kept, world, run):  # noqa: F811
    assert [ALICES] == world.ids(RETRY, kept)
    assert 0 == run("forget", ALICES, "--yes").code
    assert [] == world.ids(RETRY, kept)
    longer = claude(world, ALICES, RETRY, DONE, "and a jitter", "A tenth of jitter was added")
    commit(kept, "b1b2c3d4e5f6", session(ALICES, longer, created="2026-01-03T03:04:05Z"))

    assert [] == world.ids(RETRY, kept)
    assert [] == json.loads(run("list", "--json").out)["sessions"]


def test_one_setting_switches_it_off(kept, world, monkeypatch):
    assert [ALICES] == world.ids(RETRY, kept)
    monkeypatch.setenv("SMART_FORK_CHECKPOINTS", "false")
    assert [] == world.ids(RETRY, kept)
    monkeypatch.delenv("SMART_FORK_CHECKPOINTS")
    assert [ALICES] == world.ids(RETRY, kept)


@pytest.mark.parametrize(
    "ref",
    [
        "refs/remotes/upstream/entire/checkpoints/v1",
        "refs/entire/checkpoints/v1.1",
        "refs/entire/remotes/origin/checkpoints/v1.1",
        "refs/entire/checkpoints/f6/a1b2c3d4e5f6",
        "refs/entire/checkpoints/ZN/01KVBJCWYA4YW6J5M9GP655HZN",
    ],
)
@pytest.mark.parametrize("packed", thorough_except_first([False, True]))
def test_each_form_of_the_refs_is_read(ref, packed, world, shop):
    name = ref.rpartition("/")[2]
    commit(
        shop, name if "v1" not in name else "a1b2c3d4e5f6", session(ALICES, claude(world, ALICES, RETRY, DONE)), ref=ref
    )
    if packed:
        git(shop, "pack-refs", "--all")

    (hit,) = world.find(RETRY, shop)["results"]
    assert (ALICES, "Alice") == (hit["session_id"], hit["author"])


def test_a_transcript_in_parts_is_put_together(world, shop):
    first, second = claude(world, ALICES, RETRY, DONE).splitlines()
    (facts, _, prompt) = session(ALICES, b"")
    parts = [Entry("0/full.jsonl", first), Entry("0/full.jsonl.001", second)]
    commit(shop, "a1b2c3d4e5f6", [facts, prompt, *parts])

    (hit,) = world.find(RETRY, shop)["results"]
    assert 2 == hit["turns"]


@pytest.mark.parametrize(
    "source",
    thorough_except_first(
        [{"subagent": "review"}, {"subagent": {"other": "guardian"}}, {"subagent": {"thread_spawn": {"depth": 1}}}]
    ),
)
def test_a_sub_agent_of_codex_is_hidden_as_at_home_before_and_after_it_is_indexed(world, shop, run, source):  # noqa: F811
    session_id = world.codex(THERE, RETRY, DONE)
    log = world.log_of(session_id)
    records = [json.loads(line) for line in log.read_text().splitlines()]
    records[0]["payload"]["source"] = source
    log.unlink()
    commit(shop, "a1b2c3d4e5f6", session(session_id, jsonl(records), agent="Codex"), session_id=session_id)

    assert [] == json.loads(run("list", "--json").out)["sessions"]
    assert [] == world.find(RETRY, shop)["results"]
    assert [] == json.loads(run("list", "--json").out)["sessions"]


def test_a_session_of_codex_is_found(world, shop):
    session_id = world.codex(THERE, RETRY, DONE)
    log = world.log_of(session_id)
    data = log.read_bytes()
    log.unlink()
    commit(shop, "a1b2c3d4e5f6", session(session_id, data, agent="Codex"))

    (hit,) = world.find(RETRY, shop)["results"]
    assert (session_id, "codex", str(shop)) == (hit["session_id"], hit["agent_type"], hit["working_directory"])


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("title", "log"),
    [
        ("Codex", "codex/person.jsonl"),
        ("GitHub Copilot CLI", "copilot/tools.jsonl"),
        ("Gemini CLI", "gemini/person.jsonl"),
        ("Qwen Code", "qwen/person.jsonl"),
    ],
)
def test_logs_of_each_agent_are_read(title, log, world, shop, tmp_path):
    agent = Path(log).parent.name
    own = tmp_path / "x" / ("events.jsonl" if agent == "copilot" else Path(log).name)
    own.parent.mkdir()
    shutil.copy(FIXTURES / log, own)
    known = OWN[agent].read(own).session
    commit(shop, "a1b2c3d4e5f6", session(known.session_id, own.read_bytes(), agent=title))
    repository_sessions.note(shop)

    (file,) = READERS[agent].discover()
    read = READERS[agent].read(file.path).session
    assert (known.session_id, str(shop)) == (read.session_id, read.cwd)
    prompts = [turn.text for turn in known.turns if turn.prompt]
    assert len(prompts) == sum(turn.prompt for turn in read.turns) > 0


def test_paths_of_its_edits_are_this_clones(world, shop):
    edit = {"file_path": f"{THERE}/src/upload.py", "old_string": "a", "new_string": "b"}
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "Edit", "input": edit}]}
    records = world.claude_records(ALICES, f"{THERE}/src", RETRY, DONE)
    records[1]["message"] = call
    back = world.claude_records(ALICES, f"{THERE}/src", "x", "Done in /Users/alice/notes")
    back[0] |= {"parentUuid": records[1]["uuid"]}
    back[0]["message"]["content"] = [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok"}]
    commit(shop, "a1b2c3d4e5f6", session(ALICES, jsonl([*records, *back]), files_touched=["src/upload.py"]))
    repository_sessions.note(shop)

    read = session_lookup.read(session_lookup.locate(ALICES))
    assert [str(shop / "src/upload.py")] == [
        path for turn in read.turns for one in turn.tool_calls for path in one.edits
    ]
    assert (str(shop / "src"), f"Done in {Path.home()}/notes") == (read.cwd, read.turns[-1].text)


def test_nothing_is_written_into_the_repository(kept, world, run):  # noqa: F811
    before = frozen(kept)
    world.find(RETRY, kept)
    run("list")
    run("show", ALICES)

    assert before == frozen(kept)
    assert 1 == len(list(READERS["claude"].discover()))


def test_a_clone_that_has_not_fetched_them_says_how(kept, world, run, home, monkeypatch):  # noqa: F811
    (kept / ".entire").mkdir()
    (kept / ".entire/settings.json").write_text("{}")
    git(kept, "add", ".entire")
    git(kept, "commit", "-q", "-m", "Entire")
    clone = home / "clone"
    git(home, "clone", "-q", "--single-branch", "-b", "main", f"file://{kept}", str(clone))
    monkeypatch.chdir(clone)
    said = run("list").err
    assert (
        said.count("git fetch origin")
        == 1
        == json.loads(run("find", RETRY, "--json").out)["project_notice"].count("git fetch")
    )

    (command,) = (line.partition(": ")[2] for line in said.splitlines() if "git fetch" in line)
    subprocess.run(command, shell=True, cwd=clone, check=True, capture_output=True)  # noqa: S602 - as a person does
    assert [ALICES] == world.ids(RETRY, clone)
    assert "git fetch" not in run("list").err


# Forks.

SECRET = "ghp_" + "a1B2" * 9


@pytest.fixture
def played(no_waiting, programs, monkeypatch) -> FakeProcesses:
    processes = FakeProcesses()
    monkeypatch.setattr("smart_fork.system.processes.Processes", lambda: processes)
    monkeypatch.setenv("OPENAI_API_KEY", "loopback")
    return processes


def hostile_claude(world: World) -> bytes:
    """A transcript with what must not come here: a permission mode, a thought, a snapshot, a secret."""
    records = world.claude_records(ALICES, THERE, RETRY, DONE, f"look at {THERE}/x and {SECRET}", "Looked")
    records[0] |= {"permissionMode": "bypassPermissions"}
    records[1]["message"]["content"].insert(
        0, {"type": "thinking", "thinking": "a thought of hers", "signature": "c2lnbmVk"}
    )
    snapshot_ = {"type": "file-history-snapshot", "messageId": "m", "snapshot": {"trackedFileBackups": {"/etc/x": 1}}}
    return jsonl([{"type": "mode", "mode": "bypassPermissions", "sessionId": ALICES}, snapshot_, *records])


@pytest.mark.parametrize("whole", thorough_except_first([True, False]))
def test_a_fork_is_a_copy_that_works_here_and_asks(whole, played, world, shop, home):
    commit(shop, "a1b2c3d4e5f6", session(ALICES, hostile_claude(world)))
    repository_sessions.note(shop)
    before = frozen(shop)

    forked = fork_session(ForkRequest(ALICES[:8], Options("go on", place="process"), at=None if whole else 1))

    (log,) = (home / ".claude/projects").rglob("*.jsonl")
    written = log.read_text()
    assert f"{forked.new_session_id}.jsonl" == log.name
    assert "--permission-mode default" in forked.command
    assert (str(shop), before) == (forked.cwd, frozen(shop))
    for gone in (THERE, "bypassPermissions", "a thought", "c2lnbmVk", "/etc/x", SECRET):
        assert gone not in written
    assert whole == (f"look at {shop}/x and [REDACTED:" in written)
    assert is_others(forked.new_session_id)


def test_it_is_handed_over(played, world, kept, home):
    repository_sessions.note(kept)
    forked = fork_session(ForkRequest(ALICES, Options("go on", place="process"), as_agent="codex"))

    (log,) = (home / ".codex/sessions").rglob("*.jsonl")
    assert RETRY in log.read_text()
    assert is_others(forked.new_session_id)
    assert not (home / ".claude/projects").exists()


@pytest.mark.thorough
def test_a_dry_run_and_a_fork_that_fails_leave_nothing(played, world, kept, home):
    repository_sessions.note(kept)
    planned = fork_session(ForkRequest(ALICES, Options("go on", place="process"), dry_run=True))
    with pytest.raises(ForkRefused, match="asks before it acts"):
        fork_session(ForkRequest(ALICES, Options("go on", place="process", skip_permissions=True)))

    assert (
        any(f"smart-fork fork --at 1 --in process {ALICES} 'go on'" in one for one in planned.warnings)
        or planned.warnings
    )
    assert not list(home.rglob("*.jsonl"))


@pytest.mark.thorough
def test_a_worker_can_begin_from_it(played, world, kept, home):
    repository_sessions.note(kept)
    asked = {"project_path": str(kept), "run_in": "process", "worktree": False, "fork_from": ALICES, "prompt": "go on"}
    (started,) = spawn([asked], machine=Machine(played, clock=FakeClock())).workers

    assert not isinstance(started, NotSpawned)
    (log,) = (home / ".claude/projects").rglob("*.jsonl")
    assert RETRY in log.read_text()


def test_a_branch_of_it_is_a_copy(kept, home, run):  # noqa: F811
    made = json.loads(run("branch", ALICES, "--json").out)

    (log,) = (home / ".claude/projects").rglob("*.jsonl")
    assert f"{made['session_id']}.jsonl" == log.name
    assert is_others(made["session_id"])


@pytest.mark.parametrize("words", [("resume", ALICES), ("excise", "list", ALICES)], ids=lambda words: words[0])
def test_only_its_author_goes_on_in_it_cuts_it_or_shares_it(words, kept, run):  # noqa: F811
    done = run(*words)

    assert 0 != done.code
    assert f"{ALICES} is" in done.err
    with pytest.raises(ForkRefused, match=f"{ALICES} is Alice's"):
        local_logs.ProjectLogs(kept).found(ALICES)


def test_the_newest_session_is_always_the_persons_own(kept, world, shop):
    own = world.claude(shop, "mine", "yes")
    repository_sessions.note(kept)

    assert own == newest_session(shop, "claude").session_id


def test_it_is_never_forked_without_being_chosen(kept, world):
    asked = FindRequest(RETRY, agent_type="both", min_score=0)
    answer = find_and_fork(asked, Engine(world.model), choosing(auto_fork=True), kept)

    assert [ALICES] == [hit.session_id for hit in answer.results]
    assert f"Nothing was forked: {ALICES} fits best, but it is a teammate's" == answer.error
