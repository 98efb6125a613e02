"""Tests of branches: refusals, titles, side files, and cleanup after failures."""

from __future__ import annotations

import errno
import json
import os
import resource
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from smart_fork.agents.claude import session_writer as claude_copy
from smart_fork.agents.claude.log_files import folder_of
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.request_fields import Options
from smart_fork.errors import ForkRefused, NotFound, ProgramMissing, SmartForkError, Usage
from smart_fork.finding import session_lookup
from smart_fork.forking import branch as branching
from smart_fork.forking.copies import SessionCopy
from smart_fork.forking.start import resume_written
from smart_fork.forking.worker_spec import WorkerSpec
from smart_fork.system.processes import Machine
from smart_fork.workers.observation import list_workers
from smart_fork.workers.registry import Registry
from smart_fork.workers.termination import close_workers
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.forks import (
    SESSION,
    FakeClock,
    FakeProcesses,
    codex_path,
    codex_records,
    said,
    snapshot,
    text,
    write_log,
)
from tests.smart_fork.session_family import branch, lineage
from tests.support.cases import thorough_except_first

REFUSED = "Cannot branch while a response or tool call is in progress"


@pytest.fixture
def shop(repo: Path) -> Path:
    """Return the directory in which the commands run."""
    return repo


def records(path: str | Path) -> list[dict]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def append(path: Path, *more: dict) -> None:
    write_log(path, [*records(path), *more])


def age(path: Path, seconds: float) -> None:
    os.utime(path, (time.time() - seconds,) * 2)


def everything(home: Path) -> dict:
    """Return all files of the agents, without smart-fork's own."""
    return {name: value for name, value in snapshot(home).items() if name.startswith((".claude", ".codex"))}


def test_a_whole_session_is_branched_and_nothing_runs(any_session, repo, home):
    """B-001, B-005, B-006, B-076: what is answered."""
    agent, path = any_session
    before = everything(home)

    made = branch(SESSION[:9])

    session = READERS[agent].read(Path(made["path"])).session
    original = READERS[agent].read(path).session
    assert [t.text for t in original.turns] == [t.text for t in session.turns]
    assert (SESSION, made["session_id"]) == (session.parent_id, session.session_id)
    assert {"session_id": SESSION, "title": "add retry"} == made["parent"]
    assert (agent, "add retry (Branch)", len(original.turns) - 1) == (made["agent_type"], made["title"], made["at"])
    assert f"cd {repo} && {agent} " in made["resume_command"]
    assert made["session_id"] in made["resume_command"]
    assert SESSION in made["resume_original"]
    assert [] == made["warnings"]
    after = everything(home)
    assert before == {name: value for name, value in after.items() if name in before}
    assert [made["path"]] == [str(home / name) for name in after if name not in before]


def test_the_title_is_the_copies_and_the_next_one_is_another(any_session):
    """B-030, B-038, B-041: and the chain is as it was."""
    agent, _ = any_session
    first, second = branch(SESSION, title="Try\r\nit"), branch(SESSION, title="try it")
    third = branch(second["session_id"])

    titles = [READERS[agent].read(Path(one["path"])).session.title for one in (first, second, third)]
    assert titles == [one["title"] for one in (first, second, third)]
    assert ["Try it (Branch)", "try it (Branch 2)", "try it (Branch 3)"] == titles
    if agent == "claude":
        *conversation, title, name = records(first["path"])
        assert ("custom-title", "agent-name") == (title["type"], name["type"])
        assert not {"uuid", "parentUuid"} & {*title, *name}
        assert first["session_id"] == title["sessionId"]
        assert conversation[0]["parentUuid"] is None


def test_branches_that_are_made_at_once_have_titles_of_their_own(any_session):
    """B-031, B-064."""
    with ThreadPoolExecutor(6) as pool:
        made = list(pool.map(lambda _: branch(SESSION, title="x"), range(8)))

    assert {"x (Branch)", *(f"x (Branch {number})" for number in range(2, 9))} == {one["title"] for one in made}


