"""``agents``."""

from __future__ import annotations

from smart_fork.agent_roster import AgentAtAGlance, roster
from smart_fork.agents.verbs import ABILITIES
from smart_fork.cli.output import out, plain, printed_as_json
from smart_fork.errors import joined


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
