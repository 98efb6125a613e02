"""Codex keeps a person's keys from its MCP servers: a fork of a Claude session that one of these starts works all the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from smart_fork.workers.registry import Registry
from tests.e2e.agents import SMART_FORK, Machine
from tests.e2e.logs import Json, Log
from tests.e2e.scenario import EXCHANGES, INTENT, ask, assert_forked, heard, unlike_any_other
from tests.e2e.terminals import wait_until

pytestmark = pytest.mark.e2e
#: What our server stands in no need of from Codex, and a test does.
NEEDED = (
    "SMART_FORK_TMUX_SOCKET",
    "PYTHONPATH",
    "HF_HUB_OFFLINE",
    "DISABLE_AUTOUPDATER",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
)
KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")


@pytest.fixture(scope="module")
def parent(machine: Machine) -> Log:
    """The session of a person, on a machine whose Codex gives our server none of that person's keys."""
    machine.know_smart_fork()
    machine.mcp_env = {name: machine.env[name] for name in NEEDED}
    machine._write_settings()
    return machine.session_of_before("claude", *EXCHANGES)


@pytest.fixture
def profile(machine: Machine) -> Iterator[Callable[..., None]]:
    """What a person's login shell sets."""
    path = machine.home / ".profile"

    def write(*names: str) -> None:
        path.write_text("echo Welcome\n" + "".join(f"export {name}='{machine.env[name]}'\n" for name in names))

    yield write
    path.unlink()
    machine.close_terminals()


def use_a_terminal(machine: Machine) -> None:
    """A person lists the sessions: their names are known from then on."""
    terminal = machine.interactive(*SMART_FORK, "list")
    wait_until(lambda: not terminal.running, "the list to be printed")
    noted = (machine.home / ".smart-fork/variables.json").read_text()
    assert set(KEYS) <= set(json.loads(noted)["claude"])
    assert not any(machine.env[name] in noted for name in KEYS)
    machine.close_terminals()  # its server would have the keys, and so would every window


def forked_by_codex(machine: Machine, session: Log, prompt: str, place: str) -> Json:
    """One of the sessions that are found without saying whose are meant."""
    arguments = {"intent": INTENT, "fork_session_id": session.session_id, "prompt": prompt, "run_in": place}
    (answer,), _ = ask(machine, "codex", machine.project, ("smart_fork", arguments))
    assert "No session of Codex fits, so sessions of Claude Code were searched too" in answer["agents_notice"]
    return answer


@pytest.mark.thorough  # a rarer way to start one
@pytest.mark.parametrize("place", ["process", "tmux"])
def test_a_fork_that_codex_has_started_asks_whom_the_person_asks(machine: Machine, parent: Log, profile, place: str):
    use_a_terminal(machine)
    profile(*KEYS)
    prompt = unlike_any_other("Now do the same for the downloader")

    fork = forked_by_codex(machine, parent, prompt, place)["forked_session"]

    assert fork["warnings"].pop(0) == "This starts Claude Code, not Codex: the session is one of Claude Code"
    assert fork["agent_type"] == "claude"
    assert machine.KEY == heard(machine, prompt).headers["x-api-key"]
    assert_forked(machine, "claude", parent, fork, prompt)
    if place == "tmux":
        assert machine.KEY not in machine.tmux("show-environment", "-g")
    assert [] == [path for path in written(machine) if machine.KEY.encode() in path.read_bytes()]


@pytest.mark.thorough  # without an agent: tests of forking
def test_a_fork_that_could_not_log_in_is_not_started(machine: Machine, parent: Log, profile):
    use_a_terminal(machine)
    profile("ANTHROPIC_BASE_URL")
    before = workers(machine)
    prompt = unlike_any_other("Now do the same for the downloader")

    answer = forked_by_codex(machine, parent, prompt, "tmux")

    assert answer["error"] == (
        "Nothing was started: Claude Code is not logged in here: ANTHROPIC_API_KEY, which your environment had, "
        "is not set, and your login shell (sh) does not set it"
    )
    assert "claude auth login" in answer["hint"]
    assert "forked_session" not in answer
    assert before == workers(machine)
    assert not any(prompt == request.last_prompt for request in machine.model.requests if request.protocol == "claude")


def workers(machine: Machine) -> list[str]:
    with Registry(machine.home / ".smart-fork" / "workers.db") as registry:
        return [worker.id for worker in registry.workers()]


def written(machine: Machine) -> list[Path]:
    """All that we have written."""
    return [path for path in (machine.home / ".smart-fork").rglob("*") if path.is_file()]
