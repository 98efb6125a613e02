"""Setup step that enables hints from past sessions at first prompts, edits and errors. Optional."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from indexer.transcripts.model import AgentName
from smart_fork.agents import AGENTS
from smart_fork.agents.registration import Registration
from smart_fork.cli.service.client import find_service
from smart_fork.cli.setup import agent_settings
from smart_fork.cli.setup.ledger import Ledger, LedgerLine, Step, switching
from smart_fork.doctor import Check
from smart_fork.hooks import recall_switch

NAME = "recall at first prompts, edits, failed commands and compactions"
_OFF = "`smart-fork setup --no-recall` switches it off."


def planned(way: Registration) -> Step:
    """The step that switches it on. What speaks is the hooks of the same agent."""
    agent = way.agent
    step = partial(Step, "recall", NAME, str(recall_switch.file_of(agent)), agent=agent)
    hooks = AGENTS[agent].hooks
    if hooks is None or not (hooks.recalls or hooks.edits):
        return step(state="left", why=f"{way.title} has no hook for prompts or edits")
    return step(state="there") if recall_switch.is_on(agent) else step(state="new", act=partial(_written, agent))


def _written(agent: AgentName, ledger: Ledger) -> list[str]:
    path = recall_switch.file_of(agent)
    ledger.write(LedgerLine(what="recall", agent=agent, path=path))
    with switching(path, "written"):
        recall_switch.turn_on(agent)
    return [*agent_settings.follow_recall(agent), f"Recall works while the service runs. {_OFF}"]


def undo(line: LedgerLine) -> list[str]:
    """Switch it off.

    Raises:
        SmartForkError: that cannot be written.
    """
    agent = AGENTS.registration_of(line.agent).agent
    with switching(line.path, "removed"):
        recall_switch.turn_off(agent)
    return list(agent_settings.follow_recall(agent))


def standing(line: LedgerLine) -> str:
    """Describe the differences from what setup left; empty if none."""
    return "" if line.path.is_file() else "recall is off"


def checks(ledger: Ledger) -> Iterator[Check]:
    """Check the recall hooks, if enabled."""
    agents = [AGENTS.registration_of(line.agent) for line in ledger if line.what == "recall" and line.path.is_file()]
    if not agents:
        return
    asked = recall_switch.asked()
    detail = (
        f"on for {AGENTS.titles(way.agent for way in agents)}; "
        f"suggested a session in {asked.told} of {asked.sessions} new sessions"
    )
    if find_service() is None:
        step = f"Start the service: `smart-fork service install`, or `smart-fork serve`. {_OFF}"
        yield Check("recall", ok=False, detail=f"{detail}; no service runs", next_step=step, optional=True)
    else:
        yield Check("recall", ok=True, detail=detail)