def test_a_branch_at_a_message_ends_where_the_agent_had_finished(any_session):
    """B-074: and says so where that is later."""
    agent, path = any_session
    session = READERS[agent].read(path).session
    end = [i for i, turn in enumerate(session.turns) if turn.prompt][1] - 1

    at_end, inside = branch(SESSION, at=end), branch(SESSION, at=0)

    assert (end, end, []) == (at_end["at"], inside["at"], at_end["warnings"])
    assert [f"Branched after message {end}, where the agent had finished what message 0 is part of"] == inside[
        "warnings"
    ]
    with pytest.raises(NotFound, match="No message 99"):
        branch(SESSION, at=99)


def test_a_session_in_which_an_answer_is_being_written_is_refused(any_session, home):
    """B-026: a call without its result, or a prompt without an answer. A branch at an earlier message is possible."""
    agent, path = any_session
    prompt = {
        "claude": said("u3", "a5", "user", "one more", cwd=str(home / "shop")),
        "codex": {"type": "response_item", "payload": {"type": "message", "role": "user", "content": [{"text": "one more"}]}},
    }[agent]  # fmt: skip
    call = {
        "claude": said("a6", "u3", "assistant", [{"type": "tool_use", "id": "t9", "name": "Bash", "input": {}}]),
        "codex": {"type": "response_item", "payload": {"type": "function_call", "name": "shell", "call_id": "c9"}},
    }[agent]
    for more in (prompt, call):
        append(path, more)
        before = everything(home)
        with pytest.raises(ForkRefused, match=REFUSED) as caught:
            branch(SESSION)
        assert "--at" in caught.value.hint
        assert before == everything(home)

    assert "Branched conversation" not in branch(SESSION, at=0)["title"]
    age(path, 3600)
    made = branch(SESSION)
    assert ["The unfinished answer is not in the branch"] == made["warnings"]
    assert "one more" not in Path(made["path"]).read_text()


def test_a_worker_of_ours_that_works_is_refused(any_session):
    """B-026, B-057: whatever its log looks like."""
    agent, _ = any_session
    with Registry() as registry:
        worker = registry.add(agent, source_session_id="x", session_id=SESSION, place="tmux", cwd=Path("/x"))
        registry.set_session_id(worker.id, SESSION)
        registry.set_started(worker.id, command=["x"])
        registry._set(worker.id, "status = 'working'")
        with pytest.raises(ForkRefused, match=REFUSED):
            branch(SESSION)
        assert branch(SESSION, at=0)
        registry._set(worker.id, "status = 'idle'")
        assert branch(SESSION)
        registry._set(worker.id, "status = 'working'")
        registry.set_started(worker.id, command=["x"], pid=os.getpid())  # a number that was given again
        assert branch(SESSION)
        registry.set_state(worker.id, "ended")
        assert branch(SESSION)


def test_an_answer_that_a_command_of_the_agents_own_follows_is_the_last_one(claude_session):
    """The records of ``/exit`` are no conversation."""
    command = said("c1", "a5", "user", "<command-name>/exit</command-name>")
    nothing = said("c2", "c1", "assistant", text("No response requested."))
    nothing["message"]["model"] = "<synthetic>"
    append(claude_session, command, nothing)

    made = branch(SESSION)

    assert "a5" == [r["uuid"] for r in records(made["path"]) if "uuid" in r][-1]
    assert [] == made["warnings"]


def test_a_conversation_without_an_answer_cannot_be_branched(claude_session, home):
    """B-025."""
    write_log(claude_session, [said("u1", None, "user", "hello", cwd=str(home / "shop"))])
    age(claude_session, 3600)

    with pytest.raises(ForkRefused, match="No conversation to branch"):
        branch(SESSION)


@pytest.mark.parametrize(
    "reference", ["../../etc/passwd", "", "-" * 9 + "; rm", "a" * 100, SESSION + "\0", "--help-me-please", "/etc/hosts"]
)
def test_an_id_that_is_none_is_refused_before_anything_is_looked_at(reference, monkeypatch):
    """B-020."""
    monkeypatch.setattr(branching.session_lookup, "locate", lambda _: pytest.fail("looked"))
    with pytest.raises(Usage, match="Invalid source sessionId"):
        branch(reference)


