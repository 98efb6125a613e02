"""Facets of agents: an unknown agent is an error, and never another agent."""

import pytest

from smart_fork.agents import AGENTS
from smart_fork.agents.codex.codec import ForkBase, base_of
from smart_fork.errors import Usage
from tests.support.cases import parametrize_subtests


@pytest.mark.parametrize(
    "facet",
    [lambda name: AGENTS.copier_of(name).of, lambda name: AGENTS.ancestry_of(name).of.reader],
    ids=("copier", "ancestry"),
)
def test_each_agent_has_its_own(facet):
    assert list(AGENTS.startable()) == [facet(name).name for name in AGENTS.startable()]


@parametrize_subtests("name", ["", "Claude", "unknown"])
@parametrize_subtests(
    "facet",
    [
        AGENTS.copier_of,
        AGENTS.ancestry_of,
        AGENTS.tail_of,
        AGENTS.login_of,
        AGENTS.registration_of,
        AGENTS.command_of,
        AGENTS.converter_of,
    ],
)
def test_an_unknown_agent_is_refused_by_its_name(facet, name):
    with pytest.raises(Usage, match=f"Unknown agent: {name}") as error:
        facet(name)

    assert f"Agents are: {', '.join(agent.name for agent in AGENTS)}." == error.value.hint


@parametrize_subtests(
    "facet",
    [
        AGENTS.copier_of,
        AGENTS.ancestry_of,
        AGENTS.tail_of,
        AGENTS.login_of,
        AGENTS.registration_of,
        AGENTS.command_of,
        AGENTS.converter_of,
    ],
)
def test_what_an_agent_does_not_have_is_refused_in_a_sentence_that_names_it(facet):
    with pytest.raises(Usage, match=r"\bCursor\b"):
        facet("cursor")


@parametrize_subtests("agent", [agent.name for agent in AGENTS if "shared" in agent.lacks])
def test_why_something_is_not_done_with_an_agent_is_said(agent):
    with pytest.raises(Usage, match="not shared") as error:
        AGENTS.converter_of(agent)

    assert AGENTS[agent].lacks["shared"][1:] in error.value.hint


@parametrize_subtests(
    ("header", "expected"),
    [
        ({}, None),
        ({"history_base": None}, None),
        ({"history_base": "x"}, None),
        ({"history_base": {}}, ForkBase("", None)),
        ({"history_base": {"thread_id": 7, "end_ordinal_exclusive": "9"}}, ForkBase("", None)),
        ({"history_base": {"thread_id": "t", "end_ordinal_exclusive": True}}, ForkBase("t", None)),
        ({"history_base": {"thread_id": "t", "end_ordinal_exclusive": 9}}, ForkBase("t", 9)),
    ],
)
def test_the_session_that_a_fork_goes_on_from_is_what_its_header_names(header, expected):
    assert expected == base_of(header)
