"""The real agents, whose servers go on in a process that waited."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.e2e.agents import Machine, machine_in
from tests.e2e.model_server import Protocol
from tests.e2e.programs import cache_folder
from tests.e2e.scenario import EXCHANGES, INTENT, ask, assert_forked, unlike_any_other
from tests.e2e.terminals import wait_until
from tests.living import arguments, directory

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def preloading(programs: Path, machines: list[Machine]) -> Iterator[Machine]:
    """A machine on which commands start a preloader."""
    with machine_in(cache_folder(), programs) as machine:
        machines.append(machine)
        machine.env.pop("SMART_FORK_PRELOAD")
        machine.env.pop("SMART_FORK_BACKGROUND", None)
        machine.add_smart_fork()
        yield machine


def preloaded(machine: Machine) -> list[psutil.Process]:
    """The preloader of this machine, and its forks."""
    return [one for one in machine.processes() if "smart_fork.preload.server" in arguments(one)]


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_an_agent_asks_and_forks_through_a_process_that_waited(preloading: Machine, agent: Protocol):
    project = preloading.repository(f"preloaded-{agent}-{uuid.uuid4().hex[:8]}")
    parent = preloading.session_of_a_person(agent, *EXCHANGES, cwd=project)
    preloading.smart_fork("find", INTENT, cwd=project)
    wait_until(lambda: len(preloaded(preloading)) >= 3, "the preloader and two forks")

    prompt = unlike_any_other("Now do the same for the downloader")
    more = {"intent": INTENT, "fork_session_id": parent.session_id, "prompt": prompt, "run_in": "process"}
    (found,), caller = ask(preloading, agent, project, ("smart_fork", more), terminal=True)

    assert [one for one in preloaded(preloading) if directory(one) == project]
    assert parent.session_id in {result["session_id"] for result in found["results"]}
    fork = assert_forked(preloading, agent, parent, found["forked_session"], prompt)
    assert fork.session_id != caller.session_id
