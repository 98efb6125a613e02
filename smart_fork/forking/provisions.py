"""Supplies a worker's agent with the user's environment if it starts from a smaller one.

An agent hands its MCP servers a part of its environment, and a service has next to none. So what a person has set for
the agent that is to work is known by name, and read again where a person would have it read: by the login shell. What
cannot be had is told before anything starts, and a worker that could only say "Not logged in" is not started.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path

from indexer.lazy import dataclass
from indexer.settings import Setting
from indexer.transcripts.model import AgentName
from smart_fork.agents import AGENTS
from smart_fork.agents.login import Login, noted_variables
from smart_fork.agents.programs import Program
from smart_fork.agents.starter import ForkPlan
from smart_fork.errors import ForkRefused, advice
from smart_fork.system.login_shell import login_shell, values_of
from smart_fork.system.processes import Processes
from smart_fork.workers.place import WorkerPlace


class NotLoggedIn(ForkRefused):
    """The agent could not work: it would ask for a login."""

    code = "not_logged_in"


@dataclass(frozen=True, slots=True)
class Provisions:
    """Variables that a worker is given beside those of here, and what a person should know about it."""

    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    notes: tuple[str, ...] = ()

    def environment(self, plan: ForkPlan, env: Mapping[str, str]) -> dict[str, str]:
        """Return what the plan's program is started with, from one that has `env`."""
        return plan.environment({**env, **Program.path_for(plan.argv[0], env), **self.variables})


def provisions(
    agent: AgentName, program: str, place: WorkerPlace, processes: Processes, env: Mapping[str, str]
) -> Provisions:
    """Return the provisions of a worker in `place` for `agent`, given the environment `env`.

    Raises:
        NotLoggedIn: the agent says that it would not be logged in.
    """
    if place.replaces:  # a person sits there, whom the agent asks itself
        return Provisions()
    login = AGENTS.login_of(agent)
    wanted = dict.fromkeys((*noted_variables(agent), *login.required()))
    missing = [name for name in wanted if not env.get(name)]
    if not missing and login.is_plain(env):
        return Provisions()
    around = {**place.inherited(processes, env), **env}
    settled = login.settled()
    missing = [name for name in missing if name not in around and name not in settled]
    # A worker's home is the one that its session was found in: another one would not have it.
    given = values_of([name for name in missing if name != login.folder], env, processes)
    missing = [name for name in missing if name not in given]
    found = Program.standing(login, around | given, program, processes)
    whence = "its settings name" if found.lacks else "your environment had"
    lacks = _lacks(found.lacks or missing, whence, login_shell(env))
    if found.logged_in is not False or Setting.CHECK_LOGIN.is_off(env):
        return Provisions(
            given, (f"{AGENTS.title_of(agent)} starts with the login that it finds{lacks}",) if missing else ()
        )
    if sys.platform == "darwin" and not found.lacks:  # its keychain may be open where the worker runs
        return Provisions(given, (f"{AGENTS.title_of(agent)} says that it is not logged in here{lacks}",))
    raise NotLoggedIn(f"Nothing was started: {AGENTS.title_of(agent)} is not logged in here{lacks}", _step(login))


def _lacks(names: Sequence[str], whence: str, shell: str) -> str:
    """Name the missing variables as the end of a sentence; empty if none are missing."""
    if not names:
        return ""
    one = len(names) == 1
    asked = f", and your login shell ({Path(shell).name}) does not set {'it' if one else 'them'}" if shell else ""
    return f": {_listed(names)}, which {whence}, {'is' if one else 'are'} not set{asked}"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _step(login: Login) -> str:
    anyway = f"{Setting.CHECK_LOGIN}=false starts it anyway."
    return advice(
        f"Log in with `{login.command}`, or set it in the profile that your login shell reads. {anyway}",
        tool=f"Tell the user: log in with `{login.command}`, or set it in the profile of the login shell. {anyway}",
    )
