"""The commands ``verdict``, ``tag``, ``pin`` and ``archive``: what people note about sessions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from indexer.json_values import json_of
from smart_fork.cli.output import out, printed_as_json, say
from smart_fork.errors import Usage
from smart_fork.finding import session_notes
from smart_fork.system.processes import Processes
from smart_fork.workers.verdicts import NotedSession

SessionsArgument = Annotated[list[str], typer.Argument(metavar="ID…", help="Session ids, 8 characters or more.")]
SessionArgument = Annotated[str, typer.Argument(metavar="ID", help="Session id, 8 characters or more, or a worker.")]


def verdict(
    session: SessionArgument,
    outcome: Annotated[
        session_notes.VerdictKind | None, typer.Argument(help="What came of it. Default: print it.")
    ] = None,
    reason: Annotated[str, typer.Argument(help="Why, in a sentence.")] = "",
    remove: Annotated[bool, "Remove the verdict."] = False,
) -> None:
    """Note what came of a session. Results, lists and hints say it from then on.

    smart-fork itself notes forks that were merged or thrown away.

    Words starting with a dash go after "--":  smart-fork verdict ID dropped -- "-O3 broke it"
    """
    if remove and outcome:
        raise Usage("--remove takes no outcome", "Drop one of them.")
    if remove:
        told = NotedSession.unjudge(session)
    elif outcome:
        told = NotedSession.judge(session, outcome, reason)
    else:
        told = NotedSession.about(session, Processes())
    _print(told)


def tag(
    session: Annotated[str | None, typer.Argument(metavar="[ID]", help="Session. Default: list all tags.")] = None,
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]…", help="Tags. Default: list its tags.")] = None,
    remove: Annotated[bool, "Remove these tags."] = False,
) -> None:
    """Tag a session. `list --tag NAME` and `find --tag NAME` use tags.

    A tag has letters, digits and - _ . / and becomes lower case.
    """
    if session is None:
        counted = session_notes.tags()
        if not printed_as_json({"tags": counted}):
            for name, sessions in counted.items():
                out.print(f"{name}  {sessions}")
            if not counted:
                say("No session has a tag.")
        return
    tags = [session_notes.tag(one) for one in names or ()]
    if remove and not tags:
        raise Usage("Which tags?", "Name them after the session.")
    _print_marks(NotedSession.mark([session], tags, remove=remove))


def pin(sessions: SessionsArgument, remove: Annotated[bool, "Unpin."] = False) -> None:
    """Pin sessions. Pinned sessions come first in lists. Scores do not change."""
    _print_marks(NotedSession.mark(sessions, [session_notes.PINNED], remove=remove))


def archive(sessions: SessionsArgument, remove: Annotated[bool, "Take them out."] = False) -> None:
    """Archive sessions. Lists and recall leave them out. `find` still finds them."""
    _print_marks(NotedSession.mark(sessions, [session_notes.ARCHIVED], remove=remove))


def _print_marks(told: Sequence[NotedSession]) -> None:
    if printed_as_json({"sessions": json_of(told)}):
        return
    for one in told:
        marks = one.noted.marks if one.noted else []
        out.print(f"{one.agent_type} {one.session_id}: {', '.join(marks) or 'no tags'}")


def _print(told: NotedSession) -> None:
    if printed_as_json(told):
        return
    for sentence in told.noted.sentences if told.noted else ():
        out.print(sentence)
    if not told.noted or not told.noted.verdict:
        say(f"What came of {told.session_id} is not noted.")
