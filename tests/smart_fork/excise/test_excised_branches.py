"""A copy without some turns is a complete session: it has a title, its files, and a command that resumes it."""

from __future__ import annotations

import json
import os
import time
import uuid
from pathlib import Path

import pytest

from smart_fork.agents.claude.session_writer import file_history
from smart_fork.errors import ForkRefused
from smart_fork.excise import branch, check
from smart_fork.finding import session_lookup
from smart_fork.workers.registry import Registry
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.forks import codex_path, codex_records, said, text, write_log
from tests.support.cases import thorough_except_first


def tool(identity: str) -> list[dict]:
    return [{"type": "tool_use", "id": identity, "name": "Task", "input": {}}]


def result(identity: str) -> list[dict]:
    return [{"type": "tool_result", "tool_use_id": identity, "content": "ok"}]


def claude(world, shop) -> Path:
    """A session with two calls, each with a long result and a sub-agent next to the log, and a version of a file."""
    session = str(uuid.uuid4())
    records = [
        said("u1", None, "user", "zebra"),
        {"type": "file-history-snapshot", "messageId": "u1", "snapshot": {"trackedFileBackups": {"a.py": {"backupFileName": "v1"}}}},
        said("c1", "u1", "assistant", tool("toolu_1")),
        said("r1", "c1", "user", result("toolu_1"), toolUseResult={"agentId": "1a"}),
        said("a1", "r1", "assistant", text("zebra done")),
        said("u2", "a1", "user", "walrus"),
        said("c2", "u2", "assistant", tool("toolu_2")),
        said("r2", "c2", "user", result("toolu_2"), toolUseResult={"agentId": "2b"}),
        said("a2", "r2", "assistant", text("walrus done")),
        {"type": "custom-title", "customTitle": "Animals"},
    ]  # fmt: skip
    path = world.write_claude(session, shop, [one | {"sessionId": session, "cwd": str(shop)} for one in records])
    for number, agent in (("1", "1a"), ("2", "2b")):
        for name in (
            f"tool-results/toolu_{number}.txt",
            f"subagents/agent-{agent}.jsonl",
            f"subagents/agent-{agent}.meta.json",
        ):
            place = path.with_suffix("") / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(f"long {number}")
    file_history(session).mkdir(parents=True)
    (file_history(session) / "v1").write_text("before")
    return path


def codex(world, shop) -> Path:
    session = str(uuid.uuid4())
    records = codex_records(session, shop, ["zebra", "walrus"])
    named = {"type": "thread_name_updated", "thread_id": session, "thread_name": "Animals"}
    records.append(
        {"ordinal": len(records), "type": "event_msg", "timestamp": records[0]["timestamp"], "payload": named}
    )
    return write_log(codex_path(world.home, session), records)


@pytest.fixture(params=thorough_except_first([claude, codex]))
def log(request, world, shop) -> Path:
    path: Path = request.param(world, shop)
    return path


@pytest.fixture(params=thorough_except_first(["branch --excise", "excise cut --branch"]))
def made(request, log, run) -> dict:  # noqa: F811
    """A copy without the second exchange, as the answer of both commands."""
    name = log.stem[-36:]
    cutting = [name, "--excise", "4-7"] if request.param.startswith("branch") else ["cut", "4-7", name, "--branch"]
    told: dict = json.loads(run(request.param.split()[0], *cutting, "--json").out)
    return told


def test_the_new_session_s_id_and_path_are_told(made, log, shop):
    assert made["session_id"] == made["new_session_id"] == Path(made["path"]).stem[-36:] != log.stem[-36:]
    assert Path(made["path"]).is_file()
    assert (log.stem[-36:], str(shop)) == (made["parent"]["session_id"], made["working_directory"])
    assert [4, 5, 6, 7] == sorted({number for number in made["numbers"] if number is not None})
    assert made["session_id"] in made["resume_command"]
    assert made["resume_command"].startswith(f"cd {shop} && ")
    assert log.stem[-36:] in made["resume_original"]


def test_it_has_a_title_of_its_own_and_the_next_one_another(made, log):
    again = branch(log.stem[-36:], "4-7")

    assert ("Animals (Branch)", "Animals (Branch 2)") == (made["title"], again.title)
    titles = [session_lookup.read(session_lookup.locate(one)).title for one in (made["session_id"], again.session_id)]
    assert ["Animals (Branch)", "Animals (Branch 2)"] == titles


def test_what_belongs_beside_it_is_there_without_what_was_left_out(world, shop):
    log = claude(world, shop)

    made = branch(log.stem, "4-7")

    beside = Path(made.path).with_suffix("")
    assert {"tool-results/toolu_1.txt", "subagents/agent-1a.jsonl", "subagents/agent-1a.meta.json"} == {
        str(path.relative_to(beside)) for path in beside.rglob("*") if path.is_file()
    }
    assert "before" == (file_history(made.session_id) / "v1").read_text()
    assert 6 == sum(path.is_file() for path in log.with_suffix("").rglob("*"))


def test_the_command_says_how_to_go_on(run, log, shop):  # noqa: F811
    told = run("branch", log.stem[-36:], "--excise", "4-7").out

    assert "its title: Animals (Branch)" in told
    assert f"To resume the branch: cd {shop} && " in told
    assert f"To resume the original: cd {shop} && " in told


