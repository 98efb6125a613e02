"""``agents``: which are installed, in which versions, what they have written, and what each can do."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from indexer.errors import joined
from indexer.store.base import Understood
from indexer.transcripts.model import AgentName
from indexer.values import Value, record, value
from smart_fork.agents import AGENTS
from smart_fork.agents.agent import Agent
from smart_fork.agents.programs import look_at
from smart_fork.agents.readers import READERS
from smart_fork.agents.verbs import ABILITIES, abilities_of
from smart_fork.cli.output import out, plain, printed_as_json
from smart_fork.finding.index_access import known_index
from smart_fork.system.processes import Processes


@record
class AgentAtAGlance(Value):
    """One agent. `version` is empty where it does not say it, `seen` is the one that its part here was tried with.

    `sessions` counts its logs, `can` says by name what can be done with it, and `why_not` why something cannot.
    `problem` is why it cannot fork, and `unread` why none of its sessions can be read. `records` counts those in its
    indexed logs, `unknown_records` those among them of a type that smart-fork does not know.
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
        """How its version stands to the one that was seen, in a word; empty where they are of one minor version."""
        return AGENTS[self.name].compared(self.version)


@value
class AgentsAtAGlance(Value):
    """The answer of ``agents``."""

    agents: tuple[AgentAtAGlance, ...]


def roster(processes: Processes | None = None, env: Mapping[str, str] | None = None) -> AgentsAtAGlance:
    """All agents. Programs are asked for their versions at the same time."""
    known = processes or Processes()
    agents, logs = list(AGENTS), dict[AgentName, Understood]()
    with known_index() as store:
        logs.update(store.understood() if store else {})
    with ThreadPoolExecutor(max_workers=4, thread_name_prefix="agents") as pool:
        return AgentsAtAGlance(tuple(pool.map(lambda agent: _glance(agent, known, env, logs), agents)))


def _glance(
    agent: Agent, processes: Processes, env: Mapping[str, str] | None, logs: Mapping[AgentName, Understood]
) -> AgentAtAGlance:
    program = look_at(agent.name, processes, env) if agent.command else None
    path = program.path if program else ""
    return AgentAtAGlance(
        name=agent.name,
        title=agent.title,
        installed=bool(path),
        path=path,
        version=program.version(processes, env) if program else "",
        seen=agent.seen,
        sessions=_sessions(agent.name),
        can=abilities_of(agent),
        why_not=dict(agent.lacks),
        problem=program.problem if program else "",
        hint=program.hint if program else "",
        unread=READERS[agent.name].unread(),
        records=logs[agent.name].records if agent.name in logs else 0,
        unknown_records=logs[agent.name].unknown if agent.name in logs else 0,
    )


def _sessions(agent: AgentName) -> int:
    try:
        return sum(1 for _ in READERS[agent].discover())
    except OSError:
        return 0


def agents() -> None:
    """Which agents are installed, their versions and sessions, and what can be done with each."""
    found = roster()
    if printed_as_json(found):
        return
    for one in found.agents:
        out.print(plain(f"{one.title:<14}", "bold"), plain(_standing(one)), sep="")
        out.print(plain(f"{'':<14}{_abilities(one)}"))
        for name, why in one.why_not.items() if one.installed else ():
            out.print(plain(f"{'':<14}no {ABILITIES[name].words}: {why}", "dim"))
        if one.unknown_records:
            share = f"{one.unknown_records:,} of {one.records:,} records in its logs"
            out.print(plain(f"{'':<14}{share} are of a type that smart-fork does not know"))
        if one.unread:
            out.print(plain(f"{'':<14}Its sessions cannot be read: {one.unread}"))
        if one.problem and one.installed:
            out.print(plain(f"{'':<14}{joined(one.problem, one.hint)}"))


def _standing(one: AgentAtAGlance) -> str:
    where = one.path if one.installed else "not installed" if one.problem else "only read"
    version = one.version or ("of an unknown version" if one.installed else "")
    seen = f"{one.against_seen} than {one.seen}, which was tried" if one.against_seen else ""
    count = f"{one.sessions:,} session{'s' * (one.sessions != 1)}" if one.can["found"] else ""
    return ", ".join(filter(None, (where, version, seen, count)))


def _abilities(one: AgentAtAGlance) -> str:

    able = [ability.words for name, ability in ABILITIES.items() if one.can[name]]
    return "; ".join(able) or "nothing yet"
