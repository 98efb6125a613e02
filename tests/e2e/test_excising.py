"""Cut sessions, resumed by the real programs: the model is sent exactly what stayed, with every call and result paired."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from tests.e2e.agents import Machine
from tests.e2e.logs import Log
from tests.e2e.model_server import Call, Calls, Protocol, Request, Say
from tests.e2e.scenario import each_agent
from tests.e2e.terminals import wait_until

pytestmark = pytest.mark.e2e

STEPS = ("zebra", "walrus", "heron")


def said(request: Request) -> list[tuple[str, str]]:
    """What was said, called and answered, in order."""
    found: list[tuple[str, str]] = []
    for item in request.items:
        content = item.get("content")
        blocks: list[Any] = content if isinstance(content, list) else [{"type": "text", "text": content}]
        if item.get("type") == "function_call":
            found.append(("call", json.loads(item["arguments"])["cmd"]))
        elif item.get("type") == "function_call_output":
            found.append(("result", item["output"].split("Output:\n")[-1].strip()))
        for block in blocks if content else []:
            if block["type"] == "tool_use":
                found.append(("call", block["input"]["command"]))
            elif block["type"] == "tool_result":
                text = block["content"] if isinstance(block["content"], str) else block["content"][0]["text"]
                found.append(("result", text.strip()))
            elif block["text"].startswith(("step", "done", "next")):
                found.append((item["role"], block["text"]))
    return found


def step(name: str) -> list[tuple[str, str]]:
    return [("user", f"step {name}"), ("call", f"echo {name}"), ("result", name), ("assistant", f"done {name}")]


def echo(agent: Protocol, name: str, then: Say) -> Call:
    tool, arguments = (
        ("Bash", {"command": f"echo {name}"}) if agent == "claude" else ("exec_command", {"cmd": f"echo {name}"})
    )
    return Call("", tool, arguments, then)


def run(machine: Machine, agent: Protocol, session: str | None, prompt: str, *, check: bool = True) -> Any:
    if agent == "claude":
        resumed = ["--resume", session] if session else []
        return machine.claude("-p", *resumed, "--allowedTools", "Bash", "--", prompt, check=check)
    return machine.codex("exec", *(["resume", session] if session else []), "--", prompt, check=check)


@pytest.fixture(autouse=True)
def _our_command(machine: Machine) -> None:
    """The machine knows this checkout; its agents have no server of ours."""
    machine.know_smart_fork()


def session_of(machine: Machine, agent: Protocol) -> Log:
    """A finished session of three steps, each with a tool call."""
    for name in STEPS:
        machine.model.when(lambda text, wanted=f"step {name}": text == wanted, echo(agent, name, Say(f"done {name}")))
    before = set(machine.logs(agent))
    run(machine, agent, None, f"step {STEPS[0]}")
    (log,) = set(machine.logs(agent)) - before
    for name in STEPS[1:]:
        run(machine, agent, log.session_id, f"step {name}")
    return log


@pytest.fixture(scope="module")
def sessions(machine: Machine) -> Callable[[Protocol], Log]:
    """One of each agent, for all tests."""
    return cache(lambda agent: session_of(machine, agent))


@pytest.fixture
def session(sessions: Callable[[Protocol], Log], agent: Protocol) -> Iterator[Log]:
    """That of an agent. Whatever a test does with it, the next one has it as it was."""
    log = sessions(agent)
    original = log.path.read_bytes()
    yield log
    log.path.write_bytes(original)


def turns(machine: Machine, log: Log) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads(machine.smart_fork("excise", "list", log.session_id, "--json").stdout)[
        "turns"
    ]
    return listed


def of_step(listed: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """The turns of a step that are conversation."""
    start = next(i for i, turn in enumerate(listed) if turn["preview"] == f"step {name}" and turn["role"] == "user")
    end = next(i for i, turn in enumerate(listed) if turn["preview"] == f"done {name}" and turn["role"] == "assistant")
    return [turn for turn in listed[start : end + 1] if turn["role"] != "system"]


def cut(machine: Machine, log: Log, cuts: list[dict[str, Any]], *more: str) -> dict[str, Any]:
    named = [word for turn in cuts for word in ("--id", turn["id"])]
    done: dict[str, Any] = json.loads(
        machine.smart_fork("excise", "cut", log.session_id, *named, "-y", "--json", *more).stdout
    )
    return done


def asked_next(machine: Machine, agent: Protocol, session_id: str) -> list[tuple[str, str]]:
    """Resume, and what the model was sent before the new prompt."""
    prompt = f"next {uuid.uuid4().hex}"
    run(machine, agent, session_id, prompt)
    *before, last = said(machine.model.wait_for(lambda request: request.last_prompt == prompt))
    assert last == ("user", prompt)
    return before


@each_agent(thorough="claude")
def test_the_model_is_sent_exactly_what_stayed(machine: Machine, agent: Protocol, session: Log):
    """E-030, E-032, E-040, E-041: one whole step, and of another one the call alone, which takes its result along.

    Of Claude Code the first prompt, too: it loads what has no beginning.
    """
    original = session.path.read_bytes()
    listed = turns(machine, session)
    calls = [turn for turn in of_step(listed, "heron") if turn["calls"]]

    first = of_step(listed, "zebra")[:1] if agent == "claude" else []

    outcome = cut(machine, session, [*of_step(listed, "walrus"), *calls, *first])

    kept = [*step("zebra")[len(first) :], step("heron")[0], step("heron")[3]]
    assert kept == asked_next(machine, agent, session.session_id)
    assert [] == machine.model.refused
    assert 0 == machine.smart_fork("excise", "verify", session.session_id).returncode
    assert b"walrus" not in session.path.read_bytes()

    machine.smart_fork("excise", "rollback", outcome["snapshot"], "--force")
    assert original == session.path.read_bytes()
    assert [*step("zebra"), *step("walrus"), *step("heron")] == asked_next(machine, agent, session.session_id)


@pytest.mark.thorough
@each_agent()
def test_one_of_two_calls_of_one_answer_goes_with_its_result_and_the_other_stays(machine: Machine, agent: Protocol):
    prompt, after = f"step both {uuid.uuid4().hex}", f"step {uuid.uuid4().hex}"
    calls = tuple(echo(agent, name, Say("")) for name in ("left", "right"))
    machine.model.when(prompt, Calls(calls, Say("done both")))
    before = set(machine.logs(agent))
    run(machine, agent, None, prompt)
    (log,) = set(machine.logs(agent)) - before
    run(machine, agent, log.session_id, after)
    listed = turns(machine, log)
    first, _ = [one["calls"][0] for one in listed if one["calls"]]
    (called,) = [one for one in listed if one["calls"] == [first]]

    outcome = cut(machine, log, [called])

    (answered,) = [one["id"] for one in listed if one["results"] == [first]]
    assert [answered] == outcome["dependents"]
    heard = asked_next(machine, agent, log.session_id)
    assert [
        ("user", prompt),
        ("call", "echo right"),
        ("result", "right"),
        ("assistant", "done both"),
        ("user", after),
    ] == heard[:5]
    assert [] == machine.model.refused


@pytest.mark.thorough
@each_agent()
def test_a_cut_session_can_be_forked(machine: Machine, agent: Protocol):
    """And a fork of before the cut goes on without what was cut where it reads that from its parent.

    In a session of its own: Codex forks none that is shorter than it knows it.
    """
    session = session_of(machine, agent)
    prompt = f"next {uuid.uuid4().hex}"
    if agent == "codex":
        machine.codex("exec", "fork", session.session_id, "--", "next of a fork")
        child = next(log for log in machine.logs(agent) if log.meta.get("forked_from_id") == session.session_id)
        cut(machine, session, of_step(turns(machine, session), "walrus"), "--force")
        machine.codex("exec", "resume", child.session_id, "--", prompt)
    else:
        cut(machine, session, of_step(turns(machine, session), "walrus"))
        machine.claude("-p", "--resume", session.session_id, "--fork-session", "--", prompt)

    heard = said(machine.model.wait_for(lambda request: request.last_prompt == prompt))
    assert [*step("zebra"), *step("heron")] == heard[:8]
    if agent == "codex":
        again = f"next {uuid.uuid4().hex}"
        machine.codex("exec", "fork", session.session_id, "--", again)
        heard = said(machine.model.wait_for(lambda request: request.last_prompt == again))
        assert [*step("zebra"), *step("heron")] == heard[:-1]


@pytest.mark.thorough  # a branch of what a cut leaves
@each_agent()
def test_a_branch_without_a_step_is_resumed_as_it_says_under_the_title_that_it_says_and_the_original_stays(
    machine: Machine, agent: Protocol, session: Log
):
    """E-075."""
    before = session.sha256
    numbers = ",".join(str(turn["number"]) for turn in of_step(turns(machine, session), "walrus"))

    told = json.loads(machine.smart_fork("branch", session.session_id, "--excise", numbers, "--json").stdout)

    assert told["session_id"] in told["resume_command"]
    assert told["title"].startswith("step zebra (Branch")
    assert [*step("zebra"), *step("heron")] == asked_next(machine, agent, told["session_id"])
    shown = json.loads(machine.smart_fork("show", told["session_id"], "--json").stdout)
    assert told["title"] == shown["title"]
    assert before == session.sha256


@pytest.mark.thorough
@each_agent()
def test_codex_s_header_is_needed_to_load_and_is_not_cut_unasked(machine: Machine, agent: Protocol, session: Log):
    """What the refusal says is so."""
    if agent == "claude":
        pytest.skip("it has none")
    before = session.path.read_bytes()
    first = turns(machine, session)[0]["id"]

    done = machine.smart_fork("excise", "cut", session.session_id, "--id", first, "-y", check=False)
    assert "can no longer load the session" in done.stderr
    assert (1, before) == (done.returncode, session.path.read_bytes())
    machine.smart_fork("excise", "cut", session.session_id, "--id", first, "-y", "--force")

    assert run(machine, agent, session.session_id, f"next {uuid.uuid4().hex}", check=False).returncode
    found = machine.smart_fork("excise", "verify", session.session_id, check=False)
    assert (1, True) == (found.returncode, "not session_meta" in found.stdout)


@each_agent(thorough="claude")
def test_a_session_that_is_open_is_refused(machine: Machine, agent: Protocol, session: Log):
    """E-075."""
    command = ["--resume", session.session_id] if agent == "claude" else ["resume", session.session_id]
    terminal = machine.agent_interactive(agent, *command)
    wait_until(lambda: "done heron" in terminal.screen, "the session on the screen")
    before = session.sha256

    done = machine.smart_fork(
        "excise", "cut", session.session_id, "--id", turns(machine, session)[3]["id"], "-y", "--force", check=False
    )

    assert (1, before) == (done.returncode, session.sha256)
    assert "running" in done.stderr
    terminal.leave("/exit" if agent == "claude" else "/quit")