@pytest.mark.parametrize("how", ["log", "worker"])
def test_nothing_is_copied_while_the_agent_is_answering(run, world, log, how, marked):  # noqa: F811
    name = log.stem[-36:]
    if how == "worker":
        with Registry() as registry:
            agent = "codex" if "rollout" in log.name else "claude"
            worker = registry.add(agent, source_session_id="", session_id=name, place="process", cwd=world.home)
            registry.set_started(worker.id, command=["x"], pid=marked(worker.id))
            registry.set_status(worker.id, "working")
    else:
        last = json.loads(log.read_text().splitlines()[-2])
        asking = said("u3", last.get("uuid"), "user", "more", sessionId=name, cwd=str(world.home))
        if "payload" in last:
            asking = codex_records(name, world.home, ["more"], 99)[3]
        with log.open("a") as file:
            file.write(json.dumps(asking) + "\n")
        os.utime(log, (time.time(), time.time()))
    before = set(world.home.rglob("*.jsonl"))

    for refused in (run("branch", name, "--excise", "4-7"), run("excise", "cut", "4-7", name, "--branch")):
        assert 1 == refused.code
        assert "Cannot branch while a response or tool call is in progress" in refused.err
    assert before == set(world.home.rglob("*.jsonl"))


def test_nothing_is_copied_while_something_runs_in_the_background(run, world, log, marked):  # noqa: F811
    name, is_codex = log.stem[-36:], "rollout" in log.name
    with Registry() as registry:
        worker = registry.add("codex" if is_codex else "claude", source_session_id="", session_id=name, place="process", cwd=world.home)  # fmt: skip
        registry.set_started(worker.id, command=["x"], pid=marked(worker.id))
    result = {"toolUseResult": {"stdout": "", "backgroundTaskId": "b1"}}
    records = [{"type": "user", "message": {"content": []}} | result]
    if is_codex:
        output = "Process running with session ID 42\nOutput:\n"
        records = [
            {"type": "response_item", "payload": {"type": "function_call", "name": "exec_command", "call_id": "c9"}},
            {"type": "response_item", "payload": {"type": "function_call_output", "call_id": "c9", "output": output}},
            codex_records(name, world.home, ["more"], 99)[6],
        ]
    with log.open("a") as file:
        file.writelines(json.dumps(one | {"timestamp": "2099-01-01T00:00:00.000Z"}) + "\n" for one in records)
    os.utime(log, (0, 0))
    before = set(world.home.rglob("*.jsonl"))

    for refused in (run("branch", name, "--excise", "4-7"), run("excise", "cut", "4-7", name, "--branch")):
        assert 1 == refused.code
        assert "Stop the current session's running background tasks before branching the conversation." in refused.err
        assert "--at" not in refused.err
    assert before == set(world.home.rglob("*.jsonl"))


def test_what_fails_leaves_nothing(world, shop, monkeypatch):
    log = claude(world, shop)
    before = set(world.home.rglob("*"))
    monkeypatch.setattr("smart_fork.agents.claude.session_writer.copy_backups", lambda *_: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        branch(log.stem, "4-7")

    assert {world.home / ".smart-fork", world.home / ".smart-fork/branch.lock"} == set(world.home.rglob("*")) - before


def test_one_in_which_nobody_asked_anything_is_refused(world, shop):
    session = str(uuid.uuid4())
    world.write_claude(session, shop, [said("a1", None, "assistant", text("x"), sessionId=session, cwd=str(shop))])

    with pytest.raises(ForkRefused, match="No conversation to branch"):
        branch(session, ids=("a1",), force=True)


def test_verify_finds_what_was_forced_in_a_branch(world, shop):
    made = branch(claude(world, shop).stem, ids=("r2",), force=True)

    assert [{"turn_id": "c2", "reason": "calls toolu_2, but their result was cut"}] == check(made.session_id)[
        "dangling"
    ]


def test_secrets_are_masked_in_the_copy_alone(world, shop, run):  # noqa: F811
    token = "ghp_" + "a1B2" * 9
    log = world.log_of(world.claude(shop, "add retry", "done", f"my token is {token}", "used"))

    made = json.loads(run("excise", "cut", "--secrets", log.stem, "--branch", "--json").out)

    assert {"github-token": 1} == made["masked"]
    assert token not in Path(made["path"]).read_text()
    assert token in log.read_text()


def test_an_id_of_nothing_but_digits_is_a_session_and_no_range(world, shop, run):  # noqa: F811
    token = "ghp_" + "a1B2" * 9
    session = "12345678-1234-4234-8234-123456789012"
    world.claude(shop, "add retry", "done", f"my token is {token}", "used", session_id=session)

    for word in (session[:8], session[:13], session):
        assert {"github-token": 1} == json.loads(run("excise", "cut", "--secrets", word, "--branch", "--json").out)[
            "masked"
        ]
    assert 0 == run("show", session[:8]).code


def test_a_copy_that_cannot_be_written_is_told_and_nothing_is_left(world, shop, run, monkeypatch):  # noqa: F811
    session = world.claude(shop, "add retry", "done", "and the docs", "done")
    before = set(world.home.rglob("*.jsonl"))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("smart_fork.agents.claude.session_writer.copy_folder", full)
    done = run("branch", session, "--excise", "2-3")

    assert 1 == done.code
    assert "Failed to branch conversation: " in done.err
    assert "No space left on device" in done.err
    assert before == set(world.home.rglob("*.jsonl"))