def test_a_session_that_is_not_there_or_whose_directory_is_gone(claude_session, repo):
    """B-021, B-071."""
    with pytest.raises(NotFound, match=r"99999999-0000-4000-8000-000000000001$"):
        branch("99999999-0000-4000-8000-000000000001")
    with pytest.raises(NotFound, match="No such directory"):
        branch(SESSION, cwd=str(repo / "no"))


def test_a_session_of_another_project_is_refused_only_where_a_project_is_given(any_session, repo, home):
    """B-022."""
    other = home / "other"
    other.mkdir()

    for elsewhere in (str(other), "a\0b"):
        with pytest.raises(ForkRefused, match=f"does not belong to current project: {SESSION}"):
            branch(SESSION, project=elsewhere)
    assert branch(SESSION, project=str(repo / "src"))


def test_ids_that_differ_in_case_alone_are_not_guessed(claude_session):
    """B-078."""
    other = claude_session.with_name(f"{SESSION.replace('e', 'E', 1)}.jsonl")
    other.write_bytes(claude_session.read_bytes())

    with pytest.raises(Usage, match="ambiguous"):
        branch(SESSION.upper())
    assert branch(SESSION)


def test_a_branch_into_another_directory_is_found_and_works_there(any_session, home):
    """B-071."""
    agent, _ = any_session
    other = home / "other"
    other.mkdir()

    made = branch(SESSION, cwd=str(other))

    session = READERS[agent].read(Path(made["path"])).session
    assert (str(other), str(other)) == (session.cwd, made["working_directory"])
    assert made["resume_command"].startswith(f"cd {other} && ")
    if agent == "claude":
        assert folder_of(other) == Path(made["path"]).parent
    else:
        contexts = [r["payload"]["cwd"] for r in records(made["path"]) if r["type"] == "turn_context"]
        assert {str(other)} == set(contexts)


# What belongs to a session of Claude Code


def snapshots(path: Path, home: Path, **names: str) -> Path:
    """Return records that refer to versions of files, and the folder with these versions."""
    tracked = {f"src/{file}": {"backupFileName": name, "version": 1} for file, name in names.items()}
    found = {
        "type": "file-history-snapshot",
        "messageId": "u1",
        "snapshot": {"messageId": "u1", "trackedFileBackups": tracked},
    }
    later = {
        "type": "file-history-snapshot",
        "messageId": "u2",
        "snapshot": {"trackedFileBackups": {"b": {"backupFileName": "later@v1"}}},
    }
    write_log(path, [found, *records(path), later])
    folder = home / ".claude/file-history" / SESSION
    folder.mkdir(parents=True)
    return folder


def test_what_belongs_to_the_session_comes_with_it(claude_session, home):
    """B-075: the folder beside, and the versions of files that the copied records refer to; links are not followed."""
    folder = snapshots(claude_session, home, a="a@v1", b="gone@v1", c="../../secret", d="..", e="sub/x", f="link@v1")
    (home / ".claude/secret").write_text("secret")
    for name in ("a@v1", "later@v1", "unreferenced@v1"):
        (folder / name).write_text(name)
    (folder / "link@v1").symlink_to(home / ".claude/secret")
    beside = claude_session.with_suffix("")
    (beside / "tool-results").mkdir(parents=True)
    (beside / "tool-results/1.txt").write_text("long")
    (beside / "tool-results/link.txt").symlink_to(home / ".claude/secret")

    made = branch(SESSION, at=0)

    copied = home / ".claude/file-history" / made["session_id"]
    assert {"a@v1"} == set(snapshot(copied))
    assert {"tool-results/1.txt"} == set(snapshot(Path(made["path"]).with_suffix("")))
    assert ["2 earlier versions of files are gone: /rewind cannot restore them"] == made["warnings"][1:]
    kept = [r for r in records(made["path"]) if r["type"] == "file-history-snapshot"]
    assert ["u1"] == [r["messageId"] for r in kept]


