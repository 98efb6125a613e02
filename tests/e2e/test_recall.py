"""The real agents put before their model what our hook says of a new session's first prompt, once, and only while it may."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.agents import SMART_FORK, Machine, machine_in
from tests.e2e.model_server import Answer, Call, Protocol, Request, Say
from tests.e2e.programs import cache_folder
from tests.e2e.scenario import EXCHANGES, unlike_any_other
from tests.e2e.services import Service, service_on
from tests.e2e.terminals import wait_until

pytestmark = pytest.mark.e2e
agents = pytest.mark.parametrize("agent", ["claude", "codex"])
SETTINGS: dict[Protocol, str] = {"claude": ".claude/settings.json", "codex": ".codex/hooks.json"}
ASKED = EXCHANGES[0][0]


@pytest.fixture(scope="module")
def told(programs, machines) -> Iterator[Machine]:
    """A machine whose agents have worked, with hooks that a person has trusted in Codex, and given time."""
    with machine_in(cache_folder(), programs) as fresh:
        machines.append(fresh)
        fresh.know_smart_fork()
        fresh.env["SMART_FORK_RECALL_MS"] = "60000"
        fresh.session_of_before("claude", *EXCHANGES)
        fresh.session_of_a_person("codex", ("Paint the chart in other colours", "It is painted."))
        done = fresh.smart_fork("setup", "--yes", "--json", "--no-service", "--no-skill", "--recall")
        assert {"recall"} <= {step["step"] for step in json.loads(done.stdout)["steps"]}
        for settings in SETTINGS.values():  # the agents wait for hooks, however busy the machine is
            path = fresh.home / settings
            path.write_text(path.read_text().replace('"timeout": 3', '"timeout": 100'))
        terminal = fresh.agent_interactive("codex")
        terminal.choose("Hooks need review", "2")
        wait_until(lambda: "trusted_hash" in (fresh.home / ".codex/config.toml").read_text(), "Codex to trust them")
        fresh.close_terminals()
        yield fresh


@pytest.fixture(scope="module")
def served(told: Machine) -> Iterator[Service]:
    with service_on(told) as service:
        told.run(*SMART_FORK, "find", ASKED, "--json")
        yield service


def first_request(machine: Machine, agent: Protocol, prompt: str) -> Request:
    """What the model is asked first in a new session."""
    machine.run(machine.programs / agent, "-p" if agent == "claude" else "exec", prompt)
    return machine.model.wait_for_prompt(prompt)


def lines(request: Request) -> int:
    return json.dumps(request.body).count("</smart-fork-recall>")


@agents
def test_the_first_request_has_the_line_and_the_second_prompt_adds_none(
    told: Machine, served: Service, agent: Protocol
):
    first, second = unlike_any_other(ASKED), unlike_any_other("Go on with it")
    terminal = told.agent_interactive(agent, "--", first)
    request = told.model.wait_for_prompt(first)
    wait_until(lambda: told.find_log(agent, f"Noted: {first[:60]}"), "the first answer")
    terminal.type(second)
    again = told.model.wait_for_prompt(second)

    assert (1, 1) == (lines(request), lines(again)), "what stands before the first prompt stays there"
    assert "To fork it, call smart_fork" in json.dumps(request.body)
    log = told.find_log(agent, f"Noted: {first[:60]}")
    shown = told.smart_fork("show", log.session_id, "--json")
    assert "smart-fork-recall" not in shown.stdout
    terminal.leave("/exit" if agent == "claude" else "/quit")


@agents
def test_a_first_prompt_that_nothing_fits_adds_none(told: Machine, served: Service, agent: Protocol):
    assert 0 == lines(first_request(told, agent, unlike_any_other("What is the capital of Mongolia?")))


@agents
def test_before_an_edit_the_model_is_told_once_which_exchange_wrote_the_lines(
    told: Machine, served: Service, agent: Protocol
):
    file, asked = told.project / f"{agent}.py", unlike_any_other("Write the upload")
    first, second = (
        f"    return send_in_parts_of_{agent}(path, retries)\n",
        f"    return send_at_once_to_{agent}(path)\n",
    )
    text = f"def upload(path, retries=5):\n{first}\n\ndef upload_now(path):\n{second}"
    told.model.when(asked, Call("", "Write", {"file_path": str(file), "content": text}, Say("It is written.")))
    told.run(told.programs / "claude", "-p", "--allowedTools", "Write", "--", asked)
    told.run("git", "add", ".")
    told.run("git", "commit", "-q", "-m", "Upload")
    told.run(*SMART_FORK, "find", "upload", "--json")
    changed = unlike_any_other("Send nothing")
    told.model.when(changed, edit(agent, file, first, edit(agent, file, second, Say("It is changed."))))

    how = ("-p", "--allowedTools", "Read,Edit", "--") if agent == "claude" else ("exec",)
    told.run(told.programs / agent, *how, changed)

    assert "None" in file.read_text()
    requests = [json.dumps(one.body) for one in told.model.requests if changed in json.dumps(one.body)]
    assert 1 == requests[-1].count("wrote these lines when it was asked"), "of two edits of lines of one exchange"
    assert asked in requests[-1]


def test_after_a_compaction_the_model_is_told_how_to_search_what_was_dropped(told: Machine, served: Service):
    first, more, last = map(unlike_any_other, ("What is the weather like?", "And tomorrow?", "Go on with it"))
    terminal = told.agent_interactive("claude", "--", first)
    wait_until(lambda: told.find_log("claude", f"Noted: {first[:60]}"), "the first answer")
    terminal.type(more)
    log = wait_until(lambda: told.find_log("claude", f"Noted: {more[:60]}"), "the second answer")
    terminal.type("/compact")
    wait_until(lambda: '"compact_boundary"' in log.path.read_text(), "the compaction")
    terminal.type(last)

    request = told.model.wait_for_prompt(last)

    assert "call find_sessions with session='self'" in json.dumps(request.body)
    terminal.leave("/exit")


def edit(agent: Protocol, file: Path, old: str, then: Answer) -> Answer:
    """The model replaces a line of a file by another."""
    if agent == "claude":
        given = {"file_path": str(file), "old_string": old, "new_string": "    return None\n"}
        return Call("", "Read", {"file_path": str(file)}, Call("", "Edit", given, then))
    patch = f"*** Begin Patch\n*** Update File: {file.name}\n@@\n-{old}+    return None\n*** End Patch\n"
    return Call("", "exec_command", {"cmd": f"apply_patch <<'EOF'\n{patch}EOF"}, then)


def test_without_the_service_and_switched_off_there_is_none(told: Machine, served: Service):
    both: list[Protocol] = ["claude", "codex"]
    with served.killed():
        assert [0, 0] == [lines(first_request(told, agent, unlike_any_other(ASKED))) for agent in both]
    assert [1, 1] == [lines(first_request(told, agent, unlike_any_other(ASKED))) for agent in both]
    for agent in both:
        told.smart_fork("setup", "--no-recall", "--agent", agent)
    assert [0, 0] == [lines(first_request(told, agent, unlike_any_other(ASKED))) for agent in both]
