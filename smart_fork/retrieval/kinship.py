"""Which sessions are of one family, also where one was told to another agent: of those only one is a result."""

from __future__ import annotations

from collections.abc import Iterable

from indexer.paths import state_home
from indexer.store.base import SessionRow


def family_of(session: SessionRow) -> str:
    """The family that its own log says it is of."""
    return session.root_id or session.session_id


def families(sessions: Iterable[SessionRow]) -> dict[int, str]:
    """The family of each of these sessions, by its row."""
    sessions = list(sessions)
    own = {one.session_id: family_of(one) for one in sessions}
    above = _above(own)
    return {one.row: _first(own[one.session_id], above) for one in sessions}


def _above(own: dict[str, str]) -> dict[str, str]:
    """Of each family that begins with another agent's session that one's, as far as it is known."""
    if not (state_home() / "handovers").is_dir():  # who has handed nothing over waits for no import
        return {}
    from smart_fork import handovers

    told = (one for one in handovers.all_known() if not one.merged and not one.copied and one.session_id in own)
    return {own[one.session_id]: own.get(one.source_session_id, one.source_session_id) for one in told}


def _first(family: str, above: dict[str, str]) -> str:
    seen = {family}
    while (before := above.get(family)) is not None and before not in seen:
        seen.add(before)
        family = before
    return family