def test_a_copy_of_what_belongs_to_it_that_fails_leaves_nothing(claude_session, home, monkeypatch):
    """B-059, B-075."""
    folder = snapshots(claude_session, home, a="a@v1", b="b@v1")
    for name in ("a@v1", "b@v1"):
        (folder / name).write_text(name)
    (claude_session.with_suffix("") / "tool-results").mkdir(parents=True)
    (claude_session.with_suffix("") / "tool-results/1.txt").write_text("long")
    before = everything(home)
    real = claude_copy.copy_file

    def full(source: Path, target: Path) -> bool:
        if source.name == "b@v1":
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(source, target)

    monkeypatch.setattr(claude_copy, "copy_file", full)
    with pytest.raises(SmartForkError, match=r"Failed to branch conversation: .*No space left"):
        branch(SESSION)

    assert before == everything(home)
    assert [SESSION] == [one.name for one in (home / ".claude/file-history").iterdir()]


def test_a_file_system_that_takes_no_more_leaves_nothing(any_session, home):
    """B-059, B-073: a write that really fails half way."""
    _, path = any_session
    before = everything(home)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (700, hard))
    try:
        with pytest.raises(SmartForkError, match="Failed to branch conversation"):
            branch(SESSION)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert before == everything(home)
    assert not [one for one in path.parent.rglob("*") if one.name.endswith(".tmp")]


def test_results_that_the_model_was_shown_shortened_stay_so(claude_session):
    """Of the calls that are copied."""
    one, other = {"kind": "tool-result", "toolUseId": "t1", "replacement": "…"}, {"toolUseId": "t7"}
    append(
        claude_session,
        {"type": "content-replacement", "sessionId": SESSION, "replacements": [one, other, "odd"]},
        {"type": "content-replacement", "sessionId": SESSION, "agentId": "x", "replacements": [one]},
    )

    made = branch(SESSION)

    (kept,) = [r for r in records(made["path"]) if r["type"] == "content-replacement"]
    assert (made["session_id"], [one]) == (kept["sessionId"], kept["replacements"])


class Writing(FakeClock):
    """A clock during whose waiting time an agent writes its log."""

    def __init__(self, path: Path, texts: list[str]) -> None:
        super().__init__()
        self._path, self._texts = path, texts

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if self._texts:
            self._path.write_text(self._texts.pop(0))


def test_the_caller_s_own_session_is_waited_for_until_it_is_written_down(claude_session):
    """B-051: an agent writes a prompt to its log a moment later. A missing session of another caller stays missing."""
    text = claude_session.read_text()
    claude_session.unlink()
    clock = Writing(claude_session, ["", text])

    with pytest.raises(NotFound):
        branch(SESSION, clock=clock)
    assert 0 == clock.slept
    assert SESSION == branch(SESSION[:13].upper(), clock=clock, caller_session_id=SESSION, at=1)["parent"]["session_id"]


def test_a_caller_s_own_session_that_is_not_written_down_is_at_work(home):
    """B-026, B-051: the wait is limited, and the error says what to do."""
    clock = FakeClock()

    with pytest.raises(ForkRefused, match=REFUSED) as caught:
        branch(SESSION, clock=clock, caller_session_id=SESSION)

    assert "no log yet" in caught.value.hint
    assert 2 < clock.slept < 5


# Codex


def test_what_newer_versions_show_on_the_screen_is_told_in_the_form_of_the_copy(codex_session):
    item = {"type": "UserMessage", "content": [{"type": "text", "text": "add retry"}]}
    answer = {"type": "AgentMessage", "content": [{"type": "Text", "text": "Done"}]}
    before = records(codex_session)
    shown = [
        {"type": "event_msg", "payload": {"type": "item_completed", "thread_id": "x", "item": one}}
        for one in (item, answer)
    ]
    write_log(codex_session, [*before[:4], *shown, *before[4:]])

    made = branch(SESSION)

    events = [r["payload"] for r in records(made["path"]) if r["type"] == "event_msg"]
    assert {"type": "user_message", "message": "add retry"} in events
    assert {"type": "agent_message", "message": "Done"} in events
    assert "item_completed" not in {one["type"] for one in events}


# Resumed at once


