"""A question put to no agent by name: where the one asked first has nothing that fits, all of them are searched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from smart_fork.agents.facets import title_of
from smart_fork.agents.selection import ALL, BOTH, titles
from smart_fork.finding.answer import Answer, Found, Hit, RecentSession
from smart_fork.finding.engine import OWN
from smart_fork.finding.ranking import FITS
from smart_fork.finding.request import FindRequest


def find_in_all(request: FindRequest, find: Callable[[FindRequest], Answer]) -> Answer:
    """`find` for the one agent of the request; where nothing fits, for all of them, and ``agents_notice`` says so.

    Raises:
        Usage: see `find`.
    """
    if request.code:  # whoever wrote it is meant
        return find(replace(request, agent_type=ALL))
    own = find(request)
    if not isinstance(own, Found) or own.agent_type in (BOTH, ALL) or fits(own):
        return own
    widened = find(replace(request, agent_type=ALL))
    asked = own.agent_type
    others = {one.agent_type for one in _sessions(widened)} - {asked}
    none = f"No session of {title_of(asked)} fits"
    if not others or not isinstance(widened, Found):
        return replace(own, agents_notice=f"{none}; other agents' sessions were searched too")
    found = titles(sorted(others))
    starts = f"a fork of one of these starts {found}, not {title_of(asked)}"
    return replace(widened, agents_notice=f"{none}, so sessions of {found} were searched too: {starts}")


def fits(answer: Found) -> bool:
    """Whether the session that is meant may be among them: sessions that are alike share its chance.

    Another engine's scores are no chances.
    """
    return bool(answer.results) and (answer.engine != OWN or sum(hit.score for hit in answer.results) >= FITS)


def _sessions(answer: Answer) -> list[Hit | RecentSession]:
    return [*(answer.results if isinstance(answer, Found) else ()), *(answer.fallback_sessions or ())]
