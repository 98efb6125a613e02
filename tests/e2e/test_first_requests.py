"""Our tools are in the first request of a real agent, which waits for no server that takes its time."""

from __future__ import annotations

import pytest

from smart_fork.server import FEW
from tests.e2e.agents import Machine
from tests.e2e.first_requests import WAYS, first_tools

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize(
    "way", [pytest.param(one, marks=[pytest.mark.thorough] if one == "claude -p, without" else []) for one in WAYS]
)
def test_the_first_request_of_an_agent_has_our_tools(machine: Machine, way: str):
    tools = first_tools(machine, way)
    prefix = WAYS[way].removesuffix("find_sessions")

    assert {f"{prefix}{name}" for name in FEW} == {name for name in tools if name.startswith(prefix)}
