"""What is one agent's is asked of that agent: one that nobody knows is an error, and never another one."""

import pytest

from smart_fork.agents import AGENTS
from smart_fork.agents.codex.base import Base, base_of
from smart_fork.agents.copiers import copier
from smart_fork.agents.heads import heads_of
from smart_fork.agents.tails import tail_of
from smart_fork.errors import Usage


@pytest.mark.parametrize("facet", [copier, heads_of, tail_of])
def test_each_agent_has_its_own(facet):
    assert list(AGENTS.names) == [facet(name).name for name in AGENTS.names]


@pytest.mark.parametrize("name", ["", "Claude", "cursor", "unknown"])
@pytest.mark.parametrize("facet", [copier, heads_of, tail_of])
def test_an_unknown_agent_is_refused_by_its_name(facet, name):
    with pytest.raises(Usage, match=f"of {name} sessions"):
        facet(name)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ({}, None),
        ({"history_base": None}, None),
        ({"history_base": "x"}, None),
        ({"history_base": {}}, Base("", None)),
        ({"history_base": {"thread_id": 7, "end_ordinal_exclusive": "9"}}, Base("", None)),
        ({"history_base": {"thread_id": "t", "end_ordinal_exclusive": True}}, Base("t", None)),
        ({"history_base": {"thread_id": "t", "end_ordinal_exclusive": 9}}, Base("t", 9)),
    ],
)
def test_the_session_that_a_fork_goes_on_from_is_what_its_header_names(header, expected):
    assert expected == base_of(header)
