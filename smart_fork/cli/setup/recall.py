"""The part of the setup that switches on recall: an agent's hooks print hints (lines about past sessions that fit)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from indexer.transcripts.model import AgentName
from smart_fork.agents import AGENTS
from smart_fork.agents.mcp_registration import Registration
from smart_fork.cli.service.client import find_service
from smart_fork.cli.setup import agent_hooks
from smart_fork.cli.setup.foreign_file import write_errors
from smart_fork.cli.setup.ledger import Ledger, LedgerLine
from smart_fork.cli.setup.step import Step
from smart_fork.doctor import Check
from smart_fork.hooks import hint_switch

NAME = "recall at first prompts, edits, failed commands and compactions"
_OFF = "`smart-fork setup --no-recall` switches it off."


def planned(way: Registration) -> Step:
    """Return the step that makes the hooks of an agent print hints (lines about past sessions that fit).

    `way` registers smart-fork with the agent. Without suitable hooks, the step has the state "left": it is not done.
    """
    agent = way.agent
    step = partial(Step, "recall", NAME, str(hint_switch.file_of(agent)), agent=agent)
    hooks = AGENTS[agent].hooks
    if hooks is None or not (hooks.recalls or hooks.edits):
        return step(state="left", why=f"{way.title} has no hook for prompts or edits")
    if hint_switch.is_on(agent):
        return step(state="there")
    return step(state="new", act=partial(_written, agent))


def _written(agent: AgentName, ledger: Ledger) -> list[str]:
    path = hint_switch.file_of(agent)
    ledger.write(LedgerLine(what="recall", agent=agent, path=path))
    with write_errors(path, "written"):
        hint_switch.turn_on(agent)
    return [*agent_hooks.follow_recall(agent), f"Recall works while the service runs. {_OFF}"]


def undo(line: LedgerLine) -> list[str]:
    """Switch hints off for the agent in `line` of the ledger (setup's list of changes). Return notes for the person."""
    agent = AGENTS.registration_of(line.agent).agent
    with write_errors(line.path, "removed"):
        hint_switch.turn_off(agent)
    return list(agent_hooks.follow_recall(agent))


def difference(line: LedgerLine) -> str:
    """Return a complaint if setup switched hints on for the agent in `line` and they are off now; else empty text."""
    return "" if line.path.is_file() else "recall is off"


def checks(ledger: Ledger) -> Iterator[Check]:
    """Yield a check for ``doctor`` if setup has switched hints on. It fails if no service runs to look them up."""
    agents = [AGENTS.registration_of(line.agent) for line in ledger if line.what == "recall" and line.path.is_file()]
    if not agents:
        return
    asked = hint_switch.prompt_hint_counts()
    detail = (
        f"on for {AGENTS.titles(way.agent for way in agents)}; "
        f"suggested a session in {asked.told} of {asked.sessions} new sessions"
    )
    if find_service() is None:
        step = f"Start the service: `smart-fork service install`, or `smart-fork serve`. {_OFF}"
        yield Check("recall", ok=False, detail=f"{detail}; no service runs", next_step=step, optional=True)
    else:
        yield Check("recall", ok=True, detail=detail)
