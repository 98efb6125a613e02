"""The hooks in an agent's settings, as a step. What they are, and how they are put in, `agent_settings` knows."""

from __future__ import annotations

from functools import partial

from indexer.transcripts.model import AgentName
from smart_fork.agents import AGENTS
from smart_fork.cli.setup import agent_settings, foreign_files
from smart_fork.cli.setup.ledger import Ledger, LedgerLine, Step, take_away

NAME = "hooks"


def planned(agent: AgentName) -> Step:
    """The step that has an agent tell what its sessions do.

    Raises:
        SmartForkError: its settings are not understood, or must not be written.
    """
    path = agent_settings.settings_file(agent)
    step = partial(Step, "hooks", NAME, str(path), agent=agent)
    if agent_settings.is_installed(agent):
        return step(state="there")
    foreign_files.check_writable(path)
    return step(state="new", act=partial(_written, agent))


def _written(agent: AgentName, ledger: Ledger) -> list[str]:
    ledger.begin(LedgerLine(what="hooks", agent=agent, path=agent_settings.settings_file(agent)))
    return list(agent_settings.install(agent).notes)


def undo(line: LedgerLine) -> list[str]:
    """Take them out.

    Raises:
        SmartForkError: the settings are not understood; they are as they were.
    """
    agent = AGENTS.registration_of(line.agent).agent
    if agent_settings.settings_file(agent) == line.path:
        agent_settings.remove(agent)
    take_away(line.path, line.folders)
    return []


def standing(line: LedgerLine) -> str:
    """What is no longer as it was left; empty where all is.

    Raises:
        SmartForkError: the settings are not understood.
    """
    return (
        ""
        if agent_settings.is_installed(AGENTS.registration_of(line.agent).agent)
        else f"the hooks in {line.path} are missing or outdated"
    )
