"""The team's server, asked beside the own index. Where nobody has logged in, nothing of a team is imported."""

from __future__ import annotations

from smart_fork.retrieval.elsewhere import Elsewhere, is_known


def beside(*, wanted: bool | None = None) -> Elsewhere | None:
    """What asks the team's server: where it is known or `wanted`, and not where it is not (false)."""
    if wanted is False or not (wanted or is_known()):
        return None
    from smart_fork.team.find import TeamSearch

    return TeamSearch(wanted=wanted is True)
