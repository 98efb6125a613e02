"""``forget``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from indexer import state
from indexer.transcripts.lines import bounded
from smart_fork.cli.options import YesOption
from smart_fork.cli.output import NOT_ERASED, err, out, plain, printed_as_json, wants_json
from smart_fork.cli.progress import working
from smart_fork.errors import NotFound, SmartForkError, Usage
from smart_fork.finding import sessions
from smart_fork.finding.results import title
from smart_fork.removal import sessions as session_removal


def forget(
    session: Annotated[str, typer.Argument(help="Session id, 8 characters or more.")],
    undo: Annotated[bool, "Allow indexing again."] = False,
    yes: YesOption = False,
) -> None:
    """Remove all that smart-fork holds of a session, for good. The agent's own log is not touched."""
    if not (undo or yes):
        _ask(session)
    with working("indexing it again" if undo else "erasing"):
        done = session_removal.undo(session) if undo else session_removal.forget(session)
    if printed_as_json(done):
        return
    what = f"{done.agent_type} {done.session_id}"
    if undo:
        there = "it is indexed again" if done.jsonl_path else "but nothing of it is left to index"
        out.print(plain(f"{what} is no longer forgotten; {there}."))
        return
    out.print(plain(f"{what} is forgotten."))
    if not done.erased:
        err.print(plain(NOT_ERASED))
    for one in done.left or ():
        err.print(plain(f"It is still in {one.path}: {one.reason}"))
    if done.jsonl_path:
        err.print(plain(f"The agent still has its log: {done.jsonl_path}"))
        if shared := _shared(Path(done.jsonl_path), done.agent_type):
            err.print(plain(f"It was shared. Withdraw it: smart-fork team delete {shared} --everywhere"))


@bounded()
def _ask(reference: str) -> None:
    """Have the person confirm it, who sees what it is about.

    Raises:
        Usage: there is nobody to ask.
    """
    located = sessions.locate(reference)
    if wants_json() or not sys.stdin.isatty():
        raise Usage("A forgotten session cannot be restored", "Add --yes to do it without a question.")
    try:
        about = f": {title(sessions.look_into(located).title)}"
    except NotFound:
        about = ""
    err.print(plain(f"{located.agent} {located.session_id}{about}"))
    typer.confirm("Forget it for good?", abort=True, err=True)


def _shared(path: Path, agent: str) -> str | None:
    """Return the id under which a log is shared; `None` if no log of this machine is."""
    if not state.rows("SELECT 1 FROM pulled LIMIT 1"):
        return None
    from smart_fork.agents.readers import READERS
    from smart_fork.team.pulled import pushed_as

    if agent not in READERS.names:
        return None
    try:
        return pushed_as(path, agent)
    except SmartForkError:
        return None
