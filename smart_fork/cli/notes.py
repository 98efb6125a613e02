"""``verdict``."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from smart_fork.cli.output import out, plain, printed_as_json, say
from smart_fork.errors import Usage

if TYPE_CHECKING:
    from smart_fork.workers.outcomes import NotedSession


class OutcomeChoice(StrEnum):
    """What can have come of a session's work."""

    merged = "merged"
    kept = "kept"
    dropped = "dropped"


SessionArgument = Annotated[str, typer.Argument(metavar="ID", help="Session id, 8 characters or more, or a worker.")]


def verdict(
    session: SessionArgument,
    outcome: Annotated[OutcomeChoice | None, typer.Argument(help="What came of it. Default: print it.")] = None,
    reason: Annotated[str, typer.Argument(help="Why, in a sentence.")] = "",
    remove: Annotated[bool, typer.Option("--remove", help="Remove the verdict.")] = False,
) -> None:
    """Note what came of a session. Results, lists and hints say it from then on.

    smart-fork itself notes forks that were merged or thrown away.

    Words starting with a dash go after "--":  smart-fork verdict ID dropped -- "-O3 broke it"
    """
    from smart_fork.system.processes import SystemProcesses
    from smart_fork.workers import outcomes

    if remove and outcome:
        raise Usage("--remove takes no outcome", "Drop one of them.")
    if remove:
        told = outcomes.unjudge(session)
    elif outcome:
        told = outcomes.judge(session, outcome.value, reason)
    else:
        told = outcomes.about(session, SystemProcesses())
    _print(told)


def _print(told: NotedSession) -> None:
    if printed_as_json(told):
        return
    for sentence in told.noted.sentences if told.noted else ():
        out.print(plain(sentence))
    if not told.noted or not told.noted.verdict:
        say(f"What came of {told.session_id} is not noted.")