def test_a_branch_that_cannot_be_started_is_taken_away(any_session, home, monkeypatch):
    """B-059: the program is not there."""
    monkeypatch.setenv("PATH", str(home))
    before = everything(home)

    with pytest.raises(ProgramMissing):
        branch(SESSION, start=True, prompt="go", place="process")

    assert before == everything(home)


def test_a_branch_that_cannot_be_taken_away_does_not_hide_why_it_was_not_started(codex_session, repo, caplog):
    """B-053, B-054."""
    made = Path(branch(SESSION)["path"])
    folder = made.parent
    written = SessionCopy("codex", made.stem[-36:], SESSION, made, 1, "6", moved=False, created=(made,))
    made.unlink()
    folder.rmdir()
    folder.write_text("a file, where the folder was")
    session = session_lookup.read(session_lookup.locate(SESSION))

    with pytest.raises(Usage, match="Unknown place"):
        resume_written(WorkerSpec("branch", "codex", session, Options(place="nowhere"), written=written))

    assert "is left" in caplog.text
    assert codex_session.exists()


@pytest.mark.parametrize("agent", thorough_except_first(["claude", "codex"]))
def test_a_branch_is_resumed_by_its_own_id_and_known_as_a_worker(agent, request, programs, repo, no_waiting):
    """B-044: nothing is forked a second time."""
    request.getfixturevalue(f"{agent}_session")
    made = branch(SESSION, title="mine")
    written = SessionCopy(agent, made["session_id"], SESSION, Path(made["path"]), 1, "a5", moved=False)
    processes = FakeProcesses()
    session = session_lookup.read(session_lookup.locate(SESSION))
    options = Options("go on", place="process", name=made["title"])
    started = resume_written(WorkerSpec("branch", agent, session, options, written=written), Machine(processes))

    resume = {
        "claude": ["--resume", made["session_id"], "--name=mine (Branch)", "-p", "--output-format", "json"],
        "codex": ["exec", "-C", str(repo), "resume", made["session_id"]],
    }[agent]
    assert [*resume, "--", "go on"] == list(processes.started[0]["argv"][1:])
    assert repo == processes.started[0]["cwd"]
    with Registry() as registry:
        worker = registry.get(started.worker_id)
    assert (made["session_id"], SESSION, "mine (Branch)") == (worker.session_id, worker.source_session_id, worker.name)
    assert ("branch", "branch") == (worker.kind, started.as_json()["kind"])
    (listed,) = list_workers(None, include_closed=True, around=Machine(processes))
    assert "branch" == listed.kind
    (closed,) = close_workers([worker.id], around=Machine(processes))
    assert "branch" == closed.kind
    family = {one["session_id"]: one for one in lineage(SESSION)["sessions"]}
    assert SESSION == family[made["session_id"]]["parent"]


def test_the_command_says_how_to_go_on_in_either(any_session, run, home):  # noqa: F811
    """B-040, B-041, B-067: one text with a name and one without."""
    agent, _ = any_session
    named, unnamed = run("branch", SESSION, "--title", "mine"), run("branch", SESSION)

    assert 'Branched conversation "mine (Branch)".' == named.out.splitlines()[0]
    assert ["Branched conversation.", "  its title: add retry (Branch)"] == unnamed.out.splitlines()[:2]
    assert f"To resume the original: cd {home / 'shop'} && {agent} " in named.out
    assert "To resume the branch: cd " in named.out
    assert 2 == run("branch", "../x", "--json").code
    assert 2 == run("branch", SESSION, "do this").code
    refused = run("branch", "99999999-0000", "--json")
    assert 3 == refused.code
    assert json.loads(refused.out)["error"].endswith(" 99999999-0000")


def test_a_session_that_was_forked_from_one_that_is_gone(home, repo):
    """B-077: what is missing is said; nothing is written."""
    base = {"thread_id": "60309e1e-0000-4000-8000-00000000000f", "end_ordinal_exclusive": 9}
    write_log(codex_path(home, SESSION), codex_records(SESSION, repo, ["third"], start=9, history_base=base))
    before = everything(home)

    with pytest.raises(NotFound, match="parent session is gone"):
        branch(SESSION)

    assert before == everything(home)
