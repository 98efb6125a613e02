"""``find``."""

from __future__ import annotations

from typing import Annotated

import typer

from smart_fork.cli.output import printed_as_json, say
from smart_fork.cli.search import AlsoOption, print_hits
from smart_fork.cli.team.group import app
from smart_fork.cli.team.words import KeyOption, ServerOption


@app.command("find")
def find(  # noqa: PLR0917 - typer's way
    intent: Annotated[str, typer.Argument(help="What you want to do next, in a sentence.")],
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=50, help="Number of results.")] = 5,
    min_score: Annotated[
        float | None, typer.Option("--min-score", min=0, max=1, help="Lowest score of a result, from 0 to 1.")
    ] = None,
    also: AlsoOption = None,
    server: ServerOption = None,
    project: KeyOption = None,
) -> None:
    """Search only the team's sessions."""
    find_shared(
        intent, also=also, limit=limit, min_score=min_score, snippets=True, server=server,
        project=project,
    )  # fmt: skip


def find_shared(
    intent: str, *, also: list[str] | None, limit: int, min_score: float | None, snippets: bool,
    server: str | None = None, project: str | None = None,
) -> None:  # fmt: skip
    """Search them alone and print what is found; without any, exit 3.

    Raises:
        SmartForkError: nobody has logged in, or the server does not answer.
    """
    from indexer.models import configured_embedder
    from smart_fork.team.find import find_there

    found = find_there(
        intent, tuple(also or ()), server=server, project=project, limit=limit, min_score=min_score, snippets=snippets,
        embedder=configured_embedder(),
    )  # fmt: skip
    if not printed_as_json(found):
        print_hits(found.results)
        if not found.results:
            say(f"Nothing found in {found.team.sessions} sessions of {found.team.project} on {found.team.server}.")
    if not found.results:
        raise typer.Exit(3)
