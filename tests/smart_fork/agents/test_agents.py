"""The agents, each by its name."""

import pickle
import subprocess
import sys

import pytest

from indexer.transcripts.base import AgentAdapter, Agents, UnknownAgentError
from smart_fork.agents.log_readers import OWN, READERS
from smart_fork.agents.repository_session_adapter import RepositorySessionAdapter
from tests.support.cases import parametrize_subtests


def test_each_agent_is_found_by_its_name():
    assert [agent.name for agent in READERS] == list(READERS.names)
    assert list(READERS) == [READERS[name] for name in READERS.names]


@parametrize_subtests("name", ["", "Claude", "unknown", "claude/../codex", "x\x1b[2J"])
def test_an_unknown_name_is_an_error_that_says_which_are_known(name):
    with pytest.raises(UnknownAgentError) as caught:
        READERS[name]

    assert f"unknown agent {name!r}; known are {', '.join(READERS.names)}" == str(caught.value)


def test_other_processes_get_the_agents_that_are_handed_in():
    """A process that reads logs is given the agents when it starts."""
    sent = pickle.loads(pickle.dumps(Agents(READERS["codex"])))  # noqa: S301 - ours

    assert ("codex",) == sent.names
    assert READERS["codex"].folders() == sent["codex"].folders()


@pytest.mark.parametrize("agent", list(READERS), ids=READERS.names)
def test_whoever_opens_a_log_reads_a_session(agent, home):
    """The agents are used with their default settings, in any home."""
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
        ("import smart_fork.agents", ""),
        (
            "from smart_fork.agents.log_readers import READERS",
            "claude.log_files codex.log_files codex.rollouts copilot.log_files cursor.log_files gemini.home gemini.log_files opencode.log_files qwen.log_files",
        ),
    ],
)
def test_what_is_an_agent_s_is_imported_when_it_is_asked_for(asked, expected):
    """A hook runs with each prompt, so it imports no agent's modules. The modules that read a log are imported when a
    log is read.
    """
    of_agents = "(name[18:] for name in sorted(sys.modules) if name[:18] == 'smart_fork.agents.' and '.' in name[18:])"
    code = f"import sys; {asked}; print(*{of_agents})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert expected.split() == done.stdout.split()


def test_a_machine_without_checkpoints_reads_with_the_agents_own_readers(monkeypatch, tmp_path):
    """Each reader is the class in its agent's folder, not wrapped in another one."""
    monkeypatch.setenv("SMART_FORK_HOME", str(tmp_path))

    assert [type(own) for own in OWN] == [type(reader) for reader in READERS]


def test_checkpoints_that_another_process_lists_are_read_as_well(monkeypatch, tmp_path):
    monkeypatch.setenv("SMART_FORK_HOME", str(tmp_path))
    before = {reader.name: type(reader) for reader in READERS}
    (tmp_path / "checkpoints").mkdir()

    assert {"claude", "codex"} <= {reader.name for reader in READERS if type(reader) is not before[reader.name]}
    assert {type(READERS["claude"])} == {type(reader) for reader in READERS if reader.name == "claude"}
    (tmp_path / "checkpoints").rmdir()
    assert before == {reader.name: type(reader) for reader in READERS}


def test_a_reader_with_checkpoints_says_all_that_the_agent_s_own_says():
    """An attribute that the wrapper does not delegate would have the default of every agent."""
    told = {name for name in vars(AgentAdapter) if not name.startswith("_")}

    assert told <= {*vars(RepositorySessionAdapter), *vars(RepositorySessionAdapter(OWN["codex"]))} | {"name"}
