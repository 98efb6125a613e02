"""The part of the setup that copies session logs of agents that delete old ones."""

from __future__ import annotations

import time
from collections.abc import Collection
from functools import partial

from indexer import kept_logs
from indexer.safe_files import private_dir, remove, replace_file
from indexer.transcripts.model import AgentName
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.log_retention import Deletion
from smart_fork.cli.setup.foreign_file import write_errors
from smart_fork.cli.setup.ledger import Ledger, LedgerLine
from smart_fork.cli.setup.step import Step

NAME = "copies of logs"
_STAYS = "Existing copies stay; `smart-fork forget ID` removes one."
_REFUSED = "SMART_FORK_KEEP_TRANSCRIPTS disables copies"


def planned(deletion: Deletion, *, wanted: bool) -> Step:
    """Return the step that switches on copies of one agent's logs. `deletion` says when the agent deletes them.

    If the copies are not `wanted`, it has the state "left": it is not done.
    """
    path = kept_logs.switch_of(deletion.agent)
    step = partial(Step, "keep", NAME, str(path.parent.parent), agent=deletion.agent)
    said = f"{deletion.in_words()}."
    if deletion.kept:
        return step("there")
    if kept_logs.copies_refused():
        return step("left", why=f"{said} {_REFUSED}")
    if not wanted:
        return step("left", why=f"{said} --keep-logs keeps compressed copies, {deletion.room()}")
    why = f"{said} Copies take {deletion.room()}; only you can read them; secrets are not masked"
    return step("new", why=why, act=partial(_written, deletion))


def offered(agents: Collection[AgentName]) -> bool:
    """Return True if one of `agents` deletes logs that smart-fork could copy, and does not copy yet."""
    refused = kept_logs.copies_refused()
    return any(not (one.kept or refused) for one in Deletion.expected(time.time(), agents))


def _written(deletion: Deletion, ledger: Ledger) -> list[str]:
    path = kept_logs.switch_of(deletion.agent)
    ledger.begin(LedgerLine(what="keep", agent=deletion.agent, path=path))
    with write_errors(path, "written"):
        private_dir(path.parent)
        replace_file(path, [b""])
    return []


def undo(line: LedgerLine) -> list[str]:
    """Stop copying the logs of the agent of `line`. Return a note that existing copies stay."""
    with write_errors(line.path, "removed"):
        remove(line.path)
    return [_STAYS]


def difference(line: LedgerLine) -> str:
    """Return a complaint if the logs of the agent of `line` are no longer copied; else an empty text."""
    return "" if kept_logs.copies_wanted(READERS[line.agent]) else "logs are no longer copied"
