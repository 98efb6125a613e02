"""What we rely on in the real Claude Code and Codex. When a new version fails here, the code behind it has to learn."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from tests.e2e.agents import Machine
from tests.e2e.logs import Log
from tests.e2e.terminals import wait_until

pytestmark = pytest.mark.e2e

PROMPT, ANSWER = "Which animal guards the uploader?", "The uploader is guarded by a zebra."


@pytest.fixture(scope="module")
def claude_parent(machine: Machine) -> Log:
    return machine.session_of_a_person("claude", (PROMPT, ANSWER))


@pytest.fixture(scope="module")
def codex_parent(machine: Machine) -> Log:
    return machine.session_of_a_person("codex", (PROMPT, ANSWER))


@pytest.mark.thorough  # what the programs do
def test_claude_writes_down_whether_a_person_or_a_script_asked(machine, claude_parent):
    done = machine.claude("-p", "--output-format", "json", "--", "Count the files")

    typed = next(record for record in claude_parent.records if record["type"] == "user")
    assert (typed["entrypoint"], typed["promptSource"], typed["origin"]) == ("cli", "typed", {"kind": "human"})
    scripted = machine.log("claude", json.loads(done.stdout)["session_id"])
    (sent,) = [record for record in scripted.records if record["type"] == "user"]
    assert (sent["entrypoint"], sent["promptSource"], "origin" in sent) == ("sdk-cli", "sdk", False)


@pytest.mark.thorough  # what the programs do
def test_a_claude_fork_has_the_id_and_name_we_chose_copies_the_chain_and_the_model_gets_the_parents_messages(
    machine, claude_parent
):
    """F-093, F-095, F-098: it only says anew who runs it and where, and a fork of it inherits its name."""
    before, new, grandchild = claude_parent.sha256, str(uuid.uuid4()), str(uuid.uuid4())
    worktree = machine.home / "elsewhere"
    machine.run("git", "worktree", "add", "-q", "-b", "elsewhere", worktree)

    fork_claude_headless(machine, claude_parent, new, "Feed it", "--name=zoo keeper", cwd=worktree)

    request = machine.model.wait_for_prompt("Feed it")
    assert [message.text for message in request.said] == [PROMPT, ANSWER, "Feed it"]
    log = machine.log("claude", new)
    assert (log.session_id, claude_parent.sha256) == (new, before)
    fork = {record["uuid"]: record for record in log.chain}
    for record in claude_parent.chain:
        copy = fork[record["uuid"]]
        changed = {key for key in record | copy if record.get(key) != copy.get(key)}
        # 2.1.332 gives prompts the id of the fork's own, and answers the session that asked for them.
        assert changed - {"promptId", "requestSessionId"} == {"sessionId", "entrypoint", "cwd", "gitBranch"}
        assert (copy["entrypoint"], copy["cwd"], copy["gitBranch"]) == ("sdk-cli", str(worktree), "elsewhere")
    fork_claude_headless(machine, log, grandchild, "Rename it", cwd=worktree)
    for session in (new, grandchild):
        records = machine.log("claude", session).records
        assert {"type": "custom-title", "customTitle": "zoo keeper", "sessionId": session} in records
        assert {"type": "agent-name", "agentName": "zoo keeper", "sessionId": session} in records


@pytest.mark.thorough  # what the programs do
def test_codex_writes_down_whether_a_person_or_a_script_asked(machine, codex_parent):
    machine.codex("exec", "--", "Count the files")

    scripted = answered(machine, "Count the files")
    assert (scripted.meta["source"], scripted.meta["originator"]) == ("exec", "codex_exec")
    # The server that Codex runs in the background for its terminals gives itself the name of the first of its kind.
    assert (codex_parent.meta["source"], codex_parent.meta["originator"]) == ("vscode", "codex-tui")


@pytest.mark.thorough
def test_codex_says_cli_for_a_person_where_no_server_runs_in_the_background(machine):
    terminal = machine.agent_interactive("codex", "--no-daemon", "--", "Count the doors")
    log = answered(machine, "Count the doors")
    terminal.leave("/quit")

    assert (log.meta["source"], log.meta["originator"]) == ("cli", "codex-tui")


@pytest.mark.thorough  # what the programs do
def test_a_codex_fork_is_written_upon_its_parent_in_the_directory_that_it_is_given_and_the_model_gets_the_messages(
    machine, codex_parent
):
    """F-094, F-095, F-106. `exec` takes the directory before its sub-command, and only there."""
    before, size = codex_parent.sha256, codex_parent.path.stat().st_size
    worktree = machine.project / ".worktrees" / "combed"
    machine.run("git", "worktree", "add", "-q", "-b", "combed", worktree)

    machine.codex("exec", "-C", str(worktree), "fork", codex_parent.session_id, "--", "Feed it")

    assert [message.text for message in machine.model.wait_for_prompt("Feed it").said][:2] == [PROMPT, ANSWER]
    fork = answered(machine, "Feed it")
    assert fork.meta["forked_from_id"] == codex_parent.session_id
    base = {
        "thread_id": codex_parent.session_id,
        "end_ordinal_exclusive": fork.records[0]["ordinal"],
        "end_byte_offset": size,
    }
    assert fork.meta["history_base"] == base
    assert not fork.answers(ANSWER)
    assert (fork.meta["source"], fork.meta["originator"]) == ("exec", codex_parent.meta["originator"])
    assert (fork.meta["cwd"], fork.meta["git"]["branch"]) == (str(worktree), "combed")
    assert codex_parent.sha256 == before


def answered(machine: Machine, prompt: str) -> Log:
    """The log of Codex in which `prompt` is answered; the newest log may be that of a terminal that is just closing."""
    return wait_until(lambda: machine.find_log("codex", f"Noted: {prompt}"), f"the answer to {prompt!r}")


def fork_claude_headless(machine: Machine, parent: Log, new: str, prompt: str, *options: str, cwd: Path) -> None:
    arguments = ["--resume", parent.session_id, "--fork-session", "--session-id", new, *options]
    machine.claude("-p", *arguments, "--", prompt, cwd=cwd)
