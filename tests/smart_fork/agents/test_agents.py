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


def test_what_reads_a_log_is_imported_when_one_is_read():
    code = "import sys, smart_fork.agents; print(*(name for name in sys.modules if name.endswith('.fold')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "" == done.stdout.strip()
