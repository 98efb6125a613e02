"""A machine whose agents are told what was done before: fixtures, for all files that look at what they are told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.agents import Machine, machine_in
from tests.e2e.model_server import Protocol
from tests.e2e.programs import cache_folder
from tests.e2e.scenario import EXCHANGES
from tests.e2e.services import Service, service_on
from tests.e2e.terminals import wait_until

SETTINGS: dict[Protocol, str] = {"claude": ".claude/settings.json", "codex": ".codex/hooks.json"}
#: What a session of Claude Code knows.
ASKED = EXCHANGES[0][0]


@contextmanager
def machine_with_hooks(programs: Path, machines: list[Machine]) -> Iterator[Machine]:
    """A machine whose agents have worked, with hooks that a person has trusted in Codex, and given time."""
    with machine_in(cache_folder(), programs) as fresh:
        machines.append(fresh)
        fresh.know_smart_fork()
        fresh.env["SMART_FORK_RECALL_MS"] = "60000"
        fresh.session_of_before("claude", *EXCHANGES)
        fresh.session_of_before("codex", ("Paint the chart in other colours", "It is painted."))
        done = fresh.smart_fork("setup", "--yes", "--json", "--no-service", "--no-skill", "--no-index", "--recall")
        assert {"recall"} <= {step["step"] for step in json.loads(done.stdout)["steps"]}
        for settings in SETTINGS.values():  # the agents wait for hooks, however busy the machine is
            path = fresh.home / settings
            path.write_text(path.read_text().replace('"timeout": 3', '"timeout": 100'))
        terminal = fresh.agent_interactive("codex")
        terminal.choose("Hooks need review", "2")
        wait_until(lambda: "trusted_hash" in (fresh.home / ".codex/config.toml").read_text(), "Codex to trust them")
        fresh.close_terminals()
        yield fresh


@contextmanager
def service_of_hooks(machine: Machine) -> Iterator[Service]:
    """The service that the hooks of a machine ask, warm."""
    with service_on(machine) as service:
        machine.smart_fork("find", ASKED, "--json")
        yield service


@pytest.fixture(scope="session")
def told(programs, machines) -> Iterator[Machine]:
    """The one of all tests that leave its hooks as they are."""
    with machine_with_hooks(programs, machines) as machine:
        yield machine


@pytest.fixture(scope="session")
def recall(told: Machine) -> Iterator[Service]:
    """The service that its hooks ask."""
    with service_of_hooks(told) as service:
        yield service
