"""How much of its parent's last request the first one of a fork begins with: as much as that of the program's own fork.

What is the same at the beginning a model's provider reads from its cache, for a tenth of what it takes else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import takewhile
from typing import Any, NamedTuple

import pytest

from tests.e2e.agents import Machine
from tests.e2e.logs import Json, Log
from tests.e2e.model_server import Call, Calls, Protocol, Request, Say
from tests.e2e.scenario import unlike_any_other

pytestmark = pytest.mark.e2e
#: What is asked, with two calls at once in the second exchange, and a file named in the third.
ASKED = ["Write a retry helper", "Run two commands", "Add jitter to it, see @README.md", "And its test"]
RUNS = {"claude": ("Bash", "command"), "codex": ("exec_command", "cmd")}
HOOK = {"hooks": [{"type": "command", "command": "echo told by a hook"}]}


class Shared(NamedTuple):
    """Whether the instructions and tools are the same, and how many messages at the beginning are."""

    instructions: bool
    messages: int


class Scene(NamedTuple):
    """A session that was asked all that, what its model was sent last, and the number of the message of each answer."""

    agent: Protocol
    machine: Machine
    log: Log
    request: Request
    answers: list[int]

    def native(self, *options: str) -> Shared:
        """The program's own fork."""
        prompt = unlike_any_other("Go on")
        if self.agent == "claude":
            self.machine.claude("-p", "--resume", self.log.session_id, "--fork-session", *options, "--", prompt)
        else:
            self.machine.codex("exec", "fork", self.log.session_id, prompt)
        return shared(self.request, self.machine.model.wait_for_prompt(prompt))

    def ours(self, *options: str, prompt: str = "Go on") -> tuple[Shared, Json]:
        """A fork of ours, and what is said of it."""
        prompt = unlike_any_other(prompt)
        words = ("fork", self.log.session_id, prompt, "--in", "process", "--no-brief", "--json", *options)
        told = json.loads(self.machine.smart_fork(*words).stdout)
        return shared(self.request, self.machine.model.wait_for_prompt(prompt)), told


def shared(parent: Request, fork: Request) -> Shared:
    """What the two have in common at the beginning; marks for the cache, and ids of items, are no part of the text."""
    one, other = (plain(request.body) for request in (parent, fork))
    same = takewhile(lambda pair: pair[0] == pair[1], zip(items(one), items(other), strict=False))
    return Shared(
        all(one.get(name) == other.get(name) for name in ("system", "instructions", "tools")), len(list(same))
    )


def items(body: Json) -> list[Json]:
    found: list[Json] = body["messages"] if "messages" in body else body["input"]
    return found


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        left_out = ("cache_control", "id") if value.get("type") == "message" else ("cache_control",)
        return {name: plain(one) for name, one in value.items() if name not in left_out}
    return [plain(one) for one in value] if isinstance(value, list) else value


def asked_all(machine: Machine, agent: Protocol, *, compacted: bool = False) -> Scene:
    """Ask as a script does, four times; before the third time the session may be compacted."""
    tool, field = RUNS[agent]
    runs = tuple(Call("", tool, {field: f"echo {word}"}, Say("")) for word in ("one", "two"))
    machine.model.when(ASKED[1], Calls(runs, Say("Both ran.")))
    session: tuple[str, ...] = ()
    for prompt in ASKED:
        if agent == "claude":
            if compacted and prompt == ASKED[2]:
                machine.claude("-p", *session, "--", "/compact")
            machine.claude("-p", "--allowedTools", "Bash", *session, "--", prompt)
        else:
            machine.codex("exec", *session, prompt)
        log = machine.logs(agent)[-1]
        session = ("--resume" if agent == "claude" else "resume", log.session_id)
    request = machine.model.requests[-1]
    machine.smart_fork("index", "run")
    messages = json.loads(machine.smart_fork("show", log.session_id, "--json").stdout)["messages"]
    answers = [one["number"] for one in messages if one["role"] == "assistant" and one["text"]]
    return Scene(agent, machine, log, request, answers)


@pytest.fixture(scope="module")
def claude(machine: Machine) -> Iterator[Scene]:
    """A session of Claude Code with hooks, which tell its model something before each prompt and after each call."""
    machine.know_smart_fork()
    settings = machine.home / ".claude" / "settings.json"
    settings.write_text(json.dumps({"hooks": {"UserPromptSubmit": [HOOK], "PostToolUse": [HOOK]}}))
    yield asked_all(machine, "claude")
    settings.unlink()


def uuids_of_answers(log: Log) -> list[str]:
    said = [one for one in log.records if one.get("type") == "assistant"]
    return [one["uuid"] for one in said if any(part["type"] == "text" for part in one["message"]["content"])]


def test_a_fork_of_claude_begins_like_the_program_s_own_fork_at_that_point(claude: Scene):
    whole, first = claude.native(), claude.native("--resume-session-at", uuids_of_answers(claude.log)[0])

    assert whole.instructions
    assert 0 < first.messages < whole.messages
    last = ("--at", str(claude.answers[-1]))
    assert [whole, whole] == [claude.ours(*options)[0] for options in ((), last)]
    elsewhere, copy = claude.ours("--worktree")[0], claude.ours("--worktree", *last)[0]
    assert (whole.messages, elsewhere) == (elsewhere.messages, copy)  # older versions name it in their instructions
    assert first == claude.ours("--at", str(claude.answers[0]))[0]
    third = claude.native("--resume-session-at", uuids_of_answers(claude.log)[2])
    assert third == claude.ours("--at", "match", prompt="Add jitter to it, see the README")[0]


@pytest.mark.thorough  # further forms of the fork above
def test_a_fork_of_claude_within_a_budget_begins_like_the_session_up_to_its_first_gap(claude: Scene):
    until = claude.native("--resume-session-at", uuids_of_answers(claude.log)[1])

    found, told = claude.ours("--budget", "200k", "--drop", "3")

    assert until == found
    assert claude.answers[1] + 1 == told["selection"]["new_from"]


@pytest.mark.thorough  # further forms of the fork above
def test_a_fork_of_a_compacted_session_of_claude_at_a_message_begins_with_its_summary_and_what_it_kept(
    machine: Machine,
):
    machine.know_smart_fork()
    scene = asked_all(machine, "claude", compacted=True)
    whole, third = scene.native(), scene.native("--resume-session-at", uuids_of_answers(scene.log)[-2])

    assert 0 < third.messages <= whole.messages
    assert [third, whole] == [scene.ours("--at", str(number))[0] for number in scene.answers[-2:]]


def test_a_fork_of_codex_begins_like_the_session(machine: Machine):
    machine.know_smart_fork()
    scene = asked_all(machine, "codex")
    whole = Shared(instructions=True, messages=len(items(scene.request.body)))

    assert whole == scene.native()
    last = ("--at", str(scene.answers[-1]))
    assert [whole, whole, whole] == [scene.ours(*options)[0] for options in ((), last, (*last, "--worktree"))]
    second, _ = scene.ours("--at", str(scene.answers[1]))
    within, told = scene.ours("--budget", "200k", "--drop", "3")
    assert second.messages < whole.messages
    assert (second, scene.answers[1] + 1) == (within, told["selection"]["new_from"])
