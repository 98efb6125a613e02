"""Which agents there are, each by its name."""

import pickle
import subprocess
import sys

import pytest

from indexer.transcripts.base import Agents, UnknownAgentError
from smart_fork.agents import AGENTS


def test_each_agent_is_found_by_its_name():
    assert [agent.name for agent in AGENTS] == list(AGENTS.names)
    assert list(AGENTS) == [AGENTS[name] for name in AGENTS.names]


@pytest.mark.parametrize("name", ["", "Claude", "cursor", "claude/../codex", "x\x1b[2J"])
def test_an_unknown_name_is_an_error_that_says_which_are_known(name):
    with pytest.raises(UnknownAgentError) as caught:
        AGENTS[name]

    assert f"unknown agent {name!r}; known are claude, codex" == str(caught.value)


def test_other_processes_get_the_agents_that_are_handed_in():
    """A process that reads logs is told once which agents there are."""
    sent = pickle.loads(pickle.dumps(Agents(AGENTS["codex"])))  # noqa: S301 - ours

    assert ("codex",) == sent.names
    assert AGENTS["codex"].folders() == sent["codex"].folders()


@pytest.mark.parametrize(
    ("asked", "expected"),
    [("import smart_fork.agents", ""), ("from smart_fork.agents import AGENTS", "claude.log claude.slugs codex.log")],
)
def test_what_is_an_agent_s_is_imported_when_it_is_asked_for(asked, expected):
    """A hook runs with each prompt, and does without them. What reads a log is imported when one is read."""
    of_agents = "(name[18:] for name in sorted(sys.modules) if name[:18] == 'smart_fork.agents.' and '.' in name[18:])"
    code = f"import sys; {asked}; print(*{of_agents})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert expected.split() == [name for name in done.stdout.split() if name != "codex.rollouts"]


def test_no_other_name_is_made_up():
    with pytest.raises(ImportError):
        from smart_fork.agents import AGENT  # noqa: F401
