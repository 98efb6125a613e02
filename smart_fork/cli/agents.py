"""The command ``agents``: the coding agents, their versions, and what smart-fork can do with each one."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from indexer.errors import joined
from indexer.json_values import Value, record, value
from indexer.store.base import Understood
from indexer.transcripts.model import AgentName
from smart_fork.agents import AGENTS
from smart_fork.agents.agent import Agent
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.programs import Program
from smart_fork.cli.output import out, plain, printed_as_json
from smart_fork.finding.index_access import known_index
from smart_fork.system.processes import Processes


@record
class AgentAtAGlance(Value):
    """An agent in the answer of ``agents``.

    `version` is installed (empty if unknown), `seen` is the version that smart-fork was tested with. `can` maps
    abilities to True or False, `why_not` those that it lacks to the reasons. `problem` is why its sessions cannot be
    forked, `unread` why they cannot be read.
    """

    name: AgentName
    title: str
    installed: bool
    path: str
    version: str
    seen: str
    sessions: int
    can: Mapping[str, bool]
    why_not: Mapping[str, str]
    problem: str = ""
    hint: str = ""
    unread: str = ""
    records: int = 0
    unknown_records: int = 0

    @property
    def against_seen(self) -> str:
        """The installed version compared with the tested one: "newer", "older", or empty for the same minor version."""
        return AGENTS[self.name].compared(self.version)


@value
class AgentsAtAGlance(Value):
    """The answer of ``agents``: all agents."""

    agents: tuple[AgentAtAGlance, ...]


def all_agents(env: Mapping[str, str] | None = None) -> AgentsAtAGlance:
    """Return all agents with their versions. The agents' programs print these, and run in parallel."""
    known = Processes()
    agents, logs = list(AGENTS), dict[AgentName, Understood]()
    with known_index() as store:
        logs.update(store.understood() if store else {})
    with ThreadPoolExecutor(max_workers=4, thread_name_prefix="agents") as pool:
        return AgentsAtAGlance(tuple(pool.map(lambda agent: _glance(agent, known, env, logs), agents)))


def _glance(
    agent: Agent, processes: Processes, env: Mapping[str, str] | None, logs: Mapping[AgentName, Understood]
) -> AgentAtAGlance:
    program = Program.of(agent.name, processes, env) if agent.command else None
    path = program.path if program else ""
    return AgentAtAGlance(
        name=agent.name, title=agent.title, installed=bool(path), path=path,
        version=program.version(processes, env) if program else "", seen=agent.seen, sessions=_sessions(agent.name),
        can=agent.abilities(), why_not=dict(agent.lacks), problem=program.problem if program else "",
        hint=program.hint if program else "", unread=READERS[agent.name].unread(),
        records=logs[agent.name].records if agent.name in logs else 0,
        unknown_records=logs[agent.name].unknown if agent.name in logs else 0,
    )  # fmt: skip


def _sessions(agent: AgentName) -> int:
    try:
        return sum(1 for _ in READERS[agent].discover())
    except OSError:
        return 0


def agents() -> None:
    """List the installed agents with versions and sessions, and what smart-fork can do with each one."""
    found = all_agents()
    if printed_as_json(found):
        return
    for one in found.agents:
        out.print(plain(f"{one.title:<14}", "bold"), _standing(one), sep="")
        able = (ability.words for name, ability in Agent.ABILITIES.items() if one.can[name])
        out.print(f"{'':<14}{'; '.join(able) or 'nothing yet'}")
        for name, why in one.why_not.items() if one.installed else ():
            out.print(plain(f"{'':<14}no {Agent.ABILITIES[name].words}: {why}", "dim"))
        if one.unknown_records:
            share = f"{one.unknown_records:,} of {one.records:,} records in its logs"
            out.print(f"{'':<14}{share} are of a type that smart-fork does not know")
        if one.unread:
            out.print(f"{'':<14}Its sessions cannot be read: {one.unread}")
        if one.problem and one.installed:
            out.print(f"{'':<14}{joined(one.problem, one.hint)}")


def _standing(one: AgentAtAGlance) -> str:
    where = one.path if one.installed else "not installed" if one.problem else "only read"
    version = one.version or ("of an unknown version" if one.installed else "")
    seen = f"{one.against_seen} than {one.seen}, which was tried" if one.against_seen else ""
    count = f"{one.sessions:,} session{'s' * (one.sessions != 1)}" if one.can["found"] else ""
    return ", ".join(filter(None, (where, version, seen, count)))
