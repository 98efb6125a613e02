"""Which agents there are, each by its name."""

import pickle
import subprocess
import sys

import pytest

from indexer.transcripts.base import Agents, UnknownAgentError
from smart_fork.agents import READERS
from tests.cases import each


def test_each_agent_is_found_by_its_name():
    assert [agent.name for agent in READERS] == list(READERS.names)
    assert list(READERS) == [READERS[name] for name in READERS.names]


@each("name", ["", "Claude", "unknown", "claude/../codex", "x\x1b[2J"])
def test_an_unknown_name_is_an_error_that_says_which_are_known(name):
    with pytest.raises(UnknownAgentError) as caught:
        READERS[name]

    assert f"unknown agent {name!r}; known are {', '.join(READERS.names)}" == str(caught.value)


def test_other_processes_get_the_agents_that_are_handed_in():
    """A process that reads logs is told once which agents there are."""
    sent = pickle.loads(pickle.dumps(Agents(READERS["codex"])))  # noqa: S301 - ours

    assert ("codex",) == sent.names
    assert READERS["codex"].folders() == sent["codex"].folders()


@pytest.mark.parametrize("agent", list(READERS), ids=READERS.names)
def test_whoever_opens_a_log_reads_a_session(agent, home):
    """As the agent is by default, below whatever home."""
    for folder, _ in agent.folders():
        assert any(folder.is_relative_to(home / place) for place in agent.places)
    for place in agent.places:
        assert READERS.opens_a_session(f"read /somewhere/{place}/x")
        assert not READERS.opens_a_session(f"read /somewhere/{place}-else/x")
    assert READERS.opens_a_session("run cat ~/.smart-fork/index/x.md")
    assert not READERS.opens_a_session("read src/a.py")


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("import smart_fork.agents", "claude.home codex.home copilot.home gemini.home opencode.home qwen.home"),
        (
            "from smart_fork.agents import READERS",
            "claude.home claude.log codex.home codex.log copilot.home copilot.log cursor.log gemini.home gemini.log opencode.home opencode.log qwen.home qwen.log",
        ),
    ],
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
