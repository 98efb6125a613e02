"""Branches that are written and then resumed by the real programs, and the families that come of it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.agents import SERVER, Machine
from tests.e2e.logs import Json, Log
from tests.e2e.model_server import Call, Message, Protocol, Request, Say
from tests.e2e.scenario import (
    ANSWER,
    BEGINNING,
    CONVERSATION,
    EXCHANGES,
    MORE_ANSWER,
    PROMPT,
    ask,
    assert_in,
    each_agent,
    heard,
    unlike_any_other,
)
from tests.e2e.terminals import PROGRAM_SECONDS, wait_until
from tests.support.processes import command_line, kill_if_running

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("machine")]

NEXT = "Now do the same for the downloader"


def branch(machine: Machine, session: Log, *options: str) -> Json:
    """``smart-fork branch``, and what it says."""
    made: Json = json.loads(machine.smart_fork("branch", session.session_id, *options, "--json").stdout)
    return made


def go_on(machine: Machine, agent: Protocol, session_id: str, prompt: str, cwd: Path | None = None) -> Request:
    """Resume a session as a script does; what the model was sent."""
    words = ("-p", "--resume", session_id) if agent == "claude" else ("exec", "resume", session_id)
    machine.run(machine.programs / agent, *words, "--", prompt, cwd=cwd)
    return heard(machine, prompt)


def own_fork(machine: Machine, agent: Protocol, session_id: str, prompt: str) -> Log:
    """A fork as the program makes it itself, without us."""
    words = ("-p", "--resume", session_id, "--fork-session") if agent == "claude" else ("exec", "fork", session_id)
    machine.run(machine.programs / agent, *words, "--", prompt)
    return wait_until(lambda: machine.find_log(agent, f"Noted: {prompt[:60]}"), "the fork's log")


def fork_of_a_person(machine: Machine, agent: Protocol, session_id: str, prompt: str) -> Log:
    """The same in a terminal, where Claude Code puts other records at the top of the file."""
    words = (
        ("--resume", session_id, "--fork-session")
        if agent == "claude"
        else ("fork", session_id, "-C", str(machine.project))
    )
    terminal = machine.agent_interactive(agent, *words, "--", prompt)
    log = wait_until(lambda: machine.find_log(agent, f"Noted: {prompt[:60]}"), "the fork's log")
    terminal.leave("/exit" if agent == "claude" else "/quit")
    return log


def lineage(machine: Machine, session_id: str) -> list[Json]:
    told: list[Json] = json.loads(machine.smart_fork("lineage", session_id, "--json").stdout)["sessions"]
    return told


def noted(prompt: str) -> list[Message]:
    """A prompt and what the model says to it."""
    return [Message("user", prompt), Message("assistant", f"Noted: {prompt[:60]}")]


@each_agent(thorough="claude")
def test_a_branch_of_a_whole_session_is_opened_in_a_terminal_by_the_command_that_is_printed_with_all_of_it(
    equipped: Machine, agent: Protocol, parent: Log
):
    """B-001, B-005, B-009, B-010, B-038, B-040: from anywhere, what was said is on the screen, and what is said is in it alone.

    What it is called does not cut it.
    """
    prompt, again = unlike_any_other(NEXT), unlike_any_other("And that is all?")

    made = branch(equipped, parent, "--title", unlike_any_other("mine"))
    terminal = equipped.interactive("sh", "-c", made["resume_command"], cwd=equipped.home)

    assert parent.session_id == made["parent"]["session_id"]
    wait_until(lambda: MORE_ANSWER in terminal.screen, "the conversation on the screen")
    assert PROMPT in terminal.screen
    terminal.type(prompt)
    assert [*CONVERSATION, Message("user", prompt)] == heard(equipped, prompt).said
    log = equipped.log(agent, made["session_id"])
    wait_until(lambda: log.answers(noted(prompt)[1].text), "the answer in the branch")
    terminal.type(again)
    assert [*CONVERSATION, *noted(prompt), Message("user", again)] == heard(equipped, again).said
    assert made["path"] == str(log.path)
    shown = json.loads(equipped.smart_fork("show", made["session_id"], "--json").stdout)
    assert made["title"] == shown["title"]


@each_agent(thorough="claude")
def test_a_branch_at_a_message_knows_nothing_of_what_came_later(equipped: Machine, agent: Protocol, parent: Log):
    """B-074, C-022."""
    prompt = unlike_any_other(NEXT)
    messages = json.loads(equipped.smart_fork("show", parent.session_id, "--json").stdout)["messages"]
    (number,) = [message["number"] for message in messages if message["text"] == ANSWER]

    made = branch(equipped, parent, "--at", str(number))

    assert number == made["at"]
    assert MORE_ANSWER not in Path(made["path"]).read_text()
    assert [*BEGINNING, Message("user", prompt)] == go_on(equipped, agent, made["session_id"], prompt).said


@pytest.mark.thorough  # as a fork does
@each_agent()
def test_a_branch_into_another_directory_works_there(equipped: Machine, agent: Protocol, parent: Log, project: Path):
    """B-071."""
    prompt = unlike_any_other(NEXT)

    made = branch(equipped, parent, "--cwd", str(project))

    assert [*CONVERSATION, Message("user", prompt)] == go_on(equipped, agent, made["session_id"], prompt, project).said
    assert_in(equipped.log(agent, made["session_id"]), agent, project, "main" if agent == "claude" else None)


@each_agent(thorough="claude")
def test_a_branch_is_started_at_once(equipped: Machine, agent: Protocol, parent: Log):
    """B-090, B-091: resumed, not forked again."""
    prompt, place = unlike_any_other(NEXT), "tmux" if agent == "claude" else "process"

    made = json.loads(
        equipped.smart_fork("branch", parent.session_id, "--start", "--in", place, "--json", "--", prompt).stdout
    )

    assert [*CONVERSATION, Message("user", prompt)] == heard(equipped, prompt).said
    assert made["session_id"] == made["started"]["new_session_id"]
    log = equipped.log(agent, made["session_id"])
    wait_until(lambda: log.answers(f"Noted: {prompt[:60]}"), "the answer in the branch")
    (one,) = [one for one in lineage(equipped, parent.session_id) if one["session_id"] == made["session_id"]]
    assert made["started"]["worker_id"] == (one["running"] or made["started"])["worker_id"]


@pytest.mark.thorough  # as a command does
@each_agent()
def test_an_agent_branches_over_mcp_and_its_thinking_and_tool_calls_go_into_a_branch_as_they_are(
    equipped: Machine, agent: Protocol, parent: Log, project: Path
):
    """B-076: it is told the family; B-066: with their signatures and results."""
    calls = (
        ("branch_session", {"session_id": parent.session_id, "at": 1, "title": "from within"}),
        ("session_lineage", {"session_id": parent.session_id}),
    )
    (asked, family), source = ask(equipped, agent, project, *calls)
    if agent == "claude":
        _think(source)
    before = source.sha256
    plain, prompt = unlike_any_other("to compare"), unlike_any_other(NEXT)
    expected = own_fork_request(equipped, agent, source, plain, project)

    made = branch(equipped, source)
    got = go_on(equipped, agent, made["session_id"], prompt, project)

    assert asked["title"].startswith("from within (Branch")
    assert asked["session_id"] in [one["session_id"] for one in family["sessions"]]
    shown = json.loads(equipped.smart_fork("show", asked["session_id"], "--json").stdout)["messages"]
    assert BEGINNING == [Message(one["role"], one["text"]) for one in shown]
    assert before == source.sha256
    said = _content(expected)
    assert 2 <= len([one for one in said if one[0] in ("tool_use", "function_call")])  # and those that wait for servers
    assert said == _content(got)
    if agent == "claude":
        blocks = [
            block
            for record in equipped.log(agent, made["session_id"]).chain
            if record["type"] == "assistant"
            for block in record["message"]["content"]
            if block["type"] == "thinking"
        ]
        assert {"type": "thinking", "thinking": "Let me see", "signature": "c2lnbmVk"} in blocks


def own_fork_request(machine: Machine, agent: Protocol, source: Log, prompt: str, cwd: Path) -> Request:
    """What the model is sent when the program forks the session itself."""
    words = ("-p", "--resume", source.session_id, "--fork-session")
    words = words if agent == "claude" else ("exec", "fork", source.session_id)
    machine.run(machine.programs / agent, *words, "--", prompt, cwd=cwd)
    return heard(machine, prompt)


def _think(source: Log) -> None:
    """Put a thought before the first answer, as a model that thinks would have; the fake one does not."""
    records = source.records
    first = next(record for record in records if record["type"] == "assistant")
    thought = {"type": "thinking", "thinking": "Let me see", "signature": "c2lnbmVk"}
    first["message"]["content"].insert(0, thought)
    source.path.write_text("".join(json.dumps(record) + "\n" for record in records))


def _content(request: Request) -> list[tuple[Any, ...]]:
    """All of the conversation before the last prompt: what was said, thought, called and given back."""
    found: list[tuple[Any, ...]] = []
    for item in request.items:
        parts = item["content"] if isinstance(item.get("content"), list) else [item]
        for part in parts:
            kind = part.get("type")
            if kind in ("tool_use", "function_call"):
                found.append((kind, part.get("id") if kind == "tool_use" else part["call_id"], part["name"]))
            elif kind in ("tool_result", "function_call_output"):
                found.append((kind, json.dumps(part.get("content", part.get("output")))))
            elif kind == "thinking":
                found.append((kind, part["thinking"], part["signature"]))
    return found + [(one.role, one.text) for one in request.said[:-1]]


@pytest.mark.thorough  # without an agent: tests of branches
@each_agent()
def test_a_session_is_not_branched_while_it_answers(equipped: Machine, agent: Protocol, project: Path):
    """B-026: not even by the agent that works in it, whose call has no result yet."""
    if agent == "codex":
        pytest.skip("a session of Codex cannot be given its id beforehand")
    own, question = "7a1c0000-0000-4000-8000-00000000b026", unlike_any_other("Branch yourself")
    # What Claude Code is asked it writes down a moment later: by the second call it is there.
    until_written = f"until grep -qsF '{question}' ~/.claude/projects/*/{own}.jsonl; do sleep 0.1; done"
    branching = Call(SERVER, "branch_session", {"session_id": own}, Say("Not now."))
    equipped.model.when(question, Call("", "Bash", {"command": until_written, "description": "Wait"}, branching))
    before = len(equipped.logs(agent))

    equipped.claude("-p", "--session-id", own, "--allowedTools", f"mcp__{SERVER}", "Bash", "--", question, cwd=project)

    answered = equipped.model.wait_for(
        lambda request: (
            request.last_prompt == question and [r.tool for r in request.our_results][1:] == ["branch_session"]
        )
    )
    assert "Cannot branch while a response or tool call is in progress" in answered.our_results[1].text
    assert before + 1 == len(equipped.logs(agent))


@pytest.mark.thorough  # a rarer reason to refuse it
@each_agent()
def test_a_session_with_something_in_the_background_is_branched_when_it_has_been_left(
    equipped: Machine, agent: Protocol, project: Path
):
    """B-057: as the programs write it down."""
    question, says = unlike_any_other("Serve it"), unlike_any_other("It is served.")
    tool, given = {
        "claude": ("Bash", {"command": "sleep 600", "description": "Serve", "run_in_background": True}),
        "codex": ("exec_command", {"cmd": "sleep 600", "yield_time_ms": 250}),
    }[agent]
    equipped.model.when(question, Call("", tool, given, Say(says)))
    allowed = ("--allowedTools", tool) if agent == "claude" else ()
    terminal = equipped.agent_interactive(agent, *allowed, "--", question, cwd=project)
    log = wait_until(lambda: equipped.find_log(agent, says), "the answer to be written down")
    # Claude Code is seen by what it has started, Codex only by what it has just written.
    os.utime(log.path, (0, 0) if agent == "claude" else (2**32, 2**32))

    refused = equipped.smart_fork("branch", log.session_id, "--json", check=False)

    told = json.loads(refused.stdout)
    assert "Stop the current session's running background tasks before branching the conversation." == told["error"]
    assert {"claude": "Serve (", "codex": "sleep 600 ("}[agent] in told["hint"]
    terminal.leave("/exit" if agent == "claude" else "/quit")
    for process in equipped.processes():  # the server of Codex would keep it for another minute
        if "sleep 600" in " ".join(command_line(process)):
            kill_if_running(process)

    def branched() -> bool:
        os.utime(log.path, (0, 0))  # what is left of Codex may write to it once more
        return "session_id" in json.loads(equipped.smart_fork("branch", log.session_id, "--json", check=False).stdout)

    assert wait_until(branched, "the session to be branched", pause=PROGRAM_SECONDS)


@pytest.mark.thorough
@each_agent()
def test_forks_of_forks_and_branches_make_one_family(equipped: Machine, agent: Protocol, project: Path):
    """What the programs fork themselves, through two levels, what we write, and what is forked of that."""
    first = equipped.session_of_before(agent, *EXCHANGES)
    prompts = [unlike_any_other(words) for words in ("First step", "Second step", "Third step", "Fourth step")]
    fork = own_fork(equipped, agent, first.session_id, prompts[0])
    again = fork_of_a_person(equipped, agent, fork.session_id, prompts[1])
    made = branch(equipped, fork, "--at", "1")
    of_branch = own_fork(equipped, agent, made["session_id"], prompts[2])
    whole = branch(equipped, again)
    # Codex lets nobody else write to the one that was open in a terminal, for a while.
    go_on(equipped, agent, fork.session_id, unlike_any_other("The first fork goes on"))

    said = [*CONVERSATION, *noted(prompts[0]), *noted(prompts[1]), Message("user", prompts[3])]
    assert said == go_on(equipped, agent, whole["session_id"], prompts[3]).said
    expected = [
        (0, first.session_id, None),
        (1, fork.session_id, MORE_ANSWER),
        (2, again.session_id, noted(prompts[0])[1].text),
        (3, whole["session_id"], noted(prompts[1])[1].text),
        (2, made["session_id"], ANSWER),
        (3, of_branch.session_id, ANSWER),
    ]
    for one in (first.session_id, of_branch.session_id):
        told = lineage(equipped, one)
        left = [one["left_parent_at"] and one["left_parent_at"]["text"].removesuffix("...") for one in told]
        assert [(depth, name) for depth, name, _ in expected] == [(one["depth"], one["session_id"]) for one in told]
        for text, (_, _, words) in zip(left, expected, strict=True):
            assert words is None if text is None else words.startswith(text)
    assert equipped.smart_fork("lineage", again.session_id).stdout.count("forked after message") == 5
