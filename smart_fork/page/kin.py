"""The family of a session, and how two of it differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from indexer.shapes import dataclass
from smart_fork.agents import AGENTS
from smart_fork.agents.references import reference
from smart_fork.errors import SmartForkError
from smart_fork.page.renderer import PageValues
from smart_fork.page.session import located

if TYPE_CHECKING:
    from smart_fork.families.told import Family
    from smart_fork.page.differences import OwnWork
    from smart_fork.page.parting import Parting
    from smart_fork.page.timeline import Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyPage(PageValues):
    """A family, and its lines on a time line; what each of it has for itself, and the `best` one to fork, if any."""

    family: Family
    line: Timeline
    titles: Mapping[str, str]
    own: Mapping[str, OwnWork]
    best: str
    first: str
    second: str
    parted: Parting | None = None
    parted_problem: str = ""


def related(place: Mapping[str, str], asked: Mapping[str, str]) -> FamilyPage:
    """The family of a session, its lines on a time line, and how two of it differ that are `asked` for.

    Raises:
        SmartForkError: there is no such session, or it cannot be read.
    """
    from smart_fork.families.lineage import lineage
    from smart_fork.page.differences import best_of, names_of, own_works
    from smart_fork.page.timeline import timeline

    family = lineage(located(place).reference)
    own = own_works(family.sessions)
    titles = names_of(family.sessions, own)
    parent = next((one.parent for one in family.sessions if one.session_id == family.session_id), None)
    first, second = asked.get("a") or parent or family.session_id, asked.get("b") or family.session_id
    parted, problem = _parted(family, first, second) if asked.get("a") and asked.get("b") else (None, "")
    return FamilyPage(
        family=family,
        first=first,
        second=second,
        parted=parted,
        parted_problem=problem,
        line=timeline(family.sessions),
        titles=titles,
        own=own,
        best=best_of(family.sessions),
    )


def _parted(family: Family, first: str, second: str) -> tuple[Parting | None, str]:
    """How two sessions of a family differ, or why that is not told."""
    from smart_fork import sessions
    from smart_fork.page.parting import parting

    members = {one.session_id: reference(one.agent_type, one.session_id) for one in family.sessions}
    if first == second or not {first, second} <= members.keys():
        return None, "Choose two different sessions of this family."
    try:
        one, other = (sessions.look_into(sessions.locate(members[name]), keep_raw=True) for name in (first, second))
    except SmartForkError as error:
        return None, error.message
    return parting(one, other, (AGENTS[one.agent].codec, AGENTS[other.agent].codec)), ""
