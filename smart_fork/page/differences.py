"""What each session of a family has for itself, and which of them is the best to fork, as results count it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from indexer.masking import mask
from indexer.outcome import Outcome, outcome_of
from indexer.project import project_of, recorded
from indexer.shapes import dataclass
from indexer.transcripts.model import Session
from smart_fork.agents import READERS
from smart_fork.errors import IndexUnavailable
from smart_fork.families.told import Relative
from smart_fork.page.parting import OwnBeginning, own_beginning
from smart_fork.page.phrases import inside
from smart_fork.page.reading import asked_in_short
from smart_fork.retrieval.index_access import opened
from smart_fork.retrieval.worth import worth_of
from smart_fork.system.processes import SystemProcesses
from smart_fork.text.snippets import printable

#: How many files are named; how many logs are read for that, and how much of them.
MOST_FILES = 3
MOST_READ, MOST_BYTES = 60, 100_000_000
#: What speaks for a session by itself.
_GOOD = (Outcome.COMMITTED, Outcome.TESTS_PASSED)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OwnWork:
    """What a session has for itself: what was asked there first, the files that it edited, and what became of it."""

    question: str
    files: tuple[str, ...]
    outcome: Outcome

    @property
    def named(self) -> tuple[str, ...]:
        """The files that are named."""
        return self.files[:MOST_FILES]

    @property
    def more(self) -> int:
        """How many are not."""
        return max(0, len(self.files) - MOST_FILES)


def own_works(family: Sequence[Relative]) -> Mapping[str, OwnWork]:
    """What each session has since it left the one that it was forked from. What cannot be read is left out."""
    read = dict(_read(family))
    found = {}
    for one in family:
        session, parent = read.get(one.session_id), read.get(one.parent or "")
        if session is not None and (parent is not None or not one.parent):
            found[one.session_id] = own_work(session, parent)
    return found


def own_work(session: Session, parent: Session | None) -> OwnWork:
    """What a session has behind what it shares with its parent; all of it, where it has none. Pure."""
    begun = own_beginning(session, parent) if parent is not None else OwnBeginning(0, 0)
    turns = session.turns[begun.done :]
    failed = {one.tool_use_id for turn in turns for one in turn.tool_results if one.is_error}
    files = dict.fromkeys(
        printable(mask(inside(path, session.cwd)))
        for turn in turns
        for call in turn.tool_calls
        if call.id not in failed
        for path in call.edits
    )
    question = next((turn.text for turn in session.turns[begun.asked :] if turn.prompt), "")
    return OwnWork(asked_in_short(question), tuple(files), outcome_of(session))


def names_of(family: Sequence[Relative], own: Mapping[str, OwnWork]) -> Mapping[str, str]:
    """What each session is called here: a fork that has its parent's title is, by what was asked there first. Pure."""
    titles = {one.session_id: one.title for one in family}
    names = {}
    for one in family:
        inherited = titles.get(one.parent or "", "")
        work = own.get(one.session_id)
        repeats = bool(inherited) and one.title.startswith(inherited)
        names[one.session_id] = (work.question if work and repeats else "") or one.title or one.session_id
    return names


def best_of(family: Iterable[Relative]) -> str:
    """The id of the session that results would put first of those that answer equally well; empty where none is proven.

    It is one whose work was committed or passed its tests.
    """
    known = [one for one in family if not one.log_gone]
    if len(known) < 2:
        return ""
    directory = recorded(known[0].working_directory) or Path("/")
    try:
        with opened() as store:
            rows = [row for one in known if (row := store.session(one.agent_type, one.session_id))]
            rows = [row for row in rows if row.outcome in _GOOD]
            worth = worth_of(rows, store, project_of(directory), directory, SystemProcesses())
    except IndexUnavailable:
        return ""
    return min(rows, key=lambda row: worth[row.row].key).session_id if rows else ""


def _read(family: Sequence[Relative]) -> Iterable[tuple[str, Session]]:
    left = MOST_BYTES
    for one in family[:MOST_READ]:
        path = Path(one.jsonl_path) if one.jsonl_path else None
        try:
            left -= path.stat().st_size if path else 0
            session = READERS[one.agent_type].read(path).session if path and left >= 0 else None
        except OSError as error:  # the others can be read
            log.info("%s cannot be read: %s", path, error)
            continue
        if session is not None:
            yield one.session_id, session
