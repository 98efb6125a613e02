"""The setup step that keeps copies of logs that their agent deletes. Only if it is wanted."""

from __future__ import annotations

import time
from collections.abc import Collection
from functools import partial

from indexer import kept_logs
from indexer.safe_files import private_dir, remove, replace_file
from indexer.transcripts.model import AgentName
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.log_retention import Deletion
from smart_fork.cli.setup.ledger import Ledger, LedgerLine, Step, switching, take_away

NAME = "copies of logs"
_STAYS = "Existing copies stay; `smart-fork forget ID` removes one."
_REFUSED = "SMART_FORK_KEEP_TRANSCRIPTS disables copies"


def planned(deletion: Deletion, *, wanted: bool) -> Step:
    """Return the step that keeps copies of one agent's logs; it is left out where it is not wanted."""
    path = kept_logs.switch_of(deletion.agent)
    step = partial(Step, "keep", NAME, str(path.parent.parent), agent=deletion.agent)
    said = f"{deletion.in_words()}."
    if deletion.kept:
        return step("there")
    if kept_logs.copies_refused():
        return step("left", why=f"{said} {_REFUSED}")
    if not wanted:
        return step("left", why=f"{said} --keep-logs keeps compressed copies, {deletion.room()}")
    return step(
        "new",
        why=f"{said} Copies take {deletion.room()}; only you can read them; secrets are not masked",
        act=partial(_written, deletion),
    )


def offered(agents: Collection[AgentName]) -> list[Deletion]:
    """Return the deletions of these agents for which a person can still choose copies."""
    found = Deletion.expected(time.time(), agents)
    return [one for one in found if not one.kept and not kept_logs.copies_refused()]


def _written(deletion: Deletion, ledger: Ledger) -> list[str]:
    path = kept_logs.switch_of(deletion.agent)
    ledger.begin(LedgerLine(what="keep", agent=deletion.agent, path=path))
    with switching(path, "written"):
        private_dir(path.parent)
        replace_file(path, [b""])
    return []


def undo(line: LedgerLine) -> list[str]:
    """Keep no more of them.

    Raises:
        SmartForkError: that cannot be written.
    """
    with switching(line.path, "removed"):
        remove(line.path)
        take_away(line.path, line.folders)
    return [_STAYS]


def standing(line: LedgerLine) -> str:
    """Say that copies are off again; empty while they are kept."""
    return "" if kept_logs.copies_wanted(READERS[line.agent]) else "logs are no longer copied"
