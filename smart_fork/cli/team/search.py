"""``find``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from smart_fork.cli.found import print_hits
from smart_fork.cli.output import printed_as_json, say
from smart_fork.cli.search import AlsoOption
from smart_fork.cli.team.group import app
from smart_fork.cli.team.words import TeamPlace

if TYPE_CHECKING:
    from smart_fork.retrieval.request import FindRequest


@app.command("find")
def find(
    *,
    intent: Annotated[str, typer.Argument(help="What you want to do next, in a sentence.")],
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=50, help="Number of results.")] = 5,
    min_score: Annotated[
        float | None, typer.Option("--min-score", min=0, max=1, help="Lowest score of a result, from 0 to 1.")
    ] = None,
    also: AlsoOption = None,
    place: TeamPlace,
) -> None:
    """Search only the team's sessions."""
    from smart_fork.retrieval.request import FindRequest

    find_shared(FindRequest(intent, limit=limit, min_score=min_score, also=also), place)


def find_shared(request: FindRequest, place: TeamPlace) -> None:
    """Search them and print what is found; exit 3 if nothing is.

    Raises:
        SmartForkError: nobody has logged in, or the server does not answer.
    """
    from smart_fork.team.find import find_there

    found = find_there(request, server=place.server, project=place.project)
    if not printed_as_json(found):
        print_hits(found.results)
        if not found.results:
            say(f"Nothing found in {found.team.sessions} sessions of {found.team.project} on {found.team.server}.")
    if not found.results:
        raise typer.Exit(3)
