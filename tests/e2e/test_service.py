"""The real agents ask the service over HTTP, each about the projects that it works in."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.agents import Machine, machine_in
from tests.e2e.model_server import Protocol
from tests.e2e.programs import cache_folder
from tests.e2e.scenario import EXCHANGES, INTENT, ask, assert_forked, each_agent, unlike_any_other
from tests.e2e.services import Service, service_on
from tests.e2e.terminals import wait_until

pytestmark = pytest.mark.e2e


@contextmanager
def serving(programs: Path, machines: list[Machine]) -> Iterator[tuple[Machine, Service]]:
    """A machine with the service."""
    with machine_in(cache_folder(), programs) as machine:
        machines.append(machine)
        machine.env["SMART_FORK_INDEXING"] = "true"
        with service_on(machine) as service:
            yield machine, service


@pytest.fixture(scope="module")
def served(programs: Path, machines: list[Machine]) -> Iterator[Machine]:
    """One on which both agents know the service by its address and its token."""
    with serving(programs, machines) as (machine, service):
        machine.add_service(service.url, service.token)
        yield machine


@each_agent(thorough="codex")
def test_an_agent_has_its_own_projects_session_forked_and_is_told_of_no_other(served: Machine, agent: Protocol):
    """F-070, F-093, F-094, F-210."""
    project, other = (served.repository(f"{name}-{uuid.uuid4().hex[:6]}") for name in ("own", "other"))
    parent = served.session_of_before(agent, *EXCHANGES, cwd=project)
    foreign = served.session_of_before(agent, *EXCHANGES, cwd=other)
    prompt = unlike_any_other("Now do the same for the downloader")

    (found, refused), caller = ask(
        served,
        agent,
        project,
        ("smart_fork", {"intent": INTENT, "auto_fork": True, "prompt": prompt, "run_in": "process"}),
        ("list_sessions", {"agent_type": agent}),
    )

    assert [parent.session_id] == [result["session_id"] for result in found["results"]]
    fork = assert_forked(served, agent, parent, found["forked_session"], prompt)
    listed = {session["session_id"] for session in refused["sessions"]}
    assert parent.session_id in listed
    assert not {foreign.session_id, caller.session_id} & listed
    assert fork.session_id != caller.session_id


@pytest.mark.thorough  # without an agent: tests of the indexer
def test_the_service_keeps_the_index_fresh_while_sessions_are_written(served: Machine):
    """F-180: nobody asks for it."""
    session = served.session_of_a_person("claude", *EXCHANGES, cwd=served.repository(f"fresh-{uuid.uuid4().hex[:6]}"))

    def indexed() -> bool:
        seen = json.loads(served.smart_fork("index", "status", "--json").stdout)
        return bool(seen["unread_logs"] == 0 and seen["complete"])

    wait_until(indexed, "the service to have read and embedded everything")
    found = json.loads(served.smart_fork("find", INTENT, "--all-projects", "--limit", "50", "--json").stdout)
    assert session.session_id in {result["session_id"] for result in found["results"]} | {
        other for result in found["results"] for other in result.get("lineage", {}).get("others", ())
    }
