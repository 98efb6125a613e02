"""Sessions that end with an interruption, a limit or an error: shared up to their last complete pair."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest

from smart_fork.agents import AGENTS
from smart_fork.agents.copier import NewSession
from smart_fork.agents.log_readers import READERS
from tests.smart_fork.agents.opencode import database
from tests.smart_fork.team.server.test_two_people import ANSWER, PROMPT, go_on, session_of
from tests.smart_fork.world import Did
from tests.support.cases import thorough_except

FIXTURES = Path(__file__).parents[3] / "fixtures"
READ = Did("Read", {"file_path": "up.py"}, "def up(): ...")
LOOK = Did("shell", {"command": "cat up.py"}, "def up(): ...")
#: Records that are added to, and a database; of the others the way is the same.
SHARED = thorough_except((agent.name for agent in AGENTS if agent.converter), "claude", "opencode")
CALL = {"claude": READ, "codex": LOOK}
#: What Claude Code writes where a person presses Escape.
STOPPED = "[Request interrupted by user for tool use]"


def read(path):
    return READERS[next(name for name in READERS.names if READERS[name].log_at(str(path)))].read(Path(path)).session


def opencode_in(machine, before=""):
    """Write OpenCode's sessions on a machine. Return the id of the one with tools, in the repository, up to a message."""
    database.program(machine.home / "bin")
    with machine.here():
        path = database.make(told=lambda text: text.replace("/work/depot", str(machine.repository)))
        if before:
            later = "SELECT id FROM message WHERE session_id = ? AND time_created >= (SELECT time_created FROM message WHERE id = ?)"
            for table, column in (("part", "message_id"), ("message", "id")):
                gone = f"DELETE FROM {table} WHERE {column} IN ({later})"  # noqa: S608 - constants
                database.change(path, gone, database.TOOLS, before)
    return database.TOOLS


def broken_off(machine, agent):
    """Write a session with one exchange that ended after a tool result. Return its id."""
    if agent in CALL:
        return machine.world.worked(agent, machine.repository, f"> {PROMPT}", CALL[agent])
    if agent == "opencode":
        return opencode_in(machine, "msg_205ba5611001cUSQr9FeBSIjKa")
    lines = (FIXTURES / agent / "tools.jsonl").read_text().replace("/home/ada/shop", str(machine.repository))
    lines = lines.splitlines(keepends=True)
    source = machine.home / f"{agent}.jsonl"
    with machine.here():
        for count in range(len(lines), 0, -1):
            source.write_text("".join(lines[:count]))
            session = READERS[agent].read(source).session
            if session is not None and session.pairs() and not session.branch_points():
                break
        first = json.loads(lines[0])
        session_id = str({**first, **first.get("data", {})}.get("sessionId") or session.session_id)
        made = NewSession(session_id, machine.repository, datetime.fromisoformat(session.started))
        target = AGENTS.copier_of(agent).place(source, made)
        target.parent.mkdir(parents=True, exist_ok=True)
        source.rename(target)
        if agent == "gemini":
            (target.parents[1] / ".project_root").write_text(str(machine.repository))
    return session_id


@pytest.mark.parametrize("agent", SHARED)
@pytest.mark.slow
def test_a_session_without_an_answer_is_shared_up_to_its_last_result_and_the_other_goes_on_from_there(
    alice, bob, agent
):
    session = broken_off(alice, agent)
    if agent == "opencode":
        opencode_in(bob)

    pushed = alice.team("push", session, "--public", "--yes")
    forked = bob.team("fork", pushed["session_id"])

    assert pushed["record_count"] == forked["record_count"] > 0
    with bob.here():
        there = read(forked["files"][0])
    with alice.here():
        here = read(pushed["files"][0])
    assert (there.pairs()[-1], ()) == (len(there.turns) - 1, there.branch_points())
    texts = [turn.text.replace(str(alice.repository), str(bob.repository)) for _, turn in here.messages]
    assert texts[: len(there.messages)] == [turn.text for _, turn in there.messages]
    assert bob.team("push")["up_to_date"]
    assert ["up_to_date"] == [one["state"] for one in bob.team("status")["aliases"]]


@pytest.mark.parametrize("agent", ["claude", pytest.param("codex", marks=pytest.mark.thorough)])
def test_what_is_said_after_the_interruption_is_appended_to_what_was_pushed(alice, bob, agent):
    pushed = alice.team("push", broken_off(alice, agent), "--public", "--yes")
    go_on(alice, pushed["files"][0], agent, "go on", "Done.")

    more = alice.team("push", "--yes")

    assert (pushed["session_id"], 2) == (more["session_id"], more["pushed_records"])
    with bob.here():
        texts = [turn.text for _, turn in read(bob.team("fork", more["session_id"])["files"][0]).messages]
    assert [PROMPT, "go on", "Done."] == texts


def test_the_unfinished_end_is_named_before_and_after_it_was_left_off(alice):
    session = alice.world.worked("claude", alice.repository, f"> {PROMPT}", READ, "> and now", Did("Bash", {}))
    log = alice.world.log_of(session)
    lines = log.read_text().splitlines()[:-1]  # the call has no result
    stop = alice.world.claude_records(session, alice.repository, STOPPED)[0]
    stop["parentUuid"] = json.loads(lines[-1])["uuid"]
    log.write_text("\n".join([*lines, json.dumps(stop)]) + "\n")
    named = "1 unanswered prompt, 1 unfinished call (Bash), the interruption"

    shown = alice.do("team", "push", session, "--dry-run")
    seen = alice.team("push", session, "--dry-run")
    pushed = alice.team("push", session, "--yes")

    assert f"not sent  {named}" in shown.out
    assert (named, 3) == (seen["left_off"], pushed["pushed_records"])
    assert [f"It ends with its last complete pair. Dropped: {named}."] == pushed["warnings"]


def test_of_what_an_agent_does_now_the_calls_that_have_not_ended_stay_here(alice):
    session = alice.world.worked("claude", alice.repository, f"> {PROMPT}", READ, Did("Bash", {"command": "make"}))
    log = alice.world.log_of(session)
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:-1]))

    pushed = alice.team("push", session, "--yes")

    assert (3, {"unfinished exchanges": 1}) == (pushed["pushed_records"], pushed["left_out"])


def test_a_branch_at_the_prompt_of_an_unfinished_session_has_its_last_pair(alice):
    pushed = alice.team("push", broken_off(alice, "claude"), "--yes")

    made = alice.team("branch", pushed["session_id"], "--at", "1")

    assert (pushed["record_count"], True) == (made["record_count"], made["moved"])


@pytest.mark.parametrize(
    ("agent", "other"), [("claude", "codex"), pytest.param("codex", "claude", marks=pytest.mark.thorough)]
)
def test_an_unfinished_session_is_written_for_another_agent(alice, bob, agent, other):
    pushed = alice.team("push", broken_off(alice, agent), "--yes", "--public")

    forked = bob.team("fork", pushed["session_id"], "--platform", other)

    with bob.here():
        texts = "\n".join(turn.text for _, turn in read(forked["files"][0]).messages)
    assert PROMPT in texts


def test_a_finished_session_has_nothing_left_off(alice):
    session = session_of(alice, "claude", PROMPT, ANSWER)

    assert ("", []) == (
        alice.team("push", session, "--dry-run")["left_off"],
        alice.team("push", session, "--yes")["warnings"],
    )
