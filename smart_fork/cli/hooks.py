"""``setup hooks``, and ``hook``, which the agents run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from indexer.transcripts.model import AgentName
from smart_fork.agents import AGENTS
from smart_fork.agents.selection import ALL, BOTH, one_of, settable, to_set_up
from smart_fork.cli.output import out, plain, print_json, printed_as_json, say, say_notes
from smart_fork.errors import SmartForkError

if TYPE_CHECKING:
    from smart_fork.setup.setup_answer import HooksChanged

_NAMES = one_of((*settable(), BOTH, ALL), "")
AgentOption = Annotated[list[str] | None, typer.Option("--agent", help=f"Agent: {_NAMES}. Repeatable. Default: all.")]


def hooks(
    agent: AgentOption = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the hooks.")] = False,
    only_print: Annotated[bool, typer.Option("--print", help="Print the changes. Change nothing.")] = False,
) -> None:
    """Install hooks, so that agents report what their workers do."""
    from smart_fork.hooks import agent_settings
    from smart_fork.setup.setup_answer import HooksSet

    named = agent or []
    agents = [one for one in to_set_up(named) if AGENTS[one].hooks or one in named]
    if only_print:
        print_json({one: agent_settings.wanted(one) for one in agents})
        return
    done = [_changed(one, remove=remove, wanted=one in named) for one in agents]
    if not printed_as_json(HooksSet(not any(one.error for one in done), tuple(done))):
        _print_changes(done)
    if any(one.error for one in done):
        raise typer.Exit(1)


def _changed(agent: AgentName, *, remove: bool, wanted: bool) -> HooksChanged:
    """What was done for one agent. One that is not there, or that failed, does not keep the other from it."""
    from smart_fork.hooks import agent_settings
    from smart_fork.setup.setup_answer import HooksChanged

    path = agent_settings.settings_file(agent)
    told = HooksChanged(agent=agent, path=str(path))
    registration = AGENTS[agent].registration
    folder = registration.home() if registration else path.parent
    if not wanted and not folder.is_dir():
        return replace(told, notes=(f"{agent} has never run here: there is no {folder}",))
    try:
        change = agent_settings.remove(agent) if remove else agent_settings.install(agent)
    except SmartForkError as error:
        return replace(told, error=error.message, hint=error.hint)
    return replace(told, changed=change.changed, installed=change.installed, notes=change.notes)


def _print_changes(done: list[HooksChanged]) -> None:
    for one in done:
        if one.error:
            say(f"error: {one.error}")
            say(f"  {one.hint}")
            continue
        if one.notes and not (one.installed or one.changed):  # such as an agent that has never run here
            out.print(*map(plain, one.notes), sep="\n")
            continue
        what = "hooks are installed in" if one.installed else "no smart-fork hooks in"
        out.print(plain(f"{one.agent}: {what} {one.path}"))
        say_notes(one.notes)
    if not any(one.changed or one.error for one in done):
        say("Nothing changed.")


def hook(agent: Annotated[str, typer.Argument(help="Name of the agent that runs it.")] = "") -> None:
    """For the agents: take one event from stdin, in silence. They run the module itself, which starts faster."""
    from smart_fork.hooks.__main__ import main

    main(agent)
